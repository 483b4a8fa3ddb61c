"""Labelled images: one interface, and those that are in memory or memory-mapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from driftnorm._internal.counts import counted
from driftnorm._internal.processes import end_if_stopped
from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError

Change: TypeAlias = Callable[[Pixels, Integers], Pixels]
"""Takes images and their indices in the data set, returns images of the same size."""
_CHUNK = 500  # images that are changed between two looks at whether to stop


class Images(ABC):
    """Labelled images, wherever they are.

    Attributes:
        name: Which data these are, e.g. ``cifar-10`` or ``cifar-10-c/fog/5``.
        labels: Class numbers, (N,).
        classes: Name of each class.
        indices: Each image's index in the whole data set, (N,). Corruptions are seeded with it, so
            a part of a set gets the same pixels as the whole.
        note: What results must mention, e.g. that frost was a substitute.
        in_files: Whether every image is a file in the folder of its class, so that neighbours are
            of one class.
    """

    name: str
    labels: Integers
    classes: tuple[str, ...]
    indices: Integers
    note: str
    in_files: ClassVar[bool]

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    @abstractmethod
    def take(self, positions: slice | npt.NDArray[np.integer]) -> Self:
        """The images at these positions."""

    @abstractmethod
    def load(self, file: Path | None = None) -> ImageSet:
        """The images in memory; with a file, those that were not are memory-mapped there."""

    @abstractmethod
    def changed(self, change: Change, name: str, note: str) -> Self:
        """Other pixels with the same labels and indices."""

    def first(self, count: int | None) -> Self:
        """The first ``count`` images; all for None."""
        return self.take(slice(_checked_count(self.name, len(self), count)))

    def some_positions(self, count: int | None) -> Integers:
        """Positions of ``count`` images of all classes: evenly spaced in files, else the first."""
        if self.in_files:
            return spread_positions(self.name, len(self), count)
        return np.arange(_checked_count(self.name, len(self), count))

    def some(self, count: int | None) -> Self:
        """``count`` images of all classes; see `some_positions`."""
        return self if count is None else self.take(self.some_positions(count))

    def batches(self, size: int) -> Iterator[ImageSet]:
        """The images in order, ``size`` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size)).load()


@dataclass(frozen=True, eq=False)
class ImageSet(Images):
    """Images in an array, with the attributes of `Images`.

    Attributes:
        images: Bytes, (N, H, W, C); possibly a read-only view of a file.
    """

    in_files: ClassVar[bool] = False

    name: str
    images: Pixels
    labels: Integers
    classes: tuple[str, ...]
    indices: Integers
    note: str = ""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(
                f"{self.name}: `images` must be uint8 of shape (N, H, W, C), "
                f"got {self.images.dtype} of shape {self.images.shape}."
            )
        check_labels(self.name, self.labels, self.indices, len(self.images), len(self.classes))

    @classmethod
    def whole(
        cls, name: str, images: Pixels, labels: Integers, classes: tuple[str, ...], note: str = ""
    ) -> Self:
        """A whole data set, whose indices count up."""
        return cls(name, images, labels.astype(np.int64), classes, count_up(len(images)), note)

    def take(self, positions: slice | npt.NDArray[np.integer]) -> Self:
        """The images at these positions; a slice gives views."""
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            indices=self.indices[positions],
        )

    def load(self, file: Path | None = None) -> ImageSet:
        """They are in memory, or memory-mapped, already."""
        return self

    def changed(self, change: Change, name: str, note: str) -> Self:
        """Changed at once."""
        parts = []
        for start in range(0, len(self), _CHUNK):
            end_if_stopped()
            part = slice(start, start + _CHUNK)
            parts.append(change(self.images[part], self.indices[part]))
        pixels = np.concatenate(parts) if parts else self.images
        return replace(self, name=name, images=pixels, note=note)


def count_up(count: int) -> Integers:
    """The indices of a whole data set."""
    return np.arange(count, dtype=np.int64)


def check_labels(name: str, labels: Integers, indices: Integers, images: int, classes: int) -> None:
    """Refuse labels or indices that do not fit the images or the classes."""
    for argument, values in (("labels", labels), ("indices", indices)):
        if values.shape != (images,) or values.dtype != np.int64:
            raise DataError(
                f"{name}: `{argument}` must be int64 with one entry for each of the "
                f"{counted(images, 'image')}, got {values.dtype} of shape {values.shape}."
            )
    if images and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(
            f"{name}: labels must be from 0 to {classes - 1}, got {labels.min()} to "
            f"{labels.max()}. The file is damaged, or holds other data."
        )


def spread_positions(name: str, total: int, count: int | None) -> Integers:
    """``count`` of ``total`` positions, evenly spaced, for sets that are sorted by class."""
    count = _checked_count(name, total, count)
    return np.arange(count, dtype=np.int64) * total // max(count, 1)


def _checked_count(name: str, total: int, count: int | None) -> int:
    if count is None:
        return total
    if not 1 <= count <= total:
        raise ValueError(
            f"{name} has {counted(total, 'image')}: `count` must be 1 to {total}, got {count}."
        )
    return count


def find_home(folder: Path, homes: tuple[str, ...], names: tuple[str, ...]) -> Path:
    """The one of a folder's ``homes`` that holds any of the files, else the folder itself.

    Archives unpack to their own folder, and users name either that or its parent.
    """
    for home in homes:
        if any((folder / home / name).is_file() for name in names):
            return folder / home
    return folder
