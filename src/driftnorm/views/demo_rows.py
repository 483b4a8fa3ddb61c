"""The demo's rows as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.cell import CLEAN
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row
from driftnorm.views.compare import by_method, error_of, methods_of, paired_change, stream_of
from driftnorm.views.figure import Figure, Series
from driftnorm.views.table import Column, Table

_HIGHLIGHT = ("source", "bn", "tent", "gprebn", "gprebn+rt3a")
_TITLE = "Handwritten digits, shifted at test time: accuracy in %"


def _shifts(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.shift for row in rows))


def demo_table(rows: Sequence[Row]) -> Table:
    """Accuracy of each method on clean and shifted streams, and its gain over the source."""
    sources = {stream_of(row): row for row in rows if row.method == "source"}
    shifts = _shifts(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method, own in by_method(rows).items():
        means = [100 - error_of(row for row in own if row.shift == shift) for shift in shifts]
        shifted = [row for row in own if row.shift != CLEAN]
        gain = paired_change([(row, sources[stream_of(row)]) for row in shifted])
        shown = f"{gain.value:+.1f} ±{(gain.high - gain.low) / 2:.1f}"
        mean = float(np.mean([m for m, shift in zip(means, shifts, strict=True) if shift != CLEAN]))
        lines.append((method, *means, mean, "-" if method == "source" else shown))
    columns = (
        Column("method"),
        *(Column(shift, best="highest") for shift in shifts),
        Column("mean", best="highest"),
        Column("gain"),
    )
    return Table(
        _TITLE,
        columns,
        tuple(lines),
        _note(rows),
    )


def _note(rows: Sequence[Row]) -> str:
    seeds, streams = (
        len({row.seed for row in rows}),
        len({row.cell.stream.label for row in rows}),
    )
    protocol = protocol_text(row.cell for row in rows)
    alarms = {
        method: sum(row.metrics["alarms"] > 0 for row in own)
        for method, own in by_method(rows).items()
    }
    alarmed = ", ".join(f"{method} on {count}" for method, count in alarms.items() if count)
    return (
        f"Protocol: {protocol}; every method at its defaults, nothing tuned; "
        f"{counted(streams, 'stream')} (clean, and each shift at each severity), "
        f"{counted(seeds, 'seed')} (split, training, shift). Mean: over the shifted streams. Gain: "
        "over the source, paired, with a 95 % bootstrap margin over images. The guard raised an "
        f"alarm for: {alarmed or 'none'} of {counted(streams * seeds, 'stream')}."
    )


def demo_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy against severity, a panel per shift."""
    measured = partition(rows, lambda row: (row.method, row.shift, row.severity))
    shifts = [shift for shift in _shifts(rows) if shift != CLEAN]
    levels = sorted({row.severity for row in rows})
    series = []
    for shift, method in product(shifts, methods_of(rows)):
        known = [(n, measured.get((method, shift if n else CLEAN, n))) for n in levels]
        points = [(level, 100 - error_of(found)) for level, found in known if found]
        x, y = zip(*points, strict=True)
        series.append(Series(method, x, y, panel=shift, quiet=method not in _HIGHLIGHT))
    marks = tuple((level, str(level) if level else CLEAN) for level in levels)
    axes = ("severity", "accuracy (%)")
    return Figure(_TITLE, *axes, tuple(series), _note(rows), marks)
