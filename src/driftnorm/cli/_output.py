"""What commands print: lines and tables for people, records of tables for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from rich.console import Console

from driftnorm.views.table import Table


def say(console: Console, text: str) -> None:
    """Print a line as it is: names may contain what rich would take for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Print a table: as wide as the terminal, elsewhere as wide as the table itself."""
    if console.is_terminal:
        table = _fitted(table, console.width)
    else:
        console.width = max(console.width, _width(table) + 2)  # and a margin
    console.print(table.to_rich())


def print_listing(table: Table, *, as_json: bool) -> None:
    """Print what `list` shows: a table, or its record for programs."""
    if as_json:
        print(json.dumps(table_record(table)))
    else:
        print_table(Console(), table)


def _fitted(table: Table, width: int) -> Table:
    """The table without the spare columns that do not fit; its note says which these are."""
    dropped: list[str] = []
    for rank in sorted({column.spare for column in table.columns} - {0}):
        if _width(table) <= width:
            break
        places = [i for i, column in enumerate(table.columns) if column.spare != rank]
        dropped += [column.title for column in table.columns if column.spare == rank]
        table = dataclasses.replace(
            table,
            columns=tuple(table.columns[i] for i in places),
            rows=tuple(tuple(row[i] for i in places) for row in table.rows),
        )
    if not dropped:
        return table
    note = f"{table.note} Left out for lack of width: {', '.join(dropped)}.".lstrip()
    return dataclasses.replace(table, note=note)


def table_record(table: Table) -> dict[str, Any]:
    """A table for JSON: full precision, NaN as null."""
    record = dataclasses.asdict(table)
    record["columns"] = [column.title for column in table.columns]
    record["rows"] = [
        [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row]
        for row in table.rows
    ]
    return record


def _width(table: Table) -> int:
    """Characters per line, with the two spaces around each cell."""
    return sum(
        max(len(column.title), *(len(table.text(r, c)) for r in range(len(table.rows))), 0) + 2
        for c, column in enumerate(table.columns)
    )
