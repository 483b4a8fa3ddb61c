"""The training algorithms by name; a new one is one file and one line here."""

from __future__ import annotations

from driftnorm.domains.algorithm import Algorithm
from driftnorm.domains.algorithms.arm import ARM
from driftnorm.domains.algorithms.coral import CORAL
from driftnorm.domains.algorithms.erm import ERM
from driftnorm.domains.algorithms.groupdro import GroupDRO
from driftnorm.domains.algorithms.irm import IRM
from driftnorm.domains.algorithms.mixstyle import MixStyle
from driftnorm.domains.algorithms.mixup import Mixup
from driftnorm.domains.algorithms.mmd import MMD
from driftnorm.domains.algorithms.mtl import MTL
from driftnorm.domains.algorithms.rsc import RSC
from driftnorm.domains.algorithms.sagnet import SagNet
from driftnorm.suggest import nearest

__all__ = ["ALGORITHMS", "find_algorithm"]

ALGORITHMS: dict[str, type[Algorithm]] = {
    each.name: each
    for each in (ERM, GroupDRO, Mixup, CORAL, MMD, IRM, ARM, MTL, SagNet, RSC, MixStyle)
}
"""All but SWAD, which wraps any of them."""


def find_algorithm(name: str) -> type[Algorithm]:
    """The class of this name."""
    if name.lower() not in ALGORITHMS:
        raise ValueError(
            f"there is no training algorithm {name!r}.{nearest(name, ALGORITHMS)} "
            f"Known: {', '.join(ALGORITHMS)}."
        )
    return ALGORITHMS[name.lower()]
