"""What a test-time step minimises, without labels.

Logits have shape ``(N, K)``, or ``(N, K, ...)`` for dense prediction, where every position counts
as a sample. A loss returns one number per sample, or one for all; or ``None`` if there is nothing
to learn from this batch, and then no step is taken.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.functional import statistics_dtype
from driftnorm.parts.contract import Loss, Signal, Step, Tree, Weight, check_counts


def softmax_entropy(logits: Tensor) -> Tensor:
    """Shannon entropy (nats) of each prediction; the class axis 1 disappears.

    >>> softmax_entropy(torch.zeros(1, 4)).exp()
    tensor([4.])
    """
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def marginal_entropy(logits: Tensor, floor: float = 0.0) -> Tensor:
    """Entropy of the average prediction: high when predictions spread over classes."""
    dims = [0, *range(2, logits.dim())]
    p = F.softmax(logits, dim=1).mean(dim=dims)
    return -(p * (p + floor).log()).sum() if floor else torch.special.entr(p).sum()


def confident_cross_entropy(logits: Tensor, threshold: float) -> Tensor | None:
    """Cross-entropy to the prediction's own argmax where its probability exceeds ``threshold``."""
    confidence, labels = F.softmax(logits.detach(), dim=1).max(dim=1)
    keep = confidence > threshold
    if not bool(keep.any()):
        return None
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses[keep].mean()


def of_classes(logits: Tensor) -> Tensor:
    """The logits, if there are several classes; parts that compare classes cannot do with one."""
    if logits.shape[1] < 2:
        raise ValueError(
            "the network returns one number per image, of which a softmax is constant: let it "
            "return two logits, such as `torch.cat([-z, z], dim=1) / 2`, or use a method that "
            "adapts nothing but statistics, such as 'bn-window'."
        )
    return logits


def wide_logits(logits: Tensor) -> Tensor:
    """Half precision is too coarse for logarithms of small probabilities."""
    return of_classes(logits).to(statistics_dtype(logits.dtype))


class LogitLoss(Loss):
    """A loss that needs nothing but logits."""

    def __call__(self, step: Step) -> Tensor | None:  # noqa: D102
        return self.of(step.logits)

    @abstractmethod
    def of(self, logits: Tensor) -> Tensor | None:
        """One number for each sample, or one for all."""


@dataclass(frozen=True)
class Entropy(LogitLoss):
    """Shannon entropy of the predictions (Tent, GpreBN)."""

    def of(self, logits: Tensor) -> Tensor:  # noqa: D102
        return softmax_entropy(logits)


@dataclass(frozen=True)
class PseudoLabel(LogitLoss):
    """Cross-entropy to the network's own confident predictions (Lee 2013)."""

    threshold: float = 0.9

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, least=0, below=1)

    def of(self, logits: Tensor) -> Tensor | None:  # noqa: D102
        return confident_cross_entropy(logits, self.threshold)


@dataclass(frozen=True)
class InformationMaximization(LogitLoss):
    """Certain one by one, diverse together: mean entropy minus marginal entropy (SHOT-IM).

    ``pseudo_label`` > 0 adds that much of the confident pseudo-label cross-entropy (SHOT).
    """

    pseudo_label: float = 0.0
    threshold: float = 0.9

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, least=0, below=1)
        check_number("pseudo_label", self.pseudo_label, least=0)

    def of(self, logits: Tensor) -> Tensor:  # noqa: D102
        # 1e-5 inside the logarithm is part of the published loss.
        loss = softmax_entropy(logits).mean() - marginal_entropy(logits, floor=1e-5)
        if self.pseudo_label:
            labelled = confident_cross_entropy(logits, self.threshold)
            if labelled is not None:
                loss = loss + self.pseudo_label * labelled
        return loss


@dataclass(frozen=True)
class Function(Loss):
    """A plain function of the network's logits."""

    function: Callable[[Tensor], Tensor | None]

    def __call__(self, step: Step) -> Tensor | None:  # noqa: D102
        return self.function(step.forward.logits)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy to the predictions of a signal, such as a teacher's logits."""

    to: Signal

    def __call__(self, step: Step) -> Tensor:  # noqa: D102
        target = F.softmax(wide_logits(step.ask(self.to)), dim=1)
        return -(target * F.log_softmax(step.logits, dim=1)).sum(dim=1)


@dataclass(frozen=True)
class Weighted(Loss):
    """``sum_i w_i loss_i / n``.

    Attributes:
        of: The loss of each sample.
        weights: Applied in turn; each sees the product so far.
        per: Divide by the samples that are ``"kept"`` (weight above 0), or by the ``"batch"``.
    """

    of: Loss
    weights: tuple[Weight, ...]
    per: Literal["kept", "batch"] = "kept"

    def __post_init__(self) -> None:
        check_choice("per", self.per, ("kept", "batch"))
        if not self.weights or not all(isinstance(w, Weight) for w in self.weights):
            raise TypeError(f"`weights` must be Weight parts, at least one, got {self.weights!r}.")

    def __call__(self, step: Step) -> Tensor | None:  # noqa: D102
        losses = self.of(step)
        if losses is None:
            return None
        if losses.shape[:1] != step.logits.shape[:1] or losses.dim() == 0:
            raise TypeError(
                f"{type(self.of).__name__} gives one number for all samples, which cannot be "
                "weighted: use a loss that gives one per sample."
            )
        weights = torch.ones_like(losses.detach())
        if step.among is not None:
            weights = weights * step.among
        with torch.no_grad():
            for weight in self.weights:
                weights = weight(step, weights)
        kept = weights > 0
        step.kept = kept
        count = int(kept.sum())
        if count == 0:
            return None
        # Dropped samples must not even pass on a NaN: 0 * NaN is NaN.
        total = (losses[kept] * weights[kept]).sum()
        return total / (count if self.per == "kept" else losses.numel())


@dataclass(frozen=True)
class Sum(Loss):
    """Several losses at once; penalties alone do not cause a step."""

    of: tuple[Loss, ...]

    def __call__(self, step: Step) -> Tensor | None:  # noqa: D102
        own = [one(step) for one in self.of if not one.penalty]
        found = [loss.mean() for loss in own if loss is not None]
        if not found:
            return None
        held = [one(step) for one in self.of if one.penalty]
        found += [loss for loss in held if loss is not None]
        return torch.stack(found).sum()


@dataclass(frozen=True)
class Fisher(Loss):
    """Hold parameters that matter to the source: ``strength * sum_j F_j (w_j - w0_j)^2`` (EATA).

    ``F`` comes from ``adapter.fit(images)``: the squared gradient of the cross-entropy to the
    network's own predictions on source-domain images, which need no labels.
    """

    strength: float = 2000.0
    penalty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("strength", self.strength, least=0)

    def __call__(self, step: Step) -> Tensor | None:  # noqa: D102
        known: Mapping[str, Any] | None = step.fitted(self)
        if known is None:
            raise ValueError(
                "the Fisher term needs images of the source's domain, without labels: call "
                "`adapter.fit(images)` once before the stream."
            )
        terms = [
            (known["fisher"][name] * (value - step.start[name]).square()).sum()
            for name, value in step.live.items()
        ]
        return self.strength * torch.stack(terms).sum()

    def fit(self, step: Step) -> Tree:  # noqa: D102
        labels = step.logits.detach().argmax(dim=1)
        loss = F.cross_entropy(step.logits, labels)
        live = dict(step.live)
        found = torch.autograd.grad(loss, [*live.values()], allow_unused=True)
        squares: dict[str, Tree] = {
            name: torch.zeros_like(value) if g is None else g.detach().square()
            for (name, value), g in zip(live.items(), found, strict=True)
        }
        return {"fisher": squares}

    def judge(self, memory: Mapping[str, Any]) -> None:
        """Squares are never negative."""
        check_counts(memory.get("fisher", {}), memory.get("fisher", {}))
