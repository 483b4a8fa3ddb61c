"""A network small enough to be written out by hand, batches for it, and Adam written out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm.models import Normalized
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch
from driftnorm.training.domains.network import BatchNormMode, DomainNetwork
from driftnorm.training.loop import TrainState

CLASSES, DOMAINS, SIDE = 3, 3, 6
MEAN, STD = (0.4, 0.5), (0.3, 0.2)


class TinyNet(nn.Module):
    """Three stages of convolution, batch norm and ReLU; two channels in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = self._stage(2, 3)
        self.layer2 = self._stage(3, 4)
        self.layer3 = self._stage(4, 5)
        self.fc = nn.Linear(5, CLASSES)

    @staticmethod
    def _stage(channels_in: int, channels_out: int) -> nn.Sequential:
        convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def tiny_model(seed: int = 0) -> Normalized:
    """In double precision, with statistics and affine parameters as training leaves them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = TinyNet().double()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.4, 1.6)
                nn.init.uniform_(module.weight, 0.6, 1.4)
                nn.init.normal_(module.bias, 0, 0.3)
        return Normalized(network, MEAN, STD).double().eval()


def domain_network(mode: BatchNormMode = "frozen", seed: int = 0) -> DomainNetwork:
    return DomainNetwork(tiny_model(seed), mode)


def domain_batch(step: int, size: int = 4) -> DomainBatch:
    """The batch of a step, as a pure function of its number."""
    draws = np.random.default_rng([5, step])
    minibatches = []
    for domain in range(DOMAINS):
        images = draws.random((size, 2, SIDE, SIDE)) * (0.5 + 0.25 * domain)
        labels = draws.integers(0, CLASSES, size)
        minibatches.append(Minibatch(torch.from_numpy(images), torch.from_numpy(labels)))
    return DomainBatch(tuple(minibatches), np.random.default_rng([7, step]))


def train_steps(
    algorithm: Algorithm, state: TrainState, steps: Iterable[int], size: int = 4
) -> list[dict[str, float]]:
    """Trains as the loop does: random numbers follow from the number of the step."""
    losses = []
    algorithm.train()
    for step in steps:
        torch.manual_seed(100 + step)
        losses.append(dict(algorithm.step(state, domain_batch(step, size))))
    return losses


def started(algorithm: Algorithm) -> TrainState:
    return TrainState(algorithm, algorithm.optimizers())


class Numbers:
    """The tensors of an algorithm's state dict, for computations written out by hand."""

    def __init__(self, algorithm: Algorithm) -> None:
        trained = dict(algorithm.named_parameters())
        self.tensors = {
            name: tensor.detach().clone().requires_grad_(name in trained)
            for name, tensor in algorithm.state_dict().items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def batch_norm(self, x: Tensor, name: str, trained: bool) -> Tensor:
        """With the running statistics, or with the batch's, which then move the running ones."""
        mean, var = self[f"{name}.running_mean"], self[f"{name}.running_var"]
        if trained:
            count = x.numel() / x.shape[1]
            new_mean = x.sum((0, 2, 3)) / count
            new_var = ((x - new_mean[:, None, None]) ** 2).sum((0, 2, 3)) / count
            with torch.no_grad():
                mean.mul_(0.9).add_(0.1 * new_mean)
                var.mul_(0.9).add_(0.1 * new_var * count / (count - 1))
                self[f"{name}.num_batches_tracked"].add_(1)
            mean, var = new_mean, new_var
        normalised = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5) ** 0.5
        weight, bias = self[f"{name}.weight"], self[f"{name}.bias"]
        return normalised * weight[:, None, None] + bias[:, None, None]

    def stage(self, x: Tensor, prefix: str, number: int, trained: bool) -> Tensor:
        name = f"{prefix}.layer{number}"
        x = F.conv2d(x, self[f"{name}.0.weight"], padding=1)
        return self.batch_norm(x, f"{name}.1", trained).clamp(min=0)

    def features(self, images: Tensor, trained: bool = False) -> Tensor:
        x = normalised(images)
        for number in (1, 2, 3):
            x = self.stage(x, "network.featurizer.network", number, trained)
        return x.mean((2, 3))

    def linear(self, features: Tensor, name: str = "network.classifier") -> Tensor:
        return features @ self[f"{name}.weight"].T + self[f"{name}.bias"]

    def assert_same(self, algorithm: Algorithm) -> None:
        state = algorithm.state_dict()
        assert state.keys() == self.tensors.keys()
        for name, tensor in state.items():
            torch.testing.assert_close(
                tensor, self[name].detach(), rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
            )


def normalised(images: Tensor) -> Tensor:
    mean, std = torch.tensor(MEAN), torch.tensor(STD)  # the model rounds them to float32 too
    return (images - mean.double()[:, None, None]) / std.double()[:, None, None]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    losses = [
        torch.log(sum(torch.exp(value) for value in row)) - row[label]
        for row, label in zip(logits, labels, strict=True)
    ]
    return sum(losses) / len(losses)


class SlowAdam:
    """Kingma and Ba's algorithm 1, with L2 in the gradient."""

    def __init__(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        self.parameters, self.lr, self.weight_decay, self.time = parameters, lr, weight_decay, 0
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]

    def step(self, gradients: Iterable[Tensor]) -> None:
        self.time += 1
        with torch.no_grad():
            for i, gradient in enumerate(gradients):
                own = gradient + self.weight_decay * self.parameters[i]
                self.first[i] = 0.9 * self.first[i] + 0.1 * own
                self.second[i] = 0.999 * self.second[i] + 0.001 * own**2
                first = self.first[i] / (1 - 0.9**self.time)
                second = self.second[i] / (1 - 0.999**self.time)
                self.parameters[i] -= self.lr * first / (second**0.5 + 1e-8)

    def descend(self, loss: Tensor) -> None:
        self.step(torch.autograd.grad(loss, self.parameters, retain_graph=True))
