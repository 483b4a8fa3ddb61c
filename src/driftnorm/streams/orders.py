"""Orders: which labels come when within a segment. Without one, they come in random order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftnorm._internal.arguments import check_number
from driftnorm._internal.types import Integers
from driftnorm.streams.kind import Kind


@dataclass(frozen=True)
class Order(Kind, ABC):
    """The labels of a segment, in time."""

    @abstractmethod
    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """Which images of a segment come when.

        Args:
            labels: Of the images of one segment, which are in random order.
            generator: For whatever is drawn.

        Returns:
            Indices into `labels`.
        """


@dataclass(frozen=True)
class Sorted(Order):
    """Class after class, by their number; random within a class."""

    name: ClassVar[str] = "sorted"
    summary: ClassVar[str] = "labels come class by class"

    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """A stable sort."""
        return np.argsort(labels, kind="stable")


@dataclass(frozen=True)
class LabelShift(Order):
    """As many stages as classes, each of which has a favourite class (SAR).

    With K classes, the favourite has probability r / (r + K - 1) and every other class
    1 / (r + K - 1). Images are drawn **with replacement**, as many as the segment has.

    Attributes:
        ratio: r, how many times likelier the favourite is than another class; 1 is no shift.
    """

    name: ClassVar[str] = "label-shift"
    summary: ClassVar[str] = "one class after the other becomes the most frequent"

    ratio: float = 500.0

    def __post_init__(self) -> None:
        check_number("ratio", self.ratio, least=1)

    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """Draws of a class for each position, and of one of its images."""
        classes, counts = np.unique(labels, return_counts=True)
        stage = np.arange(len(labels)) * len(classes) // max(len(labels), 1)
        favourite = generator.permutation(len(classes))[stage]
        # Any class, or the favourite on top of that: the same probabilities in two simple draws.
        any_class = generator.integers(len(classes), size=len(labels))
        favoured = (self.ratio - 1) / (self.ratio + len(classes) - 1)
        drawn = np.where(generator.random(len(labels)) < favoured, favourite, any_class)
        by_class, first = np.argsort(labels, kind="stable"), np.cumsum(counts) - counts
        return np.asarray(by_class[first[drawn] + generator.integers(counts[drawn])])


@dataclass(frozen=True)
class LongTail(Order):
    """Fewer images of each further class: of the c-th of K classes a share of f^(c / (K - 1)).

    A class that is there keeps at least one image. The order stays random.

    Attributes:
        share: f, what is kept of the last class; the first keeps all.
    """

    name: ClassVar[str] = "long-tail"
    summary: ClassVar[str] = "few classes are frequent and many are rare"

    share: float = 0.1

    def __post_init__(self) -> None:
        check_number("share", self.share, most=1)

    def arranged(self, labels: Integers, generator: np.random.Generator) -> Integers:
        """The first images of each class, in the order in which they were."""
        classes, counts = np.unique(labels, return_counts=True)
        rank = np.arange(len(classes)) / max(len(classes) - 1, 1)
        kept = np.maximum(np.rint(counts * self.share**rank), 1).astype(np.int64)
        by_class, first = np.argsort(labels, kind="stable"), np.cumsum(counts) - counts
        pieces = [by_class[start : start + n] for start, n in zip(first, kept, strict=True)]
        return np.sort(np.concatenate(pieces))
