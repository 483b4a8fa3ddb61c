"""Corruption on the fly: the same pixels that ``driftnorm corrupt`` writes, without the files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from driftnorm._internal.types import Integers, Pixels
from driftnorm.images.image_set import Images
from driftnorm.shifts import corrupt, frost_source

SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)

ImagesT = TypeVar("ImagesT", bound=Images)


@dataclass(frozen=True)
class Corruption:
    """A corruption with everything that determines its pixels; see `driftnorm.shifts.corrupt`."""

    name: str
    severity: int
    seed: int = 0
    frost: str | os.PathLike[str] | None = None

    def apply(self, images: Pixels, indices: Integers | list[int]) -> Pixels:
        """Corrupt images that have these indices in their data set."""
        return corrupt(
            images, self.name, self.severity, indices=indices, seed=self.seed, frost=self.frost
        )


def corrupted(
    data: ImagesT,
    corruption: str,
    severity: int,
    seed: int = 0,
    frost: str | os.PathLike[str] | None = None,
) -> ImagesT:
    """Corrupt clean images exactly as ``driftnorm corrupt`` does with this seed.

    Args:
        data: Clean images. An `ImageSet` is corrupted at once, a `PictureSet` when it is read; its
            pictures also go through JPEG compression, as in a file.
        corruption: One of the 19.
        severity: 1 to 5.
        seed: Seed of the noise.
        frost: Source of frost's overlays; see `driftnorm.shifts.corrupt`.

    Returns:
        The corrupted images with the same labels and indices, named as from a released file.
    """
    shift = Corruption(corruption, severity, seed, frost)
    name = shifted_name(data.name, corruption, severity)
    note = frost_note(corruption, frost_source(frost)) if corruption == "frost" else ""
    return data.changed(shift.apply, name, note)


def shifted_name(clean: str, corruption: str, severity: int) -> str:
    """What corrupted data are called, e.g. ``cifar-10-c/fog/5``."""
    return f"{clean}-c/{corruption}/{severity}"


def array_file(folder: Path, corruption: str) -> Path:
    """All five severities of a corruption in the layout of CIFAR-10-C, as released."""
    return folder / f"{corruption}.npy"


def part_file(folder: Path, corruption: str, severity: int) -> Path:
    """One severity of a corruption of which not all five were generated."""
    return folder / f"{corruption}-{severity}.npy"


def frost_note(corruption: str, frost: str | None) -> str:
    """The note that results need if frost was made without the original overlays."""
    return f"frost is {frost}" if corruption == "frost" and frost not in (None, "overlays") else ""
