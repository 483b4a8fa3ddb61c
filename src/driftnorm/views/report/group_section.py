"""A group of rows as a section of the page: protocol, tables, charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from driftnorm.bench.cell import CLEAN
from driftnorm.bench.metrics import pooled_bins
from driftnorm.bench.rows import Row
from driftnorm.bench.samples import Exhibits
from driftnorm.views.figure import Figure, HeatMap, Series
from driftnorm.views.render.markup import Markup, prose, tag
from driftnorm.views.render.svg import charts, heat_chart, legend
from driftnorm.views.report.examples import example_figures, group_examples
from driftnorm.views.report.groups import Group, shared_rows
from driftnorm.views.report.measure import Measure
from driftnorm.views.report.tables import paper_tables, shift_table, summary_table, table_html
from driftnorm.views.report.verdicts import group_verdict

__all__ = [
    "blocks",
    "chart_grid",
    "fold",
    "group_section",
    "mean_along",
    "mean_by_share",
    "reliability_grid",
]

_MOST_POINTS = 60  # longer curves are averaged in blocks
_NAMED = 6  # streams of an unfinished method that are named one by one
_PARTS = 20  # of streams of different lengths


def group_section(
    group: Group,
    slots: Mapping[str, int],
    anchor: str,
    measure: Measure,
    alone: bool = False,
    exhibits: Mapping[str, Exhibits] | None = None,
) -> Markup:
    """Everything about one comparison; if alone, the page's header has title and verdict."""
    own = {method: slots[method] for method in group.methods}
    tables = [summary_table(group, measure)]
    if len(group.shifts) > 1:
        tables.append(shift_table(group, measure))
    if measure.name == "error":
        tables += paper_tables(group)
    return tag(
        "section",
        tag("h2", "Measurements" if alone else group.title),
        None if alone else tag("p", group_verdict(group, measure), class_="verdict"),
        _unfinished(group),
        legend(own),
        blocks(
            _bars(group, own, measure),
            _severities(group, own, measure),
            _stream(group, own, measure),
            _drift(group),
            _reliability(group, own),
        ),
        *(table_html(table, own) for table in tables),
        _examples(group, exhibits or {}),
        fold("How it was measured", _protocol(group)),
        id=anchor,
    )


def blocks(*figures: Markup | None) -> Markup:
    """Figures with their headings, side by side where there is room."""
    return tag("div", *figures, class_="blocks")


def fold(heading: str, content: Markup) -> Markup:
    """Details that most readers do not need, behind a click."""
    return tag("details", tag("summary", heading), content)


def chart_grid(heading: str, note: str, shown: Sequence[Markup], kind: str = "") -> Markup | None:
    """Charts side by side under a heading; nothing if there are none."""
    if not shown:
        return None
    grid = tag("div", *shown, class_=f"charts {kind}".strip())
    return _figures(heading, note, grid, "one" if len(shown) == 1 else "")


def _figures(heading: str, note: str, grid: Markup | None, kind: str = "") -> Markup:
    words = tag("p", prose(note), class_="note")
    return tag("div", tag("h3", heading), words, grid, class_=f"figures {kind}".strip())


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
    """The online error, without a last batch of less than half the usual size."""
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


def _bars(group: Group, slots: Mapping[str, int], measure: Measure) -> Markup | None:
    shifts = ([CLEAN] if group.of_shift(CLEAN) else []) + group.shifts
    streams = {shift: shared_rows(group.of_shift(shift)) for shift in shifts}
    series = []
    for method in slots:
        found = (measure.mean(group.of(method, rows)) for rows in streams.values())
        values = tuple(math.nan if value is None else value for value in found)
        series.append(Series(method, tuple(range(len(values))), values))
    figure = Figure(
        *(f"{measure.title} by {group.kind}", "", f"% {measure.name}", tuple(series)),
        ticks=tuple(enumerate(shifts)),
        bars=True,
        reference=group.reference,
    )
    note = f"{measure.title} in %, all panels on one scale. Dashed line: {group.reference}."
    return chart_grid(figure.title, note, charts(figure, slots))


def _severities(group: Group, slots: Mapping[str, int], measure: Measure) -> Markup | None:
    levels = sorted({row.severity for row in group.rows})
    if len(levels) < 2:
        return None
    clean = group.of_shift(CLEAN)
    panels = {"mean over shifts": shared_rows(group.rows)}
    if len(group.shifts) > 1:
        panels |= {shift: shared_rows(clean + group.of_shift(shift)) for shift in group.shifts}
    series = []
    for title, rows in panels.items():
        for method in slots:
            own = group.of(method, rows)
            means = {n: measure.mean([r for r in own if r.severity == n]) for n in levels}
            points = [(n, mean) for n, mean in means.items() if mean is not None]
            x, y = zip(*points, strict=True) if points else ((), ())
            series.append(Series(method, x, y, panel=title))
    ticks = tuple((float(level), str(level) if level else CLEAN) for level in levels)
    title = f"{measure.title} by severity"
    figure = Figure(title, "severity", f"{measure.name}, %", tuple(series), ticks=ticks)
    note = f"Mean {measure.name} in % at each severity."
    return chart_grid(title, note, charts(figure, slots))


def _stream(group: Group, slots: Mapping[str, int], measure: Measure) -> Markup | None:
    series = []
    lengths = {len(_full_batches(row)) for row in group.measured}
    alike = len(lengths) == 1
    for method in slots:
        online = [_full_batches(row) for row in group.of(method)]
        means = mean_along(online) if alike else mean_by_share(online)
        shown = tuple(measure.of(error) for _, error in means)
        series.append(Series(method, tuple(x for x, _ in means), shown))
    axis = "batch" if alike else "% of the stream"
    figure = Figure(f"online {measure.name}", axis, f"{measure.name}, %", tuple(series))
    note = (
        f"{measure.title} of each batch as it came, mean over streams; without a last batch of a "
        "few images."
    )
    return chart_grid("Along the stream", note, charts(figure, slots))


def reliability_grid(
    bins: Mapping[str, Sequence[tuple[float, float, float]]], slots: Mapping[str, int]
) -> Markup | None:
    """A small chart per method: accuracy against confidence."""
    series = tuple(
        Series(method, tuple(trust), tuple(right), counts=tuple(count))
        for method, own in bins.items()
        if own
        for count, trust, right in (zip(*own, strict=True),)
    )
    figure = Figure("Reliability", "confidence", "accuracy", series, unit_square=True)
    note = "On the dashed line, confidence equals accuracy; below it, the network is overconfident."
    return chart_grid(figure.title, note, charts(figure, slots), "small")


def _reliability(group: Group, slots: Mapping[str, int]) -> Markup | None:
    bins = {
        method: pooled_bins([row.metrics.get("reliability", []) for row in group.of(method)])
        for method in slots
    }
    return reliability_grid(bins, slots)


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
    chart = heat_chart(HeatMap(f"mean drift, each {group.kind}", [*columns], rows))
    return chart_grid("Drift of the statistics", note, [chart])


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
