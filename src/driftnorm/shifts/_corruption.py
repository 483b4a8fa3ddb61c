"""Corrupting a batch: checks, chunks, and the choice of constants."""

from __future__ import annotations

import operator
import os
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from driftnorm._internal.arguments import check_choice
from driftnorm._internal.types import Pixels
from driftnorm.shifts._common import Chunk, Draws
from driftnorm.shifts.constants import SCALES, Scale
from driftnorm.shifts.registry import SHIFTS

_SMALLEST_SIDE = 8
_LARGEST_CIFAR_SIDE = 64
# Pixels worked on at once: at 32 px 128 images, whose float planes fit a core's cache.
_CHUNK_PIXELS = 2**17


def corrupt(
    images: Pixels,
    name: str,
    severity: int,
    *,
    indices: npt.ArrayLike | None = None,
    seed: int = 0,
    scale: Scale | None = None,
    frost: str | os.PathLike[str] | None = None,
) -> Pixels:
    """Corrupt a batch of images.

    An image's pixels depend on the image, its index, the corruption, the severity and the seed, and
    on nothing else: any subset, order, batch size or number of processes gives the same.

    Args:
        images: Bytes, (N, H, W, 3), of at least 8 x 8 pixels.
        name: One of `CORRUPTIONS` or `EXTRA_CORRUPTIONS`.
        severity: 1 to 5.
        indices: Each image's index in its data set, (N,); 0, 1, 2, ... by default.
        seed: Another seed gives other noise.
        scale: ``"cifar"`` for the constants made for 32 px, ``"imagenet"`` for those made for 224.
            By default ``"cifar"`` if the short side is at most 64 px.
        frost: For the corruption ``frost``: the folder of its pictures, or ``"procedural"`` for a
            stand-in. By default the folder that the environment variable ``DRIFTNORM_FROST`` names,
            or that of an installed package ``imagecorruptions``.

    Returns:
        New bytes of the same shape.

    Raises:
        FileNotFoundError: For ``frost`` without its pictures.
    """
    _check_images(images)
    check_choice("name", name, SHIFTS)
    shift = SHIFTS[name]
    severity = _checked_integer(severity, "severity", 1, 5)
    seed = _checked_integer(seed, "seed", 0, 2**64 - 1)
    positions = _checked_indices(indices, len(images))
    scale = default_scale(*images.shape[1:3]) if scale is None else scale
    check_choice("scale", scale, SCALES)
    constants = shift.constants[scale][severity - 1]
    corrupted = np.empty(images.shape, dtype=np.uint8)
    size = max(1, _CHUNK_PIXELS // (images.shape[1] * images.shape[2]))
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        draws = Draws(seed, positions[part], name, severity)
        pixels = np.ascontiguousarray(images[part])
        corrupted[part] = shift.apply(Chunk(pixels, draws, scale, frost), *constants)
    return corrupted


def default_scale(height: int, width: int) -> Scale:
    """The constants for a size: those made for 32 px up to a short side of 64, else for 224."""
    return "cifar" if min(height, width) <= _LARGEST_CIFAR_SIDE else "imagenet"


def _check_images(images: Pixels) -> None:
    if not isinstance(images, np.ndarray):
        raise TypeError(
            f"`images` must be a numpy array, got {type(images).__name__}. "
            "Convert it with `np.asarray(images)`."
        )
    if images.dtype != np.uint8:
        raise TypeError(
            f"`images` must have dtype uint8 with values from 0 to 255, got {images.dtype}. "
            "Corrupt the images before they are scaled and normalised."
        )
    if images.ndim != 4 or images.shape[3] != 3:
        raise ValueError(
            f"`images` must have shape (N, H, W, 3), got {images.shape}. "
            "Add the batch axis with `images[None]`, move channels last with `np.moveaxis`."
        )
    if min(images.shape[1:3]) < _SMALLEST_SIDE:
        raise ValueError(
            f"`images` must be at least {_SMALLEST_SIDE} x {_SMALLEST_SIDE} pixels, "
            f"got {images.shape[1]} x {images.shape[2]}."
        )


def _checked_integer(value: SupportsIndex, argument: str, low: int, high: int) -> int:
    message = f"`{argument}` must be an integer from {low} to {high}, got {value!r}."
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(message) from None
    if isinstance(value, bool) or not low <= number <= high:
        raise ValueError(message)
    return number


def _checked_indices(indices: npt.ArrayLike | None, count: int) -> list[int]:
    if indices is None:
        return list(range(count))
    array = np.asarray(indices)
    if array.shape != (count,):
        raise ValueError(
            f"`indices` must have one entry per image, here {count}, got shape {array.shape}."
        )
    if count and array.dtype.kind not in "iu":
        raise TypeError(f"`indices` must be integers, got dtype {array.dtype}.")
    if count and array.min() < 0:
        raise ValueError(f"`indices` must not be negative, got {array.min()}.")
    positions: list[int] = array.tolist()
    return positions
