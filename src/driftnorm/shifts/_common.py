"""What every corruption works on: a chunk of images, their random streams, the cast to bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftnorm._internal.types import Doubles, Floats, Integers, Pixels, Reals
from driftnorm.shifts.constants import Scale

# How far below a whole number the rounding of sums may leave one, by the precision of the sums.
_SINGLE_SLACK, _DOUBLE_SLACK = 1e-4, 1e-9


class Draws:
    """Random numbers of a chunk of images, each image with streams of its own.

    Every method draws one array for each image and stacks them. The counter of the Philox generator
    is set directly to (image index, number of the draw) and its key to (seed, corruption,
    severity). Streams with different counters cannot overlap, need no hashing, and do not depend on
    which other images are in the chunk.
    """

    def __init__(self, seed: int, indices: Sequence[int], name: str, severity: int) -> None:
        corruption = zlib.crc32(name.encode()) << 8 | severity
        self._bits = np.random.Philox(key=np.array([seed, corruption], dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._fresh: Any = self._bits.state
        self._indices = indices
        self._draw = 0

    def _each(self) -> Iterator[tuple[int, np.random.Generator]]:
        """Yield every image's position and a generator at the start of a new stream for it."""
        counter = self._fresh["state"]["counter"]
        for position, index in enumerate(self._indices):
            counter[:] = (0, self._draw, index, 0)
            self._bits.state = self._fresh
            yield position, self._generator
        self._draw += 1

    def normal(self, *shape: int) -> Floats:
        """Standard normal numbers."""
        values = np.empty((len(self._indices), *shape), dtype=np.float32)
        for position, generator in self._each():
            generator.standard_normal(out=values[position, ...], dtype=np.float32)
        return values

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Uniform numbers from ``low`` to ``high``."""
        values = np.empty((len(self._indices), *shape), dtype=np.float32)
        for position, generator in self._each():
            generator.random(out=values[position, ...], dtype=np.float32)
        values *= np.float32(high - low)
        values += np.float32(low)
        return values

    def integers(self, low: int, high: int, *shape: int) -> Integers:
        """Integers from ``low`` to ``high - 1``."""
        values = np.empty((len(self._indices), *shape), dtype=np.int64)
        for position, generator in self._each():
            values[position] = generator.integers(low, high, shape, dtype=np.int32)
        return values

    def poisson(self, means: Reals) -> Floats:
        """Poisson numbers with one mean for each value of each image."""
        values = np.empty(means.shape, dtype=np.float32)
        for position, generator in self._each():
            values[position] = generator.poisson(means[position])
        return values


@dataclass(frozen=True)
class Chunk:
    """The images one call of a corruption works on, few enough for its buffers to stay small.

    Attributes:
        pixels: The clean images; never written to.
        draws: The images' random numbers.
        scale: Which table of constants is in use.
        frost: Where frost pictures come from, as given to `corrupt`.
    """

    pixels: Pixels
    draws: Draws
    scale: Scale
    frost: str | os.PathLike[str] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def floats(self) -> Floats:
        """The images as floats from 0 to 255, (N, H, W, 3)."""
        return self.pixels.astype(np.float32)

    def planes(self) -> Doubles:
        """The images as doubles from 0 to 255 with channels first, (N, 3, H, W)."""
        return to_planes(self.pixels)


def truncate(values: Reals) -> Pixels:
    """Clip values to 0..255 and drop their fraction, as the original scripts do.

    A flat area has values that are whole numbers but for the rounding of float sums, which may go
    either way and must not cost a whole grey level. The slack against it is as small as the
    precision allows: weak blurs truly have many values some 1e-4 below a whole number.
    """
    slack = _SINGLE_SLACK if values.dtype == np.float32 else _DOUBLE_SLACK
    clipped: Reals = np.clip(values + slack, 0, 255)
    return clipped.astype(np.uint8)


def to_planes(pixels: Pixels) -> Doubles:
    """Bytes (N, H, W, 3) to doubles (N, 3, H, W)."""
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float64)


def from_planes(planes: Reals) -> Pixels:
    """Numbers (N, 3, H, W) to bytes (N, H, W, 3), truncated."""
    return np.ascontiguousarray(truncate(planes).transpose(0, 2, 3, 1))
