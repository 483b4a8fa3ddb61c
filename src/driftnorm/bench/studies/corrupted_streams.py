"""Where a study's corrupted images come from: one interface over three kinds of data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol as Interface

from driftnorm._internal.types import Integers
from driftnorm.bench.cell import DataId
from driftnorm.errors import DataError
from driftnorm.images.cifar_c import holds_cifar_c, load_cifar_c
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.corruption import SEVERITIES, corrupted
from driftnorm.images.image_set import Images
from driftnorm.images.imagenet_c import holds_imagenet_c, is_imagenet, load_imagenet_c
from driftnorm.images.labelled import load_clean
from driftnorm.images.pictures import PictureSet
from driftnorm.images.provenance import read_provenance
from driftnorm.shifts import SHIFTS, frost_source

_PICTURES = "overlays"
_CHUNK = 512  # images corrupted between two checks for a stop request
_KNOWN = {"cifar-10": CIFAR10_CLASSES, "cifar-100": CIFAR100_CLASSES, "imagenet": None}


class Streams(Interface):
    """Corrupted images on request; severity 0 means the clean ones."""

    @property
    def data_id(self) -> DataId:
        """Which data these are; generated ones differ from the released pixels."""
        ...

    def variant(self, corruption: str) -> str:
        """How a corruption was made, if not as usual."""
        ...

    def holds(self, corruption: str, severity: int) -> bool:
        """Whether there is such a stream."""
        ...

    def example(self, corruption: str, severity: int) -> Images:
        """Images in the number and format of a stream, made cheaply."""
        ...

    def images(
        self, corruption: str, severity: int, seed: int, part: Integers | None = None
    ) -> Images:
        """The images as stored, or those at some positions.

        The seed is that of the noise, where noise is drawn.
        """
        ...


@dataclass(frozen=True)
class OnTheFly:
    """Clean images, corrupted on demand."""

    data: str
    limit: int | None
    frost: str | None
    classes: tuple[str, ...] | None

    @cached_property
    def _clean(self) -> Images:
        images = load_clean(self.data)
        if self.classes is not None:
            if not isinstance(images, PictureSet):
                raise ValueError(f"`classes` is for folders of images, but {self.data} has none.")
            images = images.renumbered(self.classes)
        return images.some(self.limit)

    @property
    def data_id(self) -> DataId:
        """Such as ``cifar-10-c (generated)``."""
        return DataId(_honest_name(self._clean.name, self._clean), "generated")

    def variant(self, corruption: str) -> str:
        """For frost, whether it is the stand-in; missing overlays are an error."""
        return _variant(corruption, frost_source(self.frost) if corruption == "frost" else None)

    def holds(self, corruption: str, severity: int) -> bool:
        """Every corruption can be made."""
        return True

    def example(self, corruption: str, severity: int) -> Images:
        """The clean images."""
        return self._clean

    def images(
        self, corruption: str, severity: int, seed: int, part: Integers | None = None
    ) -> Images:
        """The clean images with a corruption."""
        clean = _part(self._clean, part)
        if not severity:
            return clean
        return corrupted(clean, corruption, severity, seed, self.frost)


@dataclass(frozen=True)
class _Released(ABC):
    """Corrupted images in a folder, published or made by `driftnorm corrupt`."""

    data: str
    limit: int | None

    def variant(self, corruption: str) -> str:
        """For frost, whether it is the stand-in, as recorded in the folder."""
        made = read_provenance(Path(self.data))
        return _variant(corruption, None if made is None else made.frost)

    def example(self, corruption: str, severity: int) -> Images:
        """Memory-mapped rows, or a list of pictures."""
        return self.images(corruption, severity, 0)

    @abstractmethod
    def images(
        self, corruption: str, severity: int, seed: int, part: Integers | None = None
    ) -> Images:
        """The images of this severity."""


@dataclass(frozen=True)
class ReleasedArrays(_Released):
    """A folder in the layout of CIFAR-10-C."""

    @property
    def data_id(self) -> DataId:
        """Such as ``cifar-10-c``, or ``cifar-10-c (generated)`` if the folder says so."""
        held = ((c, s) for c in SHIFTS for s in SEVERITIES if self.holds(c, s))
        first = next(held, None)
        if first is None:
            raise DataError(f"{self.data} holds labels.npy, but no corruption such as fog.npy.")
        return _folder_data(self.data, self.images(*first, 0))

    def holds(self, corruption: str, severity: int) -> bool:
        """Whether the folder has it."""
        return holds_cifar_c(self.data, corruption, severity)

    def images(
        self, corruption: str, severity: int, seed: int, part: Integers | None = None
    ) -> Images:
        """The rows of this severity."""
        return _part(load_cifar_c(self.data, corruption, severity, self.limit), part)


@dataclass(frozen=True)
class ReleasedPictures(_Released):
    """Folders in the layout of ImageNet-C."""

    subset: str | None
    classes: tuple[str, ...] | None

    @property
    def data_id(self) -> DataId:
        """Such as ``imagenet-c``, with the name of the list if only its pictures are taken."""
        first = next((c, s) for c in SHIFTS for s in SEVERITIES if self.holds(c, s))
        found = _folder_data(self.data, self.images(*first, 0))
        return found if self.subset is None else replace(found, subset=Path(self.subset).stem)

    def holds(self, corruption: str, severity: int) -> bool:
        """Whether the folders have it."""
        return holds_imagenet_c(self.data, corruption, severity)

    def images(
        self, corruption: str, severity: int, seed: int, part: Integers | None = None
    ) -> Images:
        """The pictures of this severity."""
        found = load_imagenet_c(
            self.data,
            corruption,
            severity,
            subset=self.subset,
            count=self.limit,
            classes=self.classes,
        )
        return _part(found, part)


def open_streams(
    data: str,
    limit: int | None = None,
    frost: str | None = None,
    subset: str | None = None,
    classes: Sequence[str] | None = None,
) -> Streams:
    """Detect which kind of data a path holds.

    Args:
        data: Clean images (a folder of CIFAR's files, an ``.npz``, a folder of pictures), a folder
            in the layout of CIFAR-10-C, or one in the layout of ImageNet-C.
        limit: At most this many images of each stream.
        frost: Where frost's overlay pictures are, for clean images.
        subset: A list of pictures to take, for ImageNet-C.
        classes: Folder names of all classes in the order of the network's outputs, for pictures.
    """
    folder, names = Path(data), None if classes is None else tuple(classes)
    if (folder / "labels.npy").exists():
        if names is not None:
            raise ValueError(f"`classes` is for folders of images, but {data} holds arrays.")
        return ReleasedArrays(data, limit)
    if folder.is_dir() and any(_holds_corruption(place) for place in (folder, *_folders(folder))):
        return ReleasedPictures(data, limit, subset, names)
    if subset is not None:
        raise ValueError(f"`subset` lists ImageNet-C's images, but {data} is not ImageNet-C.")
    return OnTheFly(data, limit, frost, names)


def stored_corruptions(data: str | Path) -> tuple[str, ...] | None:
    """The corruptions that a folder holds; None if they are made on the fly."""
    streams = open_streams(str(data))
    if isinstance(streams, OnTheFly):
        return None
    return tuple(c for c in SHIFTS if any(streams.holds(c, severity) for severity in SEVERITIES))


def _part(images: Images, part: Integers | None) -> Images:
    return images if part is None else images.take(part)


def _holds_corruption(folder: Path) -> bool:
    return any((folder / name / str(s)).is_dir() for name in SHIFTS for s in SEVERITIES)


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


def _folder_data(data: str, images: Images) -> DataId:
    """The data of a folder of corrupted images: generated, if `driftnorm corrupt` made it."""
    made = read_provenance(Path(data))
    if made is None:  # images are named as their data set: cifar-10-c/fog/5
        return DataId(images.name.split("/")[0].removesuffix("-c"), "released")
    return DataId(_honest_name(made.source, images), "generated", made.seed)


def _variant(corruption: str, frost: str | None) -> str:
    """Frost without its overlays is another corruption: rows of the two must not mix."""
    return frost if corruption == "frost" and frost not in (None, _PICTURES) else ""


def _honest_name(name: str, images: Images) -> str:
    """The data's name, unless it would be mistaken for a published data set."""
    if images.in_files and is_imagenet(images.classes):
        return "imagenet"
    genuine = not images.in_files and _KNOWN.get(name) == images.classes
    return f"own {name}" if name.lower() in _KNOWN and not genuine else name
