"""The adaptive batch-norm layer: source moments, test-time statistics and a gradient path.

The layer knows nothing of losses, optimisers or streams. An adapter opens a pass with
:meth:`AdaptiveBatchNorm.begin`, runs the network, and makes what the pass proposed the layer's
state with :meth:`AdaptiveBatchNorm.commit`, or forgets it by opening the next pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from driftnorm.functional import (
    GradientPath,
    Moments,
    batch_moments,
    gprebn,
    normalize,
    statistics_dtype,
)
from driftnorm.statistics import Source, Statistics, Tracked

__all__ = ["AdaptiveBatchNorm", "Mode"]

Mode: TypeAlias = Literal["adapt", "settled", "source"]

_STATISTICS_BUFFERS = ("source_mean", "source_var", "tracked_mean", "tracked_var")
_AFFINE = ("weight", "bias")
_BATCHES = "tracked_batches"  # in a state dict


class AdaptiveBatchNorm(nn.Module):
    """Batch norm over ``(N, C, ...)`` whose normalising statistics are a choice.

    Args:
        weight: gamma, or ``None``.
        bias: beta, or ``None``.
        source: The statistics the network was trained with, or ``None`` if it kept none.
        channels: How many channels the layer has.
        eps: As in the layer that this one stands for.
        tail: What the replaced layer did after normalising (timm's fused activation).

    Attributes:
        statistics: Which moments normalise (default: the source's).
        gradient: ``"preserved"`` is eq. 6; ``"detached"`` stops the gradient at the statistics.
        mode: ``"adapt"`` follows ``statistics``; ``"settled"`` uses what was committed so far;
            ``"source"`` is the layer as it was trained.
        precision: Of the layer that this one stands for. Statistics and affine parameters are kept
            in float32 or wider all the same: small steps would be lost in less.
    """

    # nn.Module's __getattr__ would type these as Tensor | Module.
    weight: nn.Parameter | None
    bias: nn.Parameter | None
    source_mean: Tensor | None
    source_var: Tensor | None
    tracked_mean: Tensor
    tracked_var: Tensor

    def __init__(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        source: Moments | None,
        channels: int,
        eps: float,
        tail: nn.Module | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.num_features = channels
        self.eps = eps
        self.tail = tail
        self.statistics: Statistics = Source()
        self.gradient: GradientPath = "preserved"
        self.mode: Mode = "adapt"
        self.register_parameter("weight", _parameter(weight))
        self.register_parameter("bias", _parameter(bias))
        known = weight if source is None else source.mean
        dtype = torch.float32 if known is None else statistics_dtype(known.dtype)
        self.precision = next((t.dtype for t in (weight, known) if t is not None), dtype)
        for name in ("mean", "var"):
            value: Tensor | None = None if source is None else getattr(source, name)
            copy = None if value is None else value.detach().to(dtype, copy=True)
            self.register_buffer(f"source_{name}", copy)
        empty = Tracked.empty(torch.empty(channels, dtype=dtype, device=device))
        self.register_buffer("tracked_mean", empty.mean)
        self.register_buffer("tracked_var", empty.var)
        self._batches = empty.batches
        self._pending: Tracked | None = None

    @property
    def source(self) -> Moments | None:
        """The statistics of the trained network, if it kept any."""
        mean, var = self._buffers["source_mean"], self._buffers["source_var"]
        return None if mean is None or var is None else Moments(mean, var)

    @property
    def tracked(self) -> Tracked:
        """The committed state. Replaced as a whole, never changed in place."""
        buffers: dict[str, Any] = self._buffers  # nn.Module's way to them costs more
        return Tracked(buffers["tracked_mean"], buffers["tracked_var"], self._batches)

    @tracked.setter
    def tracked(self, state: Tracked) -> None:
        self._keep(state)

    @property
    def pending(self) -> Tracked | None:
        """What the current pass proposes, if the layer was called in it."""
        return self._pending

    def begin(self) -> None:
        """Open a pass: what an earlier, uncommitted pass proposed is forgotten."""
        self._propose(None)

    def commit(self) -> None:
        """Make the last proposal the state."""
        if self._pending is not None:
            self._keep(self._pending)
            self._propose(None)

    # At every batch and layer: nn.Module's way of setting things costs as much as a kernel.

    def _propose(self, state: Tracked | None) -> None:
        self.__dict__["_pending"] = state

    def _keep(self, state: Tracked) -> None:
        buffers = self._buffers
        buffers["tracked_mean"], buffers["tracked_var"], self.__dict__["_batches"] = state

    def forget(self) -> None:
        """Back to nothing seen."""
        self.tracked = Tracked.empty(self.tracked_mean)
        self._pending = None

    def settled(self) -> Moments:
        """The fixed statistics that stand for all that was committed."""
        return self.statistics.settled(self.tracked, self.source)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` as ``mode``, ``statistics`` and ``gradient`` say."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ValueError(
                f"a batch-norm layer expected {self.num_features} channels on axis 1, "
                f"got an input of shape {tuple(x.shape)}."
            )
        y = self._normalized(x)
        return y if self.tail is None else self.tail(y)

    def _normalized(self, x: Tensor) -> Tensor:
        affine = (self._parameters["weight"], self._parameters["bias"], self.eps)
        # One value a channel has no variance: such a batch says nothing about the statistics.
        measurable = x.numel() // self.num_features > 1
        if self.mode == "adapt" and measurable:
            with_gradient = torch.is_grad_enabled() and (x.requires_grad or self._trainable)
            preserve = with_gradient and self.gradient == "preserved"
            if not (preserve or self.statistics.uses_batch):
                used, _ = self.statistics.propose(self.tracked, _NO_MOMENTS, self.source)
                return normalize(x, used.mean, used.var, *affine)
            batch = batch_moments(x)
            # A layer used twice in a pass goes on from its own first proposal.
            before = self.tracked if self._pending is None else self._pending
            used, after = self.statistics.propose(before, batch, self.source)
            self._propose(after)
            if preserve:
                return gprebn(x, used.mean, used.var, *affine, moments=batch)
            return normalize(x, used.mean, used.var, *affine)
        fixed = self._fixed(x)
        return normalize(x, fixed.mean, fixed.var, *affine)

    def _fixed(self, x: Tensor) -> Moments:
        if self.source is not None:
            return self.source if self.mode == "source" else self.settled()
        if x.numel() == 0:  # any numbers will do for no values
            return Moments(self.tracked_mean, torch.ones_like(self.tracked_mean))
        if self.mode == "source" or self._batches == 0:
            # A network that was trained without running statistics uses the batch's own.
            return batch_moments(x)
        return self.settled()

    @property
    def _trainable(self) -> bool:
        return any(p is not None and p.requires_grad for p in (self.weight, self.bias))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AdaptiveBatchNorm:
        """Move with the network, but keep all numbers in float32 or wider under ``.half()``."""
        kept = {name: self._buffers[name] for name in _STATISTICS_BUFFERS}
        affine = {name: p.data for name in _AFFINE if (p := self._parameters[name]) is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.precision = fn(torch.empty(0, dtype=self.precision)).dtype
        for name, before in kept.items():
            after = self._buffers[name]
            if before is not None and after is not None:
                self._buffers[name] = _kept_wide(before, after)
        for name, before in affine.items():
            parameter = self._parameters[name]
            assert parameter is not None
            parameter.data = _kept_wide(before, parameter.data)
        self._pending = None
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + _BATCHES] = torch.tensor(self._batches)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *rest: Any,
    ) -> None:
        given = state_dict.pop(prefix + _BATCHES, None)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *rest
        )
        if given is not None:
            self._batches = int(given)
        elif strict:
            missing_keys.append(prefix + _BATCHES)

    def extra_repr(self) -> str:
        """The choices of this layer."""
        return f"{self.num_features}, eps={self.eps}, {self.statistics}, gradient={self.gradient!r}"


_NO_MOMENTS = Moments(torch.empty(0), torch.empty(0))


def _parameter(value: Tensor | None) -> nn.Parameter | None:
    if value is None:
        return None
    wide = value.detach().to(statistics_dtype(value.dtype), copy=True)
    return nn.Parameter(wide, requires_grad=False)


def _kept_wide(before: Tensor, after: Tensor) -> Tensor:
    """What came of a change of device or type, without the loss of precision."""
    wide = statistics_dtype(after.dtype)
    return after if wide == after.dtype else before.to(device=after.device, dtype=wide)
