"""Rows with chosen numbers, for tables and plots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from made_cells import made_cell

from driftnorm.bench.cell import Shift
from driftnorm.bench.metrics import pack_bits
from driftnorm.bench.rows import Row
from driftnorm.shifts import CORRUPTIONS

ALL_STREAMS = tuple((c, s) for c in CORRUPTIONS for s in (1, 2, 3, 4, 5))
ADAM = (("lr", 1e-3), ("optimizer", "adam"), ("steps", 1))


def made_row(
    method: str = "source",
    shift: str = "fog",
    severity: int = 5,
    error: float = 0.2,
    *,
    data: str = "cifar-10-c (generated)",
    count: int = 50,
    batch: int = 20,
    model: str = "net@12345678",
    study: str = "robustness",
    seed: int = 0,
    options: tuple[tuple[str, Any], ...] = (),
    recipe: str | None = None,
    **metrics: Any,
) -> Row:
    """One row; the first ``error`` of its samples are wrong."""
    correct = np.arange(count) >= round(error * count)
    parts = np.split(correct, range(batch, count, batch))
    found = {
        "error": error,
        "nll": 2 * error,
        "ece": error / 2,
        "count": count,
        "correct": pack_bits(correct),
        "online_error": [float(1 - part.mean()) for part in parts],
        "reliability": [[count, 0.9, 1 - error]],
        **metrics,
    }
    cell = made_cell(
        *(study, model, shift, severity, method),
        data=data,
        count=count,
        batch_size=batch,
        seed=seed,
        settings=options,
        recipe=recipe,
    )
    return Row(cell, found)


def made_rows(
    errors: dict[str, float], streams: Iterable[tuple[str, int]], **options: Any
) -> list[Row]:
    """Every method with its error on every stream."""
    return [
        made_row(m, *stream, error, **options) for stream in streams for m, error in errors.items()
    ]


def stream_row(method: str, correct: list[int], seed: int = 0, **changes: Any) -> Row:
    """Twelve positions: six of fog, six of snow."""
    right = np.array(correct, dtype=bool)
    row = made_row(
        method,
        error=float(1 - right.mean()),
        count=len(right),
        study="streams",
        seed=seed,
        window=3,
        class_mean_accuracy=0.5,
        domains=[["fog", 5], ["snow", 5]],
        segments=[[0, [0]], [6, [1]]],
        error_per_domain=[float(1 - half.mean()) for half in np.split(right, 2)],
        error_per_visit=[float(1 - right.mean())],
        order_index=0.1,
        resets=changes.get("resets", 0),
        passes=[1, 0],
    )
    stream = replace(
        row.cell.stream,
        shifts=(Shift("fog", 5), Shift("snow", 5)),
        order=changes.get("order", "continual"),
        settings=(("part", 6),),
    )
    metrics = {**row.metrics, "correct": pack_bits(right), "alarms": changes.get("alarms", 0)}
    protocol = replace(row.cell.protocol, guard=changes.get("guard", "off"))
    return Row(replace(row.cell, stream=stream, protocol=protocol), metrics)
