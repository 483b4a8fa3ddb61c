"""Rows of the robustness study as figures, by name; pure functions, no matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from driftnorm._internal.names import nearest
from driftnorm.bench.metrics import pooled_bins
from driftnorm.bench.rows import Row
from driftnorm.errors import MixedRowsError
from driftnorm.views.batch_sizes import errors_by_batch_size
from driftnorm.views.compare import check_same, mean_error, methods_of, note_of, shifts_of
from driftnorm.views.figure import Figure, Series
from driftnorm.views.stream_figures import stream_figure

__all__ = ["PLOTS", "Plot", "find_plot"]

_ERROR = "error (%)"
_DRAWN_PART = 0.001  # of a method's samples: the accuracy of a handful says nothing


def corruption_figure(rows: Sequence[Row]) -> Figure:
    """Mean error of each method on each corruption, and over all of them."""
    check_same(rows)
    shifts = shifts_of(rows)
    places = tuple(range(len(shifts) + 1))
    series = [
        Series(
            method,
            places,
            (*(mean_error(rows, method, shift) for shift in shifts), mean_error(rows, method)),
        )
        for method in methods_of(rows)
    ]
    names = [*(shift.replace("_", " ") for shift in shifts), "mean"]
    ticks = tuple(zip(places, names, strict=True))
    title = "Error by corruption"
    return Figure(title, "", _ERROR, tuple(series), note_of(rows), ticks, bars=True)


def severity_figure(rows: Sequence[Row]) -> Figure:
    """Mean error of each method at each severity; 0 are the clean images."""
    check_same(rows)
    severities = sorted({row.severity for row in rows})
    series = []
    for method in methods_of(rows):
        mine = [row for row in rows if row.method == method]
        means = tuple(
            float(np.mean([100 * r.metrics["error"] for r in mine if r.severity == severity]))
            for severity in severities
        )
        series.append(Series(method, tuple(severities), means))
    ticks = tuple((s, str(s) if s else "clean") for s in severities)
    return Figure("Error by severity", "severity", _ERROR, tuple(series), note_of(rows), ticks)


def online_figure(rows: Sequence[Row]) -> Figure:
    """Error over the samples so far, batch after batch, mean over the corrupted streams."""
    check_same(rows)
    streams = [row for row in rows if row.severity]
    if not streams:
        raise MixedRowsError("there are no corrupted streams among these rows.")
    count, size = streams[0].cell.stream.count, streams[0].cell.protocol.batch_size
    seen = np.minimum(np.arange(1, -(-count // size) + 1) * size, count)
    sizes = np.diff(seen, prepend=0)
    series = []
    for method in methods_of(streams):
        errors = np.array([r.metrics["online_error"] for r in streams if r.method == method])
        running = 100 * np.cumsum(errors * sizes, axis=1).mean(axis=0) / seen
        series.append(Series(method, tuple(seen.tolist()), tuple(running.tolist())))
    number = len(streams) // len(series)
    note = f"Mean over {number} streams of the error over all samples so far. {note_of(streams)}"
    return Figure("Error along the stream", "samples so far", _ERROR, tuple(series), note)


def calibration_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy against confidence, the bins of all corrupted streams pooled by their counts."""
    check_same(rows)
    streams = [row for row in rows if row.severity]
    if not streams or any("reliability" not in row.metrics for row in streams):
        raise MixedRowsError(
            "rows on corrupted images with the metric `reliability` are needed; rows of an older "
            "driftnorm lack it: measure them again into another folder."
        )
    series = []
    for method in methods_of(streams):
        own = [row.metrics["reliability"] for row in streams if row.method == method]
        count, confidence, accuracy = np.array(pooled_bins(own)).T
        gap = float((count * np.abs(accuracy - confidence)).sum() / count.sum())
        many = count >= _DRAWN_PART * count.sum()
        points = (tuple(confidence[many].tolist()), tuple(accuracy[many].tolist()))
        series.append(Series(method, *points, remark=f"ECE {gap:.3f}"))
    note = (
        f"Bins of confidence pooled over {len(streams) // len(series)} streams; those with less "
        f"than {_DRAWN_PART:.1%} of the samples are not drawn. ECE: of the pooled bins; tables "
        f"have the mean over streams. {note_of(streams)}"
    )
    labels = ("confidence", "accuracy")
    return Figure("Calibration", *labels, tuple(series), note, unit_square=True)


def batch_size_figure(rows: Sequence[Row]) -> Figure:
    """Mean error of each method against the batch size."""
    errors = errors_by_batch_size(rows)
    sizes = sorted({size for own in errors.values() for size in own})
    series = tuple(Series(m, tuple(own), tuple(own.values())) for m, own in errors.items())
    ticks = tuple((size, str(size)) for size in sizes)
    return Figure(
        *("Error by batch size", "batch size", _ERROR), series, note_of(rows), ticks, log_x=True
    )


class Plot(NamedTuple):
    """A figure that has a name."""

    make: Callable[[Sequence[Row]], Figure]
    help: str


PLOTS = {
    "corruptions": Plot(corruption_figure, "error by corruption"),
    "severity": Plot(severity_figure, "error by severity"),
    "online": Plot(online_figure, "running error along the stream"),
    "calibration": Plot(calibration_figure, "accuracy against confidence"),
    "streams": Plot(stream_figure, "accuracy over time on one stream"),
    "batch-size": Plot(batch_size_figure, "error against batch size"),
}


def find_plot(name: str) -> Plot:
    """The plot of this name."""
    if name not in PLOTS:
        raise ValueError(
            f"there is no plot {name!r}.{nearest(name, PLOTS)} Known: {', '.join(PLOTS)}."
        )
    return PLOTS[name]
