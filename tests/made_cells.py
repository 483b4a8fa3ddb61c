"""Cells from short labels, those of rows of the first format; see `docs/tools/convert_rows.py`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from driftnorm.bench.cell import Cell, MethodId
from driftnorm.bench.rows import Row

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "tools"))

from convert_rows import new_cell


def made_cell(
    study: str = "robustness",
    model: str = "net@12345678",
    shift: str = "fog",
    severity: int = 5,
    method: str = "source",
    *,
    data: str = "cifar-10-c (generated)",
    count: int = 50,
    batch_size: int = 20,
    order: str = "as stored",
    reset: str = "per shift",
    predict: str = "before",
    seed: int = 0,
    settings: tuple[tuple[str, Any], ...] = (),
    recipe: str | None = None,
) -> Cell:
    """A cell; a split of a domain is written as the shift ``sketch/in``."""
    how = {"batch_size": batch_size, "reset": reset, "predict": predict}
    protocol = {**how, "data": data, "count": count, "order": order}
    named = {"study": study, "model": model, "shift": shift, "severity": severity}
    return new_cell(
        {**named, "method": method, "protocol": protocol, "seed": seed, "options": settings},
        recipe,
    )


def with_stream(row: Row, **changes: Any) -> Row:
    """The row, as if its stream had been another."""
    return replace(row, cell=replace(row.cell, stream=replace(row.cell.stream, **changes)))


def with_protocol(row: Row, **changes: Any) -> Row:
    """The row, as if its protocol had been another."""
    return replace(row, cell=replace(row.cell, protocol=replace(row.cell.protocol, **changes)))


def with_method(row: Row, word: str) -> Row:
    """The row, as if its method had been another, with the same settings."""
    read = MethodId.read(word)
    method = MethodId(read.name, read.options, row.cell.method.settings)
    return replace(row, cell=replace(row.cell, method=method))


def with_settings(row: Row, settings: tuple[tuple[str, Any], ...]) -> Row:
    """The row, as if its method had been set otherwise."""
    return replace(row, cell=replace(row.cell, method=replace(row.cell.method, settings=settings)))


def with_model(row: Row, model: str) -> Row:
    """The row, as if it were of another network."""
    return replace(row, cell=replace(row.cell, network=made_cell(model=model).network))
