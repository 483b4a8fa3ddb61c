"""DomainBed's augmentation in batches against Pillow and formulas, one picture at a time."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from driftnorm.images.domains import augment as module
from driftnorm.images.domains.augment import OPERATIONS, Plan, apply_plan, augment, draw_plan

NUMBER = 24


def pictures(height: int = 30, width: int = 30) -> Tensor:
    """Smooth ramps, noise, few colours, grey and flat ones: bytes (24, 3, H, W)."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[0:height, 0:width]
    slopes = rng.uniform(-6, 6, (2, 10, 3, 1, 1))
    ramps = 128 + slopes[0] * (x - width / 2) + slopes[1] * (y - height / 2)
    noise = rng.integers(0, 256, (8, 3, height, width))
    few = rng.integers(0, 2, (3, 3, height, width)) * 255
    gray = np.repeat(rng.integers(0, 256, (2, 1, height, width)), 3, axis=1)
    flat = np.tile(np.array([200, 30, 90])[None, :, None, None], (1, 1, height, width))
    stack = np.concatenate([ramps, noise, few, gray, flat]).clip(0, 255).astype(np.uint8)
    return torch.from_numpy(stack)


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


def levels(picture: Image.Image) -> Tensor:
    """Bytes as numbers from 0 to 255."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float()


def pillow_hue(picture: Image.Image, turns: float) -> Image.Image:
    """As torchvision does it to a Pillow picture: in bytes, wrapping around."""
    hsv = np.array(picture.convert("HSV"))
    hsv[..., 0] += np.array(int(turns * 255)).astype(np.uint8)
    return Image.fromarray(hsv, "HSV").convert("RGB")


def pillow_operation(picture: Image.Image, number: int, factor: float) -> Image.Image:
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    if number < len(enhancers):
        return enhancers[number](picture).enhance(factor)
    return pillow_hue(picture, factor)


def pillow_chain(image: Tensor, plan: Plan, number: int, size: tuple[int, int]) -> Image.Image:
    """All that DomainBed does to one picture, given the draws."""
    top, left, height, width = plan.boxes[number].tolist()
    part = to_pillow(image).crop((left, top, left + width, top + height))
    picture = part.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    if plan.mirrored[number]:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for operation in plan.order[number].tolist():
        picture = pillow_operation(picture, operation, plan.factors[number, operation])
    return picture.convert("L").convert("RGB") if plan.gray[number] else picture


@pytest.mark.parametrize(("height", "width"), [(30, 30), (40, 30), (12, 20), (100, 8)])
def test_boxes_one_at_a_time(height, width) -> None:
    """The first of ten drawn sizes that fits, at a drawn place; else the largest, centred."""
    boxes = draw_plan(np.random.default_rng(5), 200, height, width).boxes
    rng = np.random.default_rng(5)
    areas = rng.uniform(0.7, 1, (200, 10)) * height * width
    ratios = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), (200, 10)))
    fallbacks = 0
    for box, own_areas, own_ratios in zip(boxes.tolist(), areas, ratios, strict=True):
        top, left, tall, wide = box
        for area, ratio in zip(own_areas, own_ratios, strict=True):
            fitted_wide, fitted_tall = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if fitted_wide <= width and fitted_tall <= height:
                assert (tall, wide) == (fitted_tall, fitted_wide)
                assert 0 <= top <= height - tall
                assert 0 <= left <= width - wide
                break
        else:
            fallbacks += 1
            if width / height < 3 / 4:
                wide_expected, tall_expected = width, round(width / (3 / 4))
            elif width / height > 4 / 3:
                wide_expected, tall_expected = round(height * 4 / 3), height
            else:
                wide_expected, tall_expected = width, height
            assert (tall, wide) == (tall_expected, wide_expected)
            assert (top, left) == ((height - tall) // 2, (width - wide) // 2)
    assert fallbacks == 200 if height == 100 else fallbacks < 200


def test_places_of_boxes_are_uniform() -> None:
    boxes = draw_plan(np.random.default_rng(0), 40_000, 30, 30).boxes
    chosen = boxes[boxes[:, 2] == 26]  # tops 0 to 4
    shares = np.bincount(chosen[:, 0]) / len(chosen)
    assert len(shares) == 5
    assert np.abs(shares - 0.2).max() < 5 * (0.16 / len(chosen)) ** 0.5


def test_draws_have_domainbeds_ranges() -> None:
    plan = draw_plan(np.random.default_rng(1), 20_000, 30, 30)
    for number, centre in enumerate((1, 1, 1, 0)):
        factors = plan.factors[:, number]
        assert abs(factors.min() - (centre - 0.3)) < 1e-3
        assert abs(factors.max() - (centre + 0.3)) < 1e-3
        assert abs(factors.mean() - centre) < 0.01
    orders, times = np.unique(plan.order, axis=0, return_counts=True)
    assert len(orders) == 24, "every order of the four operations"
    assert times.min() > 20_000 / 24 * 0.8
    assert abs(plan.gray.mean() - 0.1) < 0.01
    assert abs(plan.mirrored.mean() - 0.5) < 0.02


@pytest.mark.parametrize("size", [(30, 30), (45, 38), (17, 20)])
def test_crops_are_pillows(size) -> None:
    images = pictures()
    plan = draw_plan(np.random.default_rng(2), NUMBER, 30, 30)
    for layout in (torch.contiguous_format, torch.channels_last):
        stored = images.contiguous(memory_format=layout)
        for number, image in enumerate(images):
            box, mirrored = plan.boxes[number].tolist(), bool(plan.mirrored[number])
            out = module.cut(stored[number], box, mirrored, size)
            assert out.dtype == torch.uint8
            top, left, height, width = box
            part = to_pillow(image).crop((left, top, left + width, top + height))
            expected = levels(part.resize(size[::-1], Image.Resampling.BILINEAR))
            if mirrored:
                expected = expected.flip(-1)
            assert (out - expected).abs().max() <= 1


@pytest.mark.parametrize("number", [0, 1, 2], ids=["brightness", "contrast", "saturation"])
def test_enhancements_are_pillows_before_rounding(number) -> None:
    for image, factor in zip(pictures(), np.linspace(0.7, 1.3, NUMBER), strict=True):
        own = OPERATIONS[number](image / 255, factor) * 255
        expected = levels(pillow_operation(to_pillow(image), number, factor))
        # Pillow cuts off the result, and rounds the luminance it mixes with.
        assert float((own - expected).min()) > -0.3
        assert float((own - expected).max()) < 1.3


def test_hue_is_the_formula_pixel_by_pixel() -> None:
    images = pictures(6, 6).double() / 255
    for image, turn in zip(images, np.linspace(-0.3, 0.3, NUMBER), strict=True):
        own = OPERATIONS[3](image, turn)
        for pixel, result in zip(image.flatten(1).T.tolist(), own.flatten(1).T, strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
            assert torch.allclose(result, torch.tensor(expected, dtype=torch.float64), atol=1e-9)


def test_hue_is_near_pillows_in_bytes() -> None:
    differences = [
        OPERATIONS[3](image / 255, turn) * 255 - levels(pillow_hue(to_pillow(image), turn))
        for image, turn in zip(pictures(), np.linspace(-0.3, 0.3, NUMBER), strict=True)
    ]
    difference = torch.stack(differences).abs()
    # A step of Pillow's hue is 6 * 255 / 256 levels of a channel. The hue is cut off to a step, the
    # shift to another, with 0.3 more for 255 instead of 256 steps a turn; saturation and result are
    # cut off to a level each.
    assert float(difference.max()) < 2.3 * 6 * 255 / 256 + 2
    assert float(difference.mean()) < 2


def test_each_picture_gets_the_operations_in_its_own_order() -> None:
    images = pictures()
    plan = draw_plan(np.random.default_rng(3), NUMBER, 30, 30)
    plan.boxes[:] = (0, 0, 30, 30)
    plan.mirrored[:] = plan.gray[:] = False
    out = apply_plan(images, plan, (30, 30))
    for number in range(NUMBER):
        expected = images[number] / 255
        for operation in plan.order[number].tolist():
            expected = OPERATIONS[operation](expected, plan.factors[number, operation])
        assert torch.allclose(out[number], expected, atol=1e-6)


@pytest.mark.parametrize("size", [(30, 30), (24, 24)])
def test_the_whole_chain_is_near_pillows(size) -> None:
    images = pictures()
    plan = draw_plan(np.random.default_rng(4), NUMBER, 30, 30)
    plan.gray[:4] = True
    out = apply_plan(images, plan, size)
    assert out.shape == (NUMBER, 3, *size)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert 0 <= float(out.min()) <= float(out.max()) <= 1
    for number, image in enumerate(images):
        expected = levels(pillow_chain(image, plan, number, size))
        assert float((out[number] * 255 - expected).abs().mean()) < 3
        if plan.gray[number]:
            assert torch.equal(out[number, 0], out[number, 2])


def test_the_generator_decides_everything() -> None:
    images = pictures()
    before = images.clone()
    once = augment(images, np.random.default_rng(7), side=16)
    torch.manual_seed(99)
    assert torch.equal(once, augment(images, np.random.default_rng(7), side=16))
    assert not torch.equal(once, augment(images, np.random.default_rng(8), side=16))
    assert torch.equal(images, before), "the stored pictures stay as they are"
    assert once.shape == (NUMBER, 3, 16, 16)


def test_only_bytes_of_three_channels_are_augmented() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(TypeError, match=r"bytes of shape \(N, 3, H, W\), got torch.float32"):
        augment(pictures() / 255, rng)
    with pytest.raises(TypeError, match=r"of shape \(24, 1, 30, 30\)"):
        augment(pictures()[:, :1], rng)
