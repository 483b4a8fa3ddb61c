"""A run on the user's own data as a section of the page; its keys are those of `gather`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from driftnorm.bench.metrics import pooled_bins
from driftnorm.views.figure import Figure, HeatMap, Series
from driftnorm.views.render.markup import Markup, tag
from driftnorm.views.render.svg import charts, heat_chart, legend
from driftnorm.views.report.examples import Example, example_figures
from driftnorm.views.report.gather import RUN_FILE, Run
from driftnorm.views.report.group_section import (
    blocks,
    chart_grid,
    fold,
    mean_along,
    reliability_grid,
)
from driftnorm.views.report.measure import Measure
from driftnorm.views.report.tables import table_html
from driftnorm.views.report.verdicts import run_verdict
from driftnorm.views.table import Column, Table

__all__ = ["look_of", "run_section", "run_series"]

T = TypeVar("T")

_STREAMED = ("online_error", "entropy")
_MEASURE = "Distance of the data's statistics from the source's, in the source's deviations"
# Shown in a table or a chart, and so not in the list of settings.
_SHOWN_ELSEWHERE = re.compile("verdict|drift_.*|batches_a_point|compared.*|sample.*")
_BESIDE = (
    ("entropy", "compared_entropy", 1.0, 3),
    ("confidence, %", "compared_confidence", 100.0, 1),
)
_SHARES = ("accuracy", "mean_confidence")
_MOST_CLASSES = 20
_ADAPTED = "adapted"


def run_series(run: Run) -> list[str]:
    """The networks that the run has curves for, such as source and adapted."""
    keys = (*_STREAMED, "reliability")
    names = dict.fromkeys(name for key in keys for name in _by_network(run, key))
    if run.record.get("classes"):
        names[_ADAPTED] = None
    return sorted(names, key=lambda name: name != "source")


def look_of(run: Run, name: str) -> str:
    """The colour of a network of the run: the adapted one has its method's."""
    return str(run.record.get("method") or name) if name == _ADAPTED else name


def run_section(
    run: Run, slots: Mapping[str, int], anchor: str, measure: Measure, alone: bool = False
) -> Markup:
    """Everything in the run's record; if alone, the page's header has title and verdict."""
    own = {name: slots[look_of(run, name)] for name in run_series(run)}
    headline, words = run_verdict(run, measure), run.record.get("verdict")
    return tag(
        "section",
        tag("h2", "The run" if alone else f"Run {run.name}"),
        None if alone else tag("p", headline, class_="verdict"),
        _warnings(run),
        legend(own) if len(own) > 1 else None,
        blocks(
            _right(run, own, measure),
            _stream(run, own, measure),
            _classes(run, own),
            _drift(run),
            reliability_grid(
                {n: pooled_bins([bins]) for n, bins in _by_network(run, "reliability").items()}, own
            ),
        ),
        _beside(run, measure),
        tag("p", words, class_="note") if isinstance(words, str) and words != headline else None,
        _examples(run),
        fold("All settings and numbers", _settings(run)),
        id=anchor,
    )


def _settings(run: Run) -> Markup:
    """Every plain value, the configuration and the environment."""
    plain = {key: value for key, value in run.record.items() if _is_plain(value)}
    plain |= _read(run, "config", dict, {})
    plain["environment"] = _read(run, "environment", dict, {})
    lines = [
        (key.replace("_", " "), f"{100 * value:.1f} %" if key in _SHARES else _shown(value))
        for key, value in plain.items()
        if not _SHOWN_ELSEWHERE.fullmatch(key) and value not in (None, {}, [])
    ]
    return tag("dl", *([tag("dt", key), tag("dd", value)] for key, value in lines))


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _shown(value: object) -> str:
    """A setting as people read it."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _warnings(run: Run) -> Markup | None:
    lines = _entries(run, "notes", str)
    lines += _entries(run, "skipped_first", lambda e: f"Skipped {e[0]}: {e[1]}")
    if not lines:
        return None
    return tag("div", tag("ul", *(tag("li", line) for line in lines)), class_="alert")


def _right(run: Run, slots: Mapping[str, int], measure: Measure) -> Markup | None:
    """The labelled accuracy of both networks, as two bars."""
    pair = [run.record.get(f"sample_accuracy_{who}") for who in ("source", _ADAPTED)]
    if None in pair:
        return None
    series = tuple(
        Series(who, (0,), (measure.of(1 - float(value or 0)),))
        for who, value in zip(("source", _ADAPTED), pair, strict=True)
    )
    ticks = ((0.0, f"{_read(run, 'sample', int, 0):,} labelled images"),)
    figure = Figure("", "", f"% {measure.name}", series, ticks=ticks, bars=True)
    shown = {who: slots.get(who, place) for place, who in enumerate(("source", _ADAPTED))}
    note = f"{measure.title} in % of your network, unadapted, and of the adapted one."
    return chart_grid("What adapting changed", note, charts(figure, shown))


def _beside(run: Run, measure: Measure) -> Markup | None:
    """The source and the adapted network on the images that both predicted."""
    rows: list[tuple[str | float | None, ...]] = []
    for name, key, scale, digits in _BESIDE:
        pair = [run.record.get(f"{key}_{who}") for who in ("source", _ADAPTED)]
        if all(isinstance(value, int | float) for value in pair):
            rows.append((name, *(f"{scale * float(value or 0):.{digits}f}" for value in pair)))
    pair = [run.record.get(f"sample_accuracy_{who}") for who in ("source", _ADAPTED)]
    if None not in pair:
        values = (f"{measure.of(1 - float(value or 0)):.1f}" for value in pair)
        rows.append((f"{measure.name}, %", *values))
    if not rows:
        return None
    images, changed = (_read(run, key, int, 0) for key in ("compared", "compared_changed"))
    note = (
        f"{images:,} images that both predicted; {changed:,} got another class. Entropy is "
        f"a share of its maximum; {measure.name} is that of the labelled ones."
    )
    columns = (Column("mean"), Column("source"), Column(_ADAPTED))
    return table_html(Table("Beside the source", columns, tuple(rows), note))


def _stream(run: Run, slots: Mapping[str, int], measure: Measure) -> Markup | None:
    shown = []
    width = _read(run, "batches_a_point", int, 1)
    for key in _STREAMED:
        of_errors = key == "online_error"
        series = tuple(
            Series(
                name,
                tuple(x * width for x, _ in points),
                tuple(measure.of(y) if of_errors else y for _, y in points),
            )
            for name, values in _by_network(run, key).items()
            for points in (mean_along([values]),)
        )
        title = f"online {measure.name}" if of_errors else "entropy"
        unit = f"{measure.name}, %" if of_errors else "entropy, share of its maximum"
        figure = Figure(title, "batch", unit, series, decimals=1 if of_errors else 3)
        shown += charts(figure, slots)
    return chart_grid("Along the stream", "The mean of each batch as it came.", shown)


def _classes(run: Run, slots: Mapping[str, int]) -> Markup | None:
    counts = _read(run, "classes", dict, {})
    if not counts:
        return None
    try:
        ranked = sorted(((name, float(n)) for name, n in counts.items()), key=lambda item: -item[1])
    except (TypeError, ValueError) as error:
        raise _wrong(run, "classes", "an object of numbers", counts) from error
    given = [(name, n) for name, n in ranked if n]
    shown = given[:_MOST_CLASSES]
    more = f" Shown: the {len(shown)} most frequent." if len(shown) < len(given) else ""
    note = f"{len(given)} of {len(counts)} classes were predicted at least once.{more}"
    series = Series(_ADAPTED, tuple(range(len(shown))), tuple(n for _, n in shown))
    ticks = tuple((float(place), name) for place, (name, _) in enumerate(shown))
    figure = Figure("predictions", "", "predictions", (series,), ticks=ticks, bars=True, decimals=0)
    return chart_grid("Predicted classes", note, charts(figure, slots))


def _drift(run: Run) -> Markup | None:
    layers = _entries(
        run, "drift", lambda e: (str(e["layer"]), (_number(e["mean"]), _number(e["max"])))
    )
    if not layers:
        return None
    measure = _read(run, "drift_measure", str, _MEASURE)
    note = (
        f"{measure}: mean and largest over the channels of each layer, in the network's order. "
        "Each column of the first picture has its own scale of colours, the second has one."
    )
    first = heat_chart(HeatMap("drift by layer", ("mean", "largest"), layers, by_column=True))
    return chart_grid("Drift of the statistics", note, [first, *_drift_along(run)])


def _drift_along(run: Run) -> list[Markup]:
    """The mean distances at several points: in time, or of several streams."""
    points = _entries(run, "drift_points", str)
    rows = _entries(
        run,
        "drift",
        lambda e: (str(e["layer"]), [_number(value) for value in e.get("along") or ()]),
    )
    if not points or any(len(values) != len(points) for _, values in rows):
        return []
    axis = _read(run, "drift_axis", str, "")
    return [heat_chart(HeatMap(f"mean drift, {axis}".rstrip(", "), points, rows))]


def _examples(run: Run) -> Markup | None:
    def read(entry: Mapping[str, Any]) -> Example:
        answers = {who: str(entry[who]) for who in ("source", _ADAPTED)}
        label = str(entry.get("label", ""))
        return Example(str(entry["name"]), str(entry["image"]), answers, label)

    note = (
        "Images for which the adapted network predicts another class than the source, drawn from "
        "all that both predicted."
    )
    figures = example_figures(_entries(run, "examples", read))
    return chart_grid("Where predictions differ", note, figures, "examples")


def _by_network(run: Run, key: str) -> dict[str, list[Any]]:
    """A list for the adapted network, or an object of lists."""
    found = run.record.get(key)
    if found is None:
        return {}
    named = found if isinstance(found, dict) else {_ADAPTED: found}
    if not all(_is_curve(values, key == "reliability") for values in named.values()):
        what = "bins [count, confidence, accuracy]" if key == "reliability" else "numbers"
        raise _wrong(run, key, f"a list of {what}, or an object of such lists", found)
    return {str(name): values for name, values in named.items()}


def _is_curve(values: object, of_bins: bool) -> bool:
    if not isinstance(values, list):
        return False
    if not of_bins:
        return all(isinstance(value, int | float) for value in values)
    return all(
        isinstance(one, list)
        and len(one) == 3
        and all(isinstance(value, int | float) and math.isfinite(value) for value in one)
        for one in values
    )


def _entries(run: Run, key: str, read: Callable[[Any], T]) -> list[T]:
    found: Sequence[Any] = _read(run, key, list, [])
    try:
        return [read(entry) for entry in found]
    except (KeyError, TypeError, ValueError) as error:
        expected = "objects with the keys that `driftnorm.views.report.gather` describes"
        raise _wrong(run, key, f"a list of {expected}", found) from error


def _number(value: object) -> float:
    """A number; null means "not measured"."""
    return math.nan if value is None else float(value)  # type: ignore[arg-type]


def _read(run: Run, key: str, kind: type[T], default: T) -> T:
    found = run.record.get(key, default)
    if found is None:
        return default
    if not isinstance(found, kind):
        raise _wrong(run, key, f"of type {kind.__name__}", found)
    return found


def _wrong(run: Run, key: str, expected: str, found: object) -> ValueError:
    shown = repr(found)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return ValueError(f"`{key}` in {run.name}/{RUN_FILE} must be {expected}, got {shown}.")
