"""DomainBed's training augmentation, one batch per call, without loader processes.

Each picture: a random crop (area 0.7 to 1, aspect 3/4 to 4/3) resized; mirrored with probability
1/2; brightness, contrast, saturation and hue changed by up to 0.3, in random order; made grey with
probability 0.1. Pillow changes colours of bytes; here they are numbers in [0, 1], not rounded to
bytes in between. Normalisation is left to the network.

The crop is measured on the stored picture. If that was squashed to a square, the aspect is that of
the squashed picture; DomainBed crops before it squashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

AREA = (0.7, 1.0)
ASPECT = (3 / 4, 4 / 3)
JITTER = 0.3
GRAY_PROBABILITY = 0.1
_TRIES = 10
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601-2, as Pillow's "L"


@dataclass(frozen=True)
class Plan:
    """The augmentation of each of N pictures.

    Attributes:
        boxes: Top, left, height and width of the crop, (N, 4).
        mirrored: Whether left and right are swapped, (N,).
        order: The order of the four `OPERATIONS`, (N, 4).
        factors: The strength of each of them, (N, 4).
        gray: Whether colours are removed, (N,).
    """

    boxes: NDArray[np.int64]
    mirrored: NDArray[np.bool_]
    order: NDArray[np.int64]
    factors: NDArray[np.float64]
    gray: NDArray[np.bool_]


def augment(images: Tensor, rng: np.random.Generator, side: int | None = None) -> Tensor:
    """Augment a batch.

    Args:
        images: Bytes (N, 3, H, W).
        rng: The only source of randomness; the same state gives the same result.
        side: Height and width of the result; those of the images by default.

    Returns:
        Numbers in [0, 1], (N, 3, side, side), channels last in memory.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise TypeError(
            "`images` must be bytes of shape (N, 3, H, W), got "
            f"{images.dtype} of shape {tuple(images.shape)}."
        )
    height, width = images.shape[-2:]
    size = (height, width) if side is None else (side, side)
    return apply_plan(images, draw_plan(rng, len(images), height, width), size)


def draw_plan(rng: np.random.Generator, number: int, height: int, width: int) -> Plan:
    """Draw the augmentation of ``number`` pictures of one size."""
    boxes = _draw_boxes(rng, number, height, width)
    mirrored = rng.random(number) < 0.5
    order = rng.permuted(np.tile(np.arange(len(OPERATIONS)), (number, 1)), axis=1)
    factors = rng.uniform(1 - JITTER, 1 + JITTER, (number, len(OPERATIONS)))
    factors[:, OPERATIONS.index(shift_hue)] -= 1  # a shift, not a factor
    return Plan(boxes, mirrored, order, factors, rng.random(number) < GRAY_PROBABILITY)


def _draw_boxes(
    rng: np.random.Generator, number: int, height: int, width: int
) -> NDArray[np.int64]:
    """The first of ten drawn sizes that fits; the largest centred crop if none does."""
    area = height * width * rng.uniform(*AREA, (number, _TRIES))
    aspect = np.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1]), (number, _TRIES)))
    heights, widths = np.rint(np.sqrt(area / aspect)), np.rint(np.sqrt(area * aspect))
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    chosen = (np.arange(number), fits.argmax(axis=1))
    fitted = np.stack([heights[chosen], widths[chosen]], axis=1).astype(np.int64)
    largest = min(max(width / height, ASPECT[0]), ASPECT[1])
    whole = (min(height, round(width / largest)), min(width, round(height * largest)))
    found = fits.any(axis=1, keepdims=True)
    sizes = np.where(found, fitted, np.array(whole, dtype=np.int64))
    room = np.array([height, width], dtype=np.int64) - sizes
    corners = np.where(found, rng.integers(0, room + 1), room // 2)
    return np.concatenate([corners, sizes], axis=1)


def apply_plan(images: Tensor, plan: Plan, size: tuple[int, int]) -> Tensor:
    """Apply the plan to bytes (N, 3, H, W); the result has the new size and is in [0, 1].

    Each picture goes through all steps before the next: some forty passes over its pixels then hit
    the processor's cache. Processing all pictures at once would fetch them from memory in each
    pass, which takes longer than the calls it saves.
    """
    shape = (len(images), images.shape[1], *size)
    out = torch.empty(shape, device=images.device, memory_format=torch.channels_last)
    for number, image in enumerate(images):
        part = cut(image, plan.boxes[number].tolist(), bool(plan.mirrored[number]), size)
        colors = part.float().div_(255)
        for operation in plan.order[number].tolist():
            colors = OPERATIONS[operation](colors, float(plan.factors[number, operation]))
        out[number] = luminance(colors) if plan.gray[number] else colors
    return out


def cut(image: Tensor, box: list[int], mirrored: bool, size: tuple[int, int]) -> Tensor:
    """The crop of a picture (3, H, W), resized like Pillow's bilinear filter: bytes."""
    top, left, height, width = box
    part = image[None, :, top : top + height, left : left + width]
    resized = F.interpolate(part, size, mode="bilinear", antialias=True)[0]
    return resized.flip(-1) if mirrored else resized


def change_brightness(picture: Tensor, factor: float) -> Tensor:
    """Away from black (1 keeps all)."""
    return (picture * factor).clamp_(0, 1)


def change_contrast(picture: Tensor, factor: float) -> Tensor:
    """Away from the picture's mean luminance (1 keeps all)."""
    mean = luminance(picture).mean()
    return torch.add(mean * (1 - factor), picture, alpha=factor).clamp_(0, 1)


def change_saturation(picture: Tensor, factor: float) -> Tensor:
    """Away from each pixel's luminance (1 keeps all)."""
    gray = luminance(picture).mul_(1 - factor)
    return torch.add(gray, picture, alpha=factor).clamp_(0, 1)


def shift_hue(picture: Tensor, turns: float) -> Tensor:
    """Rotate around the colour circle, 1 being a full turn; value and saturation stay.

    The circle has length 6, with red at 0, green at 2, blue at -2. Let r, g, b be a pixel's
    channels, scaled so that the smallest is 0 and the largest 1. Its distance from red is
    1 - r + g + b, on the side of the larger of g and b. Conversely, a channel whose colour is at
    distance d from the pixel's is 2 - d, clamped to [0, 1]. (No branches: in torch a choice takes
    20 times as long as a sum.)
    """
    red, green, blue = picture.unbind()
    low = torch.minimum(torch.minimum(red, green), blue)
    spread = torch.maximum(torch.maximum(red, green), blue).sub_(low)
    divisor = spread.clamp(min=torch.finfo(picture.dtype).tiny)  # grey pixels stay grey
    distance = (green + blue).sub_(red).sub_(low).div_(divisor).add_(1)
    hue = torch.copysign(distance, green - blue).add_(6 * turns)
    hue.sub_(hue.div(6).round_().mul_(6))  # from -3 to 3
    out = torch.empty_like(picture)
    for channel, place in zip(out, (0, 2, -2), strict=True):
        torch.sub(hue, place, out=channel)
        channel.abs_().sub_(3).abs_().sub_(1).clamp_(0, 1).mul_(spread).add_(low)
    return out


def luminance(picture: Tensor) -> Tensor:
    """A picture (3, H, W) without its colours: (1, H, W)."""
    red, green, blue = picture.unbind()
    return (_LUMA[0] * red).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2]).unsqueeze(0)


OPERATIONS: tuple[Callable[[Tensor, float], Tensor], ...] = (
    change_brightness,
    change_contrast,
    change_saturation,
    shift_hue,
)
