"""AugMix: Hendrycks et al., "AugMix: A Simple Method to Improve Robustness", ICLR 2020.

An augmented image is a mixture of chains of operations, mixed once more with the image itself:
    x_aug = m x + (1 - m) sum_i w_i chain_i(x),   w ~ Dirichlet(1),  m ~ Beta(1, 1),
with 3 chains of 1 to 3 operations each, levels uniform in (0.1, severity), severity 3. Loss, for
the clean image and two augmentations of it, in one forward pass of all three:
    CE(x, y) + 12 JS,   JS = mean_j KL(p_j || M),   M = (p_clean + p_aug1 + p_aug2) / 3,
with M clamped to [1e-7, 1]. The operations leave out colour, contrast, brightness and sharpness,
which overlap with the corruptions to be tested. The authors mix after normalisation; normalising
is affine and the weights sum to one, so mixing before it, as here, is the same.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm.images.tensors import unit
from driftnorm.training.augmentation.operations import IDENTITY, Distortion, distort
from driftnorm.training.augmentation.standard import accuracy, mirror_and_crop
from driftnorm.training.batches import Batch

AUGMIX_OPERATIONS = (
    "autocontrast", "equalize", "posterize", "rotate", "solarize",
    "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
LEAST_LEVEL = 0.1
LEAST_PROBABILITY = 1e-7


def jensen_shannon(logits: tuple[Tensor, ...]) -> Tensor:
    """Mean over the views and the batch of KL(p_view || mean over views)."""
    views = torch.stack([view.softmax(dim=1) for view in logits])
    log_mean = views.mean(dim=0).clamp(LEAST_PROBABILITY, 1).log()
    divergences = [F.kl_div(log_mean, view, reduction="batchmean") for view in views]
    return torch.stack(divergences).mean()


def _random_chains(
    images: Tensor, depths: NDArray[np.int64], severity: float, rng: np.random.Generator
) -> Tensor:
    """A chain of random operations on each image, as long as `depths` says."""
    number = len(images)
    fill = torch.zeros(images.shape[1], dtype=torch.uint8, device=images.device)
    for position in range(int(depths.max())):
        names = rng.choice(AUGMIX_OPERATIONS, size=number)
        distortion = Distortion(
            np.where(position < depths, names, IDENTITY),
            rng.uniform(LEAST_LEVEL, severity, size=number),
            rng.choice([-1.0, 1.0], size=number),
        )
        images = distort(
            images,
            distortion,
            translate_span=images.shape[-1] / 3,
            resample="bilinear",
            fill=fill,
        )
    return images


def augment_and_mix(
    images: Tensor, settings: Augmix, rng: np.random.Generator, skip: float | None = None
) -> Tensor:
    """One AugMix augmentation of each image.

    Args:
        images: Bytes (N, C, H, W).
        settings: Width, depth, severity, alpha.
        rng: Draws everything.
        skip: The weight m of the image itself, for all images; drawn from Beta when None.

    Returns:
        Numbers in [0, 1], not rounded to bytes.
    """
    number, width = len(images), settings.width
    chain_weights = rng.dirichlet([settings.alpha] * width, size=number)
    own = rng.beta(settings.alpha, settings.alpha, size=number)
    if skip is not None:
        own[:] = skip
    low, high = (settings.depth, settings.depth) if settings.depth > 0 else (1, 3)
    depths = rng.integers(low, high + 1, size=number * width)
    chains = _random_chains(images.repeat(width, 1, 1, 1), depths, settings.severity, rng)
    weights = np.concatenate([own[None], (1 - own) * chain_weights.T]).astype(np.float32)
    scaled = torch.from_numpy(weights).to(images.device)[..., None, None, None]
    mixed = scaled[0] * unit(images)
    for weight, chain in zip(scaled[1:], chains.chunk(width), strict=True):
        mixed.addcmul_(weight, unit(chain))
    return mixed


@dataclasses.dataclass(frozen=True)
class Augmix:
    """Standard augmentation, two mixtures of chains, and the consistency of all three.

    Attributes:
        width: Chains per mixture.
        depth: Operations per chain; 0 draws 1 to 3 for each.
        severity: Largest level of an operation, 0.1 to 10.
        alpha: Of the Dirichlet and the Beta distribution.
        js_weight: Of the consistency term; 0 leaves it out, and its two forward passes.
        padding: Largest shift of the standard augmentation.
    """

    width: int = 3
    depth: int = 0
    severity: float = 3.0
    alpha: float = 1.0
    js_weight: float = 12.0
    padding: int = 4

    def __post_init__(self) -> None:
        check_whole("width", self.width)
        check_whole("depth", self.depth, 0)
        check_number("severity", self.severity, least=LEAST_LEVEL, most=10)
        check_number("alpha", self.alpha, least=1e-3)
        check_number("js_weight", self.js_weight, least=0)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the clean images plus the weighted divergence of the three views."""
        images = mirror_and_crop(batch.images, batch.rng, self.padding)
        if not self.js_weight:
            logits = model(augment_and_mix(images, self, batch.rng))
            loss = F.cross_entropy(logits, batch.labels)
            return {"loss": loss, "accuracy": accuracy(logits, batch.labels)}
        views = [unit(images), *(augment_and_mix(images, self, batch.rng) for _ in range(2))]
        logits = model(torch.cat(views)).chunk(3)
        cross_entropy, js = F.cross_entropy(logits[0], batch.labels), jensen_shannon(logits)
        return {
            "loss": cross_entropy + self.js_weight * js,
            "js": js.detach(),
            "accuracy": accuracy(logits[0], batch.labels),
        }
