"""MNIST, or anything in its format: idx files, plain or gzipped.

An idx file starts with a magic number for the type and the number of axes, then the length of each
axis, all as big-endian 32-bit integers, then the bytes.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.types import Pixels
from driftnorm.errors import DataError
from driftnorm.images.cifar import Split, checked_split
from driftnorm.images.image_set import ImageSet, find_home

MNIST_HOMES = ("", "data", "package/data", "MNIST/raw")
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_UNSIGNED_BYTES = 0x0800  # the magic number's middle byte; the number of axes is added to it
_CLASSES = tuple(str(digit) for digit in range(10))


def load_mnist(
    folder: str | os.PathLike[str], split: Split = "test", name: str = "mnist"
) -> ImageSet:
    """MNIST in its official order, its one channel repeated three times without a copy.

    Args:
        folder: Holds ``train-images-idx3-ubyte`` and so on, with or without ``.gz``.
        split: ``"train"`` for the 60,000, ``"test"`` for the 10,000.
        name: Another name, for other data in the same format.

    Returns:
        The images, (N, 28, 28, 3). ``images[..., 0]`` is the grey image.

    Raises:
        FileNotFoundError: A file is missing.
        DataError: A file is too short or too long, or is not an idx file.
    """
    files = MNIST_FILES[checked_split(split)]
    home = find_home(Path(folder), MNIST_HOMES, (*files, *(f"{file}.gz" for file in files)))
    images, labels = (
        _read_idx(home / file, axes) for file, axes in zip(files, (3, 1), strict=True)
    )
    if len(images) != len(labels):
        raise DataError(
            f"{home / files[0]} has {counted(len(images), 'image')}, {files[1]} "
            f"{counted(len(labels), 'label')}: the two do not belong together."
        )
    colour = np.broadcast_to(images[..., None], (*images.shape, 3))
    return ImageSet.whole(name, colour, labels.astype(np.int64), _CLASSES)


def _read_idx(file: Path, axes: int) -> Pixels:
    zipped = file.with_name(file.name + ".gz")
    if file.is_file():
        content: Pixels = np.memmap(file, dtype=np.uint8, mode="r")
    elif zipped.is_file():
        file = zipped
        content = _unzip(zipped)
    else:
        raise FileNotFoundError(
            f"Neither {file} nor {zipped.name} exists; `driftnorm data get mnist` fetches it."
        )
    header = 4 * (1 + axes)
    if len(content) < header:
        raise DataError(
            f"{file} is truncated: its header alone has {counted(header, 'byte')}, found "
            f"{len(content)}."
        )
    magic, *shape = np.frombuffer(content[:header].tobytes(), dtype=">u4").tolist()
    if magic != _UNSIGNED_BYTES + axes:
        raise DataError(
            f"{file} is not an idx file of bytes with {axes} axes: expected the magic number "
            f"{_UNSIGNED_BYTES + axes}, found {magic}."
        )
    size = header + int(np.prod(shape))
    if len(content) != size:
        trouble = "is truncated" if len(content) < size else "is too long"
        raise DataError(
            f"{file} {trouble}: expected {counted(size, 'byte')}, found {len(content):,}."
        )
    values: Pixels = content[header:].reshape(shape)
    return values


def _unzip(file: Path) -> Pixels:
    try:
        return np.frombuffer(gzip.decompress(file.read_bytes()), dtype=np.uint8)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{file} is truncated, or not a gzip file: {error}.") from error
