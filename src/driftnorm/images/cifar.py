"""CIFAR-10 and CIFAR-100 from the official binary files.

A file is a run of records: the label (CIFAR-100: coarse label, then fine label), then the red, the
green and the blue plane of 32 x 32 bytes. One file is memory-mapped; CIFAR-10's five training files
are read into one array.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from driftnorm._internal.arguments import check_choice
from driftnorm._internal.counts import counted
from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.image_set import ImageSet, find_home
from driftnorm.images.npz import load_npz

Split: TypeAlias = Literal["train", "test"]

CIFAR10_HOMES = ("", "cifar-10-batches-bin", "package/cifar-10-batches-bin")
CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
CIFAR100_HOMES = ("", "cifar-100-binary")
CIFAR100_FILES = {"train": "train.bin", "test": "test.bin"}

_SIDE = 32
_PIXEL_BYTES = 3 * _SIDE * _SIDE
_BATCH_RECORDS = 10_000
_CIFAR100_RECORDS = {"train": 50_000, "test": 10_000}
_META = "batches.meta.txt"
_CIFAR10_ADVICE = "`driftnorm data get cifar-10` fetches them"
_CIFAR100_ADVICE = (
    "unpack https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz, or name an .npz file "
    "with images, labels and classes"
)


def load_cifar10(folder: str | os.PathLike[str], split: Split = "test") -> ImageSet:
    """CIFAR-10 in its official order.

    Args:
        folder: Holds the official binary files, itself or in ``cifar-10-batches-bin``.
        split: ``"train"`` for the 50,000, ``"test"`` for the 10,000.

    Returns:
        The images, named ``cifar-10``.

    Raises:
        FileNotFoundError: A file is missing.
        DataError: A file is too short or too long, or has other content.
    """
    names = CIFAR10_FILES[checked_split(split)]
    home = find_home(Path(folder), CIFAR10_HOMES, names)
    parts = [_read_records(home / name, _BATCH_RECORDS, 1, 10, _CIFAR10_ADVICE) for name in names]
    images, labels = parts[0]
    if len(parts) > 1:
        images = np.concatenate([part[0] for part in parts])
        labels = np.concatenate([part[1] for part in parts])
    return ImageSet.whole("cifar-10", images, labels, _cifar10_classes(home))


def load_cifar100(path: str | os.PathLike[str], split: Split = "test") -> ImageSet:
    """CIFAR-100 with its fine labels.

    Args:
        path: A folder that holds the official ``train.bin`` and ``test.bin``, itself or in
            ``cifar-100-binary``; or an ``.npz`` file with ``images``, ``labels`` and ``classes``,
            used as the requested split.
        split: ``"train"`` for the 50,000, ``"test"`` for the 10,000.

    Returns:
        The images, named ``cifar-100``.

    Raises:
        FileNotFoundError: A file is missing.
        DataError: A file is too short or too long, or has other content.
    """
    split = checked_split(split)
    if Path(path).suffix == ".npz":
        stored = load_npz(path)
        if stored.name != "cifar-100":
            raise DataError(
                f"{path} does not hold CIFAR-100: expected its 100 class names in official order, "
                f"got {counted(len(stored.classes), 'class')} starting with "
                f"{', '.join(stored.classes[:3])}."
            )
        return stored
    name = CIFAR100_FILES[split]
    file = find_home(Path(path), CIFAR100_HOMES, (name,)) / name
    images, labels = _read_records(file, _CIFAR100_RECORDS[split], 2, 100, _CIFAR100_ADVICE)
    return ImageSet.whole("cifar-100", images, labels, CIFAR100_CLASSES)


def _read_records(
    file: Path, records: int, label_bytes: int, classes: int, advice: str
) -> tuple[Pixels, Integers]:
    """Views of the images and a copy of the (last) labels of one file."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; {advice}.")
    size, found = records * (label_bytes + _PIXEL_BYTES), file.stat().st_size
    if found != size:
        trouble = "is truncated" if found < size else "is too long"
        raise DataError(
            f"{file} {trouble}: expected {counted(size, 'byte')}, found {found:,}; {advice}."
        )
    rows = np.memmap(file, dtype=np.uint8, mode="r").reshape(records, -1)
    labels = rows[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= classes:
        raise DataError(
            f"{file} has the right size but a label of {labels.max()}; expected 0 to "
            f"{classes - 1}: it is damaged or holds other data; {advice}."
        )
    planes = rows[:, label_bytes:].reshape(records, 3, _SIDE, _SIDE)
    return planes.transpose(0, 2, 3, 1), labels


def _cifar10_classes(home: Path) -> tuple[str, ...]:
    meta = home / _META
    if not meta.is_file():
        return CIFAR10_CLASSES
    names = tuple(meta.read_text().split())
    if names != CIFAR10_CLASSES:
        raise DataError(
            f"{meta} must name the classes {', '.join(CIFAR10_CLASSES)}; it names "
            f"{', '.join(names) or 'none'}. The folder does not hold CIFAR-10."
        )
    return names


def checked_split(split: Split) -> Split:
    """The split, if it is one."""
    check_choice("split", split, ("train", "test"))
    return split
