"""Weather: snow, frost, fog, brightness, and the extra spatter.

At sizes other than 32 and 224 px, fog's height map has the next power of two as its side, and the
frost pictures grow with the short side so that the crystals keep their size within the image.
"""

from __future__ import annotations

import numpy as np

from driftnorm._internal.types import Floats, Pixels
from driftnorm.shifts._common import Chunk, truncate
from driftnorm.shifts._filters import clipped_zoom, gaussian_filter, motion_filter
from driftnorm.shifts._overlays import frost_pictures
from driftnorm.shifts._plasma import plasma
from driftnorm.shifts._water import Mask, water_relief

_WATER = np.array([175, 238, 238], dtype=np.float32)
_MUD = np.array([63, 42, 20], dtype=np.float32)

# By how much the frost pictures are resized, and for which short side.
_FROST_FACTORS = {"cifar": (0.2, 32), "imagenet": (1.0, 224)}


def snow(
    chunk: Chunk,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    weight: float,
) -> Pixels:
    """Whiten the image and add smeared flakes, and the same flakes turned by 180 degrees."""
    layer = chunk.draws.normal(*chunk.size) * np.float32(deviation) + np.float32(mean)
    flakes = clipped_zoom(layer[..., None], zoom)
    flakes[flakes < threshold] = 0
    flakes = truncate(flakes * 255).astype(np.float32)
    flakes = np.rint(motion_filter(flakes, radius, sigma, chunk.draws.uniform(-135, -45)))
    image = chunk.floats()
    red, green, blue = (image[..., channel, None] for channel in range(3))
    grey = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    white = np.maximum(image, grey * np.float32(1.5) + np.float32(127.5))
    image = image * np.float32(weight) + white * np.float32(1 - weight)
    return truncate(image + flakes + flakes[:, ::-1, ::-1])


def frost(chunk: Chunk, image_weight: float, frost_weight: float) -> Pixels:
    """Mix the image with a random crop of a random frost picture."""
    height, width = chunk.size
    factor, side = _FROST_FACTORS[chunk.scale]
    pictures = frost_pictures(chunk.frost, height, width, factor * min(height, width) / side)
    choices = chunk.draws.integers(0, len(pictures)).tolist()
    places = chunk.draws.uniform(0, 1, 2).tolist()
    crops = np.empty(chunk.pixels.shape, dtype=np.float32)
    for crop, choice, (down, right) in zip(crops, choices, places, strict=True):
        picture = pictures[choice]
        top = int(down * (picture.shape[0] - height))
        left = int(right * (picture.shape[1] - width))
        crop[:] = picture[top : top + height, left : left + width]
    crops *= np.float32(frost_weight)
    crops += chunk.floats() * np.float32(image_weight)
    return truncate(crops)


def fog(chunk: Chunk, strength: float, decay: float) -> Pixels:
    """Add a fractal height map and scale the sum back to the image's range."""
    height, width = chunk.size
    side = 1 << (max(height, width) - 1).bit_length()
    heights = plasma(chunk.draws.uniform(-1, 1, side, side), decay)[:, :height, :width, None]
    brightest = chunk.pixels.max(axis=(1, 2, 3), keepdims=True).astype(np.float32)
    fogged = chunk.floats() + np.float32(255 * strength) * heights
    return truncate(fogged * (brightest / (brightest + np.float32(255 * strength))))


def brightness(chunk: Chunk, amount: float) -> Pixels:
    """Add to the HSV value.

    With hue and saturation kept, all channels grow by one factor. A black pixel becomes grey.
    """
    image = chunk.floats()
    value = image.max(axis=-1, keepdims=True)
    brighter = np.minimum(value + np.float32(255 * amount), 255)
    scaled = image * (brighter / np.maximum(value, 1))
    return truncate(np.where(value > 0, scaled, brighter))


def spatter(
    chunk: Chunk,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    amount: float,
    mud: int,
) -> Pixels:
    """Cover parts of the image with drops of water, or with spots of mud."""
    layer = chunk.draws.normal(*chunk.size) * np.float32(deviation) + np.float32(mean)
    layer = gaussian_filter(layer, sigma)
    layer[layer < threshold] = 0
    if mud:
        return _add_mud(chunk.floats(), layer > threshold, amount)
    # Above 255 the bytes wrap around to 0, as in the original.
    relief = water_relief((layer * 255).astype(np.int64).astype(np.uint8))
    return truncate(chunk.floats() + (relief * np.float32(amount))[..., None] * _WATER)


def _add_mud(image: Floats, wet: Mask, sigma: float) -> Pixels:
    cover = gaussian_filter(wet.astype(np.float32), sigma)
    cover[cover < 0.8] = 0
    cover = cover[..., None]
    return truncate(image * (1 - cover) + _MUD * cover)
