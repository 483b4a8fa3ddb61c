"""A method of your own, in one file, from outside the package.

Here: confidence-weighted entropy on the affine parameters, with running statistics. Run it with
``python examples/own_method.py``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.parts import Descent, Entropy, Running, Step, Weight, Weighted, softmax_entropy


@dataclass(frozen=True)
class Sure(Weight):
    """Samples count more where the network is sure."""

    sharpness: float = 1.0

    def __call__(self, step: Step, weights: Tensor) -> Tensor:
        """The weights, given those of the parts before; 0 drops a sample."""
        return weights * torch.exp(-self.sharpness * softmax_entropy(step.logits.detach()))


def weighted(*, sharpness: float = 1.0, lr: float = 1e-3) -> driftnorm.Recipe:
    """The keyword arguments of this function are the method's options."""
    return driftnorm.Recipe(
        statistics=Running(),
        trainable="affine",
        loss=Weighted(Entropy(), (Sure(sharpness),)),
        update=(Descent(lr=lr),),
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
