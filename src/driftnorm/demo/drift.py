"""How far each shift moves the statistics of the demo's network, layer by layer."""

from __future__ import annotations

from typing import Any

import torch

from driftnorm.data.digits import split_digits
from driftnorm.demo.experiment import normalized, train
from driftnorm.demo.shifts import SEVERITIES, SHIFTS
from driftnorm.diagnosis.drift import Drift, DriftMeter

__all__ = ["demo_drift"]

SEED = 0


@torch.no_grad()
def demo_drift() -> dict[str, Any]:
    """A record that the report reads: the drift under each shift at its highest severity."""
    training, test = split_digits(SEED)
    with torch.enable_grad():
        network = train(training, SEED)
    severity, found = max(SEVERITIES), dict[str, Drift]()
    for name in ("clean", *SHIFTS):
        images = test.images
        if name in SHIFTS:
            images = SHIFTS[name](images, severity, torch.Generator().manual_seed(SEED))
        meter = DriftMeter(network)
        network(normalized(images))
        found[name] = meter.read(len(images))
        meter.close()
    shifted = [drift for name, drift in found.items() if name in SHIFTS]
    layers = [
        {
            "layer": layer.name,
            "mean": sum(drift.layers[i].mean for drift in shifted) / len(shifted),
            "max": max(drift.layers[i].largest for drift in shifted),
            "along": [drift.layers[i].mean for drift in found.values()],
        }
        for i, layer in enumerate(shifted[0].layers)
    ]
    return {
        "verdict": f"How far each shift, at severity {severity}, moves what the layers receive.",
        "kind": "demo",
        "model": "digit-cnn",
        "data": f"digits, seed {SEED}",
        "images": len(test.images),
        "drift": layers,
        "drift_measure": (
            "Distance of the shifted digits' statistics from the source's, in the source's "
            "deviations, the network as it was trained; over all shifts"
        ),
        "drift_axis": f"each shift at severity {severity}",
        "drift_points": [*found],
    }
