"""Noise: Gaussian, shot, impulse, and the extra speckle noise."""

from __future__ import annotations

import numpy as np

from driftnorm._internal.types import Pixels
from driftnorm.shifts._common import Chunk, truncate


def gaussian_noise(chunk: Chunk, deviation: float) -> Pixels:
    """Add normal noise to every value."""
    noise = chunk.draws.normal(*chunk.size, 3)
    noise *= np.float32(255 * deviation)
    noise += chunk.pixels
    return truncate(noise)


def shot_noise(chunk: Chunk, photons: float) -> Pixels:
    """Count Poisson photons, ``photons`` of them on average at full brightness."""
    counts = chunk.draws.poisson(chunk.pixels * (photons / 255))
    counts *= np.float32(255 / photons)
    return truncate(counts)


def impulse_noise(chunk: Chunk, amount: float) -> Pixels:
    """Set a share of the values, channel by channel, to black or white with equal chance."""
    lots = chunk.draws.uniform(0, 1, *chunk.size, 3)
    noisy: Pixels = chunk.pixels.copy()
    noisy[lots < amount] = 255
    noisy[lots < amount / 2] = 0
    return noisy


def speckle_noise(chunk: Chunk, deviation: float) -> Pixels:
    """Add normal noise in proportion to the value."""
    noise = chunk.draws.normal(*chunk.size, 3)
    noise *= np.float32(deviation)
    noise += 1
    noise *= chunk.pixels
    return truncate(noise)
