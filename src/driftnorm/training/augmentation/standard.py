"""Standard augmentation, on which every other recipe builds: mirror and shift.

Each image is mirrored with probability 1/2, padded with 4 black pixels on every side, and cut
to its size at a random place (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016,
section 4.2). The loss is cross-entropy.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm.images.tensors import unit
from driftnorm.training.batches import Batch


def mirror_and_crop(images: Tensor, rng: np.random.Generator, padding: int = 4) -> Tensor:
    """Mirrors each image or not, and cuts it out of its padded self at a random place."""
    number = len(images)
    mirrored = rng.random(number) < 0.5
    top, left = rng.integers(0, 2 * padding + 1, size=(2, number))
    return shift_and_mirror(images, mirrored, top, left, padding)


def shift_and_mirror(
    images: Tensor,
    mirrored: np.ndarray[tuple[int], np.dtype[np.bool_]],
    top: np.ndarray[tuple[int], np.dtype[np.int64]],
    left: np.ndarray[tuple[int], np.dtype[np.int64]],
    padding: int,
) -> Tensor:
    """Pads with black, cuts at (top, left), then mirrors where asked to: one indexing call."""
    number, channels, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    rows = top[:, None] + np.arange(height)
    steps = np.arange(width)
    columns = left[:, None] + np.where(mirrored[:, None], steps[::-1], steps)
    places = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
    index = torch.from_numpy(places).to(images.device).view(number, 1, -1)
    return padded.flatten(2).gather(2, index.expand(-1, channels, -1)).view_as(images)


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Part of the predictions that are right."""
    return (logits.detach().argmax(dim=1) == labels).float().mean()


def classification(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Cross-entropy and, for the eye, accuracy."""
    return {"loss": F.cross_entropy(logits, labels), "accuracy": accuracy(logits, labels)}


@dataclasses.dataclass(frozen=True)
class Standard:
    """Mirror and shift.

    Attributes:
        padding: Largest shift in pixels.
    """

    padding: int = 4

    def __post_init__(self) -> None:
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on augmented images."""
        images = unit(mirror_and_crop(batch.images, batch.rng, self.padding))
        return classification(model(images), batch.labels)
