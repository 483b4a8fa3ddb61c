"""DomainBed's training augmentation, on whole batches.

Each picture: a random part of it (area 0.7 to 1, aspect 3/4 to 4/3) resized; mirrored with
probability 1/2; brightness, contrast, saturation and hue changed by up to 0.3, in random order;
made grey with probability 0.1. Pillow does the colours to bytes, one picture after the other. Here
they are numbers in [0, 1], not cut to whole bytes in between, and all pictures of a batch that are
at the same operation go through it at once. Normalisation is the network's.

The part is measured on the stored picture. Where that was squashed to a square, its aspect is one
of the squashed picture; DomainBed cuts before it squashes.
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

from driftnorm.training.standard import unit

__all__ = ["Plan", "apply_plan", "augment", "draw_plan"]

AREA = (0.7, 1.0)
ASPECT = (3 / 4, 4 / 3)
JITTER = 0.3
GRAY_PROBABILITY = 0.1
_TRIES = 10
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601-2, as Pillow's "L"


@dataclass(frozen=True)
class Plan:
    """What will be done to each of N pictures.

    Attributes:
        boxes: Top, left, height and width of the part that is kept, (N, 4).
        mirrored: Whether left and right are exchanged, (N,).
        order: The four operations of `OPERATIONS` in the order in which they come, (N, 4).
        factors: How strong each of them is, (N, 4).
        gray: Whether colours are dropped, (N,).
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
        rng: Decides everything; the same state gives the same result.
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
    """Draw what to do to ``number`` pictures of one size."""
    boxes = _draw_boxes(rng, number, height, width)
    mirrored = rng.random(number) < 0.5
    order = rng.permuted(np.tile(np.arange(len(OPERATIONS)), (number, 1)), axis=1)
    factors = rng.uniform(1 - JITTER, 1 + JITTER, (number, len(OPERATIONS)))
    factors[:, OPERATIONS.index(shift_hue)] -= 1  # a shift, not a factor
    return Plan(boxes, mirrored, order, factors, rng.random(number) < GRAY_PROBABILITY)


def _draw_boxes(
    rng: np.random.Generator, number: int, height: int, width: int
) -> NDArray[np.int64]:
    """The first of ten drawn sizes that fits; the largest centred part if none does."""
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
    """Do to bytes (N, 3, H, W) what was planned; the result has another size and is in [0, 1]."""
    cut = unit(crop_and_mirror(images, plan.boxes, plan.mirrored, size)).contiguous()
    colors = jitter(cut, plan.order, plan.factors)
    gray = torch.from_numpy(plan.gray).to(colors.device)
    colors[gray] = luminance(colors[gray]).expand(-1, 3, -1, -1)
    return colors.contiguous(memory_format=torch.channels_last)


def crop_and_mirror(
    images: Tensor,
    boxes: NDArray[np.int64],
    mirrored: NDArray[np.bool_],
    size: tuple[int, int],
) -> Tensor:
    """The part of each picture in its box, resized as Pillow's bilinear does: bytes.

    This is the one loop over pictures: torch has a fast kernel for resizing bytes, which takes one
    box at a time.
    """
    out = images.new_empty((len(images), images.shape[1], *size))
    for number, (top, left, height, width) in enumerate(boxes.tolist()):
        part = images[number : number + 1, :, top : top + height, left : left + width]
        resized = F.interpolate(part, size, mode="bilinear", antialias=True)
        out[number] = resized[0].flip(-1) if mirrored[number] else resized[0]
    return out


def jitter(images: Tensor, order: NDArray[np.int64], factors: NDArray[np.float64]) -> Tensor:
    """Change the colours of each picture (N, 3, H, W) by all operations, in its own order."""
    out = images.clone()
    for place in range(len(OPERATIONS)):
        for number, operation in enumerate(OPERATIONS):
            which = np.flatnonzero(order[:, place] == number)
            if len(which):
                chosen = torch.from_numpy(which).to(images.device)
                strength = torch.from_numpy(factors[which, number]).to(images)
                out[chosen] = operation(out[chosen], strength.view(-1, 1, 1, 1))
    return out


def change_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """Away from black (1 keeps all)."""
    return (images * factors).clamp_(0, 1)


def change_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Away from the picture's mean luminance (1 keeps all)."""
    mean = luminance(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, factors).clamp_(0, 1)


def change_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """Away from each pixel's luminance (1 keeps all)."""
    return torch.lerp(luminance(images).expand_as(images), images, factors).clamp_(0, 1)


def shift_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Around the circle of colours, 1 being all the way; value and saturation stay.

    A pixel of hue h (in sixths of the circle), largest channel v and spread c has the channels
    v - c clamp(min(k, 4 - k), 0, 1) with k = h + 5, 3, 1 (mod 6) for red, green, blue.
    """
    red, green, blue = images.unbind(dim=1)
    value = images.amax(dim=1)
    spread = value - images.amin(dim=1)
    divisor = spread.clamp(min=torch.finfo(images.dtype).tiny)  # grey pixels: 0 / tiny is hue 0
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    hue = hue + 6 * turns.view(-1, 1, 1)
    out = torch.empty_like(images)
    for channel, start in enumerate((5, 3, 1)):
        k = (hue + start).remainder_(6)
        out[:, channel] = value - spread * torch.minimum(k, 4 - k).clamp_(0, 1)
    return out


def luminance(images: Tensor) -> Tensor:
    """Pictures (N, 3, H, W) without their colours: (N, 1, H, W)."""
    red, green, blue = images.unbind(dim=1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue).unsqueeze(1)


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    change_brightness,
    change_contrast,
    change_saturation,
    shift_hue,
)
