"""Generating corrupted data sets in the released layouts, in parallel and resumably."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftnorm._internal.files import exclusive
from driftnorm._internal.processes import checked_workers
from driftnorm._internal.progress import Report, no_report
from driftnorm.errors import DataError
from driftnorm.images.corrupted_arrays import write_arrays
from driftnorm.images.corrupted_pictures import check_pictures, write_pictures
from driftnorm.images.corruption import SEVERITIES, Corruption
from driftnorm.images.image_set import ImageSet
from driftnorm.images.labelled import load_clean
from driftnorm.images.pictures import PictureSet
from driftnorm.images.provenance import WORK_FOLDER, claim_folder, describe, read_provenance
from driftnorm.shifts import CORRUPTIONS, corrupt, frost_source

_LOCK = ".driftnorm.lock"


@dataclass(frozen=True)
class Generated:
    """What a call of `generate` produced.

    Attributes:
        folder: Where the data are.
        source: The clean data's name.
        count: How many clean images there were.
        frost: ``overlays``, ``procedural``, or None if frost was not requested.
    """

    folder: Path
    source: str
    count: int
    frost: str | None


def generate(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    workers: int | None = None,
    seed: int = 0,
    frost: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    progress: Report = no_report,
) -> Generated:
    """Corrupt clean images and write them in the layout of CIFAR-10-C or of ImageNet-C.

    Small images in memory become arrays: ``<corruption>.npy`` with five blocks of N rows, one per
    severity, and ``labels.npy``. If only some severities of a corruption are requested, each stays
    in its own file ``<corruption>-<severity>.npy``, which other programs cannot mistake for the
    complete one. Pictures become ``<corruption>/<severity>/<their path>.JPEG``.

    If stopped at any point and called again, it resumes, and the files are the same.

    Args:
        data: See `driftnorm.images.labelled.load_clean`.
        out: The folder to write to: new, empty, or made by an earlier call with these settings.
        corruptions: Their names.
        severities: From 1 to 5.
        workers: Number of processes; one per core by default.
        seed: Seed of the noise.
        frost: Source of frost's overlays; see `driftnorm.shifts.corrupt`.
        limit: Use only this many images: the first ones, or evenly spaced ones of a folder of
            pictures.
        progress: Called with the current activity, images done, and images in total.

    Returns:
        What was generated, and from what.
    """
    processes = checked_workers(workers)
    shifts = _checked_shifts(corruptions, severities, seed, frost)
    source = frost_source(frost) if "frost" in corruptions else None
    folder, place = Path(out), Path(data)
    images = load_clean(place).some(limit)
    if images.in_files and folder.resolve().is_relative_to(place.resolve()):
        raise DataError(
            f"`out` {folder} is inside `data` {place}, whose pictures are about to be read. "
            "Choose a folder outside it."
        )
    if isinstance(images, PictureSet) and read_provenance(folder) is None:
        check_pictures(images, processes, progress)  # a bad one would stop the run half-way
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / _LOCK, f"Another process is generating data in {folder}."):
        claim_folder(folder, describe(images, place, seed, source), os.fspath(data))
        work = folder / WORK_FOLDER
        shutil.rmtree(work, ignore_errors=True)  # left by a killed run
        work.mkdir()
        try:
            if isinstance(images, ImageSet):
                write_arrays(images, folder, work, shifts, processes, progress)
            else:
                write_pictures(images, place, folder, shifts, processes, progress)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Generated(folder, images.name, len(images), source)


def _checked_shifts(
    corruptions: Sequence[str],
    severities: Sequence[int],
    seed: int,
    frost: str | os.PathLike[str] | None,
) -> list[Corruption]:
    """The corruptions to apply, each tried on one black image so that errors show at once."""
    if not corruptions or not severities:
        raise ValueError("`corruptions` and `severities` must each name at least one.")
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    shifts = []
    for name in dict.fromkeys(corruptions):
        for severity in sorted(set(severities)):
            corrupt(black, name, severity, seed=seed, frost=frost)
            shifts.append(Corruption(name, severity, seed, frost))
    return shifts
