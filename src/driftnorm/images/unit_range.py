"""Bytes as the numbers that networks take."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["unit"]


def unit(images: Tensor) -> Tensor:
    """Bytes as numbers in [0, 1], channels last in memory, which convolutions on a CPU like."""
    return images.contiguous(memory_format=torch.channels_last).float().div_(255)
