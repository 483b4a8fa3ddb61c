"""What each shift does to the demo's network: to its statistics, and to single digits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.api import adapt
from driftnorm.data.digits import Digits, split_digits
from driftnorm.demo.experiment import normalized, train
from driftnorm.demo.shifts import SEVERITIES, SHIFTS
from driftnorm.diagnosis.drift import Drift, DriftMeter
from driftnorm.inputs.contents import Pixels
from driftnorm.runs.thumbnails import thumbnail

__all__ = ["demo_drift"]

SEED = 0
BATCH = 64
EXAMPLES = 2  # of each shift


@torch.no_grad()
def demo_drift() -> dict[str, Any]:
    """A record that the report reads: the drift under each shift at its highest severity."""
    training, test = split_digits(SEED)
    with torch.enable_grad():
        network = train(training, SEED)
    severity, found, examples = max(SEVERITIES), dict[str, Drift](), list[dict[str, str]]()
    for name in ("clean", *SHIFTS):
        images = test.images
        if name in SHIFTS:
            images = SHIFTS[name](images, severity, torch.Generator().manual_seed(SEED))
        meter = DriftMeter(network)
        network(normalized(images))
        found[name] = meter.read(len(images))
        meter.close()
        if name in SHIFTS:
            examples += _examples(network, name, images, test)
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
        "examples": examples,
        "drift": layers,
        "drift_measure": (
            "Distance of the shifted digits' statistics from the source's, in the source's "
            "deviations, the network as it was trained; over all shifts"
        ),
        "drift_axis": f"each shift at severity {severity}",
        "drift_points": [*found],
    }


def _examples(network: nn.Module, shift: str, images: Tensor, test: Digits) -> list[dict[str, str]]:
    """Some digits that the adapted network, having seen the others, names differently."""
    model = adapt(network, "gprebn", seed=SEED)
    batches = torch.split(normalized(images), BATCH)
    adapted = torch.cat([model(batch).argmax(dim=1) for batch in batches])
    source = torch.cat([network(batch).argmax(dim=1) for batch in batches])
    differing = (adapted != source).nonzero().flatten().tolist()
    step = max(len(differing) // EXAMPLES, 1)
    return [
        {
            "name": f"{shift}, digit {i}",
            "source": str(int(source[i])),
            "adapted": str(int(adapted[i])),
            "label": str(int(test.labels[i])),
            "image": thumbnail(_as_picture(images[i])),
        }
        for i in differing[::step][:EXAMPLES]
    ]


def _as_picture(image: Tensor) -> Pixels:
    """A digit (1, H, W) in [0, 1], large enough to see."""
    grey = image[0].clamp(0, 1).mul(255).round().byte().repeat_interleave(8, 0)
    return grey.repeat_interleave(8, 1).unsqueeze(2).expand(-1, -1, 3).contiguous().numpy()
