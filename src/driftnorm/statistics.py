"""Which mean and variance normalise a batch (paper, section 3.3).

Each choice is a frozen, printable object without state of its own. A layer keeps the state, a
:class:`Tracked`, and asks two questions:

``propose(tracked, batch, source)``
    Given the moments of this batch, what normalises it, and what would the state become? Pure: a
    batch that is forwarded several times proposes several times on top of the same state, and
    counts once, when the adapter commits the last proposal.
``settled(tracked, source)``
    Which fixed statistics stand for all that was seen? Used by ``freeze()`` and ``bake()``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from driftnorm.functional import Moments

__all__ = ["Batch", "Mixture", "Prior", "Running", "Source", "Statistics", "Tracked"]


class Tracked(NamedTuple):
    """What a layer remembers of the test stream: an average of moments over ``batches`` batches."""

    mean: Tensor
    var: Tensor
    batches: int = 0

    @classmethod
    def empty(cls, like: Tensor) -> Tracked:
        """Nothing seen yet, for as many channels as ``like`` has."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))


class Statistics(ABC):
    """A choice of normalising statistics; subclasses are frozen dataclasses."""

    @property
    def uses_source(self) -> bool:
        """Whether the source statistics are needed."""
        return False

    @property
    def uses_batch(self) -> bool:
        """Whether the current batch has a say."""
        return True

    @property
    def keeps_history(self) -> bool:
        """Whether earlier batches have a say, so that their order matters."""
        return False

    @property
    def trusts_one_batch(self) -> bool:
        """Whether a single batch, however small, has the full say of the target."""
        return False

    @abstractmethod
    def propose(
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        """The moments that normalise this batch, and the state after it."""

    def settled(self, tracked: Tracked, source: Moments | None) -> Moments:
        """The fixed statistics that stand for the stream so far (the source before any batch)."""
        if source is not None and tracked.batches == 0:
            return source
        return Moments(tracked.mean, tracked.var)


def _given(source: Moments | None) -> Moments:
    if source is None:
        raise ValueError(
            "the source statistics are needed but this layer has none "
            "(track_running_stats=False); choose `Batch()` or `Running()` statistics for it."
        )
    return source


def _average(tracked: Tracked, batch: Moments, weight: float) -> Tracked:
    return Tracked(
        torch.lerp(tracked.mean, batch.mean, weight),
        torch.lerp(tracked.var, batch.var, weight),
        tracked.batches + 1,
    )


def _cumulative_weight(tracked: Tracked) -> float:
    """Weight 1 / n, with n counted including this batch (eq. 9)."""
    return 1 / (tracked.batches + 1)


@dataclass(frozen=True)
class Source(Statistics):
    """The running statistics that the network was trained with (eq. 3)."""

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return True

    @property
    def uses_batch(self) -> bool:  # noqa: D102
        return False

    def propose(  # noqa: D102
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        return _given(source), tracked

    def settled(self, tracked: Tracked, source: Moments | None) -> Moments:  # noqa: D102
        return _given(source)


@dataclass(frozen=True)
class Batch(Statistics):
    """The current batch alone, as in training and in Tent.

    It settles on the cumulative average of the batches seen, because a frozen network needs fixed
    statistics.
    """

    @property
    def trusts_one_batch(self) -> bool:  # noqa: D102
        return True

    def propose(  # noqa: D102
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        return batch, _average(tracked, batch, _cumulative_weight(tracked))


@dataclass(frozen=True)
class Running(Statistics):
    """Test-time running statistics (eq. 9).

    Attributes:
        momentum: Weight of the new batch; ``None`` averages all batches equally (cumulative).
        start: Where an exponential average begins: at the first test ``"batch"`` (so that the
            source has no part in it) or at the ``"source"`` statistics.
        update: Whether a batch enters the average ``"before"`` it is normalised by it, or
            ``"after"`` (a lag of one batch, as DELTA does; the first batch normalises itself).
        average: Average variances (``"var"``, the paper) or standard deviations (``"std"``, DELTA).
        unbiased: Store the unbiased variance, as native running buffers do.
    """

    momentum: float | None = None
    start: Literal["batch", "source"] = "batch"
    update: Literal["before", "after"] = "before"
    average: Literal["var", "std"] = "var"
    unbiased: bool = False

    def __post_init__(self) -> None:
        if self.momentum is not None and not 0 < self.momentum <= 1:
            raise ValueError(
                f"`momentum` must be in (0, 1], or None to average all batches equally, "
                f"got {self.momentum}."
            )
        _one_of("start", self.start, ("batch", "source"))
        _one_of("update", self.update, ("before", "after"))
        _one_of("average", self.average, ("var", "std"))
        if self.start == "source" and self.momentum is None:
            raise ValueError(
                "`start='source'` needs a `momentum`: the first batch of a cumulative average "
                "has weight 1, so its start value is never used."
            )

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return self.start == "source"

    @property
    def keeps_history(self) -> bool:  # noqa: D102
        return True

    def propose(  # noqa: D102
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        if tracked.batches == 0 and self.start == "source":
            tracked = Tracked(*_given(source)[:2])
        after = self._updated(tracked, batch)
        if self.update == "before":
            return Moments(after.mean, after.var), after
        if tracked.batches == 0 and self.start == "batch":
            return batch, after
        return Moments(tracked.mean, tracked.var), after

    def _updated(self, tracked: Tracked, batch: Moments) -> Tracked:
        if self.unbiased:
            if batch.values < 2:
                raise ValueError("`batch.values` must be at least 2 for an unbiased variance.")
            batch = batch._replace(var=batch.var * (batch.values / (batch.values - 1)))
        weight = self.momentum
        if weight is None or (tracked.batches == 0 and self.start == "batch"):
            weight = _cumulative_weight(tracked)  # 1 for the first batch
        if self.average == "var":
            return _average(tracked, batch, weight)
        roots = _average(
            tracked._replace(var=tracked.var.sqrt()), batch._replace(var=batch.var.sqrt()), weight
        )
        return roots._replace(var=roots.var.square())


@dataclass(frozen=True)
class Mixture(Statistics):
    """``theta`` of the target and ``1 - theta`` of the source, on mean and variance (eq. 10).

    With ``of=Running()`` it is the paper's theta-mixture of two dataset-level statistics; with
    ``of=Batch()`` it is alpha-BN.
    """

    theta: float
    of: Statistics = field(default_factory=Running)

    def __post_init__(self) -> None:
        if not isinstance(self.of, Statistics):
            raise TypeError(f"`of` must be a Statistics object, got {self.of!r}.")
        if not 0 <= self.theta <= 1:
            raise ValueError(
                f"`theta` is the weight of the target statistics and must be in [0, 1], "
                f"got {self.theta}."
            )

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return True

    @property
    def keeps_history(self) -> bool:  # noqa: D102
        return self.of.keeps_history

    @property
    def trusts_one_batch(self) -> bool:  # noqa: D102
        return self.of.trusts_one_batch

    def propose(  # noqa: D102
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        target, after = self.of.propose(tracked, batch, source)
        return self._mix(target, _given(source)), after

    def settled(self, tracked: Tracked, source: Moments | None) -> Moments:  # noqa: D102
        return self._mix(self.of.settled(tracked, source), _given(source))

    def _mix(self, target: Moments, source: Moments) -> Moments:
        return Moments(
            torch.lerp(source.mean, target.mean, self.theta),
            torch.lerp(source.var, target.var, self.theta),
        )


@dataclass(frozen=True)
class Prior(Statistics):
    """The source as a prior worth ``strength`` samples (Schneider et al. 2020).

    With a batch of ``n`` samples the source weighs ``N / (N + n)``. It settles on the cumulative
    average of the mixtures used.
    """

    strength: float = 16.0

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise ValueError(
                f"`strength` is a number of samples, finite and >= 0, got {self.strength}."
            )

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return True

    def propose(  # noqa: D102
        self, tracked: Tracked, batch: Moments, source: Moments | None
    ) -> tuple[Moments, Tracked]:
        begin = _given(source)
        if batch.samples < 1:
            raise ValueError("`batch.samples` must be known to weigh the batch against the prior.")
        weight = batch.samples / (self.strength + batch.samples)
        used = Moments(
            torch.lerp(begin.mean, batch.mean, weight), torch.lerp(begin.var, batch.var, weight)
        )
        return used, _average(tracked, used, _cumulative_weight(tracked))


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
