"""The training algorithms by name; a new one is one file and one line here."""

from __future__ import annotations

from driftnorm._internal.arguments import check_choice
from driftnorm.training.domains.algorithm import Algorithm
from driftnorm.training.domains.algorithms.arm import ARM
from driftnorm.training.domains.algorithms.coral import CORAL
from driftnorm.training.domains.algorithms.erm import ERM
from driftnorm.training.domains.algorithms.groupdro import GroupDRO
from driftnorm.training.domains.algorithms.irm import IRM
from driftnorm.training.domains.algorithms.mixstyle import MixStyle
from driftnorm.training.domains.algorithms.mixup import Mixup
from driftnorm.training.domains.algorithms.mmd import MMD
from driftnorm.training.domains.algorithms.mtl import MTL
from driftnorm.training.domains.algorithms.rsc import RSC
from driftnorm.training.domains.algorithms.sagnet import SagNet

__all__ = ["ALGORITHMS", "find_algorithm"]

ALGORITHMS: dict[str, type[Algorithm]] = {
    each.name: each
    for each in (ERM, GroupDRO, Mixup, CORAL, MMD, IRM, ARM, MTL, SagNet, RSC, MixStyle)
}
"""All but SWAD, which wraps any of them."""


def find_algorithm(name: str) -> type[Algorithm]:
    """The class of this name."""
    check_choice("algorithm", name.lower(), ALGORITHMS)
    return ALGORITHMS[name.lower()]
