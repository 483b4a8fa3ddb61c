"""Watch an adapting network for collapse, and say when the source would do better.

Cheap signals are read off every batch's predictions. When they look odd, and now and then anyway,
an audit shows some images of the batch to the source network as well and compares the two. Nothing
here needs labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["Guard", "GuardState", "Policy", "Signals", "read_signals"]

Policy = Literal["warn", "reset", "freeze", "off"]


class Signals(NamedTuple):
    """What the predictions of a batch look like; shares of the maximum, in [0, 1]."""

    entropy: float
    spread: float
    marginal: Tensor
    labels: Tensor


class GuardState(NamedTuple):
    """What the guard remembers: the average prediction over the batches so far."""

    marginal: Tensor
    batches: int

    def after(self, signals: Signals) -> GuardState:
        """The state once a batch with these signals is committed."""
        weight = 1 / (self.batches + 1)
        if self.marginal.shape != signals.marginal.shape:
            return GuardState(signals.marginal, 1)
        return GuardState(torch.lerp(self.marginal, signals.marginal, weight), self.batches + 1)


EMPTY = GuardState(torch.zeros(0), 0)


@torch.no_grad()
def read_signals(logits: Tensor) -> Signals:
    """Entropy and class spread of predictions of shape ``(N, K)`` or ``(N, K, ...)``."""
    p = logits.detach().float().movedim(1, -1).flatten(0, -2).softmax(dim=-1)
    samples, classes = p.shape
    marginal = p.mean(dim=0)
    numbers = torch.stack(
        [torch.special.entr(p).sum(dim=1).mean(), torch.special.entr(marginal).sum()]
    ).tolist()
    # A batch smaller than the number of classes cannot show them all.
    most = math.log(max(min(samples, classes), 2))
    return Signals(numbers[0] / math.log(max(classes, 2)), numbers[1] / most, marginal, p.argmax(1))


def divergence(marginal: Tensor, other: Tensor) -> float:
    """Jensen-Shannon divergence of two class distributions, as a share of its maximum."""
    middle = (marginal + other) / 2
    entropy = torch.special.entr
    gap = entropy(middle).sum() - (entropy(marginal).sum() + entropy(other).sum()) / 2
    return float(gap) / math.log(2)


@dataclass(frozen=True)
class Guard:
    """When to audit, what counts as harm, and what to do about it.

    Attributes:
        policy: ``"warn"``; ``"reset"`` (back to the source, and adapt on); ``"freeze"`` (back to
            the source, and stop adapting until ``unfreeze()``); ``"off"``. With reset and freeze
            the batch that gave the alarm is answered by the source and leaves no trace.
        spread: Alarm when the adapted predictions spread over classes less than this share of what
            the source's do on the same images.
        disagreement: Alarm when a certain source is contradicted on more than this share of images
            by a less certain adapted network (batches of one class do that to batch statistics).
        distance: Alarm when the trained parameters have moved by more than this share of their
            own length.
        every: Batches between audits that nothing prompted.
        images: At most so many images of a batch are shown to the source in an audit.
    """

    policy: Policy = "warn"
    spread: float = 0.5
    disagreement: float = 0.5
    distance: float = 1.0
    every: int = 16
    images: int = 64

    def __post_init__(self) -> None:
        if self.policy not in ("warn", "reset", "freeze", "off"):
            raise ValueError(
                f"`guard` must be 'warn', 'reset', 'freeze', 'off' or a Guard, got {self.policy!r}."
            )
        if self.every < 1 or self.images < 1:
            raise ValueError("`every` and `images` must be at least 1.")

    def wants_audit(self, state: GuardState, signals: Signals) -> bool:
        """Whether the source should be asked about this batch."""
        if self.policy == "off":
            return False
        scheduled = state.batches < 3 or state.batches % self.every == 0
        return scheduled or signals.spread < self.spread

    def ordered(self, state: GuardState, signals: Signals) -> bool:
        """Whether the predicted classes are few and suddenly others than before."""
        if state.batches == 0 or signals.spread >= self.spread:
            return False
        return divergence(state.marginal, signals.marginal) > 0.5

    def verdict(self, adapted: Signals, source: Signals, moved: float) -> str | None:
        """What is wrong, in words, or ``None``; both signals are of the same images."""
        if adapted.spread < self.spread * source.spread:
            return (
                f"predictions collapse onto few classes (spread {adapted.spread:.2f}, "
                f"the source's is {source.spread:.2f})"
            )
        differ = float((adapted.labels != source.labels).float().mean())
        unsure = adapted.entropy > source.entropy
        if differ > self.disagreement and unsure and source.entropy < 0.5 > source.spread:
            return (
                f"the source is sure that these images are of few classes, and the adapted "
                f"network contradicts it on {differ:.0%} of them: is the stream ordered by class?"
            )
        if moved > self.distance:
            return f"the trained parameters have moved by {moved:.1f} times their own length"
        return None
