"""How far the statistics that an adapter tracks are from the source's, layer by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from driftnorm.adapter import Adapter
from driftnorm.diagnosis.drift import channel_distance
from driftnorm.functional import Moments
from driftnorm.layers import AdaptiveBatchNorm

__all__ = ["MEASURE", "DriftCourse", "drift_record", "layer_distances"]

MOST_POINTS = 20
MEASURE = (
    "Distance of the statistics that the adapter tracks (averages over the stream so far, each "
    "layer fed by the adapted ones before it) from the source's, in the source's deviations"
)
_PREFIX = "converted.network."


@dataclasses.dataclass
class DriftCourse:
    """Mean distance of each layer at up to 20 points in time, however long the stream is.

    Attributes:
        batches: Seen so far.
        width: Batches between two points.
        points: For each, how many images were seen, and the distances; None where a layer has
            tracked nothing.
    """

    batches: int = 0
    width: int = 1
    points: list[tuple[int, list[float | None]]] = dataclasses.field(default_factory=list)

    def add(self, images: int, adapter: Adapter) -> None:
        """One more batch, after which so many images were seen; measured if it is its turn."""
        self.batches += 1
        if self.batches % self.width:
            return
        if len(self.points) == MOST_POINTS:
            self.points = self.points[1::2]
            self.width *= 2
            if self.batches % self.width:
                return
        self.points.append((images, _means(layer_distances(adapter))))


def layer_distances(adapter: Adapter) -> dict[str, tuple[float, float] | None]:
    """Mean and largest distance over the channels of each layer that has source statistics.

    Only committed moments are read, so this costs next to nothing. None for a layer that has
    tracked nothing, as with methods that keep the source's statistics.
    """
    found: dict[str, tuple[float, float] | None] = {}
    moved: dict[str, AdaptiveBatchNorm] = {}
    for name, layer in adapter.named_modules():
        if isinstance(layer, AdaptiveBatchNorm) and layer.source is not None:
            found[name.removeprefix(_PREFIX)] = None
            if layer.tracked.batches:
                moved[name.removeprefix(_PREFIX)] = layer
    if moved:
        found.update(zip(moved, _mean_and_largest([*moved.values()]), strict=True))
    return found


def _mean_and_largest(layers: list[AdaptiveBatchNorm]) -> Iterable[tuple[float, float]]:
    """Of all layers in one go: the calls cost more than the numbers."""
    sources = [source for layer in layers if (source := layer.source) is not None]
    tracked = [Moments(*layer.tracked[:2]) for layer in layers]
    widths = np.array([layer.num_features for layer in layers])
    source = _joined(sources)
    eps = source.mean.new_tensor(np.repeat([layer.eps for layer in layers], widths)).double()
    each = channel_distance(source, _joined(tracked), eps).cpu().numpy()
    first = widths.cumsum() - widths
    means = np.add.reduceat(each, first) / widths
    return zip(means.tolist(), np.maximum.reduceat(each, first).tolist(), strict=True)


def _joined(parts: list[Moments]) -> Moments:
    return Moments(torch.cat([m.mean for m in parts]), torch.cat([m.var for m in parts]))


def drift_record(course: DriftCourse, images: int, adapter: Adapter) -> dict[str, Any]:
    """What the report shows: every layer now, and along the stream; empty if none tracked any."""
    now = layer_distances(adapter)
    points = [*course.points]
    if points and points[-1][0] != images:
        points.append((images, _means(now)))
    if all(value is None for _, values in points for value in values):
        return {}
    layers = []
    for index, (name, distances) in enumerate(now.items()):
        mean, largest = distances or (None, None)
        along = [values[index] for _, values in points]
        layers.append({"layer": name, "mean": mean, "max": largest, "along": along})
    return {
        "drift": layers,
        "drift_measure": MEASURE,
        "drift_axis": "images seen",
        "drift_points": [f"{seen:,}" for seen, _ in points],
    }


def _means(distances: dict[str, tuple[float, float] | None]) -> list[float | None]:
    return [None if each is None else each[0] for each in distances.values()]
