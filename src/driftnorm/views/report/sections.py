"""A group of rows as a section of the page: protocol, tables, charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from driftnorm.bench.cell import CLEAN
from driftnorm.bench.metrics import pooled_bins
from driftnorm.bench.rows import Row
from driftnorm.bench.samples import Exhibits
from driftnorm.views.report.charts import (
    Bar,
    Series,
    bar_chart,
    legend,
    line_chart,
    nice_ticks,
    reliability_chart,
)
from driftnorm.views.report.examples import example_figures, group_examples
from driftnorm.views.report.groups import Group, mean_of, shared_rows
from driftnorm.views.report.heat import heat_grid
from driftnorm.views.report.markup import Markup, prose, tag
from driftnorm.views.report.tabulate import paper_tables, shift_table, summary_table, table_html
from driftnorm.views.report.verdicts import group_verdict

__all__ = ["chart_grid", "group_section", "mean_along", "mean_by_share"]

_MOST_POINTS = 60  # a line with more is averaged in blocks, or it is a carpet
_NAMED = 6  # streams of an unfinished method that are named one by one
_PARTS = 20  # of streams of different lengths


def group_section(
    group: Group,
    slots: Mapping[str, int],
    anchor: str,
    alone: bool = False,
    exhibits: Mapping[str, Exhibits] | None = None,
) -> Markup:
    """Everything about one comparison; alone on a page, the page's head has title and verdict."""
    own = {method: slots[method] for method in group.methods}
    tables = [summary_table(group)]
    if len(group.shifts) > 1:
        tables.append(shift_table(group))
    return tag(
        "section",
        tag("h2", "Measurements" if alone else group.title),
        None if alone else tag("p", group_verdict(group), class_="verdict"),
        _protocol(group),
        _unfinished(group),
        *(table_html(table, own) for table in [*tables, *paper_tables(group)]),
        tag("h3", "Charts"),
        legend(own),
        _bars(group, own),
        _severities(group, own),
        _stream(group, own),
        _reliability(group, own),
        _drift(group),
        _examples(group, exhibits or {}),
        id=anchor,
    )


def chart_grid(heading: str, note: str, charts: Sequence[Markup], kind: str = "") -> Markup | None:
    """Charts side by side under a heading; nothing if there are none."""
    shown = [chart for chart in charts if chart]
    if not shown:
        return None
    return _figures(heading, note, tag("div", *shown, class_=f"charts {kind}".strip()))


def _figures(heading: str, note: str, grid: Markup | None) -> Markup:
    words = tag("p", prose(note), class_="note")
    return tag("div", tag("h4", heading), words, grid, class_="figures")


def mean_along(streams: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The mean over streams at each batch, in blocks of batches where there are many.

    >>> mean_along([[0.0, 1.0], [1.0, 1.0, 0.5]])
    [(1.0, 0.5), (2.0, 1.0), (3.0, 0.5)]
    """
    longest = max(map(len, streams), default=0)
    block = -(-longest // _MOST_POINTS) or 1
    points = []
    for begin in range(0, longest, block):
        values = [value for stream in streams for value in stream[begin : begin + block]]
        end = min(begin + block, longest)
        points.append(((begin + 1 + end) / 2, float(np.mean(values))))
    return points


def mean_by_share(streams: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The mean over streams of different lengths at each of up to 20 parts, in % of the stream.

    >>> mean_by_share([[0.0] * 20, [1.0] * 40])[:2]
    [(2.5, 0.5), (7.5, 0.5)]
    """
    known = [np.asarray(stream) for stream in streams if len(stream)]
    parts = min([_PARTS, *map(len, known)])
    means = [[part.mean() for part in np.array_split(stream, parts)] for stream in known]
    return [
        (100 * (index + 0.5) / parts, float(np.mean(column)))
        for index, column in enumerate(zip(*means, strict=True))
    ]


def _full_batches(row: Row) -> list[float]:
    """The online error, without a last batch that is less than half a batch."""
    errors: list[float] = row.metrics.get("online_error", [])
    size = row.cell.protocol.batch_size
    rest = row.metrics.get("count", 0) % size
    return errors[:-1] if len(errors) > 1 and 0 < rest < size / 2 else errors


def _protocol(group: Group) -> Markup:
    cell = group.rows[0].cell
    options = sorted({f"{k} {v}" for row in group.rows for k, v in row.cell.method.settings})
    notes = sorted({str(row.metrics["note"]) for row in group.rows if "note" in row.metrics})
    again = f"; {group.replaced:,} others of the same streams are left out" * bool(group.replaced)
    places = sorted(
        {", ".join(f"{k} {v}" for k, v in row.environment.items()) for row in group.rows}
    )
    lines = {
        "Protocol": group.protocol_lines(),
        "Study": [cell.study],
        "Network": group.models,
        "Gradient steps": [", ".join(options)] if options else [],
        "Measured": [f"{len(group.rows):,} rows{again}"],
        "Note": notes,
        "Environment": [place for place in places if place],
    }
    return tag(
        "dl",
        *(
            [tag("dt", name), tag("dd", *(tag("div", value) for value in values))]
            for name, values in lines.items()
            if values
        ),
    )


def _unfinished(group: Group) -> Markup | None:
    """What is missing, named; nothing for a finished grid."""
    lines = []
    for method, streams in group.missing().items():
        more = f" and {len(streams) - _NAMED} more" if len(streams) > _NAMED else ""
        listed = ", ".join(streams[:_NAMED])
        lines.append(f"{method} lacks {len(streams)} streams: {listed}{more}.")
    for cell, error in group.failures:
        lines.append(f"{cell.method.word} failed on {cell.stream.label}: {error}")
    if not lines:
        return None
    items = tag("ul", *(tag("li", line) for line in lines))
    return tag("div", tag("p", tag("strong", "This grid is not finished.")), items, class_="alert")


def _percent(rows: Sequence[Row]) -> float | None:
    mean = mean_of(rows, "error")
    return None if mean is None else 100 * mean


def _bars(group: Group, slots: Mapping[str, int]) -> Markup | None:
    panels: dict[str, list[Bar]] = {}
    for shift in ([CLEAN] if group.of_shift(CLEAN) else []) + group.shifts:
        rows = shared_rows(group.of_shift(shift))
        panels[shift] = []
        for method, slot in slots.items():
            own = group.of(method, rows)
            value = _percent(own)
            streams = "1 stream" if len(own) == 1 else f"{len(own)} streams"
            tip = f"{method} on {shift}: {value or 0:.2f} % error, {streams}"
            panels[shift].append(Bar(method, slot, value, tip))
    values = [bar.value for bars in panels.values() for bar in bars if bar.value is not None]
    top = nice_ticks(0, max(values, default=1) or 1)[-1]
    charts = [
        bar_chart(
            shift, bars, top, next((b.value for b in bars if b.name == group.reference), None)
        )
        for shift, bars in panels.items()
    ]
    note = f"Error in %, all panels on one scale. Dashed line: {group.reference}."
    return chart_grid(f"Error by {group.kind}", note, charts)


def _severities(group: Group, slots: Mapping[str, int]) -> Markup | None:
    levels = sorted({row.severity for row in group.rows})
    if len(levels) < 2:
        return None
    names = {float(level): "clean" if level == 0 else str(level) for level in levels}
    clean = group.of_shift(CLEAN)
    charts = []
    for title, rows in [
        ("mean over shifts", shared_rows(group.rows)),
        *((s, shared_rows(clean + group.of_shift(s))) for s in group.shifts),
    ]:
        series = []
        for method, slot in slots.items():
            own = group.of(method, rows)
            means = {level: _percent([r for r in own if r.severity == level]) for level in levels}
            points = [(float(level), mean) for level, mean in means.items() if mean is not None]
            series.append(Series(method, slot, points))
        charts.append(line_chart(title, series, ("severity", "error, %"), names))
    return chart_grid("Error by severity", "Mean error in % at each severity.", charts)


def _stream(group: Group, slots: Mapping[str, int]) -> Markup | None:
    series = []
    lengths = {len(_full_batches(row)) for row in group.measured}
    alike = len(lengths) == 1
    for method, slot in slots.items():
        online = [_full_batches(row) for row in group.of(method)]
        means = mean_along(online) if alike else mean_by_share(online)
        series.append(Series(method, slot, [(x, 100 * y) for x, y in means]))
    axis = "batch" if alike else "% of the stream"
    chart = line_chart("online error", series, (axis, "error, %"))
    note = (
        "Error of each batch as it came, mean over streams; without a last batch of a few images."
    )
    return chart_grid("Along the stream", note, [chart], "wide")


def _reliability(group: Group, slots: Mapping[str, int]) -> Markup | None:
    charts = []
    for method, slot in slots.items():
        bins = pooled_bins([row.metrics.get("reliability", []) for row in group.of(method)])
        if bins:
            charts.append(reliability_chart(method, slot, bins))
    note = "On the dashed line, confidence is what it says; below it, the network is too sure."
    return chart_grid("Reliability", note, charts, "small")


def _drift(group: Group) -> Markup | None:
    """How far each layer's tracked statistics are from the source's at the end of the streams."""
    having = [method for method in group.methods if mean_drift(group.of(method, group.rows))]
    if not having:
        return None
    method = having[0]
    shifts = ([CLEAN] if group.of_shift(CLEAN) else []) + group.shifts
    columns = {s: mean_drift(group.of(method, group.of_shift(s))) for s in shifts}
    layers = dict.fromkeys(layer for found in columns.values() for layer in found)
    rows = [(layer, [found.get(layer, math.nan) for found in columns.values()]) for layer in layers]
    note = (
        f"Distance of the statistics that {method} tracked, at the end of each stream, from the "
        "source's, in the source's deviations: mean over the channels of each layer, and over "
        "severities and seeds. Layers in the network's order."
    )
    chart = heat_grid(f"mean drift, each {group.kind}", [*columns], rows)
    return chart_grid("Drift of the statistics", note, [chart], "wide")


def _examples(group: Group, exhibits: Mapping[str, Exhibits]) -> Markup | None:
    heading, (remark, examples) = "Where predictions differ", group_examples(group, exhibits)
    if remark and not examples:
        return _figures(heading, remark, None)
    return chart_grid(heading, remark, example_figures(examples), "examples")


def mean_drift(rows: Sequence[Row]) -> dict[str, float]:
    """The drift of each layer, mean over the rows that have it."""
    found = [dict(row.metrics["drift"]) for row in rows if "drift" in row.metrics]
    layers = dict.fromkeys(layer for each in found for layer in each)
    return {layer: float(np.mean([e[layer] for e in found if layer in e])) for layer in layers}
