"""Named settings of the papers.

Sources: Tent's released CIFAR example, Tent's paper for ImageNet (its code was never released), and
this paper, which follows Tent on each data set and averages over all five severities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftnorm._internal.arguments import check_choice

_ADAM = (("lr", 1e-3), ("optimizer", "adam"), ("steps", 1))
_SGD = (("lr", 2.5e-4), ("optimizer", "sgd"), ("steps", 1))
_ALL = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Preset:
    """The settings of a paper or its code.

    Attributes:
        summary: Whose it is.
        severities: Which severities are averaged.
        batch_size: Images per batch.
        optimising: For methods that take gradient steps and do not set their own.
    """

    summary: str
    severities: tuple[int, ...]
    batch_size: int
    optimising: tuple[tuple[str, Any], ...]


PRESETS = {
    "paper": Preset("the paper's on CIFAR: Tent's code, all severities", _ALL, 200, _ADAM),
    "paper-imagenet": Preset("the paper's on ImageNet-C, all severities", _ALL, 64, _SGD),
    "tent-cifar": Preset("Tent's released CIFAR example, severity 5", (5,), 200, _ADAM),
    "tent-imagenet": Preset("Tent's paper on ImageNet-C, severity 5", (5,), 64, _SGD),
    "tent-code-everywhere": Preset(
        "Tent's CIFAR rate and batch on any data, all severities", _ALL, 200, _ADAM
    ),
}


def find_preset(name: str) -> Preset:
    """The preset of this name."""
    check_choice("preset", name, PRESETS)
    return PRESETS[name]
