"""Tables as data, and their output formats."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from driftnorm._internal.counts import counted

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Column:
    """A heading.

    Attributes:
        title: The words.
        best: Which end of a numeric column is set in bold.
        decimals: Of its numbers.
        align: Of its cells.
        spare: A terminal that is too narrow leaves out columns of rank 1 first, then of rank 2 and
            so on; those of rank 0 never.
    """

    title: str
    best: Literal["highest", "lowest"] | None = None
    decimals: int = 1
    align: Literal["left", "right"] = "right"
    spare: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers under columns.

    Attributes:
        title: What the table shows.
        columns: The headings; the first column names the row.
        rows: Cells are text or numbers; ``None`` prints as a dash.
        note: The protocol, and whatever else must be shown with the numbers.
        best_by: Whether the best number is marked per column, or per row among the columns with the
            same ``best``.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    note: str = ""
    best_by: Literal["column", "row"] = "column"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"every row of {self.title!r} must have {counted(len(self.columns), 'cell')}, "
                    f"got {row}."
                )

    def without_empty(self, *titles: str) -> Table:
        """Without empty columns: those of these titles, or all if none are given."""
        kept = [
            place
            for place, column in enumerate(self.columns)
            if any(row[place] is not None for row in self.rows)
            or (titles and column.title not in titles)
        ]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
        )

    def text(self, row: int, column: int) -> str:
        """A cell as printed."""
        value = self.rows[row][column]
        if value is None:
            return "-"
        return value if isinstance(value, str) else f"{value:.{self.columns[column].decimals}f}"

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell holds the best number of its column or row, as printed."""
        best = self.columns[column].best
        if best is None or not isinstance(self.rows[row][column], int | float):
            return False
        if self.best_by == "column":
            peers = [other[column] for other in self.rows]
        else:
            pairs = zip(self.rows[row], self.columns, strict=True)
            peers = [value for value, other in pairs if other.best == best]
        numbers = [value for value in peers if isinstance(value, int | float)]
        winner = (max if best == "highest" else min)(map(float, numbers))
        return self.text(row, column) == f"{winner:.{self.columns[column].decimals}f}"

    def to_rich(self) -> Group:
        """For the terminal; title and note may be wider than the table between them."""
        from rich import box
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for index, column in enumerate(self.columns):
            justify = column.align if index else "left"
            # A narrow terminal wraps cells; it never cuts numbers off.
            table.add_column(escape(column.title), justify=justify, overflow="fold")
        for row in range(len(self.rows)):
            table.add_row(
                *(
                    self._marked(row, c, "[bold]", "[/bold]", escape)
                    for c in range(len(self.columns))
                )
            )
        title, note = Text(self.title, "table.title"), Text(self.note, "table.caption")
        return Group(title, table, *[note] * bool(self.note))

    def to_markdown(self) -> str:
        """For documents."""

        def escape(text: str) -> str:
            return text.replace("|", "\\|")

        head = "| " + " | ".join(escape(c.title) for c in self.columns) + " |"
        marks = [" ---: |" if column.align == "right" else " --- |" for column in self.columns[1:]]
        rule = "| --- |" + "".join(marks)
        body = [
            "| "
            + " | ".join(self._marked(r, c, "**", "**", escape) for c in range(len(self.columns)))
            + " |"
            for r in range(len(self.rows))
        ]
        note = [f"\n{self.note}"] if self.note else []
        return "\n".join([f"**{self.title}**\n", head, rule, *body, *note]) + "\n"

    def to_latex(self) -> str:
        """For papers: a booktabs tabular."""

        def escape(text: str) -> str:
            for character in "&%$#_{}":
                text = text.replace(character, f"\\{character}")
            return text

        body = [
            " & ".join(
                self._marked(r, c, "\\textbf{", "}", escape) for c in range(len(self.columns))
            )
            + " \\\\"
            for r in range(len(self.rows))
        ]
        form = "l" + "".join(column.align[0] for column in self.columns[1:])
        head = " & ".join(escape(column.title) for column in self.columns) + " \\\\"
        lines = [f"% {self.title}. {self.note}", f"\\begin{{tabular}}{{{form}}}", "\\toprule", head]
        return "\n".join([*lines, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"]) + "\n"

    def to_csv(self) -> str:
        """For programs: full precision; the note is a first line that begins with ``# ``."""
        buffer = io.StringIO()
        if self.note:
            buffer.write(f"# {' '.join(self.note.split())}\n")
        writer = csv.writer(buffer)
        writer.writerow(column.title for column in self.columns)
        writer.writerows(self.rows)
        return buffer.getvalue()

    def _marked(self, row: int, column: int, begin: str, end: str, escape: object) -> str:
        assert callable(escape)
        text = str(escape(self.text(row, column)))
        return f"{begin}{text}{end}" if self.is_best(row, column) else text
