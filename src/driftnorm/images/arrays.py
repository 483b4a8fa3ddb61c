"""Images in an ``.npy`` or ``.npz`` array, read one by one, never the whole array."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import prod
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
import numpy.typing as npt

from driftnorm._internal.counts import agreeing, counted
from driftnorm.errors import DataError
from driftnorm.images.contents import Raw, Unreadable
from driftnorm.images.npy import NpyHeader, open_npy, read_header
from driftnorm.images.npz import check_zip
from driftnorm.images.stream import Inputs, Survey

_CHANNELS = (1, 3, 4)
FEW = 8  # images that are checked first
_LABELS = "labels"


class ArrayFile(Inputs):
    """Images (N, H, W, C), (N, C, H, W) or (N, H, W): whole numbers, or floats in [0, 1].

    In an ``.npz``, the array ``images`` is used, or the only one that can hold images. Images are
    named by their position.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if path.suffix.lower() == ".npz":
            self._member: str | None = _images_in(path)
        else:
            self._member = None
            open_npy(path)  # says what is wrong with a damaged file
        with self._open() as stream:
            self._header = read_header(path, stream)
        _check_layout(path, self._header)
        self._check_range()

    def survey(self) -> Survey:
        """As the header says."""
        return Survey(self._header.shape[0])

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The images, named 0, 1, ..."""
        shape, _, dtype = self._header
        size = prod(shape[1:]) * dtype.itemsize
        with self._open() as stream:
            read_header(self.path, stream)
            stream.seek(min(starting_at, shape[0]) * size, 1)
            for position in range(starting_at, shape[0]):
                data, problem = _read(stream, size)
                if problem:
                    yield Raw(str(position), Unreadable(problem, and_more=True))
                    return
                image: npt.NDArray[Any] = np.frombuffer(data, dtype).reshape(shape[1:])
                yield Raw(str(position), _laid_out(image))

    def by_position(self) -> Sequence[Raw]:
        """The images, each read on request; compressed arrays do not allow this."""
        if self._member is None:
            begin = 0
        else:
            with zipfile.ZipFile(self.path) as archive:
                about = archive.getinfo(self._member)
            if about.compress_type != zipfile.ZIP_STORED:
                return super().by_position()
            begin = _stored_at(self.path, about)
        with self.path.open("rb") as stream:
            stream.seek(begin)
            shape, _, dtype = read_header(self.path, stream)
            return _Rows(np.memmap(self.path, dtype, "r", stream.tell(), shape))

    def own_labels(self) -> dict[str, str]:
        """The array ``labels`` of an ``.npz``: numbers or names of classes."""
        if self._member is None:
            return {}
        with np.load(self.path) as arrays:
            if _LABELS not in arrays:
                return {}
            labels = arrays[_LABELS]
        count = self._header.shape[0]
        if labels.shape != (count,) or labels.dtype.kind not in "iuU":
            raise DataError(
                f"{self.path}: `{_LABELS}` must hold one class number or name for each of the "
                f"{counted(count, 'image')}, got {labels.dtype} of shape {labels.shape}."
            )
        return {str(position): str(label) for position, label in enumerate(labels)}

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self._member is None:
            with self.path.open("rb") as stream:
                yield stream
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(self._member) as member:
                yield member

    def _check_range(self) -> None:
        """Refuse numbers of another scale at once: every image has them."""
        few = [raw.content for raw in islice(self.raw(), FEW)]
        first = few[0]
        if self._header.dtype.kind == "u" and self._header.dtype.itemsize == 2:
            highest = max((int(c.max()) for c in few if isinstance(c, np.ndarray)), default=0)
            if 0 < highest <= 255:
                raise DataError(
                    f"{self.path}: 16-bit values go up to 65535, but the first "
                    f"{counted(len(few), 'image')} {agreeing(len(few), 'goes', 'go')} up to "
                    f"{highest}: save them as uint8 if they are bytes."
                )
        if isinstance(first, np.ndarray) and first.dtype.kind == "f":
            low, high = float(first.min()), float(first.max())
            if not (low >= 0 and high <= 1):
                raise DataError(
                    f"{self.path}: floats must lie in [0, 1] (the network normalises them itself), "
                    f"got {low:.4g} to {high:.4g} in the first image."
                )


class _Rows(Sequence[Raw]):
    """The images of an array that is stored uncompressed, each read on request."""

    def __init__(self, images: npt.NDArray[Any]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    @overload
    def __getitem__(self, position: int) -> Raw: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Raw]: ...

    def __getitem__(self, position: int | slice) -> Raw | Sequence[Raw]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        return Raw(str(position), _laid_out(np.array(self._images[position])))


def _read(stream: IO[bytes], size: int) -> tuple[bytes, str]:
    """The next bytes, and why they are not all that were wanted."""
    try:
        data = stream.read(size)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return b"", f"the rest of the file cannot be read: {error}"
    return data, "the file ends before this image" if len(data) < size else ""


def _laid_out(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One image as (H, W, C)."""
    if image.ndim == 2:
        return image[:, :, None]
    return image if image.shape[2] in _CHANNELS else image.transpose(1, 2, 0)


def _stored_at(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of an uncompressed member begin: after its header, name and extra field."""
    with path.open("rb") as stream:
        stream.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", stream.read(4))
    return member.header_offset + 30 + int(name) + int(extra)


def _images_in(path: Path) -> str:
    """The name of the member of an ``.npz`` that holds the images."""
    check_zip(path)
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
        if "images.npy" in members:
            return "images.npy"
        fitting = []
        for name in members:
            with archive.open(name) as stream:
                if _may_be_images(read_header(path, stream)):
                    fitting.append(name)
    if len(fitting) != 1:
        held = ", ".join(name.removesuffix(".npy") for name in members) or "nothing"
        raise DataError(
            f"{path} must hold an array `images`, or only one array of images; it holds {held}."
        )
    return fitting[0]


def _check_layout(path: Path, header: NpyHeader) -> None:
    """Refuse arrays that do not hold images, or cannot be read one image at a time."""
    shape, fortran_order, dtype = header
    if not _may_be_images(header):
        raise DataError(
            f"{path} must hold numbers of shape (N, H, W, 3), (N, 3, H, W) or (N, H, W), "
            f"got {dtype} of shape {shape}."
        )
    if len(shape) == 3 and shape[2] in (3, 4):
        raise DataError(
            f"{path} holds a single picture of shape {shape}, not several: save "
            "`images[None]` if that is all you have."
        )
    if 0 in shape:
        raise DataError(f"{path} holds no images: its shape is {shape}.")
    if fortran_order:
        raise DataError(
            f"{path} is stored in Fortran order and cannot be read image by image; save "
            "`numpy.ascontiguousarray(images)`."
        )


def _may_be_images(header: NpyHeader) -> bool:
    shape = header.shape
    if header.dtype.kind not in "uifb":
        return False
    return len(shape) == 3 or (len(shape) == 4 and (shape[3] in _CHANNELS or shape[1] in _CHANNELS))
