"""What a network has for batch norm, and what in it is not safe at test time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from driftnorm._internal.counts import counted
from driftnorm.adapter._surgery import describe_norms, find_batch_norms
from driftnorm.models.normalized import Normalized


@dataclass(frozen=True)
class BatchNormLayer:
    """One batch-norm layer.

    Attributes:
        name: Dotted name; a shared layer has its first.
        kind: Class name.
        channels: How many.
        eps: Added to the variance.
        affine: Whether it has a scale and a shift, which gradient methods train.
        statistics: ``"kept"`` from training; ``"missing"`` (every batch's own are used); or
            ``"initial"``, the zeros and ones of a layer that was never trained.
        frozen: Whether its parameters are constants (a frozen class, or no gradient wanted).
    """

    name: str
    kind: str
    channels: int
    eps: float
    affine: bool
    statistics: str
    frozen: bool


@dataclass(frozen=True)
class Inventory:
    """The normalisation of a network.

    Attributes:
        layers: Its batch-norm layers.
        norms: All its normalisation layers in words.
        instance_norms: Names of its InstanceNorm layers.
        active_dropout: Names of dropout layers that were left active.
        input_constants: Mean and deviation per channel by which the network normalises its input
            itself; empty if it does not.
    """

    layers: tuple[BatchNormLayer, ...]
    norms: str
    instance_norms: tuple[str, ...] = ()
    active_dropout: tuple[str, ...] = ()
    input_constants: tuple[tuple[float, float], ...] = ()

    @property
    def channels(self) -> int:
        """Channels of all layers together."""
        return sum(layer.channels for layer in self.layers)

    def summary(self) -> str:
        """All layers in one sentence."""
        frozen = sum(layer.frozen for layer in self.layers)
        plain = sum(not layer.affine for layer in self.layers)
        states = {state: len(self.named(state)) for state in ("kept", "missing", "initial")}
        kinds = ", ".join(f"{count} {state}" for state, count in states.items() if count)
        return (
            f"{counted(len(self.layers), 'layer')}, {counted(self.channels, 'channel')}; "
            f"statistics: {kinds}; {frozen} frozen, {plain} without scale and shift."
        )

    def named(self, statistics: str) -> tuple[str, ...]:
        """The layers whose statistics are in this state."""
        return tuple(layer.name for layer in self.layers if layer.statistics == statistics)


def take_inventory(network: nn.Module) -> Inventory:
    """Looks at the modules of a network; runs nothing and changes nothing."""
    first: dict[int, BatchNormLayer] = {}
    for name, module in find_batch_norms(network).items():
        if id(module) not in first:
            first[id(module)] = _described(name, module)
    named = list(network.named_modules())
    return Inventory(
        layers=tuple(first.values()),
        norms=describe_norms(network),
        instance_norms=tuple(n for n, m in named if isinstance(m, _InstanceNorm)),
        active_dropout=tuple(n for n, m in named if m.training and _drops(m)),
        input_constants=next((_constants(m) for _, m in named if isinstance(m, Normalized)), ()),
    )


def _constants(module: Normalized) -> tuple[tuple[float, float], ...]:
    pairs = zip(module.mean.flatten().tolist(), module.std.flatten().tolist(), strict=True)
    return tuple((round(mean, 6), round(std, 6)) for mean, std in pairs)


def _drops(module: nn.Module) -> bool:
    """Whether it is dropout that does something, stochastic depth (timm, torchvision) included."""
    if not isinstance(module, _DropoutNd) and type(module).__name__ not in (
        "DropPath",
        "StochasticDepth",
    ):
        return False
    rates = (getattr(module, name, 0.0) for name in ("p", "drop_prob"))
    return any(rate is not None and rate > 0 for rate in rates)


# Batch-norm classes of other projects are probed for attributes, hence Any.
def _described(name: str, module: Any) -> BatchNormLayer:
    mean, var, weight = module.running_mean, module.running_var, module.weight
    if mean is None or var is None:
        statistics = "missing"
    elif bool(torch.all(mean == 0)) and bool(torch.all(var == 1)):
        statistics = "initial"
    else:
        statistics = "kept"
    trained = isinstance(weight, nn.Parameter) and weight.requires_grad
    known = next((t for t in (mean, weight) if t is not None), None)
    return BatchNormLayer(
        name=name,
        kind=type(module).__name__,
        channels=module.num_features if known is None else known.shape[0],
        eps=float(module.eps),
        affine=weight is not None,
        statistics=statistics,
        frozen=weight is not None and not trained,
    )
