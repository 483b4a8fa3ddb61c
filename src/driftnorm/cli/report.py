"""``driftnorm report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.files import write_atomically
from driftnorm.cli._flags import OUT, Quiet
from driftnorm.cli._places import check_view, make_folders
from driftnorm.views.report.page import make_report


def report(
    rows: Annotated[list[Path], Parameter(consume_multiple=True, negative="")],
    *,
    out: Annotated[Path, OUT] = Path("report.html"),
    quiet: Quiet = False,
) -> None:
    """Make one self-contained page from rows or runs: verdict, tables, charts.

    It loads nothing from the internet, and opens from disk.

    Parameters
    ----------
    rows
        Folders of rows, .jsonl files, or folders of a demo, a benchmark or an adapt run; they are
        combined, and what cannot be compared gets separate sections.
    out
        The page.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`--out` must be a file that ends in .html, got {out}.")
    check_view(out, rows)
    text = make_report(rows)
    make_folders({"--out": out}, Console(stderr=True, quiet=quiet))
    write_atomically(out, text)
    if not quiet:
        print(f"Saved {out} ({len(text.encode()) / 1e6:.1f} MB).")
