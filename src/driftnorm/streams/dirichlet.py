"""Labels that are correlated in time by Dirichlet draws, in the two constructions of the field.

Each class is cut into pieces, one for each stretch of time, with sizes from a Dirichlet
distribution: the smaller its concentration, the more of a class is in a single stretch. Within a
stretch the classes follow each other in random order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm._internal.counts import counted
from driftnorm._internal.types import Doubles, Integers
from driftnorm.streams.orders import Order

TRIES = 1000


@dataclass(frozen=True)
class BalancedDirichlet(Order):
    """As many stretches as classes, of nearly equal length (NOTE).

    A stretch that holds its part of all images gets nothing of the classes that follow; all is
    drawn again until the shortest stretch is long enough.

    Attributes:
        concentration: Of the Dirichlet distribution.
        shortest: How many images the shortest stretch must hold.
    """

    name: ClassVar[str] = "dirichlet-balanced"
    summary: ClassVar[str] = "correlated labels: Dirichlet draws, stretches of about equal length"

    concentration: float = 0.1
    shortest: int = 10

    def __post_init__(self) -> None:
        check_number("concentration", self.concentration)
        check_whole("shortest", self.shortest, 0)

    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """Stretch by stretch."""
        sizes = np.unique(labels, return_counts=True)[1]
        for _ in range(TRIES if self.shortest * len(sizes) <= len(labels) else 0):
            pieces = self._pieces(sizes, generator)
            if pieces.sum(axis=0).min() >= self.shortest:
                return _in_stretches(labels, pieces, generator)
        raise ValueError(
            f"{counted(len(labels), 'image')} of {counted(len(sizes), 'class')} could not be cut "
            f"into {counted(len(sizes), 'stretch')} of at least {counted(self.shortest, 'image')} "
            "each: take more images (`part`), a smaller `shortest`, a larger `concentration`, or "
            "`dirichlet-slots`."
        )

    def _pieces(self, sizes: Integers, generator: np.random.Generator) -> Integers:
        """How many images of each class (row) are in each stretch (column)."""
        pieces = np.zeros((len(sizes), len(sizes)), dtype=np.int64)
        held = np.zeros(len(sizes), dtype=np.int64)
        for place, size in enumerate(sizes):
            # A draw for the open stretches alone is distributed as one for all that is normalised
            # again without the full ones, and cannot be 0 / 0.
            (unfilled,) = np.nonzero(held < sizes.sum() / len(sizes))
            shares = generator.dirichlet(np.full(len(unfilled), float(self.concentration)))
            pieces[place, unfilled] = _cut(shares, size)
            held += pieces[place]
        return pieces


@dataclass(frozen=True)
class SlottedDirichlet(Order):
    """A number of stretches, of whatever length the draws give them (RoTTA, DELTA).

    Attributes:
        concentration: Of the Dirichlet distribution.
        slots: How many stretches, but never more than classes: RoTTA has 100, DELTA 10.
    """

    name: ClassVar[str] = "dirichlet-slots"
    summary: ClassVar[str] = "correlated labels: Dirichlet draws in slots of any length"

    concentration: float = 0.1
    slots: int = 100

    def __post_init__(self) -> None:
        check_number("concentration", self.concentration)
        check_whole("slots", self.slots)

    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """Slot by slot."""
        sizes = np.unique(labels, return_counts=True)[1]
        each = np.full(min(self.slots, len(sizes)), float(self.concentration))
        pieces = np.stack([_cut(generator.dirichlet(each), size) for size in sizes])
        return _in_stretches(labels, pieces, generator)


def _cut(shares: Doubles, size: int) -> Integers:
    """Whole numbers that add up to `size`: between the floors of the cumulative shares."""
    inner = np.floor(np.cumsum(shares[:-1]) * size).astype(np.int64)
    return np.diff(np.concatenate([[0], np.minimum(inner, size), [size]]))


def _in_stretches(labels: Integers, pieces: Integers, generator: np.random.Generator) -> Integers:
    """The images of each piece together, stretch by stretch, classes in random order."""
    classes = np.unique(labels)
    left = [np.flatnonzero(labels == each) for each in classes]
    ends = np.cumsum(pieces, axis=1)
    return np.concatenate(
        [
            left[row][ends[row, stretch] - pieces[row, stretch] : ends[row, stretch]]
            for stretch in range(pieces.shape[1])
            for row in generator.permutation(len(classes))
        ]
    )
