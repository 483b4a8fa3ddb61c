"""Each corruption against slow code written from its definition, one image and pixel at a time.

The reference gets the same random numbers, drawn in the same order.
"""

import colorsys
import itertools
import math
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from driftnorm.shifts import CONSTANTS, SHIFTS, corrupt
from driftnorm.shifts._common import Draws
from driftnorm.shifts._overlays import frost_pictures

HEIGHT, WIDTH = 18, 13


def picture() -> np.ndarray:
    """Smooth coloured waves with black, white, grey and nearly black patches."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    waves = [np.sin(rows / 3 + columns / (2 + k)) * 90 + 120 + 10 * k for k in range(3)]
    pixels = np.stack(waves, axis=-1).astype(np.uint8)
    pixels[:3, :4], pixels[5:8, 6:], pixels[12:, :5], pixels[3, 6:9] = 0, 255, 128, (1, 0, 1)
    return pixels


def inside(place: int, size: int, border: str) -> int:
    """Walk back into 0..size-1 the way the border rule says."""
    if border == "nearest":
        return min(max(place, 0), size - 1)
    while not 0 <= place < size:
        once = 0 if border == "mirror" else 1
        place = -place - once if place < 0 else 2 * (size - 1) - place + once
    return place


def blurred(plane, sigma, border="nearest", cut=4.0):
    """A Gaussian blur of (H, W) by its definition, first down, then across."""
    radius = int(cut * sigma + 0.5)
    offsets = range(-radius, radius + 1)
    weights = [math.exp(-0.5 * (o / sigma) ** 2) if radius else 1.0 for o in offsets]
    for _ in range(2):
        result = np.zeros(plane.shape)
        for row, offset_weight in itertools.product(
            range(len(plane)), zip(offsets, weights, strict=True)
        ):
            offset, weight = offset_weight
            result[row] += weight / sum(weights) * plane[inside(row + offset, len(plane), border)]
        plane = result.T
    return plane


def per_channel(picture, function):
    return np.stack([function(picture[..., k].astype(float)) for k in range(3)], axis=-1)


def read(picture, row, column, border):
    """Linear interpolation at one place."""
    top, left = math.floor(row), math.floor(column)
    total = 0.0
    for i, j in itertools.product((0, 1), repeat=2):
        weight = (row - top if i else 1 - row + top) * (column - left if j else 1 - column + left)
        place = inside(top + i, len(picture), border), inside(left + j, len(picture[0]), border)
        total = total + weight * picture[place]
    return total


def zoomed(picture, factor):
    """The centre of a picture enlarged to its full size."""
    crop = [math.ceil(size / factor) for size in picture.shape[:2]]
    start = [(size - part) // 2 for size, part in zip(picture.shape, crop, strict=False)]
    full = [round(part * factor) for part in crop]
    trim = [(large - size) // 2 for large, size in zip(full, picture.shape, strict=False)]
    result = np.zeros(picture.shape)
    for place in np.ndindex(*picture.shape[:2]):
        row, column = (
            start[axis] + (place[axis] + trim[axis]) * (crop[axis] - 1) / (full[axis] - 1)
            for axis in (0, 1)
        )
        result[place] = read(picture, row, column, "nearest")
    return result


def smeared(picture, radius, sigma, angle):
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(2 * radius + 1)]
    result = np.zeros(picture.shape)
    for row, column in np.ndindex(*picture.shape[:2]):
        for i, weight in enumerate(weights):
            down = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
            right = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
            source = (
                inside(row + down, picture.shape[0], "nearest"),
                inside(column + right, picture.shape[1], "nearest"),
            )
            result[row, column] += weight / sum(weights) * picture[source]
    return result


def gaussian_noise(x, draws, scale, deviation):
    return x + 255 * deviation * draws.normal(HEIGHT, WIDTH, 3)[0]


def shot_noise(x, draws, scale, photons):
    return draws.poisson((x / 255 * photons)[None])[0] / photons * 255


def impulse_noise(x, draws, scale, amount):
    lots = draws.uniform(0, 1, HEIGHT, WIDTH, 3)[0]
    return np.where(lots < amount / 2, 0, np.where(lots < amount, 255, x))


def speckle_noise(x, draws, scale, deviation):
    return x + x * deviation * draws.normal(HEIGHT, WIDTH, 3)[0]


def gaussian_blur(x, draws, scale, sigma):
    return per_channel(x, lambda plane: blurred(plane, sigma))


def defocus_blur(x, draws, scale, radius, softness):
    reach, rim = (8, 1) if radius <= 8 else (radius, 2)
    side = range(-reach, reach + 1)
    disk = np.array([[float(i * i + j * j <= radius**2) for j in side] for i in side])
    disk /= disk.sum()
    weights = [math.exp(-0.5 * (i / softness) ** 2) for i in range(-rim, rim + 1)]
    kernel = np.zeros_like(disk)
    for i, j in np.ndindex(*disk.shape):
        for a, b in itertools.product(range(-rim, rim + 1), repeat=2):
            value = disk[inside(i + a, len(disk), "mirror"), inside(j + b, len(disk), "mirror")]
            kernel[i, j] += weights[a + rim] * weights[b + rim] / sum(weights) ** 2 * value
    padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    result = np.zeros(x.shape)
    for row, column in np.ndindex(HEIGHT, WIDTH):
        window = padded[row : row + len(disk), column : column + len(disk)]
        result[row, column] = (window * kernel[..., None]).sum(axis=(0, 1))
    return result


def glass_blur(x, draws, scale, sigma, reach, iterations):
    x = np.uint8(per_channel(x, lambda plane: blurred(plane, sigma)) + 1e-9)
    for _ in range(iterations):
        shape = HEIGHT - 2 * reach, WIDTH - 2 * reach
        downs, rights = (
            draws.integers(-reach, reach, *shape)[0],
            draws.integers(-reach, reach, *shape)[0],
        )
        for h in range(HEIGHT - reach, reach, -1):
            for w in range(WIDTH - reach, reach, -1):
                there = (
                    h + downs[h - reach - 1, w - reach - 1],
                    w + rights[h - reach - 1, w - reach - 1],
                )
                x[h, w], x[there] = x[there], x[h, w]
    return per_channel(x, lambda plane: blurred(plane, sigma))


def motion_blur(x, draws, scale, radius, sigma):
    return np.rint(smeared(x, radius, sigma, float(draws.uniform(-45, 45)[0])))


def zoom_blur(x, draws, scale, stop, step):
    factors = np.arange(1, stop, step)
    return (x + sum(zoomed(x, factor) for factor in factors)) / (len(factors) + 1)


def snow(x, draws, scale, mean, deviation, zoom, threshold, radius, sigma, weight):
    layer = zoomed(draws.normal(HEIGHT, WIDTH)[0] * deviation + mean, zoom)
    layer = np.floor(np.clip(np.where(layer < threshold, 0, layer), 0, 1) * 255)
    layer = np.rint(smeared(layer, radius, sigma, float(draws.uniform(-135, -45)[0])))[..., None]
    grey = (0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2])[..., None]
    x = weight * x + (1 - weight) * np.maximum(x, grey * 1.5 + 127.5)
    return x + layer + np.rot90(layer, 2)


def frost(x, draws, scale, image_weight, frost_weight):
    factor = 0.2 * WIDTH / 32 if scale == "cifar" else WIDTH / 224
    pictures = frost_pictures("procedural", HEIGHT, WIDTH, factor)
    picture = pictures[draws.integers(0, 5)[0]]
    down, right = draws.uniform(0, 1, 2)[0]
    top, left = int(down * (len(picture) - HEIGHT)), int(right * (len(picture[0]) - WIDTH))
    return image_weight * x + frost_weight * picture[top : top + HEIGHT, left : left + WIDTH]


def fog(x, draws, scale, strength, decay):
    noise = draws.uniform(-1, 1, 32, 32)[0].astype(float)
    heights, step, wobble = np.zeros((32, 32)), 32, 100.0
    while step > 1:
        half, places = step // 2, range(0, 32, step)
        for i, j in itertools.product(places, repeat=2):
            corners = [heights[(i + a) % 32, (j + b) % 32] for a in (0, step) for b in (0, step)]
            heights[i + half, j + half] = sum(corners) / 4 + wobble**2 * noise[i + half, j + half]
        for i, j in itertools.product(places, repeat=2):
            for p, q in ((i, j + half), (i + half, j)):
                around = ((-half, 0), (half, 0), (0, -half), (0, half))
                total = sum(heights[(p + a) % 32, (q + b) % 32] for a, b in around)
                heights[p, q] = total / 4 + wobble**2 * noise[p, q]
        step, wobble = half, wobble / decay
    heights = (heights - heights.min()) / (heights.max() - heights.min())
    added = x + 255 * strength * heights[:HEIGHT, :WIDTH, None]
    return added * x.max() / (x.max() + 255 * strength)


def in_hsv(x, function):
    result = np.zeros(x.shape)
    for place in np.ndindex(HEIGHT, WIDTH):
        result[place] = colorsys.hsv_to_rgb(*function(*colorsys.rgb_to_hsv(*(x[place] / 255))))
    return result * 255


def brightness(x, draws, scale, amount):
    return in_hsv(x, lambda h, s, v: (h, s, min(v + amount, 1)))


def saturate(x, draws, scale, factor, offset):
    return in_hsv(x, lambda h, s, v: (h, min(max(s * factor + offset, 0), 1), v))


def contrast(x, draws, scale, factor):
    return per_channel(x, lambda plane: (plane - plane.mean()) * factor + plane.mean())


def elastic_transform(x, draws, scale, amplitude, smoothing, jitter):
    size = WIDTH * (1 if scale == "cifar" else 244 / 224)
    middle, reach = np.array([WIDTH // 2, HEIGHT // 2]), min(HEIGHT, WIDTH) // 3
    old = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    new = old + draws.uniform(-jitter * size, jitter * size, 3, 2)[0]
    # The forward map A with A (old, 1) = new, inverted pixel by pixel.
    forward = np.linalg.solve(np.column_stack([old, np.ones(3)]), new).T
    warped = np.zeros(x.shape)
    for row, column in np.ndindex(HEIGHT, WIDTH):
        place = np.linalg.solve(forward[:, :2], np.array([column, row]) - forward[:, 2])
        warped[row, column] = read(x, place[1], place[0], "mirror")
    if amplitude == 0:
        return warped
    down, right = (
        amplitude * size * blurred(plane.astype(float), smoothing * size, "reflect", cut=3.0)
        for plane in draws.uniform(-1, 1, 2, HEIGHT, WIDTH)[0]
    )
    result = np.zeros(x.shape)
    for row, column in np.ndindex(HEIGHT, WIDTH):
        down_there, right_there = row + down[row, column], column + right[row, column]
        result[row, column] = read(warped, down_there, right_there, "reflect")
    return result


def pixelate(x, draws, scale, factor):
    picture = Image.fromarray(x.astype(np.uint8))
    picture = picture.resize((int(WIDTH * factor), int(HEIGHT * factor)), Image.Resampling.BOX)
    return np.asarray(picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX))


def jpeg_compression(x, draws, scale, quality):
    buffer = BytesIO()
    Image.fromarray(x.astype(np.uint8)).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


REFERENCES = {name: globals()[name] for name in SHIFTS if name != "spatter"}


def check_against(reference, name, scale, image, index) -> None:
    """Compare all severities; a value next to a whole number may fall on either side of it."""
    for severity in range(1, 6):
        draws = Draws(9, [index], name, severity)
        expected = reference(
            image.astype(float), draws, scale, *CONSTANTS[name][scale][severity - 1]
        )
        expected = np.clip(expected + 1e-9, 0, 255).astype(np.uint8).astype(int)
        result = corrupt(
            image[None], name, severity, indices=[index], seed=9, scale=scale, frost="procedural"
        )
        different = np.abs(result[0] - expected)
        assert different.max() <= 1, (severity, different.max())
        assert (different > 0).mean() < 0.01, (severity, (different > 0).mean())


@pytest.mark.parametrize("scale", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", REFERENCES)
def test_matches_the_definition(name, scale) -> None:
    check_against(REFERENCES[name], name, scale, picture(), index=41)
