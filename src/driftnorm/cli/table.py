"""``driftnorm table``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.console import Console

from driftnorm.records import load_rows
from driftnorm.robustness.views import TABLES
from driftnorm.suggest import nearest

__all__ = ["table"]


def table(
    name: str, rows: Path, *, form: Literal["text", "markdown", "csv", "latex"] = "text"
) -> None:
    """Make a table from rows.

    Parameters
    ----------
    name
        summary, detailed or severity.
    rows
        A folder of rows, or a .jsonl file.
    form
        How to print it.
    """
    if name not in TABLES:
        raise ValueError(
            f"there is no table {name!r}.{nearest(name, TABLES)} Known: {', '.join(TABLES)}."
        )
    found = TABLES[name](load_rows(rows))
    if form == "text":
        Console().print(found.to_rich())
        return
    forms = {"markdown": found.to_markdown, "csv": found.to_csv, "latex": found.to_latex}
    print(forms[form]())
