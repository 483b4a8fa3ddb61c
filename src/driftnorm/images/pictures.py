"""Labelled pictures in files, read on demand: image folders and ImageNet-C."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from PIL import Image
from typing_extensions import Self

from driftnorm._internal.counts import counted
from driftnorm._internal.processes import end_if_stopped, in_processes
from driftnorm._internal.progress import Report
from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError
from driftnorm.images.contents import Unreadable, no_pictures
from driftnorm.images.folder_walk import files_below
from driftnorm.images.image_set import Change, Images, ImageSet, check_labels, count_up

RESIZED_SIDE = 256
CROPPED_SIDE = 224
JPEG_QUALITY = 85
# What Pillow's readers raise for damaged files; SyntaxError is PNG's.
_DAMAGE = (
    *(OSError, SyntaxError, EOFError, IndexError, struct.error),
    Image.DecompressionBombError,
)


@dataclass(frozen=True, eq=False)
class PictureSet(Images):
    """Pictures in files, with the attributes of `Images`.

    Attributes:
        paths: One file per picture.
        read: Takes a path and the picture's index, returns bytes (H, W, 3), of one size for all.
    """

    in_files: ClassVar[bool] = True

    name: str
    paths: tuple[Path, ...]
    labels: Integers
    classes: tuple[str, ...]
    indices: Integers
    read: Callable[[Path, int], Pixels]
    note: str = ""

    def __post_init__(self) -> None:
        check_labels(self.name, self.labels, self.indices, len(self.paths), len(self.classes))

    def take(self, positions: slice | npt.NDArray[np.integer]) -> Self:
        """The pictures at these positions, still in their files."""
        chosen = np.arange(len(self))[positions]
        return replace(
            self,
            paths=tuple(self.paths[position] for position in chosen),
            labels=self.labels[chosen],
            indices=self.indices[chosen],
        )

    def renumbered(self, classes: tuple[str, ...]) -> PictureSet:
        """The same pictures with labels as positions in ``classes``."""
        numbers = {name: number for number, name in enumerate(classes)}
        met = sorted({self.classes[label] for label in self.labels.tolist()})
        strangers = [name for name in met if name not in numbers]
        if strangers:
            raise DataError(
                f"{self.name}: the folder {strangers[0]!r} is not one of the {len(classes)} "
                "`classes`."
            )
        labels = [numbers[self.classes[label]] for label in self.labels.tolist()]
        return replace(self, labels=np.array(labels, dtype=np.int64), classes=classes)

    def load(self, file: Path | None = None) -> ImageSet:
        """All pictures, read into memory, or into a memory-mapped file if they may not fit."""
        pixels = self._pixels()
        if file is None:
            return self.with_pixels(np.stack([*pixels]))
        first = next(pixels)
        shape = (len(self), *first.shape)
        mapped = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
        mapped[0] = first
        for index, picture in enumerate(pixels, start=1):
            mapped[index] = picture
        return self.with_pixels(mapped)

    def changed(self, change: Change, name: str, note: str) -> Self:
        """Changed when they are read, and then saved as the JPEG that a file would be."""
        read = partial(_read_changed, read=self.read, change=change)
        return replace(self, name=name, read=read, note=note)

    def _pixels(self) -> Iterator[Pixels]:
        for path, index in zip(self.paths, self.indices.tolist(), strict=True):
            end_if_stopped()
            yield self.read(path, index)

    def with_pixels(self, pixels: Pixels) -> ImageSet:
        """Images of these pixels, which were read from the pictures."""
        return ImageSet(self.name, pixels, self.labels, self.classes, self.indices, self.note)


def load_pictures(folder: str | os.PathLike[str]) -> PictureSet:
    """Every picture below a folder, sorted by path.

    The top-level folders are the classes. Pictures are resized to a short side of 256 px and
    centre-cropped to 224 x 224 px.

    Args:
        folder: The image folder.

    Returns:
        The pictures, named like the folder.
    """
    root = Path(folder)
    paths = picture_paths(root)
    if not paths:
        raise no_pictures(root)
    return labelled_by_folder(root.resolve().name, root, paths, read_cropped)


def labelled_by_folder(
    name: str,
    root: Path,
    paths: Sequence[PurePosixPath],
    read: Callable[[Path, int], Pixels],
    classes: tuple[str, ...] | None = None,
    note: str = "",
) -> PictureSet:
    """Pictures below a folder, whose top-level folders are the classes, by default all of them."""
    owners = [path.parts[0] if len(path.parts) > 1 else "." for path in paths]
    names = tuple(sorted(set(owners))) if classes is None else classes
    strangers = sorted({*owners} - {*names})
    if strangers:
        raise DataError(
            f"{root}: {strangers[0]!r} is not one of the {counted(len(names), 'class')}."
        )
    numbers = {each: number for number, each in enumerate(names)}
    labels = np.array([numbers[owner] for owner in owners], dtype=np.int64)
    files = tuple(root / path for path in paths)
    return PictureSet(name, files, labels, names, count_up(len(files)), read, note)


def picture_paths(root: Path) -> list[PurePosixPath]:
    """Pictures below a folder as sorted relative paths, except hidden ones."""
    found = []
    for name, place, is_picture in files_below(root):
        if isinstance(place, Unreadable):
            raise DataError(f"{root / name}: {place.reason}.")
        if is_picture:
            found.append(PurePosixPath(name))
    return found


def read_cropped(path: Path, index: int) -> Pixels:
    """A picture in RGB, resized to a short side of 256 px, its central 224 x 224 px."""
    picture = open_picture(path)
    return np.asarray(cropped(picture, RESIZED_SIDE, CROPPED_SIDE, Image.Resampling.BILINEAR))


def read_stretched(path: Path, index: int, side: int = CROPPED_SIDE) -> Pixels:
    """A picture in RGB, stretched to ``side`` x ``side`` px unless it has that size."""
    return np.asarray(open_picture(path).resize((side, side), Image.Resampling.BILINEAR))


def cropped(
    picture: Image.Image, side: int, crop: int, resampling: Image.Resampling
) -> Image.Image:
    """The central ``crop`` x ``crop`` px of a picture whose short side is resized to ``side``."""
    short = min(picture.size)
    width, height = (length * side // short for length in picture.size)
    if (width, height) != picture.size:
        picture = picture.resize((width, height), resampling)
    left, top = round((width - crop) / 2), round((height - crop) / 2)
    return picture.crop((left, top, left + crop, top + crop))


def open_picture(path: Path) -> Image.Image:
    """A picture in RGB; the error for an unreadable one names it."""
    try:
        with Image.open(path) as picture:
            converted: Image.Image = picture.convert("RGB")
            return converted
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise DataError(f"{path} cannot be read as a picture: {error}.") from error


def unreadable_pictures(
    paths: Sequence[Path], workers: int, progress: Report
) -> list[tuple[Path, str]]:
    """Open every picture; those that cannot be decoded, sorted, and why."""
    found = []
    progress("opening every picture", 0, len(paths))
    for done, (path, why) in enumerate(in_processes(_damage, paths, workers), start=1):
        found += [(path, why)] if why else []
        progress("opening every picture", done, len(paths))
    return sorted(found)


def _damage(path: Path) -> str:
    """Why a picture cannot be read; nothing if it can."""
    try:
        open_picture(path)
    except (DataError, OSError) as error:
        return str(error.__cause__ or error)
    return ""


def _read_changed(
    path: Path, index: int, *, read: Callable[[Path, int], Pixels], change: Change
) -> Pixels:
    return through_jpeg(change(read(path, index)[None], np.array([index]))[0])


def jpeg_bytes(pixels: Pixels) -> bytes:
    """A picture as a JPEG of quality 85, like ImageNet-C's files."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def through_jpeg(pixels: Pixels) -> Pixels:
    """A picture after a round trip through `jpeg_bytes`."""
    with Image.open(io.BytesIO(jpeg_bytes(pixels))) as picture:
        return np.asarray(picture.convert("RGB"))
