"""Images in an array as the tensors that networks take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from driftnorm.images.contents import Pixels
from driftnorm.images.image_set import ImageSet


def tensors(
    images: ImageSet, positions: slice | npt.NDArray[np.integer] = slice(None)
) -> tuple[Tensor, Tensor]:
    """Copies of some images, bytes (N, C, H, W), channels last in memory, and their labels."""
    pixels = torch.from_numpy(np.array(images.images[positions]))
    return pixels.permute(0, 3, 1, 2), torch.from_numpy(np.array(images.labels[positions]))


def unit(images: Tensor) -> Tensor:
    """Bytes as numbers in [0, 1], channels last in memory, which convolutions on a CPU like."""
    return images.contiguous(memory_format=torch.channels_last).float().div_(255)


def as_batch(images: Sequence[Pixels], device: torch.device | str = "cpu") -> Tensor:
    """Images (H, W, 3), bytes or floats in [0, 1], as a batch (N, 3, H, W) in [0, 1]."""
    stacked = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2)
    return stacked if stacked.is_floating_point() else stacked.float().div_(255)
