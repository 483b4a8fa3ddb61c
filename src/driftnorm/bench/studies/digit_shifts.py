"""Shifts for 8 x 8 grey images in [0, 1]: (images, severity 1 to 3, generator) -> images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

Shift: TypeAlias = Callable[[Tensor, int, Generator], Tensor]

SEVERITIES = (1, 2, 3)


def noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Gaussian noise of standard deviation 0.15, 0.25, 0.35."""
    strength = (0.15, 0.25, 0.35)[severity - 1]
    return (images + strength * torch.randn(images.shape, generator=generator)).clamp(0, 1)


def impulse(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A share of 5, 12, 20 % of the pixels turns black or white."""
    share = (0.05, 0.12, 0.2)[severity - 1]
    draw = torch.rand(images.shape, generator=generator)
    salted = torch.where(draw < share / 2, 1.0, images)
    return torch.where(draw > 1 - share / 2, 0.0, salted)


def blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Binomial 3 x 3 blur, once, twice, three times."""
    row = torch.tensor([1.0, 2.0, 1.0]) / 4
    kernel = torch.outer(row, row).view(1, 1, 3, 3)
    for _ in range(severity):
        images = F.conv2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), kernel)
    return images


def contrast(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Contrast reduced to 50, 30, 15 % around each image's mean."""
    factor = (0.5, 0.3, 0.15)[severity - 1]
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return mean + factor * (images - mean)


def fog(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A bright veil that covers 30, 50, 70 % and varies smoothly over the image."""
    cover = (0.3, 0.5, 0.7)[severity - 1]
    coarse = torch.rand(len(images), 1, 2, 2, generator=generator)
    veil = F.interpolate(coarse, size=images.shape[-2:], mode="bilinear", align_corners=True)
    return (1 - cover) * images + cover * (0.6 + 0.4 * veil)


DIGIT_SHIFTS: dict[str, Shift] = {
    "noise": noise,
    "impulse": impulse,
    "blur": blur,
    "contrast": contrast,
    "fog": fog,
}
