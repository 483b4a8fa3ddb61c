"""AutoAugment with the published CIFAR-10 policy.

Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", CVPR 2019, appendix: 25
sub-policies of two operations, each with a probability and a level. For every image one sub-policy
is drawn, and its operations are applied one after the other, each with its probability. As in the
paper, the standard augmentation comes first and Cutout (16 x 16) last. As in the authors' code,
geometric operations read the nearest pixel, uncover the mean colour, and translate by at most 10
of 32 pixels.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm.images.tensors import unit
from driftnorm.training.augmentation.cutout import mask_squares, mean_color
from driftnorm.training.augmentation.operations import IDENTITY, Distortion, distort
from driftnorm.training.augmentation.standard import classification, mirror_and_crop
from driftnorm.training.batches import Batch

Step = tuple[str, float, int]  # operation, probability, level
SubPolicy = tuple[Step, Step]

CIFAR10_POLICY: tuple[SubPolicy, ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("color", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 1)),
)
TRANSLATE_SPAN = 10 / 32  # of the image's width, at level 10


def apply_policy(images: Tensor, rng: np.random.Generator, fill: Tensor) -> Tensor:
    """Applies to each image a sub-policy of its own from the published ones.

    Args:
        images: Bytes (N, C, H, W).
        rng: Draws sub-policies, coins and directions.
        fill: One byte per channel for uncovered places.

    Returns:
        Bytes of the same shape.
    """
    number = len(images)
    chosen = rng.integers(0, len(CIFAR10_POLICY), size=number)
    for position in (0, 1):
        steps = [sub[position] for sub in CIFAR10_POLICY]
        names, probabilities, levels = (np.array(column) for column in zip(*steps, strict=True))
        happens = rng.random(number) < probabilities[chosen]
        distortion = Distortion(
            np.where(happens, names[chosen], IDENTITY),
            levels[chosen].astype(np.float64),
            rng.choice([-1.0, 1.0], size=number),
        )
        images = distort(
            images,
            distortion,
            translate_span=TRANSLATE_SPAN * images.shape[-1],
            resample="nearest",
            fill=fill,
        )
    return images


@dataclasses.dataclass(frozen=True)
class Autoaugment:
    """Standard augmentation, the CIFAR-10 policy, Cutout.

    Attributes:
        cutout_size: Side of the masked square in pixels; 0 for none.
        padding: Largest shift of the standard augmentation.
    """

    cutout_size: int = 16
    padding: int = 4

    def __post_init__(self) -> None:
        check_whole("cutout_size", self.cutout_size, 0)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on augmented images."""
        images = mirror_and_crop(batch.images, batch.rng, self.padding)
        mean = mean_color(model, images.shape[1])
        fill = (255 * mean).round().to(torch.uint8).to(images.device)
        images = unit(apply_policy(images, batch.rng, fill))
        if self.cutout_size:
            images = mask_squares(images, batch.rng, self.cutout_size, mean)
        return classification(model(images), batch.labels)
