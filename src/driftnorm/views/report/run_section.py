"""A run on the user's own data as a section of the page; its keys are those of `run_record`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from driftnorm._internal.counts import counted
from driftnorm.bench.metrics import pooled_bins
from driftnorm.views.figure import Figure, HeatMap, Series
from driftnorm.views.render.svg import charts, heat_chart
from driftnorm.views.report.measure import Measure
from driftnorm.views.report.run_record import LayerDrift, Run
from driftnorm.views.report.section import Block, Section, mean_along, reliability_block
from driftnorm.views.report.verdicts import run_verdict
from driftnorm.views.table import Column, Table

_STREAMED = ("online_error", "entropy")
_DISTANCE = "Distance of the data's statistics from the source's, in the source's deviations"
_EXAMPLES = (
    "Images for which the adapted network predicts another class than the source, drawn from "
    "all that both predicted."
)
# Shown in a table or a chart, and so not in the list of settings.
_SHOWN_ELSEWHERE = re.compile("verdict|drift_.*|batches_a_point|compared.*|sample.*")
_SHARES = ("accuracy", "mean_confidence")
_MOST_CLASSES = 20
_ADAPTED = "adapted"
_BOTH = ("source", _ADAPTED)


def run_series(run: Run) -> list[str]:
    """The networks that the run has curves for, such as source and adapted."""
    keys = (*_STREAMED, "reliability")
    names = dict.fromkeys(name for key in keys for name in run.record.get(key, {}))
    if run.record.get("classes"):
        names[_ADAPTED] = None
    return sorted(names, key=lambda name: name != "source")


def look_of(run: Run, name: str) -> str:
    """The colour of a network of the run: the adapted one has its method's."""
    return run.record.get("method") or name if name == _ADAPTED else name


def run_section(
    run: Run, slots: Mapping[str, int], measure: Measure, alone: bool = False
) -> Section:
    """Everything in the run's record; if alone, the page's header has title and verdict."""
    own = {name: slots[look_of(run, name)] for name in run_series(run)}
    record, headline = run.record, run_verdict(run, measure)
    words, examples = record.get("verdict", ""), record.get("examples", [])
    skipped = [f"Skipped {file}: {reason}" for file, reason in record.get("skipped_first", [])]
    bins = {name: pooled_bins([own]) for name, own in record.get("reliability", {}).items()}
    return Section(
        heading="The run" if alone else f"Run {run.name}",
        verdict="" if alone else headline,
        warnings=[*record.get("notes", []), *skipped],
        legend=own if len(own) > 1 else {},
        blocks=(
            _right(run, own, measure),
            _stream(run, own, measure),
            _classes(run, own),
            _drift(run),
            reliability_block(bins, own),
        ),
        tables=_beside(run, measure),
        words=words if words != headline else "",
        remark=_EXAMPLES if examples else "",
        examples=examples,
        details_heading="All settings and numbers",
        details=_settings(run),
    )


def _settings(run: Run) -> dict[str, list[str]]:
    """Every plain value, the configuration and the environment."""
    plain: dict[str, Any] = {
        k: v for k, v in run.record.items() if isinstance(v, str | int | float)
    }
    plain |= run.record.get("config", {})
    plain["environment"] = run.record.get("environment", {})
    return {
        key.replace("_", " "): [f"{100 * value:.1f} %" if key in _SHARES else _shown(value)]
        for key, value in plain.items()
        if not _SHOWN_ELSEWHERE.fullmatch(key) and value not in (None, {}, [])
    }


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


def _pair(run: Run, key: str) -> list[float]:
    """A number of the source and of the adapted network; none unless both are known."""
    found = [run.record[each] for who in _BOTH if (each := f"{key}_{who}") in run.record]
    return found if len(found) == len(_BOTH) else []


def _right(run: Run, slots: Mapping[str, int], measure: Measure) -> Block | None:
    """The labelled accuracy of both networks, as two bars."""
    pair = _pair(run, "sample_accuracy")
    if not pair:
        return None
    values = (measure.of(1 - accuracy) for accuracy in pair)
    series = tuple(Series(who, (0,), (y,)) for who, y in zip(_BOTH, values, strict=True))
    ticks = ((0.0, f"{counted(run.record.get('sample', 0), 'labelled image')}"),)
    figure = Figure("", "", f"% {measure.name}", series, ticks=ticks, bars=True)
    shown = {who: slots.get(who, place) for place, who in enumerate(_BOTH)}
    note = f"{measure.title} in % of your network, unadapted, and of the adapted one."
    return Block("What adapting changed", note, charts(figure, shown))


def _beside(run: Run, measure: Measure) -> list[Table]:
    """The source and the adapted network on the images that both predicted."""
    rows = [
        (name, *(text(number) for number in pair))
        for name, key, text in (
            ("entropy", "compared_entropy", "{:.3f}".format),
            ("confidence, %", "compared_confidence", lambda share: f"{100 * share:.1f}"),
            (f"{measure.name}, %", "sample_accuracy", lambda r: f"{measure.of(1 - r):.1f}"),
        )
        if (pair := _pair(run, key))
    ]
    images, changed = (run.record.get(key, 0) for key in ("compared", "compared_changed"))
    bound = 100 * changed / max(images, 1)
    note = (
        f"{counted(images, 'image')} that both predicted; {changed:,} got another class, so the "
        f"accuracies on them differ by at most {bound:.1f} points. Entropy "
        f"is a share of its maximum; {measure.name} is that of the labelled ones."
    )
    columns = (Column("mean"), Column("source"), Column(_ADAPTED))
    return [Table("Beside the source", columns, tuple(rows), note)] if rows else []


def _stream(run: Run, slots: Mapping[str, int], measure: Measure) -> Block:
    shown = []
    width = run.record.get("batches_a_point", 1)
    for key in _STREAMED:
        of_errors = key == "online_error"
        series = tuple(
            Series(
                name,
                tuple(x * width for x, _ in points),
                tuple(measure.of(y) if of_errors else y for _, y in points),
            )
            for name, values in run.record.get(key, {}).items()
            for points in (mean_along([values]),)
        )
        title = f"online {measure.name}" if of_errors else "entropy"
        unit = f"{measure.name}, %" if of_errors else "entropy, share of its maximum"
        figure = Figure(title, "batch", unit, series, decimals=1 if of_errors else 3)
        shown += charts(figure, slots)
    return Block("Along the stream", "The mean of each batch as it came.", shown)


def _classes(run: Run, slots: Mapping[str, int]) -> Block | None:
    counts: dict[str, float] = run.record.get("classes", {})
    if not counts:
        return None
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    given = [(name, n) for name, n in ranked if n]
    shown = given[:_MOST_CLASSES]
    more = f" Shown: the {len(shown)} most frequent." if len(shown) < len(given) else ""
    note = f"{len(given)} of {counted(len(counts), 'class')} were predicted at least once.{more}"
    series = Series(_ADAPTED, tuple(range(len(shown))), tuple(n for _, n in shown))
    ticks = tuple((float(place), name) for place, (name, _) in enumerate(shown))
    figure = Figure("predictions", "", "predictions", (series,), ticks=ticks, bars=True, decimals=0)
    return Block("Predicted classes", note, charts(figure, slots))


def _drift(run: Run) -> Block | None:
    layers: list[LayerDrift] = run.record.get("drift", [])
    if not layers:
        return None
    measure = run.record.get("drift_measure", _DISTANCE)
    note = (
        f"{measure}: mean and largest over the channels of each layer, in the network's order. "
        "Each column of the first picture has its own scale of colours, the second has one."
    )
    both = [(each.layer, (each.mean, each.most)) for each in layers]
    shown = [heat_chart(HeatMap("drift by layer", ("mean", "largest"), both, by_column=True))]
    points = run.record.get("drift_points", [])
    if points and all(len(each.along) == len(points) for each in layers):
        axis = run.record.get("drift_axis", "")
        rows = [(each.layer, each.along) for each in layers]
        shown.append(heat_chart(HeatMap(f"mean drift, {axis}".rstrip(", "), points, rows)))
    return Block("Drift of the statistics", note, shown)
