"""The ``.npy`` files of the CIFAR-10-C layout: names, and a reader with clear errors."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from driftnorm.errors import DataError

__all__ = ["array_file", "npy_bytes", "open_npy", "part_file"]

_HEADER_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}


def array_file(folder: Path, corruption: str) -> Path:
    """All five severities of a corruption, as released."""
    return folder / f"{corruption}.npy"


def part_file(folder: Path, corruption: str, severity: int) -> Path:
    """One severity of a corruption of which not all five were generated."""
    return folder / f"{corruption}-{severity}.npy"


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """An array as the content of an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def open_npy(file: Path) -> npt.NDArray[Any]:
    """Memory-map an array; truncated, damaged and pickled files are refused as such."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    with file.open("rb") as stream:
        try:
            version = npy_format.read_magic(stream)
            shape, _, dtype = _HEADER_READERS[version](stream)
        except (ValueError, KeyError, EOFError) as error:
            raise DataError(f"{file} is not an .npy file, or a damaged one: {error}.") from error
        start = stream.tell()
    if dtype.hasobject:
        raise DataError(f"{file} holds pickled Python objects, which are not loaded.")
    expected, found = start + math.prod(shape) * dtype.itemsize, file.stat().st_size
    if found < expected:
        raise DataError(
            f"{file} is truncated: its header announces {expected:,} bytes, found {found:,}."
        )
    opened: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return opened
