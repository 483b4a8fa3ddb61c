"""Blur: defocus, glass, motion, zoom, and the extra Gaussian blur.

Radii, sigmas and displacements are in pixels and do not change with the size of the image.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from driftnorm._internal.types import Integers, Pixels, Reals
from driftnorm.shifts._common import Chunk, from_planes, to_planes, truncate
from driftnorm.shifts._filters import (
    band_matrix,
    clipped_zoom,
    correlate,
    gaussian_filter,
    gaussian_weights,
    motion_filter,
)


@lru_cache(maxsize=32)
def disk_kernel(radius: float, softness: float) -> Reals:
    """A disk of sum 1 on a grid of at least 17 pixels, its rim softened by a small Gaussian.

    The softening reflects at the grid's border, which matters for a radius of 8. Empty rows and
    columns around the disk are cut off.
    """
    reach = 8 if radius <= 8 else int(radius)
    squares = np.arange(-reach, reach + 1) ** 2
    disk = (squares[:, None] + squares <= radius**2).astype(np.float64)
    disk /= disk.sum()
    soften = band_matrix(gaussian_weights(softness, 1 if radius <= 8 else 2), len(disk), "mirror")
    kernel: Reals = soften @ disk @ soften.T
    empty = int(np.argmax(kernel.any(axis=1)))
    return kernel[empty : len(kernel) - empty, empty : len(kernel) - empty]


def defocus_blur(chunk: Chunk, radius: float, softness: float) -> Pixels:
    """Spread every point over a disk."""
    return from_planes(correlate(chunk.planes(), disk_kernel(radius, softness), "mirror"))


def glass_blur(chunk: Chunk, sigma: float, reach: int, iterations: int) -> Pixels:
    """Blur, let each pixel take the colour of a nearby one, blur again.

    The original means to swap two pixels, but its assignment reads the first pixel after writing
    it, so that the second keeps its colour: a copy one way. The released sets were made so.
    """
    count, (height, width) = len(chunk.pixels), chunk.size
    blurred = from_planes(gaussian_filter(chunk.planes(), sigma))
    origins = np.broadcast_to(np.arange(height * width), (count, height * width))
    for _ in range(iterations):
        rows = chunk.draws.integers(-reach, reach, height - 2 * reach, width - 2 * reach)
        columns = chunk.draws.integers(-reach, reach, height - 2 * reach, width - 2 * reach)
        copied = copy_origins(rows, columns, height, width, reach)
        origins = np.take_along_axis(origins, copied, axis=1)
    colours = blurred.reshape(count, height * width, 3)
    shuffled = np.take_along_axis(colours, origins[..., None], axis=1).reshape(blurred.shape)
    return from_planes(gaussian_filter(to_planes(shuffled), sigma))


def copy_origins(
    rows: Integers, columns: Integers, height: int, width: int, reach: int
) -> Integers:
    """Find the pixel of the old image that each pixel of the new one shows.

    Pixels are visited from the last row and column to the first and copy the pixel at their offset
    as it is at that moment. One that was visited already shows what it copied itself: such chains
    are followed for all pixels and images at once, in steps of doubling length.

    Args:
        rows: Offsets (N, H - 2 reach, W - 2 reach), of the pixels from ``reach + 1`` on.
        columns: The same along the other axis.
        height: H.
        width: W.
        reach: The margin, and the bound of the offsets, from -reach to reach - 1.

    Returns:
        Positions in the flattened image, (N, H * W).
    """
    count = len(rows)
    own = np.arange(height * width)
    visited = np.zeros((height, width), dtype=bool)
    visited[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    inner = visited.ravel()
    origins = np.repeat(own[None], count, axis=0)
    origins[:, inner] += (rows * width + columns).reshape(count, -1)
    chained = (origins > own) & inner[origins]
    while chained.any():
        images, pixels = np.nonzero(chained)
        through = origins[images, pixels]
        followed = origins[images, through], chained[images, through]
        origins[images, pixels], chained[images, pixels] = followed
    return origins


def motion_blur(chunk: Chunk, radius: int, sigma: float) -> Pixels:
    """Smear along an angle between -45 and 45 degrees, with bytes rounded, not truncated."""
    smeared = motion_filter(chunk.floats(), radius, sigma, chunk.draws.uniform(-45, 45))
    return np.rint(smeared).astype(np.uint8)


def zoom_blur(chunk: Chunk, stop: float, step: float) -> Pixels:
    """Average the image with enlargements of its centre."""
    image = chunk.floats()
    factors = np.arange(1, stop, step).tolist()
    total = image.copy()
    for factor in factors:
        total += clipped_zoom(image, factor)
    total /= len(factors) + 1
    return truncate(total)


def gaussian_blur(chunk: Chunk, sigma: float) -> Pixels:
    """Blur with a Gaussian."""
    return from_planes(gaussian_filter(chunk.planes(), sigma))
