"""Arrays in ``.npy`` files, memory-mapped, with clear errors."""

from __future__ import annotations

import io
import math
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from driftnorm._internal.counts import counted
from driftnorm.errors import DataError

_HEADER_READERS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
}
# The last two from arrays in an .npz.
_DAMAGE = (ValueError, KeyError, EOFError, TokenError, BadZipFile, zlib.error)


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """An array as the content of an ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


class NpyHeader(NamedTuple):
    """What an ``.npy`` file says about its array."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]


def read_header(file: Path, stream: IO[bytes]) -> NpyHeader:
    """Read the header at the beginning of a stream; ``file`` is named in errors."""
    try:
        version = npy_format.read_magic(stream)
        return NpyHeader(*_HEADER_READERS[version](stream))
    except _DAMAGE as error:
        raise DataError(f"{file} is not an .npy file, or a damaged one: {error}.") from error


def open_npy(file: Path) -> npt.NDArray[Any]:
    """Memory-map an array; truncated, damaged and pickled files are refused as such."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist.")
    with file.open("rb") as stream:
        shape, _, dtype = read_header(file, stream)
        start = stream.tell()
    if dtype.hasobject:
        raise DataError(f"{file} holds pickled Python objects, which are not loaded.")
    expected, found = start + math.prod(shape) * dtype.itemsize, file.stat().st_size
    if found < expected:
        raise DataError(
            f"{file} is truncated: its header announces {counted(expected, 'byte')}, found "
            f"{found:,}."
        )
    opened: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return opened
