"""The relief of water drops: edges, distance to them, and their light and shade.

Canny's detector, the chamfer distance and the equalisation follow OpenCV's conventions, which the
original scripts call with their defaults.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from driftnorm._internal.types import Floats, Integers, Pixels, Reals
from driftnorm.shifts._filters import Border, fold

Mask: TypeAlias = npt.NDArray[np.bool_]
_Value = TypeVar("_Value", bound=np.generic)

_FARTHEST = np.float32(20)
# Lengths of a straight step, a diagonal one and a knight's move.
_STRAIGHT, _DIAGONAL, _KNIGHT = np.float32(1), np.float32(1.4), np.float32(2.1969)
_LIGHT = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))


def water_relief(layers: Pixels) -> Reals:
    """The strength of water from 0 to 1 at each pixel of (N, H, W) layers of liquid."""
    distances = chamfer_distances(find_edges(layers, 50, 150))
    # Without slack: a mean just below a whole number loses a grey level in the original too, which
    # the equalisation makes many of.
    smooth = (_sum_window(distances, np.ones((3, 3))) / 9).astype(np.uint8)
    lit = np.clip(_sum_window(equalise(smooth).astype(np.float32), np.array(_LIGHT)), 0, 255)
    relief = np.rint(_sum_window(lit, np.ones((3, 3))) / 9) * layers
    # A layer without liquid has no relief, where the original divides by zero.
    strongest = np.maximum(relief.max(axis=(1, 2), keepdims=True), 1)
    scaled: Reals = relief / strongest
    return scaled


def find_edges(images: Pixels, low: int, high: int) -> Mask:
    """Canny's edges of (N, H, W): gradient crests above ``low`` that join one above ``high``.

    Gradients are Sobel's with the border repeated, their strength the sum of both magnitudes.
    """
    values: Integers = _pad(images.astype(np.int64), "nearest")
    smooth_down = values[:, :-2] + 2 * values[:, 1:-1] + values[:, 2:]
    smooth_across = values[:, :, :-2] + 2 * values[:, :, 1:-1] + values[:, :, 2:]
    across = smooth_down[:, :, 2:] - smooth_down[:, :, :-2]
    down = smooth_across[:, 2:] - smooth_across[:, :-2]
    strength = np.abs(across) + np.abs(down)
    candidates = (strength > low) & _is_crest(strength, across, down)
    edges: Mask = candidates & (strength > high)
    while True:
        grown: Mask = _dilate(edges) & candidates
        if np.array_equal(grown, edges):
            return edges
        edges = grown


def _is_crest(strength: Integers, across: Integers, down: Integers) -> Mask:
    """Whether a pixel's gradient is no weaker than its two neighbours' along the gradient."""
    ring = np.pad(strength, ((0, 0), (1, 1), (1, 1)))

    def neighbour(row: int, column: int) -> Integers:
        height, width = strength.shape[1:]
        return ring[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    # tan 22.5 degrees in 15 bits: gradients up to there count as horizontal.
    shallow = np.abs(across) * 13573
    steep = shallow + (np.abs(across) << 16)
    rise = np.abs(down) << 15
    horizontal = (strength > neighbour(0, -1)) & (strength >= neighbour(0, 1))
    vertical = (strength > neighbour(-1, 0)) & (strength >= neighbour(1, 0))
    falling = (strength > neighbour(-1, -1)) & (strength > neighbour(1, 1))
    rising = (strength > neighbour(-1, 1)) & (strength > neighbour(1, -1))
    diagonal = np.where((across ^ down) < 0, rising, falling)
    return np.where(rise < shallow, horizontal, np.where(rise > steep, vertical, diagonal))


def _dilate(mask: Mask) -> Mask:
    grown: Mask = mask.copy()
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    wide: Mask = grown.copy()
    wide[:, :, 1:] |= grown[:, :, :-1]
    wide[:, :, :-1] |= grown[:, :, 1:]
    return wide


def chamfer_distances(edges: Mask) -> Floats:
    """Distance of each pixel of (N, H, W) to the nearest edge in 5 x 5 chamfer steps, at most 20.

    One sweep down and one up. Along a row the sweep is a running minimum, so that all images and
    all columns move together.
    """
    count, height, width = edges.shape
    far = np.float32(2) * _FARTHEST
    # Two rows and columns of "far" around the image spare the sweeps all cases at the border.
    distances = np.full((count, height + 4, width + 4), far, dtype=np.float32)
    distances[:, 2:-2, 2:-2] = np.where(edges, np.float32(0), far)
    for rows in (distances, distances[:, ::-1, ::-1]):
        for row in range(2, height + 2):
            _sweep_row(rows[:, row], rows[:, row - 1], rows[:, row - 2])
    nearest: Floats = np.minimum(distances[:, 2:-2, 2:-2], _FARTHEST)
    return nearest


def _sweep_row(current: Floats, previous: Floats, before: Floats) -> None:
    """Shorten a row's distances by paths through the two rows before it and along the row."""
    inner = current[:, 2:-2]
    reachable = (
        (previous[:, 2:-2], _STRAIGHT),
        (np.minimum(previous[:, 1:-3], previous[:, 3:-1]), _DIAGONAL),
        (np.minimum(previous[:, :-4], previous[:, 4:]), _KNIGHT),
        (np.minimum(before[:, 1:-3], before[:, 3:-1]), _KNIGHT),
    )
    for distances, length in reachable:
        np.minimum(inner, distances + length, out=inner)
    # In double precision: the difference of a short distance and a far column would lose its end.
    steps = np.arange(inner.shape[1], dtype=np.float64)
    inner[:] = np.minimum.accumulate(inner - steps, axis=1) + steps


def equalise(images: Pixels) -> Pixels:
    """Stretch the grey levels of each of (N, H, W) so that their histogram is even.

    The lowest level becomes 0 and does not count; an image of one level stays as it is.
    """
    count, pixels = len(images), images[0].size
    flat = images.reshape(count, pixels)
    bins = np.arange(count)[:, None] * 256 + flat
    histograms = np.bincount(bins.ravel(), minlength=count * 256).reshape(count, 256)
    cumulative = histograms.cumsum(axis=1)
    lowest = np.take_along_axis(histograms, flat.min(axis=1, keepdims=True), axis=1)
    # Single precision as in OpenCV, since it decides ties.
    scales = np.float32(255) / np.maximum(pixels - lowest, 1).astype(np.float32)
    levels = (cumulative - lowest).astype(np.float32) * scales
    table = np.rint(np.clip(levels, 0, 255)).astype(np.uint8)
    stretched = np.take_along_axis(table, flat, axis=1)
    return np.where(lowest == pixels, flat, stretched).reshape(images.shape)


def _sum_window(images: Floats, weights: npt.NDArray[np.generic]) -> Floats:
    """Correlate (N, H, W) with 3 x 3 weights, mirrored at the border."""
    padded = _pad(images, "mirror")
    height, width = images.shape[1:]
    total = np.zeros_like(images)
    for row in range(3):
        for column in range(3):
            window = padded[:, row : row + height, column : column + width]
            total += np.float32(weights[row, column]) * window
    return total


def _pad(images: npt.NDArray[_Value], border: Border) -> npt.NDArray[_Value]:
    """One more pixel on every side."""
    rows, columns = (fold(np.arange(-1, size + 1), size, border) for size in images.shape[1:])
    return images[:, rows][:, :, columns]
