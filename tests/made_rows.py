"""Rows with chosen numbers, for tables and plots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from made_cells import made_cell

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
