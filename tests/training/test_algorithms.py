"""ERM, GroupDRO, Mixup, CORAL, MMD, IRM and RSC against slow literal steps."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from domain_literals import (
    DECAY,
    DOMAINS,
    LR,
    Literal,
    at_percentile,
    coral_distance,
    cross_entropy,
    erm_loss,
    groupdro_loss,
    irm_loss,
    matching_loss,
    mixup_loss,
    mmd_distance,
    rsc_features_loss,
    rsc_maps_loss,
)
from torch import Tensor, nn

from driftnorm.models import Normalized, build
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch
from driftnorm.training.domains.algorithms.coral import CORAL
from driftnorm.training.domains.algorithms.erm import ERM
from driftnorm.training.domains.algorithms.groupdro import GroupDRO
from driftnorm.training.domains.algorithms.irm import IRM
from driftnorm.training.domains.algorithms.mixup import Mixup
from driftnorm.training.domains.algorithms.mmd import MMD
from driftnorm.training.domains.algorithms.rsc import RSC, highest
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState

CLASSES = 3
SIZES = (6, 5, 7)


def conv_stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.ReLU())


class TinyNet(nn.Module):
    def __init__(self, stride: int = 2) -> None:
        super().__init__()
        self.layer1 = conv_stage(1, 4, 1)
        self.layer2 = conv_stage(4, 5, stride)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


class TwiceActive(TinyNet):
    """Not the mean of its last stage alone."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)).square())


def domain_network(mode: str = "trained", dropout: float = 0.25, seed: int = 1) -> DomainNetwork:
    torch.manual_seed(seed)
    return DomainNetwork(TinyNet(), mode, dropout)


def domain_batch(step: int, dtype: torch.dtype = torch.float64, sizes=SIZES) -> DomainBatch:
    generator = torch.Generator().manual_seed(step)
    parts = [
        Minibatch(
            torch.rand(size, 1, 8, 8, generator=generator, dtype=dtype) ** (1 + domain),
            torch.randint(CLASSES, (size,), generator=generator),
        )
        for domain, size in enumerate(sizes)
    ]
    return DomainBatch(tuple(parts), np.random.default_rng([7, step]))


RSC_SHARES = {"f_drop": 0.3, "b_drop": 0.4}
CASES: dict[str, tuple[Callable[..., Algorithm], Callable[[Literal, DomainBatch], Tensor]]] = {
    "erm": (ERM, erm_loss),
    "groupdro": (partial(GroupDRO, eta=0.5), groupdro_loss),
    "mixup": (partial(Mixup, alpha=0.7), mixup_loss),
    "coral": (partial(CORAL, gamma=0.6), partial(matching_loss, coral_distance)),
    "mmd": (partial(MMD, gamma=0.6), partial(matching_loss, mmd_distance)),
    "irm": (partial(IRM, penalty_weight=30.0, anneal_steps=2), irm_loss),
    "rsc-paper": (partial(RSC, **RSC_SHARES), rsc_maps_loss),
    "rsc-domainbed": (partial(RSC, reading="domainbed", **RSC_SHARES), rsc_features_loss),
}
JOINT = ("erm", "irm", "rsc-paper", "rsc-domainbed")


def started(case: str, network: DomainNetwork) -> tuple[Algorithm, TrainState]:
    algorithm = CASES[case][0](network, DOMAINS, lr=LR, weight_decay=DECAY).train()
    algorithm.to(next(network.parameters()).dtype)
    return algorithm, TrainState(algorithm, algorithm.optimizers())


def steps(state: TrainState, numbers: range) -> list[float]:
    losses = []
    for number in numbers:
        torch.manual_seed(number)
        dtype = next(state.module.parameters()).dtype
        losses.append(state.module.step(state, domain_batch(number, dtype))["loss"])
    return losses


@pytest.mark.parametrize("mode", ["frozen", "trained"])
@pytest.mark.parametrize("case", CASES)
def test_steps_equal_the_literal_computation(case: str, mode: str) -> None:
    network = domain_network(mode).double()
    literal = Literal(copy.deepcopy(network))
    algorithm, state = started(case, network)
    for number in range(5):
        torch.manual_seed(number)
        expected = CASES[case][1](literal, domain_batch(number))
        literal.adam(expected)
        (loss,) = steps(state, range(number, number + 1))
        assert loss == pytest.approx(expected.item(), rel=1e-9)
        for name, tensor in literal.network.state_dict().items():
            torch.testing.assert_close(
                algorithm.network.state_dict()[name], tensor, rtol=1e-8, atol=1e-10, msg=name
            )
    if case == "groupdro":
        assert algorithm.q.tolist() == pytest.approx(literal.memory["q"], rel=1e-9)
    if case == "rsc-paper":
        assert len(set(literal.memory["kinds"])) == 2  # both ways of muting were compared


@pytest.mark.parametrize("case", CASES)
def test_gradient_reaches_every_parameter_and_passes_are_as_described(case: str) -> None:
    network = domain_network("trained", dropout=0.0)
    before = copy.deepcopy(network.state_dict())
    _, state = started(case, network)
    steps(state, range(2))
    after = network.state_dict()
    for name, _ in network.named_parameters():
        assert not torch.equal(before[name], after[name]), name
    passes = 1 if case in JOINT else DOMAINS
    assert int(after["featurizer.layer1.1.num_batches_tracked"]) == 2 * passes


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_resumed_training_ends_with_the_same_bits(case: str, at: int) -> None:
    whole, state = started(case, domain_network())
    steps(state, range(5))
    broken, state_before = started(case, domain_network())
    steps(state_before, range(at))
    file = io.BytesIO()
    torch.save([broken.state_dict(), state_before.optimizers["adam"].state_dict()], file)
    file.seek(0)
    module, adam = torch.load(file, weights_only=True)
    resumed, state_after = started(case, domain_network(seed=99))
    resumed.load_state_dict(module)
    state_after.optimizers["adam"].load_state_dict(adam)
    steps(state_after, range(at, 5))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name
    moments = zip(
        state.optimizers["adam"].state_dict()["state"].values(),
        state_after.optimizers["adam"].state_dict()["state"].values(),
        strict=True,
    )
    assert all(torch.equal(one[key], other[key]) for one, other in moments for key in one)


@pytest.mark.parametrize("case", CASES)
def test_the_mnist_twin_learns_and_is_deployed_whole(case: str) -> None:
    torch.manual_seed(0)
    network = DomainNetwork(build("mnist-bn", num_classes=CLASSES), "trained")
    algorithm, state = started(case, network)
    losses = [steps(state, range(3, 4))[0] for _ in range(12)]  # the same batch again and again
    assert sum(losses[-3:]) < sum(losses[:3])
    deployed = algorithm.deployed()
    assert not any(module._forward_hooks for module in deployed.modules())
    images = domain_batch(9, torch.float32).joint().images
    assert torch.equal(deployed(images), algorithm.eval()(images))


def test_groupdro_weighs_the_worst_domain_most() -> None:
    algorithm, state = started("groupdro", domain_network(dropout=0.0))
    losses = []
    for part in domain_batch(0, torch.float32).minibatches:
        losses.append(cross_entropy(copy.deepcopy(algorithm.network)(part.images), part.labels))
    steps(state, range(1))
    assert int(algorithm.q.argmax()) == int(torch.stack(losses).argmax())
    assert float(algorithm.q.sum()) == pytest.approx(1)
    assert not algorithm.q.requires_grad


def test_rsc_on_a_residual_network() -> None:
    torch.manual_seed(0)
    model = Normalized(build("resnet18", num_classes=CLASSES), (0.5,), (0.25,))
    network = DomainNetwork(model, "frozen")
    algorithm = RSC(network, 1)
    assert algorithm.last_stage == "network.layer4"
    batch = DomainBatch(
        (Minibatch(torch.rand(4, 3, 64, 64), torch.tensor([0, 1, 2, 0])),), np.random.default_rng(0)
    )
    loss = algorithm.step(TrainState(algorithm, algorithm.optimizers()), batch)["loss"]
    assert math.isfinite(loss)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.37, 0.5, 1.0])
@pytest.mark.parametrize("number", [2, 7, 18, 128])
def test_highest_is_the_percentile(number: int, share: float) -> None:
    scores = torch.randn(5, number, dtype=torch.float64).round(decimals=1)  # with ties
    expected = np.stack([at_percentile(row, share) for row in scores.numpy()])
    np.testing.assert_array_equal(highest(scores, share).numpy(), expected)


@pytest.mark.parametrize(("number", "count"), [(4, 2), (16, 6), (49, 17), (196, 66)])
def test_a_third_of_the_positions_does_not_hang_on_rounding(number: int, count: int) -> None:
    assert int(highest(torch.randperm(number).double(), 1 / 3).sum()) == count


@pytest.mark.parametrize("case", ["mixup", "coral", "mmd"])
def test_one_domain_alone_is_plain_training(case: str) -> None:
    network = domain_network(dropout=0.0).double()
    batch = domain_batch(0, sizes=(6,))
    expected = cross_entropy(copy.deepcopy(network)(batch.joint().images), batch.joint().labels)
    algorithm, state = started(case, network)
    if case != "mixup":
        assert algorithm.step(state, batch)["penalty"] == 0
    else:
        assert algorithm.step(state, batch)["loss"] == pytest.approx(expected.item())


@pytest.mark.parametrize("case", ["coral", "irm"])
def test_a_single_image_is_refused(case: str) -> None:
    algorithm, state = started(case, domain_network("frozen").double())
    with pytest.raises(ValueError, match="at least 2 images of each domain"):
        algorithm.step(state, domain_batch(0, sizes=(4, 1, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(GroupDRO, eta=-1.0), "`eta` must be at least 0"),
        (partial(Mixup, alpha=0.0), "`alpha` must be positive"),
        (partial(MMD, gamma=-0.1), "`gamma` must be at least 0"),
        (partial(IRM, anneal_steps=-1), "`anneal_steps` must be at least 0"),
        (partial(IRM, penalty_weight=-1.0), "`penalty_weight` must be at least 0"),
        (partial(RSC, f_drop=1.2), "`f_drop` must be from 0 to 1"),
        (partial(RSC, b_drop=-0.2), "`b_drop` must be from 0 to 1"),
        (partial(RSC, reading="mine"), "`reading` must be one of"),
    ],
)
def test_bad_arguments_are_named(make: Callable[..., Algorithm], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(domain_network(), DOMAINS)


@pytest.mark.parametrize(
    ("model", "message"),
    [(TwiceActive(), "features are the mean"), (TinyNet(stride=8), "more than one position")],
)
def test_rsc_says_where_its_map_does_not_fit(model: nn.Module, message: str) -> None:
    algorithm = RSC(DomainNetwork(model, "trained"), DOMAINS)
    with pytest.raises(ValueError, match=message):
        steps(TrainState(algorithm, algorithm.optimizers()), range(1))
