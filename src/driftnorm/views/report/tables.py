"""A group's numbers as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm.bench.cell import CLEAN
from driftnorm.bench.rows import Row
from driftnorm.bench.windows import Harm
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import change_text, in_order, one_batch_note, stream_of
from driftnorm.views.report.groups import Group, mean_of, shared_rows
from driftnorm.views.report.measure import ERROR, Measure
from driftnorm.views.robustness import VIEWS
from driftnorm.views.stream_tables import harm_against_source, window_of_rows
from driftnorm.views.table import Column, Table

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def summary_table(group: Group, measure: Measure = ERROR) -> Table:
    """One line per method: error or accuracy, its change, likelihood, calibration, alarms."""
    clean = shared_rows([row for row in group.rows if row.shift == CLEAN])
    # Most benchmarks run without the guard: no alarm means nothing there.
    guarded = any(row.metrics.get("alarms", 0) for row in group.rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method in group.methods:
        own = group.of(method)
        change = None if method == group.reference else group.change(method)
        before = measure.mean(group.of(method, clean))
        alarms = sum(row.metrics.get("alarms", 0) > 0 for row in group.of(method, group.rows))
        harms = _harms(group, method)
        lines.append(
            (
                method,
                before if group.shifts else None,
                measure.mean(own),
                None if change is None else change_text(measure.change(change)),
                100 * float(np.mean([harm.rate for harm in harms])) if harms else None,
                min(harm.worst for harm in harms) if harms else None,
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
        Column(f"windows worse than {group.reference}, %", decimals=0),
        Column(f"worst window, minus {group.reference}'s accuracy, points", decimals=1),
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


def sort_key(value: str | float | None) -> str:
    """Sort key of a cell: text that starts with a number, such as an interval, sorts by it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(float(value))
    number = _NUMBER.match(value)
    return number[0] if number else value.removeprefix("-")


def _harms(group: Group, method: str) -> list[Harm]:
    """Of a stream that changes: the method against the source, window by window."""
    if not group.changes or method == group.reference:
        return []
    window = window_of_rows(group.rows)
    return [harm_against_source(own, source, window) for source, own in group.pairs(method)]


def _note(group: Group) -> str:
    streams = {stream_of(row) for row in group.measured}
    every = {stream_of(row) for row in group.rows if row.shift != CLEAN} or streams
    if not streams:
        return "No stream has rows of every method, so there is no mean to compare."
    kind = "shifted streams" if group.shifts else "streams"
    which = (
        (f"all {len(streams)} {kind}" if len(streams) > 1 else f"the one {kind.removesuffix('s')}")
        if streams == every
        else f"the {len(streams)} of {len(every)} {kind} that every method ran on"
    )
    harm = (
        f"Windows are of {counted(window_of_rows(group.rows), 'image')}; the worst is the one in "
        f"which accuracy is furthest below {group.reference}'s, or least above it. "
    ) * group.changes
    return (
        f"Means are over {which}. {harm}"
        f"Intervals: paired bootstrap over images, not corrected for choosing the best method. "
        f"Images per second depend on the load of the machine, so do not compare methods by them."
        f"{one_batch_note(group.measured)}"
    )


def _speed(rows: Sequence[Row]) -> float | None:
    seconds = sum(row.metrics.get("seconds", 0.0) for row in rows)
    return sum(row.metrics.get("count", 0) for row in rows) / seconds if seconds else None
