"""Which mean and variance normalise a batch (paper, section 3.3).

Each choice is a frozen, printable part. The adapter keeps a memory for every layer, ``{}`` before
the first batch, and asks two questions:

``propose(memory, at, source, seen)``
    What normalises this batch, and what would the memory become? Pure: a batch that is run several
    times proposes several times on top of the same memory, and counts once.
``settled(memory, source, shared)``
    Which fixed statistics summarise all that was seen? Used by ``freeze()`` and ``bake()``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.functional import Moments
from driftnorm.parts.contract import SHARED, THETA, Measured, Statistics, check_counts

Remembered: TypeAlias = Mapping[str, Any]


def tracked_moments(memory: Remembered) -> Moments | None:
    """The target's own moments in a layer's memory, if it keeps any."""
    if "mean" not in memory:
        return None
    if "second" in memory:
        return Moments(memory["mean"], _variance(memory["mean"], memory["second"]))
    return Moments(memory["mean"], memory["var"])


def of_theta(theta: float) -> Remembered:
    """Layers' memories, empty but for a theta that replaces the statistics' own."""
    return {SHARED: {THETA: theta}}


def counted_jumps(layers: Remembered) -> int:
    """How often the statistics of a network have jumped, from its layers' memories."""
    held = layers.get(SHARED, {}).values()
    return sum(memory.get("jumps", 0) for memory in held if isinstance(memory, Mapping))


def forgotten(layers: Remembered, share: float) -> Remembered:
    """Layers' memories with only a share of the evidence left."""
    held = {
        name: {**memory, "evidence": share * memory["evidence"]}
        if isinstance(memory, Mapping) and "evidence" in memory
        else memory
        for name, memory in layers.get(SHARED, {}).items()
    }
    return {**layers, SHARED: held}


def _given(source: Moments | None) -> Moments:
    if source is None:
        raise ValueError(
            "the source statistics are needed but this layer has none "
            "(track_running_stats=False); choose `Batch()` or `Running()` statistics for it."
        )
    return source


def _average(memory: Remembered, new: Moments, weight: float) -> dict[str, Any]:
    """The memory after another batch; the first one is taken as it is."""
    batches = memory.get("batches", 0) + 1
    if "mean" not in memory:
        return {"mean": new.mean, "var": new.var, "batches": batches}
    return {
        "mean": torch.lerp(memory["mean"], new.mean, weight),
        "var": torch.lerp(memory["var"], new.var, weight),
        "batches": batches,
    }


def _cumulative_weight(memory: Remembered) -> float:
    """Weight 1 / n, with n counted including this batch (eq. 9)."""
    seen: int = memory.get("batches", 0)
    return 1 / (seen + 1)


def _mixed(source: Moments, target: Moments, weight: float) -> Moments:
    return Moments(
        torch.lerp(source.mean, target.mean, weight), torch.lerp(source.var, target.var, weight)
    )


def _variance(mean: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """From a raw second moment; rounding could make it negative."""
    return (second - mean.square()).clamp(min=0)


def _check_memory(memory: Remembered) -> None:
    """Raise if the numbers cannot be moments over a stream."""
    check_counts(memory, ("batches", "var", "second"))


class _Tracking(Statistics):
    """Statistics whose memory is an average of moments."""

    def settled(
        self, memory: Remembered, source: Moments | None, shared: Remembered
    ) -> Moments | None:
        return tracked_moments(memory) or source

    def judge(self, memory: Remembered) -> None:
        _check_memory(memory)


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
        self, memory: Remembered, at: Measured, source: Moments | None, seen: Any = None
    ) -> tuple[Moments, Remembered]:
        return _given(source), memory

    def settled(  # noqa: D102
        self, memory: Remembered, source: Moments | None, shared: Remembered
    ) -> Moments:
        return _given(source)


@dataclass(frozen=True)
class Batch(_Tracking):
    """The current batch alone, as in training and in Tent.

    Settles on the cumulative average of the batches seen, because a frozen network needs fixed
    statistics.

    Attributes:
        unbiased: Normalise by the unbiased variance, as some public code does.
    """

    unbiased: bool = False

    @property
    def trusts_one_batch(self) -> bool:  # noqa: D102
        return True

    def propose(  # noqa: D102
        self, memory: Remembered, at: Measured, source: Moments | None, seen: Any = None
    ) -> tuple[Moments, Remembered]:
        batch = _unbiased(at.moments) if self.unbiased else at.moments
        return batch, _average(memory, batch, _cumulative_weight(memory))


@dataclass(frozen=True)
class Running(_Tracking):
    """Test-time running statistics (eq. 9).

    Attributes:
        momentum: Weight of the new batch; ``None`` averages all batches equally (cumulative).
        start: Where an exponential average begins: at the first test ``"batch"`` (so that the
            source does not enter) or at the ``"source"`` statistics.
        update: Whether a batch enters the average ``"before"`` it is normalised by it, or
            ``"after"`` (a lag of one batch, as DELTA does; the first batch normalises itself).
        average: Average variances (``"var"``, the paper), standard deviations (``"std"``, DELTA:
            ``sqrt(v + eps)``), or raw second moments (``"total"``). Averaged variances lose the
            variance *between* batches, which for batches of a few images is most of it.
        unbiased: Store the unbiased variance, as native running buffers do.
    """

    momentum: float | None = None
    start: Literal["batch", "source"] = "batch"
    update: Literal["before", "after"] = "before"
    average: Literal["var", "std", "total"] = "var"
    unbiased: bool = False

    def __post_init__(self) -> None:
        if self.momentum is not None and not 0 < self.momentum <= 1:
            raise ValueError(
                f"`momentum` must be in (0, 1], or None to average all batches equally, "
                f"got {self.momentum}."
            )
        check_choice("start", self.start, ("batch", "source"))
        check_choice("update", self.update, ("before", "after"))
        check_choice("average", self.average, ("var", "std", "total"))
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

    @property
    def single_values(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.average == "total"

    def propose(  # noqa: D102
        self, memory: Remembered, at: Measured, source: Moments | None, seen: Any = None
    ) -> tuple[Moments, Remembered]:
        begun = "mean" in memory
        if not begun and self.start == "source":
            memory = {"mean": _given(source).mean, "var": _given(source).var, "batches": 0}
        batch = _unbiased(at.moments) if self.unbiased else at.moments
        after = self._updated(memory, batch, at.eps)
        if self.update == "before":
            return Moments(after["mean"], after["var"]), after
        if not begun and self.start == "batch":
            return at.moments, after
        return Moments(memory["mean"], memory["var"]), after

    def _updated(self, memory: Remembered, batch: Moments, eps: float) -> dict[str, Any]:
        weight = self.momentum
        if weight is None or "mean" not in memory:
            weight = _cumulative_weight(memory)  # 1 for the first batch
        if self.average == "var" or "mean" not in memory:
            return _average(memory, batch, weight)
        if self.average == "std":
            roots = _average(
                {**memory, "var": (memory["var"] + eps).sqrt()},
                batch._replace(var=(batch.var + eps).sqrt()),
                weight,
            )
            return {**roots, "var": roots["var"].square() - eps}
        # Law of total variance: the mean of the variances, and the variance of the means.
        off = batch.mean - memory["mean"]
        after = _average(memory, batch, weight)
        return {**after, "var": after["var"] + weight * (1 - weight) * off.square()}


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
        if not isinstance(self.theta, int | float) or not 0 <= self.theta <= 1:
            raise ValueError(
                f"`theta` is the weight of the target statistics and must be in [0, 1] (or 'auto', "
                f"where the method has it), got {self.theta!r}."
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

    @property
    def single_values(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.of.single_values

    @property
    def takes_theta(self) -> bool:  # noqa: D102
        return True

    def observe(  # noqa: D102
        self, shared: Remembered, memory: Remembered, at: Measured
    ) -> tuple[Any, Remembered]:
        told, after = self.of.observe(shared, memory, at)
        return (shared.get(THETA, self.theta), told), after

    def propose(  # noqa: D102
        self, memory: Remembered, at: Measured, source: Moments | None, seen: Any = None
    ) -> tuple[Moments, Remembered]:
        theta, told = (self.theta, None) if seen is None else seen
        target, after = self.of.propose(memory, at, source, told)
        return _mixed(_given(source), target, theta), after

    def settled(  # noqa: D102
        self, memory: Remembered, source: Moments | None, shared: Remembered
    ) -> Moments:
        target = self.of.settled(memory, source, shared)
        return _mixed(_given(source), target or _given(source), shared.get(THETA, self.theta))

    def judge(self, memory: Remembered) -> None:  # noqa: D102
        self.of.judge(memory)


@dataclass(frozen=True)
class Prior(_Tracking):
    """The source as a prior worth ``strength`` samples (Schneider et al. 2020).

    With a batch of ``n`` samples the source has weight ``N / (N + n)``. Settles on the cumulative
    average of the mixtures used.

    Attributes:
        strength: ``N``, in samples.
        unbiased: Take the unbiased variance of the batch, as some public code does.
    """

    strength: float = 16.0
    unbiased: bool = False

    def __post_init__(self) -> None:
        check_number("strength", self.strength, least=0)

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return True

    def propose(  # noqa: D102
        self, memory: Remembered, at: Measured, source: Moments | None, seen: Any = None
    ) -> tuple[Moments, Remembered]:
        batch = _unbiased(at.moments) if self.unbiased else at.moments
        if at.samples < 1:
            raise ValueError("`at.samples` must be known to weigh the batch against the prior.")
        used = _mixed(_given(source), batch, at.samples / (self.strength + at.samples))
        return used, _average(memory, used, _cumulative_weight(memory))


class _Seen(NamedTuple):
    """What the first layer passes on to the others."""

    weight: float
    theta: float


@dataclass(frozen=True)
class Window(Statistics):
    """A window over *samples* that grows with evidence and forgets when the first layer jumps.

    Batches of 1 and of 200 are treated alike: with ``n`` samples in the batch, the evidence is ``S
    <- (1 - 1/size)^n S + n``, the batch has weight ``n / S``, and the target has weight
    ``min(theta, S / (S + prior))`` against the source. Raw second moments are averaged, so the
    variance between batches is not lost. When the first layer's moments over the last few images
    move by more than ``jump`` times what is usual, only ``forget`` of the evidence is kept, in all
    layers, before anything is normalised.

    Attributes:
        theta: Largest weight of the target.
        size: Samples that the window holds.
        prior: Samples after which the target may reach a weight of 0.5.
        jump: Multiple of the usual distance that counts as a jump; infinity turns it off.
        reach: Images whose moments at the first layer are compared with the window's.
        forget: The share of the evidence that survives a jump.
    """

    single_values: ClassVar[bool] = True

    theta: float = 0.5
    size: float = 2000.0
    prior: float = 16.0
    jump: float = 3.0
    reach: float = 32.0
    forget: float = 0.01

    def __post_init__(self) -> None:
        for name in ("theta", "forget"):
            check_number(name, getattr(self, name), least=0, most=1)
        for name, least in (("size", 1), ("prior", 0), ("jump", 0), ("reach", 1)):
            check_number(name, getattr(self, name), least=least, most=math.inf)

    @property
    def uses_source(self) -> bool:  # noqa: D102
        return self.theta < 1 or self.prior > 0

    @property
    def takes_theta(self) -> bool:  # noqa: D102
        return True

    @property
    def keeps_history(self) -> bool:  # noqa: D102
        return True

    def observe(  # noqa: D102
        self, shared: Remembered, memory: Remembered, at: Measured
    ) -> tuple[_Seen, Remembered]:
        n, evidence, jumps = at.samples, shared.get("evidence", 0.0), shared.get("jumps", 0)
        usual, judged = shared.get("usual", 0.0), shared.get("judged", 0.0)
        kept, recent = (1 - 1 / self.size) ** n, self._recent(shared.get("recent", {}), at)
        before = tracked_moments(memory)
        # Skipped while the window holds little more than the earlier recent images.
        alone = evidence >= 1.5 * (recent["images"] - n)
        if before is not None and alone and math.isfinite(self.jump):
            now = Moments(recent["mean"], _variance(recent["mean"], recent["second"]))
            # Chance moves the mean less the more images it has; scaled by them, it is constant.
            moved = _distance(now, before) * min(recent["images"], 64)
            if judged >= 2 * self.reach and moved > self.jump * usual:
                kept, jumps = self.forget, jumps + 1
                recent = self._recent({}, at)
            else:
                judged += n
                rate = max(n / judged, 1 - (1 - 1 / (8 * self.reach)) ** n)
                # A slow change must not count as usual before it is noticed.
                most = 2 * usual if judged > 4 * self.reach else math.inf
                usual += rate * (min(moved, most) - usual)
        after = {
            "evidence": kept * evidence + n,
            "usual": usual,
            "judged": judged,
            "jumps": jumps,
            "recent": recent,
        }
        return _Seen(n / after["evidence"], self._weight({**shared, **after})), after

    def _recent(self, recent: Remembered, at: Measured) -> dict[str, Any]:
        """The first layer's moments over the last few images, whatever the batch size."""
        images = (1 - 1 / self.reach) ** at.samples * recent.get("images", 0.0) + at.samples
        mean, second = at.moments.mean, at.moments.var + at.moments.mean.square()
        if recent:
            weight = at.samples / images
            mean = torch.lerp(recent["mean"], mean, weight)
            second = torch.lerp(recent["second"], second, weight)
        return {"mean": mean, "second": second, "images": images}

    def _weight(self, shared: Remembered) -> float:
        """Weight of the target, which is trusted more as evidence grows."""
        evidence: float = shared.get("evidence", 0.0)
        theta: float = shared.get(THETA, self.theta)
        return min(theta, evidence / (evidence + self.prior)) if evidence else 0.0

    def propose(  # noqa: D102
        self, memory: Remembered, at: Measured, source: Moments | None, seen: _Seen
    ) -> tuple[Moments, Remembered]:
        mean, second = at.moments.mean, at.moments.var + at.moments.mean.square()
        if "mean" in memory:
            mean = torch.lerp(memory["mean"], mean, seen.weight)
            second = torch.lerp(memory["second"], second, seen.weight)
        after = {"mean": mean, "second": second}
        target = Moments(mean, _variance(mean, second))
        return target if seen.theta == 1 else _mixed(_given(source), target, seen.theta), after

    def settled(  # noqa: D102
        self, memory: Remembered, source: Moments | None, shared: Remembered
    ) -> Moments | None:
        target, theta = tracked_moments(memory), self._weight(shared)
        if target is None:
            return source
        return target if theta == 1 else _mixed(_given(source), target, theta)

    def judge(self, memory: Remembered) -> None:  # noqa: D102
        _check_memory(memory)
        check_counts(memory, ("evidence", "usual", "judged"))
        check_counts(memory.get("recent", {}), ("images", "second"))


def _distance(batch: Moments, before: Moments) -> float:
    """Mean over channels, of means and deviations, in units of the variance before."""
    off = (batch.mean - before.mean).square() + (batch.var.sqrt() - before.var.sqrt()).square()
    return float((off / (before.var + 1e-5)).mean())


def _unbiased(batch: Moments) -> Moments:
    if batch.values < 2:
        raise ValueError("an unbiased variance needs at least 2 values per channel.")
    return batch._replace(var=batch.var * (batch.values / (batch.values - 1)))
