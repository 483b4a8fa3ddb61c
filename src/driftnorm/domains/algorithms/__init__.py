"""The training algorithms by name; a new one is one file and one line here."""

from __future__ import annotations

from driftnorm.domains.algorithm import Algorithm
from driftnorm.domains.algorithms.erm import ERM
from driftnorm.suggest import nearest

__all__ = ["ALGORITHMS", "find_algorithm"]

ALGORITHMS: dict[str, type[Algorithm]] = {each.name: each for each in (ERM,)}


def find_algorithm(name: str) -> type[Algorithm]:
    """The class of this name."""
    if name.lower() not in ALGORITHMS:
        raise ValueError(
            f"there is no training algorithm {name!r}.{nearest(name, ALGORITHMS)} "
            f"Known: {', '.join(ALGORITHMS)}."
        )
    return ALGORITHMS[name.lower()]
