"""How much each sample counts; thresholds are shares of ln K, the maximum entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.parts.contract import Step, Weight, Whole
from driftnorm.parts.losses import softmax_entropy


@dataclass(frozen=True)
class Reliable(Weight):
    """Drop samples whose entropy is not below ``margin * ln K``; certain ones count more (EATA).

    Attributes:
        margin: As a share of ln K.
        weigh: Whether kept samples have weight ``exp(margin * ln K - H)``, or 1 as in SAR.
    """

    margin: float = 0.4
    weigh: bool = True

    def __post_init__(self) -> None:
        check_number("margin", self.margin, most=1)

    def __call__(self, step: Step, weights: Tensor) -> Tensor:  # noqa: D102
        entropy = softmax_entropy(step.logits.detach())
        limit = self.margin * math.log(step.logits.shape[1])
        kept = (entropy < limit).to(weights.dtype)
        return weights * kept * (torch.exp(limit - entropy) if self.weigh else 1.0)


@dataclass(frozen=True)
class Diverse(Weight):
    """Drop samples whose prediction is too similar to the average so far (EATA).

    Kept where ``|cos(pbar, p)| < similarity``; ``pbar`` is an exponential average over batches of
    the mean prediction of the samples kept, by the parts before and by this one. In the first batch
    there is nothing to compare with.

    Attributes:
        similarity: Cosine from which a sample is redundant.
        decay: Decay of the average.
    """

    similarity: float = 0.05
    decay: float = 0.9

    def __post_init__(self) -> None:
        check_number("similarity", self.similarity, most=1)
        check_number("decay", self.decay, least=0, below=1)

    def __call__(self, step: Step, weights: Tensor) -> Tensor:  # noqa: D102
        p = F.softmax(step.logits.detach(), dim=1)
        mean = step[self].get("mean")
        if mean is not None:
            shape = (1, -1) + (1,) * (p.dim() - 2)
            like = F.cosine_similarity(mean.view(shape), p, dim=1).abs()
            weights = weights * (like < self.similarity)
        kept = weights > 0
        if bool(kept.any()):
            now = p.movedim(1, -1)[kept].mean(dim=0)
            after = now if mean is None else self.decay * mean + (1 - self.decay) * now
            step[self] = {"mean": after}
        return weights


@dataclass(frozen=True)
class Timely(Weight):
    """Older images of a memory count less: ``sigmoid(-age / span)`` (RoTTA).

    Attributes:
        span: Scale of the age, in images of the stream.
    """

    span: float = 64.0

    def __post_init__(self) -> None:
        check_number("span", self.span)

    def check(self, recipe: Whole) -> None:  # noqa: D102
        if recipe.memory is None:
            raise ValueError(f"{self} weighs images by their age: the recipe needs a `memory`.")

    def __call__(self, step: Step, weights: Tensor) -> Tensor:  # noqa: D102
        return weights * torch.sigmoid(-step.facts["age"].to(weights) / self.span)
