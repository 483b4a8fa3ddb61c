"""Cutout: DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks", 2017.

After the standard augmentation one square of 16 x 16 pixels (the paper's size for CIFAR-10) is
masked in every image. Its centre is uniform over the pixels, so parts of it may lie outside. The
paper masks with 0 after normalisation, which is the mean colour before it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm.images.tensors import unit
from driftnorm.models import Normalized
from driftnorm.training.augmentation.standard import classification, mirror_and_crop
from driftnorm.training.batches import Batch


def boxes(
    top: NDArray[np.int64],
    bottom: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    size: tuple[int, int],
) -> Tensor:
    """Which pixels lie in each image's box [top, bottom) x [left, right): (N, 1, H, W)."""
    rows, columns = np.arange(size[0]), np.arange(size[1])
    inside_rows = (rows >= top[:, None]) & (rows < bottom[:, None])
    inside_columns = (columns >= left[:, None]) & (columns < right[:, None])
    return torch.from_numpy(inside_rows[:, None, :, None] & inside_columns[:, None, None, :])


def mask_squares(images: Tensor, rng: np.random.Generator, size: int, fill: Tensor) -> Tensor:
    """Puts `fill` (one value per channel) into one random square of each image."""
    height, width = images.shape[-2:]
    y = rng.integers(0, height, size=len(images))
    x = rng.integers(0, width, size=len(images))
    before, after = size // 2, size - size // 2
    box = boxes(y - before, y + after, x - before, x + after, (height, width)).to(images.device)
    return torch.where(box, fill.to(images).view(-1, 1, 1), images)


def mean_color(model: nn.Module, channels: int) -> Tensor:
    """The colour in [0, 1] that the model's normalisation turns into zeros."""
    if isinstance(model, Normalized):
        return model.mean.detach().flatten().expand(channels)
    return torch.zeros(channels)


@dataclasses.dataclass(frozen=True)
class Cutout:
    """Standard augmentation, then one masked square.

    Attributes:
        size: Side of the square in pixels.
        padding: Largest shift of the standard augmentation.
    """

    size: int = 16
    padding: int = 4

    def __post_init__(self) -> None:
        check_whole("size", self.size)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on masked images."""
        images = unit(mirror_and_crop(batch.images, batch.rng, self.padding))
        fill = mean_color(model, images.shape[1])
        return classification(model(mask_squares(images, batch.rng, self.size, fill)), batch.labels)
