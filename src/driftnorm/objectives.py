"""What a test-time step minimises: functions of the logits, no labels.

Logits have shape ``(N, K)``, or ``(N, K, ...)`` for dense prediction, where every position counts
as a sample. An objective returns a scalar, or ``None`` when this batch gives nothing to learn
from; the adapter then takes no step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm.functional import statistics_dtype

__all__ = [
    "Entropy",
    "InformationMaximization",
    "Objective",
    "PseudoLabel",
    "confident_cross_entropy",
    "marginal_entropy",
    "softmax_entropy",
]

Objective: TypeAlias = Callable[[Tensor], Tensor | None]


def softmax_entropy(logits: Tensor) -> Tensor:
    """Shannon entropy (nats) of each prediction; the class axis 1 disappears.

    >>> softmax_entropy(torch.zeros(1, 4)).exp()
    tensor([4.])
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def marginal_entropy(logits: Tensor, floor: float = 0.0) -> Tensor:
    """Entropy of the average prediction: high when the predicted classes are spread."""
    dims = [0, *range(2, logits.dim())]
    p = F.softmax(logits, dim=1).mean(dim=dims)
    return -(p * (p + floor).log()).sum() if floor else torch.special.entr(p).sum()


def confident_cross_entropy(logits: Tensor, threshold: float) -> Tensor | None:
    """Cross-entropy to the own argmax where its probability exceeds ``threshold``, if anywhere."""
    confidence, labels = F.softmax(logits.detach(), dim=1).max(dim=1)
    keep = confidence > threshold
    if not bool(keep.any()):
        return None
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses[keep].mean()


@dataclass(frozen=True)
class Entropy:
    """Mean Shannon entropy of the predictions (Tent, GpreBN)."""

    def __call__(self, logits: Tensor) -> Tensor:  # noqa: D102
        return softmax_entropy(_wide(logits)).mean()


@dataclass(frozen=True)
class PseudoLabel:
    """Cross-entropy to the own confident predictions (Lee 2013)."""

    threshold: float = 0.9

    def __post_init__(self) -> None:
        _check_threshold(self.threshold)

    def __call__(self, logits: Tensor) -> Tensor | None:  # noqa: D102
        return confident_cross_entropy(_wide(logits), self.threshold)


@dataclass(frozen=True)
class InformationMaximization:
    """Certain each, diverse together: mean entropy minus marginal entropy (SHOT-IM).

    ``pseudo_label`` > 0 adds that much of the confident pseudo-label cross-entropy (SHOT).
    """

    pseudo_label: float = 0.0
    threshold: float = 0.9

    def __post_init__(self) -> None:
        _check_threshold(self.threshold)
        if not 0 <= self.pseudo_label < float("inf"):
            raise ValueError(f"`pseudo_label` is a weight >= 0, got {self.pseudo_label}.")

    def __call__(self, logits: Tensor) -> Tensor:  # noqa: D102
        logits = _wide(logits)
        # 1e-5 inside the logarithm is part of the published loss.
        loss = softmax_entropy(logits).mean() - marginal_entropy(logits, floor=1e-5)
        if self.pseudo_label:
            labelled = confident_cross_entropy(logits, self.threshold)
            if labelled is not None:
                loss = loss + self.pseudo_label * labelled
        return loss


def _wide(logits: Tensor) -> Tensor:
    """Half precision is too coarse for logarithms of small probabilities."""
    if logits.shape[1] < 2:
        raise ValueError(
            "the network gives one number an image, of which a softmax says nothing: let it give "
            "two logits, such as `torch.cat([-z, z], dim=1) / 2`, or write an objective for one."
        )
    return logits.to(statistics_dtype(logits.dtype))


def _check_threshold(threshold: float) -> None:
    if not 0 <= threshold < 1:
        raise ValueError(f"`threshold` is a probability in [0, 1), got {threshold}.")
