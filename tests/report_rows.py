"""Rows for the tests of the report: made by `evaluate`'s own pieces from drawn predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from made_cells import made_cell
from torch import Tensor, nn

from driftnorm.adapter._adapt import adapt
from driftnorm.bench.rows import Row
from driftnorm.bench.stream_scores import evaluate

HOSTILE = "<script>alert(1)</script>"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)
STREAMS = (("clean", 0), ("fog", 1), ("fog", 3), ("blur", 1), ("blur", 3))
COUNT, BATCH, CLASSES = 60, 20, 4


def make_rows(
    methods: Sequence[str] = ("source", "bn", "tent"),
    streams: Sequence[tuple[str, int]] = STREAMS,
    model: str = "net@12345678",
    study: str = "robustness",
    **protocol: object,
) -> list[Row]:
    """Real metrics of a network that a method's name makes better, on streams that get harder."""
    rows = []
    for rank, method in enumerate(methods):
        for shift, severity in streams:
            named = {"data": "some-c", "count": COUNT, "batch_size": BATCH, **protocol}
            cell = made_cell(study, model, shift, severity, method, **named)  # type: ignore[arg-type]
            noise = 0.5 + 0.8 * severity / (1 + rank)
            adapter = adapt(nn.Identity().eval(), "source")
            rows.append(Row(cell, evaluate(adapter, _stream(noise)), {"torch": "2"}))
    return rows


def _stream(noise: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits that name the true class, less surely the more noise there is."""
    generator = np.random.default_rng(0)
    for _ in range(COUNT // BATCH):
        labels = generator.integers(0, CLASSES, BATCH)
        logits = 2 * np.eye(CLASSES)[labels] + noise * generator.normal(size=(BATCH, CLASSES))
        yield torch.from_numpy(logits).float(), torch.from_numpy(labels)
