"""What every benchmark prints at the end: its table, how many rows, what failed."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from driftnorm.bench.rows import Row
from driftnorm.cli._fitting import print_table
from driftnorm.cli._flags import AsJson, Quiet
from driftnorm.errors import MixedRowsError
from driftnorm.views.table import Table

__all__ = ["AsJson", "Quiet", "conclude", "open_console", "table_record"]


def open_console(quiet: bool, as_json: bool) -> Console:
    """Where to print for people: stderr if stdout is read by a program."""
    return Console(quiet=quiet, stderr=as_json)


def conclude(
    console: Console,
    make: Callable[[Sequence[Row]], Table],
    rows: Sequence[Row],
    folder: Path,
    failed: int,
    as_json: bool,
) -> None:
    """Print the result of a benchmark; exits with 1 if anything failed."""
    table, why = None, ""
    try:
        table = make(rows)
    except MixedRowsError as error:
        why = str(error)
    if as_json:
        shown = None if table is None else table_record(table)
        counts = {"rows": len(rows), "failed": failed, "folder": str(folder)}
        print(json.dumps({"table": shown, "why_no_table": why or None, **counts}))
    elif table is not None:
        print_table(console, table)
    if why:
        console.print(why, markup=False)
    console.print(f"{len(rows)} rows in {folder}; {failed} failed.", markup=False)
    if failed:
        if console.quiet:
            print(f"driftnorm: {failed} failed; see {folder / 'failed'}.", file=sys.stderr)
        raise SystemExit(1)


def table_record(table: Table) -> dict[str, Any]:
    """A table for JSON: full precision, NaN as null."""
    record = dataclasses.asdict(table)
    record["columns"] = [column.title for column in table.columns]
    record["rows"] = [
        [None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row]
        for row in table.rows
    ]
    return record
