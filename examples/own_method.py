"""A method of your own, in one file, from outside the package.

Here: confidence-weighted entropy on the affine parameters, with running statistics. Run it with
``python examples/own_method.py``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.objectives import softmax_entropy
from driftnorm.statistics import Running


@dataclass(frozen=True)
class WeightedEntropy:
    """Entropy that counts more where the network is sure: an objective is logits -> scalar."""

    sharpness: float = 1.0

    def __call__(self, logits: Tensor) -> Tensor:
        """The loss of a batch; return ``None`` to take no step."""
        entropy = softmax_entropy(logits)
        weight = torch.exp(-self.sharpness * entropy.detach())
        return (weight * entropy).sum() / weight.sum()


def weighted(*, sharpness: float = 1.0, lr: float = 1e-3) -> driftnorm.Recipe:
    """The keyword arguments of this function are the method's options."""
    return driftnorm.Recipe(
        statistics=Running(), objective=WeightedEntropy(sharpness), trainable="affine", lr=lr
    )


METHOD = driftnorm.Method(
    name="weighted",
    build=weighted,
    paper="-",
    summary="confidence-weighted entropy, running statistics",
    helps="a few images are hopeless",
    hurts="confident errors",
)

if __name__ == "__main__":
    torch.manual_seed(0)
    driftnorm.register(METHOD)
    network = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5)
    ).eval()
    model = driftnorm.adapt(network, "weighted", sharpness=2.0)
    for _ in range(3):
        logits = model(torch.randn(64, 8) + 1)
    print(model)
