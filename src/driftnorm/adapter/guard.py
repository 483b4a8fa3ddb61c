"""Watch an adapting network for collapse, and say when the source would do better.

Cheap signals are read off every batch's predictions. When they look odd, and now and then anyway,
an audit shows some images of the batch to the source network as well and compares the two. Nothing
here needs labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["Finding", "Guard", "GuardState", "Policy", "Signals", "read_signals"]

Policy = Literal["warn", "reset", "freeze", "off"]


class Signals(NamedTuple):
    """What the predictions of a batch look like.

    Attributes:
        entropy: Mean entropy, as a share of its maximum.
        spread: Entropy of the predicted classes' shares, as a share of its maximum.
        marginal: Share of each predicted class.
        labels: The predicted classes.
    """

    entropy: float
    spread: float
    marginal: Tensor
    labels: Tensor

    @property
    def too_few(self) -> bool:
        """Whether the batch is too small to say anything about its classes."""
        return len(self.labels) < 8


class GuardState(NamedTuple):
    """What the guard remembers.

    Attributes:
        marginal: Average prediction of the adapted network.
        batches: Over how many batches.
        source_marginal: Average prediction of the source.
        audits: Over how many audits.
        source_spread: Spread of the source's predictions at the last audit.
        held: For how many batches in a row adaptation has been held back.
    """

    marginal: Tensor
    batches: int
    source_marginal: Tensor
    audits: int
    source_spread: float
    held: int

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> GuardState:
        """From an entry of the adapter's state."""
        return cls(**memory) if memory else EMPTY

    def judge(self) -> None:
        """Raise ``ValueError`` if a saved state cannot be a guard's."""
        for name in ("batches", "audits", "held"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be >= 0, got {getattr(self, name)}.")
        if not 0 <= self.source_spread <= 1 + 1e-6:
            raise ValueError(f"`source_spread` must be in [0, 1], got {self.source_spread}.")
        for name in ("marginal", "source_marginal"):
            shares: Tensor = getattr(self, name)
            if shares.numel() and not (bool((shares >= 0).all()) and bool((shares <= 1).all())):
                raise ValueError(f"`{name}` must hold shares in [0, 1].")

    def after(self, signals: Signals) -> GuardState:
        """The state once a batch with these signals is committed."""
        marginal = _averaged(self.marginal, self.batches, signals.marginal)
        return self._replace(marginal=marginal, batches=self.batches + 1)

    def audited(self, source: Signals, held: bool) -> GuardState:
        """The state once the source was asked about a batch."""
        return self._replace(
            source_marginal=_averaged(self.source_marginal, self.audits, source.marginal),
            audits=self.audits + 1,
            source_spread=source.spread,
            held=self.held + 1 if held else self.held,
        )

    def restarted(self) -> GuardState:
        """What stays after a reset: what the source said is a fact about the stream."""
        return self._replace(marginal=EMPTY.marginal, batches=0)


class Finding(NamedTuple):
    """What an audit found: all ``"fine"``, in ``"doubt"``, or ``"harm"``; and why."""

    kind: Literal["fine", "doubt", "harm"]
    why: str = ""


def _averaged(mean: Tensor, count: int, new: Tensor) -> Tensor:
    return new if count == 0 else torch.lerp(mean, new, 1 / (count + 1))


EMPTY = GuardState(torch.zeros(0), 0, torch.zeros(0), 0, 1.0, 0)


@torch.no_grad()
def read_signals(logits: Tensor) -> Signals:
    """Entropy and class spread of predictions of shape ``(N, K)`` or ``(N, K, ...)``."""
    if logits.dim() > 2:
        logits = logits.movedim(1, -1).flatten(0, -2)
    samples, classes = logits.shape
    labels = logits.argmax(dim=1)
    # Of the labels, not of the probabilities: an unsure network is not a varied one.
    marginal = torch.bincount(labels, minlength=classes) / samples
    entropies = torch.special.entr(logits.float().softmax(dim=1)).sum()
    entropy, spread = torch.stack([entropies, torch.special.entr(marginal).sum()]).tolist()
    # A batch smaller than the number of classes cannot show them all.
    most = math.log(max(min(samples, classes), 2))
    return Signals(entropy / samples / math.log(max(classes, 2)), spread / most, marginal, labels)


def _is_power_of_four(number: int) -> bool:
    return number.bit_count() == 1 and number.bit_length() % 2 == 1


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
            the batch that raised the alarm is answered by the source and leaves no trace.
        spread: Alarm when the adapted predictions spread over classes less than this share of what
            the source's do on the same images.
        disagreement: Alarm when, on a stream that the source finds ordered by class (few classes in
            this batch, and others than before), the adapted network contradicts it on more than
            this share of the images. Batches of one class do that to batch statistics.
        patience: With reset and freeze: when such a contradiction comes up before the source has
            had a chance to change its mind, hold adaptation back, and let the source answer, for
            at most this many batches.
        distance: Alarm when the trained parameters have moved by more than this share of their
            own length.
        every: Batches between audits that nothing prompted. Where these can only lead to a warning,
            and there are no gradient steps whose harm builds up, the gaps grow fourfold each time.
        images: At most this many images of a batch are shown to the source in an audit.
    """

    policy: Policy = "warn"
    spread: float = 0.6
    disagreement: float = 0.5
    patience: int = 4
    distance: float = 0.5
    every: int = 8
    images: int = 32

    def __post_init__(self) -> None:
        if self.policy not in ("warn", "reset", "freeze", "off"):
            raise ValueError(
                f"`guard` must be 'warn', 'reset', 'freeze', 'off' or a Guard, got {self.policy!r}."
            )
        if self.every < 1 or self.images < 1:
            raise ValueError("`every` and `images` must be at least 1.")

    def wants_audit(
        self, state: GuardState, signals: Signals, moved: float, learns: bool = True
    ) -> bool:
        """Whether the source should be asked about this batch; ``learns``: by gradient steps."""
        if self.policy == "off" or signals.too_few:
            return False
        turn, between = divmod(state.batches, self.every)
        steadily = learns or self.policy != "warn"
        due = between == 0 and (steadily or _is_power_of_four(turn))
        scheduled = state.batches < 3 or due
        narrow = min(signals.spread, state.source_spread) < self.spread
        # A source that has been narrow for long is not news: asking at every batch is a waste.
        news = state.audits < 2 * self.every or state.source_spread >= self.spread
        return scheduled or (narrow and news) or moved > self.distance

    def ordered(self, signals: Signals, before: Tensor, seen: int) -> bool:
        """Whether the predicted classes are few, and others than ``before`` (an average)."""
        if seen == 0 or signals.too_few or signals.spread >= self.spread:
            return False
        return divergence(before, signals.marginal) > 0.5

    def finding(
        self, state: GuardState, adapted: Signals, source: Signals, moved: float
    ) -> Finding:
        """What is wrong, if anything; both signals are of the same images."""
        if adapted.spread < self.spread * source.spread:
            return Finding(
                "harm",
                f"predictions collapse onto few classes (spread {adapted.spread:.2f}, the source's "
                f"is {source.spread:.2f})",
            )
        if moved > self.distance:
            return Finding("harm", f"parameters have moved by {moved:.0%} of their own length")
        # A source that always says the same is itself lost; one that changes with the batches
        # has seen that they are ordered.
        differ = float((adapted.labels != source.labels).float().mean())
        contradicts = differ > self.disagreement
        if contradicts and self.ordered(source, state.source_marginal, state.audits):
            return Finding(
                "harm",
                f"the stream looks ordered by class, and the adapted network contradicts the "
                f"source on {differ:.0%} of the images",
            )
        if contradicts and source.spread < self.spread and state.held < self.patience:
            return Finding("doubt", "the source sees few classes here; is the stream ordered?")
        return Finding("fine")
