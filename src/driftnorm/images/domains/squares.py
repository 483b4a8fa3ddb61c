"""Pictures from files, squashed to squares, many at a time, in worker processes.

Kept free of torch, which would cost each worker a second and a lot of memory to load.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from driftnorm._internal.types import Pixels
from driftnorm.errors import DataError
from driftnorm.images.pictures import open_picture

__all__ = [
    "Chunk",
    "Decoded",
    "chunks",
    "decode_chunk",
    "file_digest",
    "open_rgb",
    "squashed",
    "unreadable_in",
]

_PICTURES_A_CHUNK = 64  # short tasks, so that the bar moves and all cores finish together


@dataclass(frozen=True)
class Chunk:
    """Consecutive pictures of a set: position of the first, files, side to squash to."""

    start: int
    paths: tuple[Path, ...]
    side: int = 0


@dataclass(frozen=True)
class Decoded:
    """Pixels (N, S, S, 3) of a chunk, and the SHA-256 of each file."""

    pixels: Pixels
    digests: tuple[bytes, ...]


def chunks(paths: Sequence[Path], side: int = 0) -> Iterator[Chunk]:
    """All pictures, cut into tasks."""
    for start in range(0, len(paths), _PICTURES_A_CHUNK):
        yield Chunk(start, tuple(paths[start : start + _PICTURES_A_CHUNK]), side)


def decode_chunk(chunk: Chunk) -> Decoded:
    """Read, hash and squash the pictures of a chunk."""
    pixels = np.stack([squashed(path, chunk.side) for path in chunk.paths])
    return Decoded(pixels, tuple(map(file_digest, chunk.paths)))


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).digest()


def unreadable_in(chunk: Chunk) -> list[tuple[Path, str]]:
    """The pictures of a chunk that cannot be decoded, and why."""
    found = []
    for path in chunk.paths:
        try:
            open_rgb(path)
        except (DataError, OSError) as error:
            found.append((path, str(error.__cause__ or error)))
    return found


def squashed(path: Path, side: int) -> Pixels:
    """A picture in RGB, stretched to ``side`` x ``side`` px, bilinear, as DomainBed does."""
    return np.asarray(open_rgb(path).resize((side, side), Image.Resampling.BILINEAR))


def open_rgb(path: Path) -> Image.Image:
    """A picture in RGB; every error names the file."""
    try:
        return open_picture(path)
    except (Image.DecompressionBombError, EOFError, struct.error, IndexError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}.") from error
