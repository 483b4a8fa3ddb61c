"""Tables for narrow terminals: whole columns are left out instead of wrapping all.

Files and pipes have no width, so nothing is wrapped there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from driftnorm.views.table import Table

__all__ = ["fitted", "print_table"]


def print_table(console: Console, table: Table) -> None:
    """Print a table: as wide as the terminal, elsewhere as wide as the table itself."""
    if not console.is_terminal:
        console.width = max(console.width, _width(table) + 2)  # and a margin
    console.print(table.to_rich())


def fitted(table: Table, width: int, spared: Sequence[str]) -> Table:
    """The table with as many columns as fit side by side without a line break.

    Args:
        table: Any.
        width: Characters per line.
        spared: Titles of columns that may be left out, in this order.

    Returns:
        The table; its note says what was left out.
    """
    dropped: list[str] = []
    for title in spared:
        if _width(table) <= width:
            break
        places = [i for i, column in enumerate(table.columns) if column.title != title]
        if len(places) < len(table.columns):
            dropped.append(title)
            table = replace(
                table,
                columns=tuple(table.columns[i] for i in places),
                rows=tuple(tuple(row[i] for i in places) for row in table.rows),
            )
    if not dropped:
        return table
    note = f"{table.note} Left out for lack of width: {', '.join(dropped)}.".lstrip()
    return replace(table, note=note)


def _width(table: Table) -> int:
    """Characters per line, with the two spaces around each cell."""
    return sum(
        max(len(column.title), *(len(table.text(r, c)) for r in range(len(table.rows))), 0) + 2
        for c, column in enumerate(table.columns)
    )
