"""Rows as figures, by name; pure functions, no matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.cell import CLEAN
from driftnorm.bench.metrics import pooled_bins, standard_error
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import MAIN, TENT_ON_SOURCE
from driftnorm.errors import MixedRowsError
from driftnorm.views.batch_sizes import errors_by_batch_size
from driftnorm.views.compare import (
    by_method,
    check_same,
    clean_error,
    errors_by_severity,
    mean_error,
    methods_of,
    note_of,
    scored_rows,
    shifts_of,
)
from driftnorm.views.domain_rows import at_selected, average, of_target, targets_of, trainer_of
from driftnorm.views.domain_rows import note_of as domain_note
from driftnorm.views.figure import Figure, Series
from driftnorm.views.networks import fine_tuned_table
from driftnorm.views.robustness import VIEWS, find_view
from driftnorm.views.stream_figures import stream_figure

_ERROR = "error (%)"
_DRAWN_PART = 0.001  # of a method's samples: the accuracy of a handful is noise


def corruption_figure(rows: Sequence[Row]) -> Figure:
    """Mean error of each method on each corruption, and over all of them."""
    check_same(rows)
    shifts, methods = shifts_of(rows), methods_of(rows)
    clean = {method: clean_error(rows, method) for method in methods}
    series = []
    for method in methods:
        errors = [mean_error(rows, method, shift) for shift in shifts]
        before = clean[method]
        errors = [*([] if before is None else [before]), *errors, mean_error(rows, method)]
        series.append(Series(method, tuple(range(len(errors))), tuple(errors)))
    first = [] if None in clean.values() else [CLEAN]
    names = [*first, *(shift.replace("_", " ") for shift in shifts), "mean"]
    title = "Error by corruption"
    marks = tuple(enumerate(names))
    return Figure(title, "", _ERROR, tuple(series), note_of(rows), marks, bars=True)


def severity_figure(rows: Sequence[Row]) -> Figure:
    """Mean error of each method at each severity; 0 are the clean images."""
    errors = errors_by_severity(rows)
    series = tuple(Series(m, tuple(own), tuple(own.values())) for m, own in errors.items())
    ticks = tuple((s, str(s) if s else "clean") for s in series[0].x)
    return Figure("Error by severity", "severity", _ERROR, series, note_of(rows), ticks)


def online_figure(rows: Sequence[Row]) -> Figure:
    """Error over the samples so far, batch after batch, mean over the corrupted streams."""
    check_same(rows)
    streams = scored_rows(rows)
    count, size = streams[0].cell.stream.count, streams[0].cell.protocol.batch_size
    seen = np.minimum(np.arange(1, -(-count // size) + 1) * size, count)
    sizes = np.diff(seen, prepend=0)
    series = []
    for method, own in by_method(streams).items():
        errors = np.array([row.metrics["online_error"] for row in own])
        running = 100 * np.cumsum(errors * sizes, axis=1).mean(axis=0) / seen
        series.append(Series(method, tuple(seen.tolist()), tuple(running.tolist())))
    number = len(streams) // len(series)
    note = (
        f"Mean over {counted(number, 'stream')} of the error over all samples so far. "
        f"{note_of(streams)}"
    )
    return Figure("Error along the stream", "samples so far", _ERROR, tuple(series), note)


def calibration_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy against confidence, the bins of all corrupted streams pooled by their counts."""
    check_same(rows)
    streams = scored_rows(rows)
    if any("reliability" not in row.metrics for row in streams):
        raise MixedRowsError(
            "rows with the metric `reliability` are needed; rows of an older driftnorm lack it: "
            "measure them again into another folder."
        )
    series = []
    for method, own in by_method(streams).items():
        bins = pooled_bins([row.metrics["reliability"] for row in own])
        count, confidence, accuracy = np.array(bins).T
        gap = float((count * np.abs(accuracy - confidence)).sum() / count.sum())
        many = count >= _DRAWN_PART * count.sum()
        points = (tuple(confidence[many].tolist()), tuple(accuracy[many].tolist()))
        series.append(Series(method, *points, remark=f"ECE {gap:.3f}"))
    note = (
        f"Bins of confidence pooled over {counted(len(streams) // len(series), 'stream')}; those "
        f"with less than {_DRAWN_PART:.1%} of the samples are not drawn. ECE: of the pooled bins; "
        f"tables have the mean over streams. {note_of(streams)}"
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


def domains_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy of each method on each target domain and on average, a panel per training."""
    selected, targets = at_selected(rows), targets_of(rows)
    series = []
    for trainer, mine in partition(selected, trainer_of).items():
        for method, own in by_method(mine).items():
            scores = [of_target(own, target) for target in targets]
            means = [float(np.mean(each)) if each else np.nan for each in scores]
            mean = average(own, targets)
            spread = tuple(standard_error(each) if len(each) > 1 else 0.0 for each in scores)
            series.append(
                Series(
                    method,
                    tuple(range(len(targets) + 1)),
                    (*means, np.nan if mean is None else mean),
                    spread=(*spread, 0.0) if any(spread) else (),
                    panel=trainer.label,
                )
            )
    marks = tuple(enumerate([*targets, "average"]))
    title, y_label = "Accuracy by target domain", "accuracy (%)"
    return Figure(title, "", y_label, tuple(series), domain_note(rows), marks, bars=True)


def fine_tuned_figure(rows: Sequence[Row]) -> Figure:
    """Error of source and target statistics, without and with Tent, on both kinds of network."""
    table = fine_tuned_table(rows)
    errors: dict[str, dict[str, float]] = {}
    for setting, statistics, plain, stepped, *_ in table.rows:
        pair = ("source", TENT_ON_SOURCE) if statistics == "source" else ("bn", "tent")
        for method, error in zip(pair, (plain, stepped), strict=True):
            errors.setdefault(method, {})[str(setting)] = float(error or 0)
    series = (
        Series(method, tuple(range(len(own))), tuple(own.values()))
        for method, own in errors.items()
    )
    marks = tuple(enumerate(errors["source"]))
    return Figure(table.title, "", _ERROR, tuple(series), table.note, marks, bars=True)


class Plot(NamedTuple):
    """A named figure, and the methods it is about."""

    make: Callable[[Sequence[Row]], Figure]
    help: str
    methods: tuple[str, ...] = VIEWS["summary"].methods


PLOTS = {
    "corruptions": Plot(corruption_figure, "error by corruption"),
    "severity": Plot(severity_figure, "error by severity"),
    "online": Plot(online_figure, "running error along the stream"),
    "calibration": Plot(calibration_figure, "accuracy against confidence"),
    "streams": Plot(stream_figure, "accuracy over time on one stream"),
    "batch-size": Plot(batch_size_figure, "error against batch size"),
    "domains": Plot(domains_figure, "accuracy by target domain (`bench domains`)", MAIN),
    "fine-tuned": Plot(
        fine_tuned_figure,
        "pre-trained against fine-tuned networks (`bench fine-tuned`)",
        VIEWS["fine-tuned"].methods,
    ),
}


def find_plot(name: str) -> Plot:
    """The plot of this name."""
    return find_view(name, PLOTS, "plot")
