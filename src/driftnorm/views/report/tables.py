"""A group's numbers as tables, and tables as HTML whose headings sort them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from driftnorm.bench.cell import CLEAN
from driftnorm.bench.rows import Row
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import change_text, in_order, one_batch_note, stream_of
from driftnorm.views.palette import slot_classes
from driftnorm.views.render.markup import Markup, breakable, prose, tag
from driftnorm.views.report.groups import Group, mean_of, shared_rows
from driftnorm.views.report.measure import ERROR, Measure
from driftnorm.views.robustness import VIEWS
from driftnorm.views.table import Column, Table

__all__ = ["paper_tables", "shift_table", "summary_table", "table_html"]

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
_LAST = "mean"  # a row of this name summarises the others, and stays last


def summary_table(group: Group, measure: Measure = ERROR) -> Table:
    """One line per method: error or accuracy, its change, likelihood, calibration, alarms."""
    clean = shared_rows([row for row in group.rows if row.shift == CLEAN])
    # Benchmarks run without the guard: no alarm means nothing there.
    guarded = any(row.metrics.get("alarms", 0) for row in group.rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method in group.methods:
        own = group.of(method)
        change = None if method == group.reference else group.change(method)
        before = measure.mean(group.of(method, clean))
        alarms = sum(row.metrics.get("alarms", 0) > 0 for row in group.of(method, group.rows))
        lines.append(
            (
                method,
                before if group.shifts else None,
                measure.mean(own),
                None if change is None else change_text(measure.change(change)),
                *(mean_of(own, metric) for metric in ("nll", "ece", "entropy")),
                float(alarms) if guarded else None,
                _speed(own),
            )
        )
    columns = (
        Column("method"),
        Column(f"clean {measure.name}, %", best=measure.best),
        Column(f"{measure.name}, %", best=measure.best, decimals=2),
        Column(f"{measure.name} minus {group.reference}'s, 95 %"),
        Column("NLL", best="lowest", decimals=3),
        Column("ECE", best="lowest", decimals=3),
        Column("entropy, nats", decimals=3),
        Column("streams with alarm", decimals=0),
        Column("images per second", decimals=0),
    )
    return Table("Methods", columns, tuple(lines), _note(group)).without_empty()


def shift_table(group: Group, measure: Measure = ERROR) -> Table:
    """One line per method, one column per shift, the clean images first."""
    by_shift = {
        shift: shared_rows(group.of_shift(shift))
        for shift in (CLEAN, *group.shifts)
        if group.of_shift(shift)
    }
    lines: list[tuple[str | float | None, ...]] = []
    for method in group.methods:
        means = (measure.mean(group.of(method, rows)) for rows in by_shift.values())
        lines.append((method, *means, measure.mean(group.of(method))))
    columns = [Column(name, best=measure.best) for name in (*by_shift, "mean")]
    note = (
        f"{measure.title} in %, over severities and seeds. Mean: over the shifted streams that "
        "every method ran on."
    )
    title = f"{measure.title} by {group.kind}"
    return Table(title, (Column("method"), *columns), tuple(lines), note)


def paper_tables(group: Group) -> list[Table]:
    """The tables of the paper for which a benchmark group has all that is needed."""
    if group.rows[0].cell.study != "robustness" or not all(r.severity for r in group.rows):
        return []
    names = ["detailed", "intro", "ablation", "half-target"]
    if "imagenet" in group.rows[0].cell.stream.data.name:
        names.append("imagenet")
    rows = in_order(group.rows, group.methods)
    tables = []
    for name in names:
        try:
            tables.append(VIEWS[name].make(rows))
        except MixedRowsError:  # an unfinished grid, or not the methods of this table
            continue
    return [t for t in tables if any("paper" in column.title for column in t.columns)]


def table_html(table: Table, slots: Mapping[str, int] | None = None) -> Markup:
    """A table with a button in every heading; lines that have a slot get its colour."""
    heads = [
        tag(
            "th",
            tag("button", breakable(column.title), type="button"),
            scope="col",
            class_="text" if index == 0 or column.align == "left" else None,
        )
        for index, column in enumerate(table.columns)
    ]
    lines = [_line(table, row, slots or {}) for row in range(len(table.rows))]
    last = [line for line, row in zip(lines, table.rows, strict=True) if row[0] == _LAST]
    content = tag(
        "table",
        tag("caption", table.title),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(line for line in lines if line not in last)),
        tag("tfoot", *last) if last else None,
    )
    note = tag("p", prose(table.note), class_="note") if table.note else None
    region = tag("div", content, class_="scroll", role="region", tabindex=0, aria_label=table.title)
    return tag("div", region, note, class_="table")


def _line(table: Table, row: int, slots: Mapping[str, int]) -> Markup:
    cells = []
    for index, column in enumerate(table.columns):
        text = table.text(row, index)
        value = table.rows[row][index]
        if index == 0:
            # In other columns the same word may mean something else ("source" statistics).
            slot = slots.get(text) if column.title == "method" else None
            swatch = (
                None
                if slot is None
                else tag("span", class_=f"swatch {slot_classes(slot)}", aria_hidden="true")
            )
            cells.append(tag("th", swatch, breakable(text), scope="row", data_value=text))
            continue
        cells.append(
            tag(
                "td",
                tag("strong", text) if table.is_best(row, index) else text,
                data_value=_sort_key(value),
                class_="text" if column.align == "left" else None,
            )
        )
    return tag("tr", *cells)


def _sort_key(value: str | float | None) -> str:
    """Sort key of a cell: text that starts with a number, such as an interval, sorts by it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(float(value))
    number = _NUMBER.match(value)
    return number[0] if number else value.removeprefix("-")


def _note(group: Group) -> str:
    streams = {stream_of(row) for row in group.measured}
    every = {stream_of(row) for row in group.rows if row.shift != CLEAN} or streams
    if not streams:
        return "No stream has rows of every method, so there is no mean to compare."
    kind = "shifted streams" if group.shifts else "streams"
    which = (
        f"all {len(streams)} {kind}"
        if streams == every
        else f"the {len(streams)} of {len(every)} {kind} that every method ran on"
    )
    return (
        f"Means are over {which}. "
        f"Intervals: paired bootstrap over images, not corrected for choosing the best method. "
        f"Images per second depend on the load of the machine, so do not compare methods by them."
        f"{one_batch_note(group.measured)}"
    )


def _speed(rows: Sequence[Row]) -> float | None:
    seconds = sum(row.metrics.get("seconds", 0.0) for row in rows)
    return sum(row.metrics.get("count", 0) for row in rows) / seconds if seconds else None
