"""What comes when in a stream, and accuracy over time on it; no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row
from driftnorm.bench.windows import WINDOW
from driftnorm.errors import MixedRowsError
from driftnorm.streams import Domain, Positions
from driftnorm.streams.timeline import mean_run, order_index, window_of, window_starts
from driftnorm.views.compare import by_method
from driftnorm.views.figure import Figure, Series, Span
from driftnorm.views.palette import MOST
from driftnorm.views.stream_tables import (
    answered,
    check_streams_of,
    domain_label,
    stream_name,
    window_of_rows,
)

_MOST_NAMED = 3  # domains that a span names
_MOST_PARTS = 12  # of which each has its severity in its name
_POINTS = 100  # about as many, in a picture of what comes when
_MOST_CLASSES = MOST - 1  # that have a colour each, beside the strength


def stream_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy of each method in windows of one stream, mean over the seeds."""
    check_streams_of(rows)
    for what, found, flag in (
        ("streams", {stream_name(row) for row in rows}, "order="),
        ("networks", {row.network for row in rows}, "model="),
        ("batch sizes", {str(row.cell.protocol.batch_size) for row in rows}, "batch_size="),
        ("lengths", {str(row.cell.stream.count) for row in rows}, "count="),
    ):
        if len(found) > 1:
            raise MixedRowsError(
                f"one plot is of one stream, and these rows are of several {what}: "
                f"{', '.join(sorted(found))}. Choose one with `--where {flag}...`."
            )
    count, window = rows[0].cell.stream.count, window_of_rows(rows)
    series = tuple(
        replace(each, remark=f"{100 * float(np.mean([answered(row) for row in own])):.1f}")
        for each, own in zip(window_series(rows), by_method(rows).values(), strict=True)
    )
    note = (
        f"Accuracy in windows of {counted(window, 'image')}; in brackets over the stream. "
        f"{protocol_text(row.cell for row in rows)}."
    )
    return Figure(
        f"{stream_name(rows[0])}: accuracy over time",
        "images so far",
        "accuracy (%)",
        series,
        note,
        spans=stream_spans(rows[0].metrics["segments"], rows[0].metrics["domains"], count),
    )


def window_series(rows: Sequence[Row]) -> list[Series]:
    """Accuracy in % of each method in the windows of one stream, mean over the seeds."""
    count = rows[0].cell.stream.count
    starts = window_starts(count, window_of_rows(rows))
    place = window_of(np.arange(count), starts)
    sizes = np.bincount(place)
    middles = tuple((starts + sizes / 2).tolist())
    found = []
    for method, own in by_method(rows).items():
        right = np.mean([np.bincount(place, answered(row)) for row in own], axis=0)
        found.append(Series(method, middles, tuple((100 * right / sizes).tolist())))
    return found


def timeline_figure(
    positions: Positions, window: int | None = None, classes: Sequence[str] = ()
) -> Figure:
    """What comes when: domains as parts of the axis, the share of each class, the strength.

    Args:
        positions: Of a stream, from `Stream.positions`.
        window: Positions per point; by default 1,000, or as few as it takes for 20 points.
        classes: Their names; numbers by default.
    """
    if window is None:
        window = min(WINDOW, max(1, len(positions) // _POINTS))
    found = positions.timeline(window, by_segment=True)
    ends = [*found.start[1:].tolist(), len(positions)]
    sizes = {end - start for start, end in zip(found.start.tolist(), ends, strict=True)}
    up_to = "up to " if len(sizes) > 1 else ""
    middles = tuple(((found.start + ends) / 2).tolist())
    strongest = max(domain.severity for domain in positions.domains)
    many = found.classes.shape[1] > _MOST_CLASSES
    shares = [
        Series(
            str(classes[label]) if label < len(classes) else f"class {label}",
            middles,
            tuple((100 * share).tolist()),
            quiet=many,
            band=True,
        )
        for label, share in enumerate(found.classes.T)
    ]
    if strongest:
        strength = tuple((100 * found.strength / strongest).tolist())
        shares.append(Series("strength", middles, strength, f"% of severity {strongest}"))
    note = (
        f"{positions.stream}: {counted(len(positions), 'image')} in windows of "
        f"{up_to}{max(sizes):,}. Domains: {_domains_text(positions.domains)}. "
        f"Order index {order_index(positions.label):.2f}, "
        f"mean run of a class {mean_run(positions.label):.1f} images."
    )
    return Figure(
        "What comes when",
        "images so far",
        "share of the images (%)",
        tuple(shares),
        note,
        spans=_by_name(positions),
        others="classes",
    )


def _domains_text(domains: Sequence[Domain]) -> str:
    """Every domain with its severities: ``clean, fog 5``, ``fog 1 to 5``."""
    levels: dict[str, list[int]] = {}
    for domain in domains:
        levels.setdefault(domain.name, []).append(domain.severity)
    return ", ".join(
        domain_label(name, own[0]) if len(own) == 1 else f"{name} {min(own)} to {max(own)}"
        for name, own in levels.items()
    )


def _by_name(positions: Positions) -> tuple[Span, ...]:
    """The parts of the stream; where they are many, those that differ in severity are one."""
    spans = stream_spans(positions.segments(), positions.domains, len(positions))
    if len(spans) <= _MOST_PARTS:
        return spans
    names = [tuple(positions.domains[i].name for i in held) for _, held in positions.segments()]
    joined: list[Span] = []
    for place, (span, name) in enumerate(zip(spans, names, strict=True)):
        if place and name == names[place - 1] and len(name) == 1:
            joined[-1] = Span(joined[-1].begin, span.end, name[0])
        else:
            joined.append(span)
    return tuple(joined)


def stream_spans(
    segments: Sequence[tuple[int, Sequence[int]]],
    domains: Sequence[tuple[str, int]],
    count: int,
) -> tuple[Span, ...]:
    """The parts of the stream, named by their domains."""
    ends = [start for start, _ in segments[1:]] + [count]
    spans = []
    for (start, held), end in zip(segments, ends, strict=True):
        names = [domain_label(*domains[index]) for index in held]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        spans.append(Span(start, end, ", ".join(names[:_MOST_NAMED]) + more))
    return tuple(spans)
