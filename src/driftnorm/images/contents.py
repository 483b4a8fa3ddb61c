"""What a source passes to the decoder: where the bytes of one image are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from driftnorm.errors import DataError

PICTURE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".pbm", ".pnm"),
        *(".tif", ".tiff", ".gif", ".jp2", ".tga"),
    )
)


class Segment(NamedTuple):
    """A part of a file, read by the thread that decodes it."""

    file: Path
    start: int
    length: int


class Unreadable(NamedTuple):
    """Something that should have been an image, replaced by the reason.

    Attributes:
        reason: Why it cannot be read.
        and_more: Whether an unknown number of further images are lost with it.
    """

    reason: str
    and_more: bool = False


Content: TypeAlias = Path | Segment | bytes | npt.NDArray[Any] | Unreadable


class Raw(NamedTuple):
    """An image that is not decoded yet."""

    name: str
    content: Content


def is_picture_name(name: str) -> bool:
    """Whether a file has the suffix of an image file and is not hidden."""
    last = name.rpartition("/")[2]
    return not last.startswith(".") and Path(last).suffix.lower() in PICTURE_SUFFIXES


def no_pictures(place: Path) -> DataError:
    """The error for a folder or an archive without image files."""
    return DataError(
        f"{place} holds no pictures, not even in subfolders: no file ends in "
        f"{', '.join(sorted(PICTURE_SUFFIXES))}."
    )


Pixels: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.float32]
