"""How the statistics that an adapter tracks move along a stream, layer by layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from driftnorm.adapter import Adapter
from driftnorm.adapter.drift import layer_distances

MOST_POINTS = 20
MEASURE = (
    "Distance of the statistics that the adapter tracks (averages over the stream so far, each "
    "layer fed by the adapted ones before it) from the source's, in the source's deviations"
)


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
        """One more batch, after which this many images were seen; measured if it is its turn."""
        self.batches += 1
        if self.batches % self.width:
            return
        if len(self.points) == MOST_POINTS:
            self.points = self.points[1::2]
            self.width *= 2
            if self.batches % self.width:
                return
        self.points.append((images, _means(layer_distances(adapter))))


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
