"""``driftnorm table``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.files import write_atomically
from driftnorm._internal.names import nearest
from driftnorm.bench.cell import Cell, MethodId
from driftnorm.bench.rows import Row, load_rows
from driftnorm.cli._conclusion import table_record
from driftnorm.cli._fitting import print_table
from driftnorm.cli._flags import SWITCH
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import in_order, methods_of, parts_of
from driftnorm.views.domains import DOMAIN_VIEWS
from driftnorm.views.figure import Figure
from driftnorm.views.robustness import VIEWS, View, find_view
from driftnorm.views.table import Table
from driftnorm.views.trainings import RUN_VIEWS, RunView, load_runs

__all__ = ["first_that_fits", "table"]

Shown = TypeVar("Shown", Table, Figure)


def table(
    name: str = "list",
    rows: Annotated[
        tuple[Path, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    form: Annotated[
        Literal["text", "markdown", "csv", "latex", "json"] | None, Parameter(name="--format")
    ] = None,
    methods: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative="",
            help="Only these, in this order; default: all in the rows.",
        ),
    ] = None,
    where: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
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
    where
        Only rows with this value, such as batch_size=32 or severity=5; can be repeated.
    as_json
        The same as `--format json`.
    """
    views: dict[str, View | RunView] = {**VIEWS, **DOMAIN_VIEWS, **RUN_VIEWS}
    if name == "list":
        for each, known in views.items():
            print(f"{each:<24}{known.help}")
        return
    if out is not None and out.is_dir():
        raise IsADirectoryError(f"`--out` must be a file, but {out} is a folder.")
    found = _made(find_view(name, views), rows, methods, where)
    wanted = "json" if as_json else form or _ENDINGS.get(out.suffix if out else "", "text")
    if wanted == "text" and out is None:
        print_table(Console(), found)
        return
    text = _FORMS[wanted](found)
    if out is None:
        print(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
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
) -> Table:
    if isinstance(view, RunView):
        if methods is not None or where:
            raise ValueError("`methods` and `where` are about rows; this table is about training.")
        return view.make(load_runs(paths))
    if not paths:
        raise ValueError("give the rows too: folders of rows, or .jsonl files.")
    every = having(rows_of(paths), where)
    if methods is not None:
        mine = chosen(every, methods)
        return view.make(in_order(mine, methods_of(mine)))
    return first_that_fits(view.make, in_order(every, view.methods), view.methods)


def first_that_fits(
    make: Callable[[Sequence[Row]], Shown], rows: Sequence[Row], methods: Sequence[str]
) -> Shown:
    """What all rows make, or else those that a table or plot of this kind can be made of."""
    refusal = None
    for part in parts_of(rows, methods):
        try:
            found = make(part.rows)
        except MixedRowsError as error:
            refusal = refusal or error  # that of all rows says most
        else:
            return replace(found, note=found.note + part.note)
    assert refusal is not None
    raise refusal


def rows_of(paths: Sequence[Path]) -> list[Row]:
    """All rows of folders and files; raises if there are none."""
    rows = [row for path in paths for row in load_rows(path)]
    if not rows:
        raise ValueError(f"there are no rows in {', '.join(map(str, paths))}.")
    return rows


_FACTS: dict[str, Callable[[Cell], object]] = {
    "study": lambda cell: cell.study,
    "model": lambda cell: cell.network.label,
    "data": lambda cell: cell.stream.data.label,
    "shift": lambda cell: cell.stream.shift,
    "severity": lambda cell: cell.stream.severity,
    "split": lambda cell: cell.stream.split,
    "count": lambda cell: cell.stream.count,
    "order": lambda cell: cell.stream.order,
    "seed": lambda cell: cell.stream.seed,
    "steps": lambda cell: cell.method.steps,
    "batch_size": lambda cell: cell.protocol.batch_size,
    "reset": lambda cell: cell.protocol.reset,
    "predict": lambda cell: cell.protocol.predict,
    "guard": lambda cell: cell.protocol.guard,
}


def having(rows: list[Row], where: Sequence[str]) -> list[Row]:
    """The rows whose cell or protocol has all of these values, each written ``name=value``."""
    for word in where:
        name, equals, value = word.partition("=")
        if not equals or name not in _FACTS:
            known = ", ".join(_FACTS)
            raise ValueError(f"`--where` must be name=value with one of {known}; got {word!r}.")
        fact = _FACTS[name]
        held = {str(fact(row.cell)) for row in rows}
        if value not in held:
            raise ValueError(
                f"no row has {word}; {name} is {', '.join(sorted(held)) or 'nothing'}."
            )
        rows = [row for row in rows if str(fact(row.cell)) == value]
    return rows


def chosen(rows: list[Row], methods: Sequence[str] | None) -> list[Row]:
    """The rows of these methods, in their order; or of all, as they come."""
    if methods is None:
        return rows
    order = {MethodId.read(word).word: index for index, word in enumerate(methods)}
    held = methods_of(rows)
    for word in order:
        if word not in held:
            raise ValueError(
                f"`--methods`: no row is of {word!r}.{nearest(word, held)} "
                f"The rows hold: {', '.join(held)}."
            )
    mine = [row for row in rows if row.method in order]
    return sorted(mine, key=lambda row: order[row.method])
