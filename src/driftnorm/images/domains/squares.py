"""Pictures from files, squashed to squares, many at a time, in worker processes.

Kept free of torch, which would cost each worker a second and a lot of memory to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftnorm._internal.files import file_digest
from driftnorm._internal.types import Pixels
from driftnorm.images.pictures import read_stretched

_PICTURES_A_CHUNK = 64  # short tasks, so that the bar moves and all cores finish together


@dataclass(frozen=True)
class Chunk:
    """Consecutive pictures of a set: position of the first, files, side to squash to."""

    start: int
    paths: tuple[Path, ...]
    side: int


@dataclass(frozen=True)
class Decoded:
    """Pixels (N, S, S, 3) of a chunk, and the SHA-256 of each file."""

    pixels: Pixels
    digests: tuple[bytes, ...]


def chunks(paths: Sequence[Path], side: int) -> Iterator[Chunk]:
    """All pictures, cut into tasks."""
    for start in range(0, len(paths), _PICTURES_A_CHUNK):
        yield Chunk(start, tuple(paths[start : start + _PICTURES_A_CHUNK]), side)


def decode_chunk(chunk: Chunk) -> Decoded:
    """Read, hash and squash the pictures of a chunk."""
    pixels = np.stack([read_stretched(path, 0, chunk.side) for path in chunk.paths])
    return Decoded(pixels, tuple(map(file_digest, chunk.paths)))
