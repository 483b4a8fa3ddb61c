"""The rows that `driftnorm table` and `driftnorm plot` show: their flags, and what they choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

from cyclopts import Parameter

from driftnorm._internal.names import nearest
from driftnorm.bench.cell import Cell, MethodId
from driftnorm.bench.rows import Row, load_rows
from driftnorm.cli._flags import MANY, RARE
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import in_order, methods_of, parts_of
from driftnorm.views.figure import Figure
from driftnorm.views.figures import Plot
from driftnorm.views.robustness import View
from driftnorm.views.stream_tables import with_window
from driftnorm.views.table import Column, Table
from driftnorm.views.trainings import RunView

Shown = TypeVar("Shown", Table, Figure)

RowPaths: TypeAlias = Annotated[
    tuple[Path, ...], Parameter(consume_multiple=True, negative="", show_default=False)
]
ChosenMethods: TypeAlias = Annotated[
    list[str] | None,
    MANY,
    Parameter(help="Only these, in this order; default: all in the rows."),
]
Where: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        show_default=False,
        help="Only rows with this value, such as batch_size=32 or severity=5; can be repeated.",
    ),
]
Window: TypeAlias = Annotated[
    int | None,
    Parameter(
        group=RARE,
        help="For streams that change: images per window; default: as they were measured.",
    ),
]


def listing(title: str, views: Mapping[str, View | RunView | Plot]) -> Table:
    """What there is to make, by name."""
    rows = tuple((name, view.help) for name, view in views.items())
    return Table(title, (Column("name"), Column("what it shows", align="left")), rows)


def made_of(
    rows: list[Row],
    make: Callable[[Sequence[Row]], Shown],
    usual: Sequence[str],
    methods: Sequence[str] | None,
) -> Shown:
    """The table or plot of these methods; by default of all rows, or else of those that make one.

    Args:
        rows: As they came.
        make: A view.
        usual: The view's own methods.
        methods: Those of `--methods`.
    """
    if methods is not None:
        mine = _of_methods(rows, methods)
        return make(in_order(mine, methods_of(mine)))
    return _first_that_fits(make, in_order(rows, usual), usual)


def _first_that_fits(
    make: Callable[[Sequence[Row]], Shown], rows: Sequence[Row], methods: Sequence[str]
) -> Shown:
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


def rows_of(paths: Sequence[Path], where: Sequence[str], window: int | None = None) -> list[Row]:
    """The rows of folders and files that have these values; raises if there are none."""
    if not paths:
        raise ValueError("`rows` must name at least one folder of rows or .jsonl file, got none.")
    rows = [row for path in paths for row in load_rows(path)]
    if not rows:
        raise ValueError(f"there are no rows in {', '.join(map(str, paths))}.")
    found = having(rows, where)
    return found if window is None else with_window(found, window)


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


def _of_methods(rows: list[Row], methods: Sequence[str]) -> list[Row]:
    """The rows of these methods, in their order."""
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
