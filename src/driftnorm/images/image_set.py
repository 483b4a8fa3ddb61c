"""Images in memory or memory-mapped, with labels: what every loader of small images returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError

__all__ = ["ImageSet", "find_home", "first_positions", "spread_positions"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, their labels, and where in the data set they stand.

    Attributes:
        name: Which data these are, e.g. ``cifar-10`` or ``cifar-10-c/fog/5``.
        images: Bytes, (N, H, W, 3); possibly a read-only view of a file.
        labels: Class numbers, (N,).
        classes: Name of each class.
        indices: Each image's index in the whole data set, (N,). Corruptions are seeded with it, so
            a part of a set gets the same pixels as the whole.
        note: What a result must say beside its number, e.g. that frost was a stand-in.
    """

    name: str
    images: Pixels
    labels: Integers
    classes: tuple[str, ...]
    indices: Integers
    note: str = ""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[3] != 3 or self.images.dtype != np.uint8:
            raise DataError(
                f"{self.name}: `images` must be uint8 of shape (N, H, W, 3), "
                f"got {self.images.dtype} of shape {self.images.shape}."
            )
        check_labels(self.name, self.labels, self.indices, len(self.images), len(self.classes))

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def take(self, positions: slice | npt.NDArray[np.integer]) -> ImageSet:
        """The images at these positions; a slice gives views."""
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            indices=self.indices[positions],
        )

    def first(self, count: int | None) -> ImageSet:
        """The first ``count`` images; all for None."""
        return self.take(first_positions(self.name, len(self), count))


def check_labels(name: str, labels: Integers, indices: Integers, images: int, classes: int) -> None:
    """Refuse labels or indices that do not fit the images or the classes."""
    for argument, values in (("labels", labels), ("indices", indices)):
        if values.shape != (images,) or values.dtype != np.int64:
            raise DataError(
                f"{name}: `{argument}` must be int64 with one entry for each of the {images} "
                f"images, got {values.dtype} of shape {values.shape}."
            )
    if images and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(
            f"{name}: labels must be from 0 to {classes - 1}, got {labels.min()} to "
            f"{labels.max()}. The file is damaged, or holds other data."
        )


def first_positions(name: str, total: int, count: int | None) -> slice:
    """The first ``count`` of ``total`` positions; all for None."""
    return slice(_checked_count(name, total, count))


def spread_positions(name: str, total: int, count: int | None) -> Integers:
    """``count`` of ``total`` positions at even distances, for sets that are sorted by class."""
    count = _checked_count(name, total, count)
    return np.arange(count, dtype=np.int64) * total // max(count, 1)


def _checked_count(name: str, total: int, count: int | None) -> int:
    if count is None:
        return total
    if not 1 <= count <= total:
        raise ValueError(f"{name} has {total} images: `count` must be from 1 to that, got {count}.")
    return count


def find_home(folder: Path, homes: tuple[str, ...], names: tuple[str, ...]) -> Path:
    """The one of a folder's ``homes`` that holds any of the files, else the folder itself.

    Archives unpack to a folder of their own, and users name either that or the one around it.
    """
    for home in homes:
        if any((folder / home / name).is_file() for name in names):
            return folder / home
    return folder
