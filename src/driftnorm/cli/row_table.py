"""``driftnorm table``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.files import write_atomically
from driftnorm.cli._flags import OUT, SWITCH
from driftnorm.cli._output import print_listing, print_table, table_record
from driftnorm.cli._places import check_view, make_folders
from driftnorm.cli._row_flags import (
    ChosenMethods,
    RowPaths,
    Where,
    Window,
    listing,
    made_of,
    rows_of,
)
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.robustness import VIEWS, View, find_view
from driftnorm.views.table import Table
from driftnorm.views.trainings import RUN_VIEWS, RunView, load_runs


def table(
    name: str = "list",
    rows: RowPaths = (),
    *,
    out: Annotated[Path | None, OUT] = None,
    form: Annotated[
        Literal["text", "markdown", "csv", "latex", "json"] | None, Parameter(name="--format")
    ] = None,
    methods: ChosenMethods = None,
    where: Where = (),
    window: Window = None,
    as_json: Annotated[bool, SWITCH, Parameter(name="--json")] = False,
) -> None:
    """Make a table from rows, or from finished trainings.

    Parameters
    ----------
    name
        Which table; `list` shows them all.
    rows
        Folders of rows, or .jsonl files; they are combined. For the tables selected-*, folders of
        trainings on domains.
    out
        Write to this file instead of printing.
    form
        Format; default: by the extension of `--out` (.md, .csv, .tex, .json), else text.
    as_json
        The same as `--format json`.
    """
    views: dict[str, View | RunView] = {**VIEWS, **DOMAIN_VIEWS, **RUN_VIEWS}
    if name == "list":
        print_listing(listing("Tables", views), as_json=as_json)
        return
    if out is not None:
        check_view(out, rows)
    found = _made(find_view(name, views), rows, methods, where, window)
    wanted = "json" if as_json else form or _ENDINGS.get(out.suffix if out else "", "text")
    if wanted == "text" and out is None:
        print_table(Console(), found)
        return
    text = _FORMS[wanted](found)
    if out is None:
        print(text)
        return
    make_folders({"--out": out}, Console(stderr=True))
    write_atomically(out, text)


def _plain(found: Table) -> str:
    console = Console(file=StringIO(), width=80)
    print_table(console, found)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


_ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}
_FORMS: dict[str, Callable[[Table], str]] = {
    "text": _plain,
    "markdown": Table.to_markdown,
    "csv": Table.to_csv,
    "latex": Table.to_latex,
    "json": lambda found: json.dumps(table_record(found)),
}


def _made(
    view: View | RunView,
    paths: Sequence[Path],
    methods: Sequence[str] | None,
    where: Sequence[str],
    window: int | None,
) -> Table:
    if isinstance(view, RunView):
        if methods is not None or where or window is not None:
            raise ValueError(
                "`methods`, `where` and `window` are about rows; this table is about training."
            )
        return view.make(load_runs(paths))
    return made_of(rows_of(paths, where, window), view.make, view.methods, methods)
