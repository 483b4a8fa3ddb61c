"""Mixup and CutMix: two images and their labels in one.

Mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018):
    x = w x_a + (1 - w) x_b,   loss = w CE(x, y_a) + (1 - w) CE(x, y_b),   w ~ Beta(alpha, alpha).
CutMix (Yun et al., "CutMix", ICCV 2019): x is x_a with a box of x_b pasted in; the box has the
    part 1 - w of the area with w ~ Beta(alpha, alpha), its centre is uniform, it is clipped at the
    border, and w is then corrected to the part of x_a that is left.
In both, b is a random permutation of the batch and w is drawn once per batch, as their authors do.
alpha is 1 for both: the CIFAR setting of Mixup's and the default of CutMix's authors, who apply
CutMix to a batch with probability 0.5 on CIFAR. (The AugMix paper, whose table has both, does not
restate them.)
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm.images.tensors import unit
from driftnorm.training.augmentation.cutout import boxes
from driftnorm.training.augmentation.standard import accuracy, mirror_and_crop
from driftnorm.training.batches import Batch

LEAST_ALPHA = 1e-3  # below it Beta draws nothing but 0 and 1, and NumPy fails sooner or later


def blend_images(images: Tensor, partners: Tensor, weight: float) -> Tensor:
    """The mixup of images in [0, 1] with their partners (numbers of images of the batch)."""
    return weight * images + (1 - weight) * images[partners]


def paste_box(
    images: Tensor, partners: Tensor, weight: float, rng: np.random.Generator
) -> tuple[Tensor, float]:
    """Pastes one box of the partners into all images; also returns the part that is left."""
    height, width = images.shape[-2:]
    side = np.sqrt(1 - weight)
    half_height, half_width = int(side * height) // 2, int(side * width) // 2
    y, x = rng.integers(0, height, size=1), rng.integers(0, width, size=1)
    box = boxes(
        y - half_height, y + half_height, x - half_width, x + half_width, (height, width)
    ).to(images.device)
    left = 1 - float(box.double().mean())
    return torch.where(box, images[partners], images), left


def mixed_classification(
    logits: Tensor, labels: Tensor, partners: Tensor, weight: float
) -> dict[str, Tensor]:
    """Cross-entropy with both labels, each as much as its image is there."""
    own, other = F.cross_entropy(logits, labels), F.cross_entropy(logits, labels[partners])
    right = weight * accuracy(logits, labels) + (1 - weight) * accuracy(logits, labels[partners])
    return {"loss": weight * own + (1 - weight) * other, "accuracy": right}


def _partners(batch: Batch) -> Tensor:
    return torch.from_numpy(batch.rng.permutation(len(batch.labels))).to(batch.images.device)


@dataclasses.dataclass(frozen=True)
class Mixup:
    """Standard augmentation, then convex combinations of pairs.

    Attributes:
        alpha: Of the symmetric Beta distribution of the weight.
        padding: Largest shift of the standard augmentation.
    """

    alpha: float = 1.0
    padding: int = 4

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, least=LEAST_ALPHA)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy with mixed labels on mixed images."""
        images = unit(mirror_and_crop(batch.images, batch.rng, self.padding))
        weight, partners = float(batch.rng.beta(self.alpha, self.alpha)), _partners(batch)
        logits = model(blend_images(images, partners, weight))
        return mixed_classification(logits, batch.labels, partners, weight)


@dataclasses.dataclass(frozen=True)
class Cutmix:
    """Standard augmentation, then boxes pasted between pairs.

    Attributes:
        alpha: Of the symmetric Beta distribution of the weight.
        probability: Of a batch to be mixed at all.
        padding: Largest shift of the standard augmentation.
    """

    alpha: float = 1.0
    probability: float = 0.5
    padding: int = 4

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, least=LEAST_ALPHA)
        check_number("probability", self.probability, least=0, most=1)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy with mixed labels on patched images."""
        images = unit(mirror_and_crop(batch.images, batch.rng, self.padding))
        weight, partners = float(batch.rng.beta(self.alpha, self.alpha)), _partners(batch)
        if batch.rng.random() < self.probability:
            images, weight = paste_box(images, partners, weight, batch.rng)
        else:
            weight = 1.0
        return mixed_classification(model(images), batch.labels, partners, weight)
