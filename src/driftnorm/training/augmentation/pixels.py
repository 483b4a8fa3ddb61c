"""Pixel work on whole batches of bytes, each image with its own parameters.

Images are uint8 tensors of shape (N, C, H, W). Every function gives the pixels that Pillow gives
for one image at a time (tests compare them), so that policies written for Pillow keep their
meaning; there is no loop over images.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Resample = Literal["nearest", "bilinear"]

LUMA_WEIGHTS = (19595, 38470, 7471)  # ITU-R 601-2 in 16-bit fixed point, as Pillow converts to "L"
# Pillow cuts bilinear values off in double precision; in single precision an exact 7 may come out
# as 6.9999995, which must not become 6.
ROUNDING_SLACK = 1e-3


def affine(images: Tensor, matrices: Tensor, *, resample: Resample, fill: Tensor) -> Tensor:
    """Maps output to input coordinates by one 2x3 matrix per image, like `Image.transform`.

    Args:
        images: Bytes (N, C, H, W).
        matrices: (N, 2, 3); the output pixel centre (x, y, 1) times it is the place in the input.
        resample: What is read there.
        fill: One byte per channel for places outside of the input.

    Returns:
        Bytes of the same shape.
    """
    height, width = images.shape[-2:]
    places = _places(matrices, height, width)
    size = torch.tensor([width, height], device=images.device)
    inside = ((places >= 0) & (places < size)).all(dim=-1).unsqueeze(1)
    if resample == "nearest":
        cell = places.floor().long().minimum(size - 1).clamp_(min=0)
        index = (cell[..., 1] * width + cell[..., 0]).flatten(1).unsqueeze(1)
        read = images.flatten(2).gather(2, index.expand(-1, images.shape[1], -1)).view_as(images)
    else:
        grid = 2 * places / size - 1
        values = F.grid_sample(
            images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False
        )
        read = (values + ROUNDING_SLACK).to(torch.uint8)
    return torch.where(inside, read, fill.view(-1, 1, 1))


def _places(matrices: Tensor, height: int, width: int) -> Tensor:
    """Where each output pixel reads: (N, H, W, 2), x before y, pixel centres at halves."""
    m = matrices.float()[..., None, None]  # (N, 2, 3, 1, 1)
    x = torch.arange(width, device=m.device) + 0.5
    y = (torch.arange(height, device=m.device) + 0.5).unsqueeze(1)
    return (m[:, :, 0] * x + m[:, :, 1] * y + m[:, :, 2]).movedim(1, -1)


def apply_tables(images: Tensor, tables: Tensor) -> Tensor:
    """Replaces every byte by its entry in the table (N, C, 256) of its image and channel."""
    flat = images.flatten(2)
    return tables.expand(*flat.shape[:2], 256).gather(2, flat.long()).view_as(images)


def histograms(images: Tensor) -> Tensor:
    """How often each value occurs: (N, C, 256)."""
    flat = images.flatten(2).long()
    number, channels = flat.shape[:2]
    which = torch.arange(number * channels, device=images.device).view(number, channels, 1)
    counts = torch.bincount((which * 256 + flat).flatten(), minlength=number * channels * 256)
    return counts.view(number, channels, 256)


def autocontrast_tables(images: Tensor) -> Tensor:
    """Stretches each channel so that its darkest value is 0 and its brightest 255."""
    low, high = images.flatten(2).double().aminmax(dim=2, keepdim=True)
    values = torch.arange(256, device=images.device, dtype=torch.float64)
    # `255.0 / x` would be a multiplication by 1 / x, which rounds twice.
    scale = torch.full_like(low, 255).div_((high - low).clamp(min=1))
    stretched = (values * scale - low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, values).to(torch.uint8)


def equalize_tables(images: Tensor) -> Tensor:
    """Spreads the values of each channel so that its histogram becomes flat."""
    counts = histograms(images)
    values = torch.arange(256, device=images.device)
    brightest = images.flatten(2).amax(dim=2, keepdim=True).long()
    # All pixels but those of the brightest value are shared out among 255 steps.
    step = (images[0, 0].numel() - counts.gather(2, brightest)) // 255
    below = counts.cumsum(dim=2) - counts
    spread = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, spread, values).to(torch.uint8)


def posterize_tables(bits: Tensor) -> Tensor:
    """Keeps the given number of leading bits (N,)."""
    values = torch.arange(256, device=bits.device)
    kept = 256 - (1 << (8 - bits.long()))
    return (values & kept.view(-1, 1, 1)).to(torch.uint8)


def solarize_tables(thresholds: Tensor) -> Tensor:
    """Inverts the values from a threshold (N,) on; 0 inverts all."""
    values = torch.arange(256, device=thresholds.device)
    return torch.where(values < thresholds.view(-1, 1, 1), values, 255 - values).to(torch.uint8)


def grayscale(images: Tensor) -> Tensor:
    """Luminance as bytes (N, 1, H, W); images of one channel are their own."""
    if images.shape[1] == 1:
        return images
    if images.shape[1] != 3:
        raise ValueError(f"`images` must have 1 or 3 channels, got {images.shape[1]}.")
    weights = torch.tensor(LUMA_WEIGHTS, device=images.device).view(3, 1, 1)
    return ((images.long() * weights).sum(dim=1, keepdim=True) + 0x8000 >> 16).to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH: the 3x3 mean with the centre counted five times; borders stay."""
    inner = images[..., 1:-1, 1:-1].long()
    around = F.avg_pool2d(images.float(), 3, stride=1, divisor_override=1).long()
    out = images.clone()
    out[..., 1:-1, 1:-1] = ((2 * (around + 4 * inner) + 13) // 26).to(torch.uint8)
    return out


def blend(base: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """Goes from `base` (0) towards `images` (1) and past it, by one factor (N,) per image."""
    start = base.float()
    moved = start + factors.float().view(-1, 1, 1, 1) * (images.float() - start)
    return moved.clamp_(0, 255).to(torch.uint8)
