"""Fractal height maps by the diamond-square algorithm, for fog and for made-up frost."""

from __future__ import annotations

import numpy as np

from driftnorm._internal.types import Floats


def plasma(noise: Floats, decay: float) -> Floats:
    """Height maps from 0 to 1 that wrap around at their borders.

    Each level of the algorithm takes the mean of four neighbours and adds noise. The amplitude of
    the noise is the square of a number that starts at 100 and is divided by ``decay`` at each
    level.

    Args:
        noise: Uniform numbers from -1 to 1, (N, S, S), with S a power of two.
        decay: How much rougher a coarse level is than the next finer one.

    Returns:
        Heights, (N, S, S), each map with minimum 0 and maximum 1.
    """
    heights = np.zeros_like(noise)
    step, roughness = noise.shape[-1], 100.0
    while step >= 2:
        half = step // 2
        amplitude = np.float32(roughness**2)
        squares = np.s_[:, half::step, half::step]
        above = np.s_[:, ::step, half::step]
        beside = np.s_[:, half::step, ::step]
        corners = heights[:, ::step, ::step]
        across = corners + np.roll(corners, -1, axis=2)
        down = corners + np.roll(corners, -1, axis=1)
        centres = (across + np.roll(across, -1, axis=1)) / 4 + amplitude * noise[squares]
        heights[squares] = centres
        heights[above] = (across + centres + np.roll(centres, 1, axis=1)) / 4
        heights[above] += amplitude * noise[above]
        heights[beside] = (down + centres + np.roll(centres, 1, axis=2)) / 4
        heights[beside] += amplitude * noise[beside]
        step, roughness = half, roughness / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    heights /= heights.max(axis=(1, 2), keepdims=True)
    return heights
