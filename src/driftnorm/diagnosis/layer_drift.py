"""How far the data are from what the network was trained on, layer by layer.

Every batch-norm layer of the source network, running as it was trained, receives activations; their
moments are compared with the source's, channel by channel (`driftnorm.adapter.drift`). A layer's
distance is the mean over its channels; the largest is reported with it.

Few images have statistics of their own. Each layer is also measured on the images with even and
with odd number apart; half the distance between those two is about what chance alone gives for the
whole (with n images a half has n / 2, so each strays by sqrt(2) times as much, and both do). Where
a batch is one image, batches with even and with odd number are the halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.adapter._surgery import find_batch_norms
from driftnorm.adapter.drift import channel_distance
from driftnorm.functional import Moments, batch_moments


@dataclass(frozen=True)
class LayerDrift:
    """One layer: its mean and largest distance over channels, and the share due to chance.

    Attributes:
        name: Dotted name of the layer.
        mean: Mean over channels, in deviations of the source.
        largest: Largest over channels.
        chance: What so few images would give without any drift.
        scale: Median over channels of the data's deviation over the source's.
        scale_spread: Mean absolute log deviation of that ratio from its median.
    """

    name: str
    mean: float
    largest: float
    chance: float
    scale: float
    scale_spread: float


@dataclass(frozen=True)
class Drift:
    """All layers that have source statistics, in forward order.

    Attributes:
        layers: The layers.
        images: On how many images they were measured.
    """

    layers: tuple[LayerDrift, ...]
    images: int

    @property
    def mean(self) -> float:
        """Mean distance over layers; NaN where there is nothing to compare."""
        return _mean([layer.mean for layer in self.layers])

    @property
    def chance(self) -> float:
        """Mean over layers of what chance gives."""
        return _mean([layer.chance for layer in self.layers])

    @property
    def excess(self) -> float:
        """Mean distance without what chance gives (they add up in squares)."""
        return math.sqrt(max(self.mean**2 - self.chance**2, 0.0))

    def chance_of_batch(self, batch_size: int) -> float:
        """Mean distance that chance gives in a batch of this size: it falls with its root."""
        return self.chance * math.sqrt(self.images / batch_size)


def pooled(parts: list[Moments]) -> Moments:
    """The moments of all values together."""
    values = torch.tensor([part.values for part in parts], dtype=torch.float64)
    weights = (values / values.sum()).unsqueeze(1)
    means = torch.stack([part.mean.cpu().double() for part in parts])
    variances = torch.stack([part.var.cpu().double() for part in parts])
    mean = (weights * means).sum(dim=0)
    var = (weights * (variances + (means - mean).square())).sum(dim=0)
    return Moments(mean, var, int(values.sum()), sum(part.samples for part in parts))


class DriftMeter:
    """Measures what the batch-norm layers of a network receive, while it runs.

    Args:
        network: A copy that may be watched; in evaluation mode.
    """

    def __init__(self, network: nn.Module) -> None:
        layers: dict[int, tuple[str, Any]] = {}
        for name, module in find_batch_norms(network).items():
            layers.setdefault(id(module), (name, module))
        self._layers = dict(layers.values())
        # Insertion order is forward order: a layer enters when it is first called.
        self._halves: dict[str, tuple[list[Moments], list[Moments]]] = {}
        self._batches = 0
        self._handles = [
            network.register_forward_pre_hook(self._count),
            *(
                module.register_forward_pre_hook(self._watch(name))
                for name, module in self._layers.items()
            ),
        ]

    def _count(self, network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._batches += 1

    def _watch(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            halves, x = self._halves.setdefault(name, ([], [])), inputs[0]
            if len(x) == 1:
                halves[self._batches % 2].append(batch_moments(x))
                return
            for half, part in zip(halves, (x[::2], x[1::2]), strict=True):
                if part.numel():
                    half.append(batch_moments(part.contiguous()))

        return hook

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def read(self, images: int) -> Drift:
        """The distances of every layer that was called and has source statistics."""
        measured = []
        for name, (even, odd) in self._halves.items():
            module = self._layers[name]
            if module.running_mean is None or module.running_var is None or not even or not odd:
                continue
            source = Moments(module.running_mean.cpu(), module.running_var.cpu())
            measured.append(_compared(name, source, pooled(even), pooled(odd), float(module.eps)))
        return Drift(tuple(measured), images)


def _compared(name: str, source: Moments, even: Moments, odd: Moments, eps: float) -> LayerDrift:
    target = pooled([even, odd])
    distance = channel_distance(source, target, eps)
    # In units of the source's deviation as well, so that the two can be compared.
    halves = (
        channel_distance(even, odd, eps) * ((even.var + eps) / (source.var.double() + eps)).sqrt()
    )
    ratio = ((target.var + eps) / (source.var.double() + eps)).sqrt()
    scale = ratio.median()
    return LayerDrift(
        name=name,
        mean=float(distance.mean()),
        largest=float(distance.max()),
        chance=float(halves.mean()) / 2,
        scale=float(scale),
        scale_spread=float((ratio / scale).log().abs().mean()),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
