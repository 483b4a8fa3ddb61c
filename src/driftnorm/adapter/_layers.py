"""The adaptive batch-norm layer: source moments, chosen statistics and a gradient path.

The layer knows nothing of losses, optimisers or streams, and keeps no state of the stream: it asks
the current pass. Outside a pass it behaves as the layer it replaces.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from driftnorm._internal.counts import counted
from driftnorm.adapter._pass import Pass, Stage
from driftnorm.functional import (
    GradientPath,
    Moments,
    batch_moments,
    gprebn,
    normalize,
    statistics_dtype,
)
from driftnorm.parts.contract import Measured, Statistics
from driftnorm.parts.statistics import Source

_STATISTICS_BUFFERS = ("source_mean", "source_var")
_AFFINE = ("weight", "bias")


class AdaptiveBatchNorm(nn.Module):
    """Batch norm over ``(N, C, ...)`` whose normalising statistics are a choice.

    Args:
        weight: gamma, or ``None``.
        bias: beta, or ``None``.
        source: The statistics the network was trained with, or ``None`` if it kept none.
        channels: Number of channels.
        eps: As in the replaced layer.
        tail: What the replaced layer did after normalising (timm's fused activation).

    Attributes:
        name: Its dotted name in the network.
        stage: Where it finds the current pass.
        statistics: Which moments normalise (default: the source's).
        gradient: ``"preserved"`` is eq. 6; ``"detached"`` stops the gradient at the statistics.
        precision: Of the replaced layer. Statistics and affine parameters are always kept in
            float32 or wider: small steps would be lost in less.
    """

    # nn.Module's __getattr__ would type these as Tensor | Module.
    weight: nn.Parameter | None
    bias: nn.Parameter | None
    source_mean: Tensor | None
    source_var: Tensor | None

    def __init__(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        source: Moments | None,
        channels: int,
        eps: float,
        tail: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.name = ""
        self.stage = Stage()
        self.num_features = channels
        self.eps = eps
        self.tail = tail
        self.statistics: Statistics = Source()
        self.gradient: GradientPath = "preserved"
        self.register_parameter("weight", _parameter(weight))
        self.register_parameter("bias", _parameter(bias))
        known = weight if source is None else source.mean
        dtype = torch.float32 if known is None else statistics_dtype(known.dtype)
        self.precision = next((t.dtype for t in (weight, known) if t is not None), dtype)
        for name in ("mean", "var"):
            value: Tensor | None = None if source is None else getattr(source, name)
            copy = None if value is None else value.detach().to(dtype, copy=True)
            self.register_buffer(f"source_{name}", copy)

    @property
    def source(self) -> Moments | None:
        """The statistics of the trained network, if it kept any."""
        mean, var = self._buffers["source_mean"], self._buffers["source_var"]
        return None if mean is None or var is None else Moments(mean, var)

    def settled(self, now: Pass) -> Moments | None:
        """The fixed statistics that summarise the stream so far."""
        chosen = self.statistics if now.statistics is None else now.statistics
        memory = now.memory(self.name)
        if self.source is None and not memory:
            return None
        return chosen.settled(memory, self.source, now.shared(chosen))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` as the pass, ``statistics`` and ``gradient`` say."""
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise ValueError(
                f"a batch-norm layer expected {counted(self.num_features, 'channel')} on axis 1, "
                f"got an input of shape {tuple(x.shape)}."
            )
        y = self._normalized(x)
        return y if self.tail is None else self.tail(y)

    def _normalized(self, x: Tensor) -> Tensor:
        affine = (self._parameters["weight"], self._parameters["bias"], self.eps)
        now = self.stage.now
        if now is not None and now.mode in ("adapt", "again"):
            chosen = self.statistics
            if now.statistics is not None and chosen.uses_batch:
                chosen = now.statistics
            # One value per channel has no variance: most statistics cannot use it.
            if x.numel() // self.num_features > 1 or (chosen.single_values and x.numel()):
                with_gradient = torch.is_grad_enabled() and (x.requires_grad or self._trainable)
                preserve = with_gradient and self.gradient == "preserved"
                at = Measured(x, self.eps)
                used = now.again(self.name) if now.mode == "again" else None
                if used is None:
                    used = now.propose(self, at, chosen)
                if preserve:
                    return gprebn(x, used.mean, used.var, *affine, moments=at.moments)
                return normalize(x, used.mean, used.var, *affine)
        fixed = self._fixed(x, now)
        return normalize(x, fixed.mean, fixed.var, *affine)

    def _fixed(self, x: Tensor, now: Pass | None) -> Moments:
        source = self.source
        settled = source
        if now is not None and now.mode != "source":
            settled = self.settled(now)
        if settled is not None:
            return settled
        if x.numel() == 0:  # empty batch: the values are never used
            return Moments(x.new_zeros(self.num_features), x.new_ones(self.num_features))
        # A network that was trained without running statistics uses the batch's own.
        return batch_moments(x)

    @property
    def _trainable(self) -> bool:
        held = (self._parameters["weight"], self._parameters["bias"])
        return any(p is not None and p.requires_grad for p in held)

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
        return self

    def extra_repr(self) -> str:
        """The choices of this layer."""
        return f"{self.num_features}, eps={self.eps}, {self.statistics}, gradient={self.gradient!r}"


def _parameter(value: Tensor | None) -> nn.Parameter | None:
    if value is None:
        return None
    wide = value.detach().to(statistics_dtype(value.dtype), copy=True)
    return nn.Parameter(wide, requires_grad=False)


def _kept_wide(before: Tensor, after: Tensor) -> Tensor:
    """The tensor after a change of device or dtype, but never below float32."""
    wide = statistics_dtype(after.dtype)
    return after if wide == after.dtype else before.to(device=after.device, dtype=wide)
