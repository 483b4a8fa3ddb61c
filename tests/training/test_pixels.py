"""Batched pixel operations against Pillow, one image at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from driftnorm.training.augmentation import pixels
from driftnorm.training.augmentation.operations import (
    ENHANCEMENTS,
    GEOMETRIC,
    OPERATIONS,
    VALUE_MAPS,
    Distortion,
    distort,
)

SPAN = 10
BLACK = torch.zeros(3, dtype=torch.uint8)


def pictures(size: tuple[int, int] = (32, 32)) -> Tensor:
    """Noise, smooth ramps, narrow ranges, two values, and a constant: (40, 3, H, W)."""
    rng = np.random.default_rng(3)
    height, width = size
    noise = rng.integers(0, 256, (16, 3, height, width))
    ramp = np.linspace(0, 255, height * width).reshape(height, width)
    ramps = ramp * rng.uniform(0.2, 1, (16, 3, 1, 1)) + rng.normal(0, 3, (16, 3, height, width))
    narrow = rng.integers(100, 110, (4, 3, height, width))
    binary = rng.integers(0, 2, (3, 3, height, width)) * 200
    flat = np.full((1, 3, height, width), 77)
    stack = np.concatenate([noise, ramps, narrow, binary, flat])
    return torch.from_numpy(stack.clip(0, 255).astype(np.uint8))


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


def from_pillow(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def pillow_operation(
    image: Image.Image, name: str, level: float, sign: float, resample: str, span: float = SPAN
) -> Image.Image:
    """What the policies' authors do with one image, with black for uncovered places."""
    how = Image.Resampling[resample.upper()]
    magnitude = {
        "shear_x": (1, sign * level * 0.3 / 10, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, sign * level * 0.3 / 10, 1, 0),
        "translate_x": (1, 0, sign * int(level * span / 10), 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, sign * int(level * span / 10)),
    }
    if name in magnitude:
        return image.transform(image.size, Image.Transform.AFFINE, magnitude[name], resample=how)
    if name in ENHANCEMENTS:
        return getattr(ImageEnhance, name.title())(image).enhance(level * 1.8 / 10 + 0.1)
    rest: dict[str, Callable[[], Image.Image]] = {
        "rotate": lambda: image.rotate(sign * int(level * 30 / 10), resample=how),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "posterize": lambda: ImageOps.posterize(image, 4 - int(level * 4 / 10)),
        "solarize": lambda: ImageOps.solarize(image, 256 - int(level * 256 / 10)),
        "invert": lambda: ImageOps.invert(image),
        "identity": lambda: image,
    }
    return rest[name]()


def one_by_one(images: Tensor, distortion: Distortion, resample: str) -> Tensor:
    rows = zip(images, distortion.names, distortion.levels, distortion.signs, strict=True)
    return torch.stack(
        [from_pillow(pillow_operation(to_pillow(i), n, v, s, resample)) for i, n, v, s in rows]
    )


def draw(names: str | tuple[str, ...], number: int, seed: int = 0) -> Distortion:
    """Half of the levels are whole numbers, as in AutoAugment, the other half are not."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0, 9.99, number)
    levels[::2] = np.floor(levels[::2])
    return Distortion(
        rng.choice(np.atleast_1d(names), number), levels, rng.choice([-1.0, 1.0], number)
    )


def both(
    images: Tensor, distortion: Distortion, resample: pixels.Resample
) -> tuple[Tensor, Tensor]:
    got = distort(images, distortion, translate_span=SPAN, resample=resample, fill=BLACK)
    return got, one_by_one(images, distortion, resample)


@pytest.mark.parametrize("size", [(32, 32), (20, 28)])
@pytest.mark.parametrize("name", [*VALUE_MAPS, *ENHANCEMENTS, "translate_x", "translate_y"])
def test_operations_that_need_no_rounding_are_pillows_to_the_bit(
    name: str, size: tuple[int, int]
) -> None:
    images = pictures(size)
    for resample in ("nearest", "bilinear"):
        got, expected = both(images, draw(name, len(images)), resample)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("size", [(32, 32), (20, 28)])
@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y"])
def test_rotations_and_shears_are_pillows_within_rounding(name: str, size: tuple[int, int]) -> None:
    images = pictures(size)
    got, expected = both(images, draw(name, len(images)), "bilinear")
    difference = (got.int() - expected.int()).abs()
    assert difference.max() <= 1
    # Values that should be whole, such as 200 * 0.03, are cut off to either side of it.
    assert (difference > 0).float().mean() < 0.02
    got, expected = both(images, draw(name, len(images)), "nearest")
    # Pillow finds the nearest pixel in fixed point: places on the very edge of two may differ.
    assert (got != expected).float().mean() < 0.003


def test_a_batch_of_all_operations_is_each_image_on_its_own() -> None:
    images = pictures()
    distortion = draw(OPERATIONS, len(images), seed=1)
    got, expected = both(images, distortion, "bilinear")
    assert (got.int() - expected.int()).abs().max() <= 1
    for i in range(0, len(images), 7):
        which = np.array([i])
        alone = distort(
            images[which],
            distortion.of(which),
            translate_span=SPAN,
            resample="bilinear",
            fill=BLACK,
        )
        torch.testing.assert_close(alone[0], got[i], rtol=0, atol=0)


def test_the_input_is_left_alone() -> None:
    images = pictures()
    before = images.clone()
    for names in (GEOMETRIC, VALUE_MAPS, ENHANCEMENTS, "identity"):
        out = distort(
            images,
            draw(names, len(images)),
            translate_span=SPAN,
            resample="nearest",
            fill=BLACK,
        )
        out.zero_()
    assert torch.equal(images, before)


@pytest.mark.parametrize("resample", ["nearest", "bilinear"])
def test_uncovered_places_get_the_fill(resample: pixels.Resample) -> None:
    images = pictures()
    fill = torch.tensor([125, 122, 113], dtype=torch.uint8)
    matrix = torch.tensor([[1.0, 0.0, 4.0], [0.0, 1.0, 0.0]]).expand(len(images), 2, 3)
    got = pixels.affine(images, matrix, resample=resample, fill=fill)
    assert torch.equal(got[..., :-4], images[..., 4:])
    assert torch.equal(got[..., -4:], fill.view(3, 1, 1).expand(len(images), 3, 32, 4))


def test_histograms_count_every_pixel() -> None:
    images = pictures((8, 9))
    counted = pixels.histograms(images)
    for i in (0, 20, 39):
        for channel in range(3):
            expected = np.bincount(images[i, channel].numpy().ravel(), minlength=256)
            assert counted[i, channel].tolist() == expected.tolist()


def test_smooth_and_grayscale_are_pillows() -> None:
    images = pictures()
    smooth, gray = pixels.smooth(images), pixels.grayscale(images)
    for i, image in enumerate(images):
        picture = to_pillow(image)
        assert torch.equal(smooth[i], from_pillow(picture.filter(ImageFilter.SMOOTH)))
        assert np.array_equal(gray[i, 0].numpy(), np.asarray(picture.convert("L")))


def test_images_of_one_channel_are_gray_already_and_two_make_no_sense() -> None:
    images = pictures()
    single = images[:, :1]
    out = distort(
        single,
        draw(OPERATIONS, len(single)),
        translate_span=SPAN,
        resample="bilinear",
        fill=BLACK[:1],
    )
    assert out.shape == single.shape
    assert torch.equal(pixels.grayscale(single), single)
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        pixels.grayscale(images[:, :2])
