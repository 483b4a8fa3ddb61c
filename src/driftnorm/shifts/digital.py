"""Digital: contrast, elastic transform, pixelate, JPEG, and the extra saturate.

The elastic transform's constants are multiples of a size S: the short side at 32 px, and 244/224
of it at 224 px, where the original has 244. Both rules hold at any other size.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from driftnorm._internal.types import Pixels, Reals
from driftnorm.shifts._common import Chunk, truncate
from driftnorm.shifts._filters import Border, fold, gaussian_filter

_ELASTIC_SIZE = {"cifar": 1.0, "imagenet": 244 / 224}


def contrast(chunk: Chunk, factor: float) -> Pixels:
    """Pull every value towards its channel's mean."""
    area = chunk.size[0] * chunk.size[1]
    # Whole numbers add up exactly in any order, hence to the same mean in any batch.
    sums = chunk.pixels.sum(axis=(1, 2), keepdims=True, dtype=np.int64)
    means = (sums / area).astype(np.float32)
    return truncate((chunk.floats() - means) * np.float32(factor) + means)


def elastic_transform(chunk: Chunk, amplitude: float, smoothing: float, jitter: float) -> Pixels:
    """Warp by a random affine map, then by a smooth random field of displacements."""
    height, width = chunk.size
    size = _ELASTIC_SIZE[chunk.scale] * min(height, width)
    moves = chunk.draws.uniform(-jitter * size, jitter * size, 3, 2)
    rows, columns = _affine_places(moves.astype(np.float64), height, width)
    warped = bilinear(chunk.floats(), rows, columns, "mirror")
    if amplitude == 0:
        return truncate(warped)
    lots = chunk.draws.uniform(-1, 1, 2, height, width)
    field = gaussian_filter(lots, smoothing * size, "reflect", cut=3.0) * (amplitude * size)
    rows = np.arange(height)[:, None] + field[:, 0]
    columns = np.arange(width) + field[:, 1]
    return truncate(bilinear(warped, rows, columns, "reflect"))


def _affine_places(moves: Reals, height: int, width: int) -> tuple[Reals, Reals]:
    """Where each pixel comes from when three points around the centre move by (column, row)."""
    reach = min(height, width) // 3
    right, bottom, left, top = (
        width // 2 + reach,
        height // 2 + reach,
        width // 2 - reach,
        height // 2 - reach,
    )
    corners = np.array([[right, bottom, 1], [right, top, 1], [left, top, 1]], dtype=np.float64)
    moved = np.broadcast_to(corners, (len(moves), 3, 3)).copy()
    moved[:, :, :2] += moves
    back = np.linalg.inv(moved) @ corners
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))

    def place(axis: int) -> Reals:
        slopes = back[:, :, axis, None, None]
        return slopes[:, 0] * columns + slopes[:, 1] * rows + slopes[:, 2]

    return place(1), place(0)


def bilinear(
    images: Reals,
    rows: Reals,
    columns: Reals,
    border: Border,
) -> Reals:
    """Read (N, H, W, 3) at fractional places (N, H, W)."""
    count, height, width = images.shape[:3]
    colours = images.reshape(-1, 3)
    starts = np.arange(count)[:, None, None] * (height * width)
    top, left = np.floor(rows), np.floor(columns)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]

    def corner(row_step: int, column_step: int) -> Reals:
        row = fold(top.astype(np.int64) + row_step, height, border)
        column = fold(left.astype(np.int64) + column_step, width, border)
        read: Reals = colours.take(starts + row * width + column, axis=0)
        return read

    above = corner(0, 0) * (1 - right) + corner(0, 1) * right
    below = corner(1, 0) * (1 - right) + corner(1, 1) * right
    mixed: Reals = above * (1 - down) + below * down
    return mixed


def pixelate(chunk: Chunk, factor: float) -> Pixels:
    """Shrink and grow back, both by averaging over boxes."""
    height, width = chunk.size
    small = int(width * factor), int(height * factor)
    coarse = np.empty_like(chunk.pixels)
    for position, pixels in enumerate(chunk.pixels):
        shrunk = Image.fromarray(pixels).resize(small, Image.Resampling.BOX)
        coarse[position] = np.asarray(shrunk.resize((width, height), Image.Resampling.BOX))
    return coarse


def jpeg_compression(chunk: Chunk, quality: int) -> Pixels:
    """Save as JPEG and read back."""
    decoded = np.empty_like(chunk.pixels)
    for position, pixels in enumerate(chunk.pixels):
        buffer = BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
        with Image.open(buffer) as picture:
            decoded[position] = np.asarray(picture)
    return decoded


def saturate(chunk: Chunk, factor: float, offset: float) -> Pixels:
    """Scale and shift the HSV saturation.

    A grey pixel has hue 0, so an offset tints it red, as in the original.
    """
    image = chunk.floats()
    value = image.max(axis=-1, keepdims=True)
    span = value - image.min(axis=-1, keepdims=True)
    red = np.array([0, 1, 1], dtype=np.float32)
    below = np.where(span > 0, (value - image) / np.maximum(span, 1), red)
    saturation = np.clip(
        span / np.maximum(value, 1) * np.float32(factor) + np.float32(offset), 0, 1
    )
    return truncate(value - value * saturation * below)
