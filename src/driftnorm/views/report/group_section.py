"""A group of rows as a section of the page: protocol, tables, charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from driftnorm._internal.counts import agreeing, counted
from driftnorm._internal.partition import partition
from driftnorm.bench.cell import CLEAN
from driftnorm.bench.metrics import pooled_bins
from driftnorm.bench.rows import Row
from driftnorm.bench.samples import Exhibits
from driftnorm.streams import Recurring
from driftnorm.views.compare import notes_of
from driftnorm.views.figure import Figure, HeatMap, Series
from driftnorm.views.render.svg import charts, heat_chart
from driftnorm.views.report.examples import group_examples
from driftnorm.views.report.groups import Group, shared_rows
from driftnorm.views.report.measure import Measure
from driftnorm.views.report.section import Block, Section, mean_along, reliability_block
from driftnorm.views.report.tables import paper_tables, shift_table, summary_table
from driftnorm.views.report.verdicts import group_verdict
from driftnorm.views.stream_figures import stream_spans, window_series
from driftnorm.views.stream_tables import domain_titles, window_of_rows

_NAMED = 6  # streams of an unfinished method that are named one by one
_PARTS = 20  # of streams of different lengths


def group_section(
    group: Group,
    slots: Mapping[str, int],
    measure: Measure,
    alone: bool = False,
    exhibits: Mapping[str, Exhibits] | None = None,
) -> Section:
    """Everything about one comparison; if alone, the page's header has title and verdict."""
    own = {method: slots[method] for method in group.methods}
    tables = [summary_table(group, measure)]
    if len(group.shifts) > 1:
        tables.append(shift_table(group, measure))
    if measure.name == "error":
        tables += paper_tables(group)
    remark, examples = group_examples(group, exhibits or {})
    return Section(
        heading="Measurements" if alone else group.title,
        verdict="" if alone else group_verdict(group, measure),
        alert="This grid is not finished.",
        warnings=_unfinished(group),
        legend=own,
        blocks=(
            _over_time(group, own, measure),
            _domains(group, own, measure) if group.changes else _bars(group, own, measure),
            _visits(group, own, measure),
            _severities(group, own, measure),
            None if group.changes else _stream(group, own, measure),
            _drift(group),
            _reliability(group, own),
        ),
        tables=tables,
        remark=remark,
        examples=examples,
        details_heading="How it was measured",
        details=_protocol(group),
    )


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


def _protocol(group: Group) -> dict[str, list[str]]:
    cell = group.rows[0].cell
    again = (
        f"; {counted(group.replaced, 'other')} of the same streams "
        f"{agreeing(group.replaced, 'is', 'are')} left out" * bool(group.replaced)
    )
    places = sorted(
        {", ".join(f"{k} {v}" for k, v in row.environment.items()) for row in group.rows}
    )
    return {
        "Protocol": group.protocol_lines(),
        "Study": [cell.study],
        "Network": group.models,
        "Gradient steps": [group.optimising] if group.optimising else [],
        "Measured": [f"{counted(len(group.rows), 'row')}{again}"],
        "Note": notes_of(group.rows),
        "Environment": [place for place in places if place],
    }


def _unfinished(group: Group) -> list[str]:
    """What is missing, named; nothing for a finished grid."""
    lines = []
    for method, streams in group.missing().items():
        more = f" and {len(streams) - _NAMED} more" if len(streams) > _NAMED else ""
        listed = ", ".join(streams[:_NAMED])
        lines.append(f"{method} lacks {counted(len(streams), 'stream')}: {listed}{more}.")
    for cell, error in group.failures:
        lines.append(f"{cell.method.word} failed on {cell.stream.label}: {error}")
    return lines


def _bars(group: Group, slots: Mapping[str, int], measure: Measure) -> Block:
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
    return Block(figure.title, note, charts(figure, slots))


def _over_time(group: Group, slots: Mapping[str, int], measure: Measure) -> Block | None:
    """What came when on a stream that changes, and how each method did."""
    rows = [row for method in slots for row in group.of(method)]
    if not group.changes or not rows:
        return None
    first, count = rows[0].metrics, rows[0].cell.stream.count
    series = (
        replace(each, y=tuple(measure.of(1 - y / 100) for y in each.y))
        for each in window_series(rows)
    )
    figure = Figure(
        f"{measure.title} over time",
        "images so far",
        f"{measure.name}, %",
        tuple(series),
        spans=stream_spans(first["segments"], first["domains"], count),
    )
    note = (
        f"{measure.title} in windows of {counted(window_of_rows(rows), 'image')} as the stream "
        "goes on; the method is never reset."
    )
    return Block("Over time", note, charts(figure, slots))


def _domains(group: Group, slots: Mapping[str, int], measure: Measure) -> Block | None:
    """One stream's domains, each over all of its visits; many severities of one are averaged."""
    found: Sequence[tuple[str, int]] = next((r.metrics["domains"] for r in group.measured), [])
    titles = domain_titles(found)
    places = partition(range(len(found)), lambda place: titles[place])
    series = []
    for method in slots:
        errors = _mean_of_lists(group.of(method), "error_per_domain")
        if errors:
            means = [float(np.mean([errors[i] for i in own])) for own in places.values()]
            series.append(Series(method, tuple(range(len(means))), tuple(map(measure.of, means))))
    figure = Figure(
        *(f"{measure.title} by domain", "", f"% {measure.name}", tuple(series)),
        ticks=tuple(enumerate(places)),
        bars=True,
        reference=group.reference,
    )
    note = f"{measure.title} in %, all panels on one scale. Dashed line: {group.reference}."
    if len(places) < len(found):
        note += " Mean over severities."
    return Block(figure.title, note, charts(figure, slots))


def _visits(group: Group, slots: Mapping[str, int], measure: Measure) -> Block | None:
    """How a stream that comes back again and again goes, round by round."""
    if not group.changes or not group.rows[0].cell.stream.order.startswith(Recurring.name):
        return None
    per = {method: _mean_of_lists(group.of(method), "error_per_visit") for method in slots}
    series = tuple(
        Series(method, tuple(range(1, len(own) + 1)), tuple(map(measure.of, own)))
        for method, own in per.items()
    )
    title = f"{measure.title} by visit"
    figure = Figure(title, "visit", f"{measure.name}, %", series)
    note = f"Mean {measure.name} in % over all domains: the same images each time."
    return Block(title, note, charts(figure, slots))


def _mean_of_lists(rows: Sequence[Row], metric: str) -> list[float]:
    """Place by place, over the rows; NaN where none has a number."""
    found = [[math.nan if v is None else v for v in row.metrics[metric]] for row in rows]
    return [
        float(np.nanmean(column)) if np.isfinite(column).any() else math.nan
        for column in zip(*found, strict=True)
    ]


def _severities(group: Group, slots: Mapping[str, int], measure: Measure) -> Block | None:
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
    return Block(title, note, charts(figure, slots))


def _stream(group: Group, slots: Mapping[str, int], measure: Measure) -> Block:
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
    return Block("Along the stream", note, charts(figure, slots))


def _reliability(group: Group, slots: Mapping[str, int]) -> Block:
    bins = {
        method: pooled_bins([row.metrics.get("reliability", []) for row in group.of(method)])
        for method in slots
    }
    return reliability_block(bins, slots)


def _drift(group: Group) -> Block | None:
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
    return Block("Drift of the statistics", note, [chart])


def mean_drift(rows: Sequence[Row]) -> dict[str, float]:
    """The drift of each layer, mean over the rows that have it."""
    found = [dict(row.metrics["drift"]) for row in rows if "drift" in row.metrics]
    layers = dict.fromkeys(layer for each in found for layer in each)
    return {layer: float(np.mean([e[layer] for e in found if layer in e])) for layer in layers}
