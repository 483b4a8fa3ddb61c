"""Where a study's corrupted images come from: one interface over three kinds of data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol as Interface
from typing import TypeAlias

from driftnorm.data.cifar_c import load_cifar_c
from driftnorm.data.corrupted import corrupted
from driftnorm.data.image_set import DataError, ImageSet, spread_positions
from driftnorm.data.imagenet_c import load_imagenet_c
from driftnorm.data.opening import load_clean
from driftnorm.data.pictures import PictureSet
from driftnorm.shifts import SHIFTS

__all__ = ["Images", "Streams", "open_streams"]

Images: TypeAlias = ImageSet | PictureSet


class Streams(Interface):
    """Corrupted images on request; severity 0 are the clean ones."""

    @property
    def label(self) -> str:
        """What the data are called beside a number; ours are not the released pixels."""
        ...

    def example(self, corruption: str, severity: int) -> Images:
        """Images of the number and the kind that a stream has, at little cost."""
        ...

    def images(self, corruption: str, severity: int, seed: int) -> Images:
        """The images as stored; the seed is that of the noise, where noise is drawn."""
        ...


@dataclass(frozen=True)
class OnTheFly:
    """Clean images, corrupted when they are asked for."""

    data: str
    limit: int | None
    frost: str | None

    @property
    def label(self) -> str:
        """Such as ``cifar-10-c (generated)``."""
        return f"{_clean(self.data, self.limit).name}-c (generated)"

    def example(self, corruption: str, severity: int) -> Images:
        """The clean images."""
        return _clean(self.data, self.limit)

    def images(self, corruption: str, severity: int, seed: int) -> Images:
        """The clean images with a corruption."""
        clean = _clean(self.data, self.limit)
        if not severity:
            return clean
        how = (corruption, severity, seed, self.frost)
        if isinstance(clean, ImageSet):
            return corrupted(clean, *how)
        return corrupted(clean, *how)


@dataclass(frozen=True)
class ReleasedArrays:
    """A folder in the layout of CIFAR-10-C."""

    data: str
    limit: int | None

    @property
    def label(self) -> str:
        """Such as ``cifar-10-c``."""
        there = [name for name in SHIFTS if (Path(self.data) / f"{name}.npy").exists()]
        if not there:
            raise DataError(f"{self.data} holds labels.npy, but no corruption such as fog.npy.")
        return self.images(there[0], 1, 0).name.split("/")[0]

    def example(self, corruption: str, severity: int) -> Images:
        """The memory-mapped rows."""
        return self.images(corruption, severity, 0)

    def images(self, corruption: str, severity: int, seed: int) -> Images:
        """The rows of this severity."""
        return load_cifar_c(self.data, corruption, severity, self.limit)


@dataclass(frozen=True)
class ReleasedPictures:
    """Folders in the layout of ImageNet-C."""

    data: str
    limit: int | None
    subset: str | None

    @property
    def label(self) -> str:
        """``imagenet-c``, with the name of the list if only its pictures are taken."""
        return "imagenet-c" if self.subset is None else f"imagenet-c ({Path(self.subset).stem})"

    def example(self, corruption: str, severity: int) -> Images:
        """The list of pictures."""
        return self.images(corruption, severity, 0)

    def images(self, corruption: str, severity: int, seed: int) -> Images:
        """The pictures of this severity."""
        return load_imagenet_c(
            self.data, corruption, severity, subset=self.subset, count=self.limit
        )


def open_streams(
    data: str, limit: int | None = None, frost: str | None = None, subset: str | None = None
) -> Streams:
    """Tell from the files which kind of data a path holds.

    Args:
        data: Clean images (a folder of CIFAR's files, an ``.npz``, a folder of pictures), a folder
            in the layout of CIFAR-10-C, or one in the layout of ImageNet-C.
        limit: Only so many images of each stream.
        frost: Where frost's overlay pictures are, for clean images.
        subset: A list of pictures to take, for ImageNet-C.
    """
    folder = Path(data)
    if (folder / "labels.npy").exists():
        return ReleasedArrays(data, limit)
    if folder.is_dir() and any(_holds_corruption(place) for place in (folder, *_folders(folder))):
        return ReleasedPictures(data, limit, subset)
    if subset is not None:
        raise ValueError(f"`subset` is a list of ImageNet-C's pictures, but {data} is none.")
    return OnTheFly(data, limit, frost)


def _holds_corruption(folder: Path) -> bool:
    return any((folder / name / str(s)).is_dir() for name in SHIFTS for s in range(1, 6))


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


@lru_cache(maxsize=2)
def _clean(data: str, limit: int | None) -> Images:
    images = load_clean(data)
    if limit is not None and isinstance(images, PictureSet):
        # Pictures are sorted by class: the first ones would all be of one.
        return images.take(spread_positions(images.name, len(images), limit))
    return images.first(limit)
