"""Error against batch size: the one comparison whose rows differ in their protocol by design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftnorm.bench.rows import Row
from driftnorm.views.compare import check_same, mean_error, methods_of, note_of
from driftnorm.views.table import Column, Table


def errors_by_batch_size(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Mean error in % of each method at each batch size it was measured with, sizes ascending.

    Everything except the batch size must agree, and every method must have run on the same streams
    at every size.
    """
    check_same([_size_as_method(row) for row in rows])
    sizes = sorted({row.cell.protocol.batch_size for row in rows})
    return {
        method: {
            size: mean_error(own, method)
            for size in sizes
            if (own := [r for r in rows if _setting(r) == (method, size)])
        }
        for method in methods_of(rows)
    }


def batch_size_table(rows: Sequence[Row]) -> Table:
    """Methods by batch sizes."""
    errors = errors_by_batch_size(rows)
    sizes = sorted({size for own in errors.values() for size in own})
    lines = tuple((method, *(own.get(size) for size in sizes)) for method, own in errors.items())
    columns = (Column("method"), *(Column(f"batch {s}", best="lowest", decimals=2) for s in sizes))
    return Table("Error by batch size", columns, lines, note_of(rows))


def _setting(row: Row) -> tuple[str, int]:
    return row.method, row.cell.protocol.batch_size


def _size_as_method(row: Row) -> Row:
    """The row with its batch size moved into its method's name."""
    cell = row.cell
    name = f"{row.method} at {cell.protocol.batch_size}"
    method = replace(cell.method, name=name, options=())
    protocol = replace(cell.protocol, batch_size=0)
    return replace(row, cell=replace(cell, method=method, protocol=protocol))
