"""Images in an array as the tensors that networks take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftnorm.images.image_set import ImageSet

__all__ = ["tensors", "unit"]


def tensors(
    images: ImageSet, positions: slice | npt.NDArray[np.integer] = slice(None)
) -> tuple[Tensor, Tensor]:
    """Copies of some images, bytes (N, C, H, W), channels last in memory, and their labels."""
    pixels = torch.from_numpy(np.array(images.images[positions]))
    return pixels.permute(0, 3, 1, 2), torch.from_numpy(np.array(images.labels[positions]))


def unit(images: Tensor) -> Tensor:
    """Bytes as numbers in [0, 1], channels last in memory, which convolutions on a CPU like."""
    return images.contiguous(memory_format=torch.channels_last).float().div_(255)
