"""CIFAR-10-C and CIFAR-100-C as released, or as ``driftnorm corrupt`` writes them.

One array per corruption holds five blocks of 10,000 images, one per severity; ``labels.npy`` holds
the labels of all five blocks: the same labels, five times.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.corruption import (
    SEVERITIES,
    array_file,
    frost_note,
    part_file,
    shifted_name,
)
from driftnorm.images.image_set import ImageSet
from driftnorm.images.npy import open_npy
from driftnorm.images.provenance import WORK_FOLDER, read_provenance
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS

_RELEASED_ROWS = 10_000
_RELEASED_SHAPE = (32, 32, 3)


def load_cifar_c(
    folder: str | os.PathLike[str], corruption: str, severity: int, count: int | None = None
) -> ImageSet:
    """One corruption at one severity, memory-mapped.

    Args:
        folder: Holds ``<corruption>.npy`` and ``labels.npy``.
        corruption: Such as ``fog``.
        severity: 1 to 5.
        count: Use only the first this many images.

    Returns:
        The images, named e.g. ``cifar-10-c/fog/5``.

    Raises:
        FileNotFoundError: The corruption, the severity or the labels are missing.
        DataError: A file has the wrong shape, type or length.
    """
    home = Path(folder)
    check_whole("severity", severity, 1, 5)
    labels = _read_labels(home)
    images = _read_block(home, corruption, severity, len(labels))
    clean, classes, frost = _origin(home, labels)
    name, note = shifted_name(clean, corruption, severity), frost_note(corruption, frost)
    return ImageSet.whole(name, images, labels, classes, note).first(count)


def holds_cifar_c(folder: str | os.PathLike[str], corruption: str, severity: int) -> bool:
    """Whether a folder has a corruption at a severity, in either kind of file."""
    files = (array_file(Path(folder), corruption), part_file(Path(folder), corruption, severity))
    return severity in SEVERITIES and any(file.is_file() for file in files)


def check_cifar_c(folder: str | os.PathLike[str], name: str = "cifar-10-c") -> list[str]:
    """Everything that is wrong with a folder, one sentence each; empty for a valid one.

    The 15 common corruptions are required, the 4 extra ones optional. A folder made by ``driftnorm
    corrupt`` may have fewer rows and corruptions, since it records that.

    Args:
        folder: Which.
        name: What it should be: the clean data's name with ``-c``.
    """
    home = Path(folder)
    try:
        labels = _read_labels(home)
        found = f"{_origin(home, labels)[0]}-c"
    except (DataError, FileNotFoundError) as error:
        return [str(error)]
    released = read_provenance(home) is None
    problems = []
    if found != name:
        problems.append(f"{home} holds {found}, not {name}.")
    if (home / WORK_FOLDER).exists():
        problems.append(f"{home} is incomplete: `driftnorm corrupt` is running or was killed.")
    if released and len(labels) != _RELEASED_ROWS:
        problems.append(
            f"{home / 'labels.npy'} must have {5 * _RELEASED_ROWS:,} labels, "
            f"found {5 * len(labels):,}."
        )
    for corruption in CORRUPTIONS + EXTRA_CORRUPTIONS:
        required = released and corruption in CORRUPTIONS
        problems += _check_corruption(home, corruption, len(labels), required)
    return problems


def _check_corruption(home: Path, corruption: str, rows: int, required: bool) -> list[str]:
    whole, problems = array_file(home, corruption), []
    sizes = {part_file(home, corruption, severity): rows for severity in SEVERITIES}
    for file, size in {whole: 5 * rows, **sizes}.items():
        if file.exists() or (required and file == whole):
            try:
                _read_array(file, size)
            except (DataError, FileNotFoundError) as error:
                problems.append(str(error))
    return problems


def _read_labels(home: Path) -> Integers:
    """The labels of one block, after checking all five."""
    file = home / "labels.npy"
    labels = open_npy(file)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % 5 or not len(labels):
        raise DataError(
            f"{file} must hold five equal runs of integers, got {labels.dtype} of shape "
            f"{labels.shape}."
        )
    blocks: Integers = labels.reshape(5, -1).astype(np.int64)
    for severity, block in enumerate(blocks, start=1):
        if not np.array_equal(block, blocks[0]):
            raise DataError(
                f"{file} must repeat the same labels for all five severities; those of severity "
                f"{severity} differ from those of severity 1."
            )
    first: Integers = blocks[0]
    return first


def _read_block(home: Path, corruption: str, severity: int, rows: int) -> Pixels:
    whole = array_file(home, corruption)
    if whole.exists():
        return _read_array(whole, 5 * rows)[(severity - 1) * rows : severity * rows]
    part = part_file(home, corruption, severity)
    if part.exists():
        return _read_array(part, rows)
    there = sorted(path.stem for path in home.glob("*.npy") if path.name != "labels.npy")
    raise FileNotFoundError(
        f"{whole} does not exist; {home} holds {', '.join(there) or 'no corruptions'}. "
        f"`driftnorm corrupt DATA {home} --corruptions {corruption}` generates it."
    )


def _read_array(file: Path, rows: int) -> Pixels:
    array = open_npy(file)
    size = array.shape[1:] if read_provenance(file.parent) is not None else _RELEASED_SHAPE
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape != (rows, *size):
        raise DataError(
            f"{file} must be uint8 of shape {(rows, *size)} to match labels.npy, "
            f"got {array.dtype} of shape {array.shape}."
        )
    return array


def _origin(home: Path, labels: Integers) -> tuple[str, tuple[str, ...], str | None]:
    """Name and classes of the clean data, and the source of frost's overlays, if known."""
    made = read_provenance(home)
    if made is not None:
        return made.source, made.classes, made.frost
    if labels.max() < len(CIFAR10_CLASSES):
        return "cifar-10", CIFAR10_CLASSES, None
    return "cifar-100", CIFAR100_CLASSES, None
