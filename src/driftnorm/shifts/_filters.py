"""Linear filters: Gaussian, arbitrary kernel, line, and linear interpolation.

The pixels must not depend on the batch. Sums of shifted images round alike everywhere. Matrix
products and Fourier transforms may round differently with the library, the number of threads or
the batch, so they are in double precision: a difference in the last of 53 bits does not reach the
8 bits of a pixel, where one in the last of 24 does now and then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from driftnorm._internal.types import Doubles, Floats, Integers, Reals

Border: TypeAlias = Literal["nearest", "reflect", "mirror"]
"""How a row a b c d continues: nearest d d d, reflect d c b (edge twice), mirror c b a (once)."""


def fold(positions: Integers, size: int, border: Border) -> Integers:
    """Bring pixel positions outside 0..size-1 back inside."""
    if border == "nearest":
        return np.clip(positions, 0, size - 1)
    if border == "mirror":
        period = max(2 * (size - 1), 1)
        inside = positions % period
        return np.minimum(inside, period - inside)
    inside = positions % (2 * size)
    return np.minimum(inside, 2 * size - 1 - inside)


def gaussian_weights(sigma: float, radius: int) -> Reals:
    """Weights of a Gaussian at -radius..radius, of sum 1."""
    if sigma == 0 or radius == 0:
        weights = (np.arange(-radius, radius + 1) == 0).astype(np.float64)
    else:
        weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    normalised: Reals = weights / weights.sum()
    return normalised


def band_matrix(weights: Reals, size: int, border: Border) -> Doubles:
    """The matrix that correlates a column of ``size`` values with an odd number of weights."""
    radius = len(weights) // 2
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    for offset, weight in enumerate(weights):
        np.add.at(matrix, (rows, fold(rows + offset - radius, size, border)), weight)
    return matrix


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float, border: Border, cut: float) -> Doubles:
    """The matrix of a Gaussian blur whose weights end at ``cut`` standard deviations."""
    weights = gaussian_weights(sigma, int(cut * sigma + 0.5))
    return band_matrix(weights, size, border)


def gaussian_filter(
    planes: Reals, sigma: float, border: Border = "nearest", cut: float = 4.0
) -> Doubles:
    """Blur (..., H, W) with a Gaussian that ends at ``cut`` standard deviations."""
    height, width = planes.shape[-2:]
    down = gaussian_matrix(height, float(sigma), border, cut)
    across = gaussian_matrix(width, float(sigma), border, cut)
    blurred: Doubles = np.matmul(np.matmul(down, planes.astype(np.float64, copy=False)), across.T)
    return blurred


def correlate(planes: Reals, kernel: Reals, border: Border) -> Doubles:
    """Correlate (..., H, W) with a square kernel of odd side, by Fourier transform."""
    radius = len(kernel) // 2
    height, width = planes.shape[-2:]
    rows, columns = (
        fold(np.arange(-radius, size + radius), size, border) for size in (height, width)
    )
    padded = planes[..., rows, :][..., columns]
    shape = _quick_length(len(rows)), _quick_length(len(columns))
    spectrum = np.fft.rfft2(padded, shape) * np.conj(np.fft.rfft2(kernel, shape))
    correlated: Doubles = np.fft.irfft2(spectrum, shape)[..., :height, :width]
    return correlated


def _quick_length(length: int) -> int:
    """The next length whose only prime factors are 2, 3 and 5, for which transforms are quick."""
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def clipped_zoom(images: Floats, factor: float) -> Floats:
    """Enlarge the centre of (N, H, W, C) to the full size.

    Crop ceil(size / factor) pixels, interpolate linearly with the first and last of them kept in
    place, cut the result to the old size about its centre.
    """
    for axis in (1, 2):
        size = images.shape[axis]
        cropped = int(np.ceil(size / factor))
        enlarged = round(cropped * factor)
        trim = (enlarged - size) // 2
        places = (np.arange(size) + trim) * ((cropped - 1) / (enlarged - 1))
        images = _interpolate(images, axis, (size - cropped) // 2 + places)
    return images


def resize(images: Floats, factor: float) -> Floats:
    """Resize (N, H, W, C) by linear interpolation between pixel centres, without smoothing."""
    for axis in (1, 2):
        size = images.shape[axis]
        places = (np.arange(round(size * factor)) + 0.5) / factor - 0.5
        images = _interpolate(images, axis, np.clip(places, 0, size - 1))
    return images


def _interpolate(images: Floats, axis: int, places: Reals) -> Floats:
    """Read an axis of (N, H, W, C) at fractional places within it."""
    left = np.floor(places).astype(np.int64)
    share = (places - left).astype(np.float32)
    shape = [1] * images.ndim
    shape[axis] = len(places)
    values: Floats = images.take(left, axis=axis)
    rises: Floats = images.take(np.minimum(left + 1, images.shape[axis] - 1), axis=axis)
    rises -= values
    rises *= share.reshape(shape)
    values += rises
    return values


def motion_filter(images: Floats, radius: int, sigma: float, angles: Floats) -> Floats:
    """Smear each image of (N, H, W, C) along its own angle, in degrees.

    A pixel becomes the mean of the 2 * radius + 1 pixels that follow it along the angle, weighted
    by the falling half of a Gaussian. Positions are rounded to whole pixels, halves down, and
    pixels beyond the border repeat the border's.
    """
    weights = gaussian_weights(sigma, 2 * radius)[2 * radius :]
    # Weights that cannot change a byte are not worth their pass over the image.
    weights = weights[weights > 1e-7 * weights[0]]
    weights /= weights.sum()
    reach = len(weights) - 1
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    steps = np.arange(len(weights))
    directions = np.deg2rad(angles.astype(np.float64))[:, None]
    downs = np.ceil(steps * np.sin(directions) - 0.5).astype(np.int64) + reach
    rights = np.ceil(steps * np.cos(directions) - 0.5).astype(np.int64) + reach
    smeared = np.zeros_like(images)
    term = np.empty_like(images[0])
    for image in range(len(images)):
        for weight, down, right in zip(
            weights.astype(np.float32), downs[image].tolist(), rights[image].tolist(), strict=True
        ):
            window = padded[image, down : down + height, right : right + width]
            np.multiply(window, weight, out=term)
            smeared[image] += term
    return smeared
