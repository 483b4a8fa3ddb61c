"""The record of a run on the user's own data, as the report reads it.

It is ``run.json`` in the run's folder, one object. Every key is optional; the report shows what is
there:

* ``verdict``: one sentence, which then heads the page.
* ``model``, ``data``, ``method``: text; ``images``, ``skipped``, ``changed`` (predictions that the
  adapted network gives differently), ``alarms``: numbers.
* ``config``, ``environment``: objects of settings.
* ``alarms_raised``: each alarm of the guard, with batch, reason and numbers; for programs, since
  the notes have them in words.
* ``notes``: warnings, a list of texts; ``skipped_first``: ``[file, reason]`` of skipped images.
* ``entropy``, ``online_error``: the mean of each batch along the stream, a list for the adapted
  network or an object of lists such as ``{"source": [...], "adapted": [...]}``, entropies as
  shares of their maximum; ``batches_a_point``: how many batches each number is the mean of.
* ``compared``, ``compared_changed``: images that both networks predicted, and those with different
  classes; ``compared_entropy_source``, ``compared_entropy_adapted``, and likewise
  ``compared_confidence_...`` and ``sample_accuracy_...``: numbers, shown as a table;
  ``sample_gain``: what adapting gained on the labelled ones, with its 95 % interval.
* ``reliability``: bins ``[count, mean confidence, accuracy]``, a list or an object of lists alike.
* ``classes``: how often each class was predicted, an object of numbers.
* ``drift``: a list of ``{"layer": text, "mean": number, "max": number}``, over the layer's channels
  the distance of the data's statistics from the source's; ``drift_measure``: what that distance is.
  With ``drift_points``, a list of texts, each layer's ``along`` holds its mean distance at each of
  them, such as points in time; ``drift_axis``: what they are.
* ``examples``: a list of ``{"name", "source", "adapted", "image"}``, and ``"label"`` where it is
  known: a file, the two predictions,
  and a small PNG, JPEG, GIF or WebP as ``data:`` URI.

Other keys with text, numbers or booleans are listed as they are; null counts as absent.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from driftnorm.bench.metrics import Interval
from driftnorm.views.report.section import Example

RUN_FILE = "run.json"
PAIRS = ("compared_entropy", "compared_confidence", "sample_accuracy")
"""Numbers that the record has for both networks."""


class LayerDrift(NamedTuple):
    """How far a layer's statistics are from the source's; NaN where that was not measured."""

    layer: str
    mean: float
    most: float
    along: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """A run's name and its record, each key as the module's docstring describes it."""

    name: str
    record: dict[str, Any]


def read_run(path: Path) -> Run:
    """Read a ``run.json``; a key that no run writes like this is named."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`rows`: {path} is not valid JSON: {error}.") from error
    if not isinstance(record, dict):
        raise ValueError(f"`rows`: {path} must hold one object, got {type(record).__name__}.")
    name = path.resolve().parent.name
    return Run(name, {k: _read_key(name, k, v) for k, v in record.items() if v is not None})


def _read_key(run: str, key: str, value: Any) -> Any:
    try:
        return _READERS[key](value) if key in _READERS else value
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"`{key}` in {run}/{RUN_FILE} must be as `driftnorm adapt` writes it, got "
            f"{textwrap.shorten(repr(value), 80, placeholder='...')}."
        ) from error


def _texts(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]


def _by_network(found: Any) -> dict[str, Any]:
    """A list is the adapted network's."""
    return found if isinstance(found, dict) else {"adapted": found}


def _curves(found: Any) -> dict[str, list[float]]:
    return {name: [float(y) for y in values] for name, values in _by_network(found).items()}


def _bins(found: Any) -> dict[str, list[tuple[float, float, float]]]:
    return {
        name: [(float(count), float(trust), float(right)) for count, trust, right in bins]
        for name, bins in _by_network(found).items()
    }


def _drift_of_layer(entry: Mapping[str, Any]) -> LayerDrift:
    def number(value: Any) -> float:
        return math.nan if value is None else float(value)  # null: not measured

    along = tuple(map(number, entry.get("along") or ()))
    return LayerDrift(str(entry["layer"]), number(entry["mean"]), number(entry["max"]), along)


def _example(entry: Mapping[str, Any]) -> Example:
    answers = {who: str(entry[who]) for who in ("source", "adapted")}
    return Example(str(entry["name"]), str(entry["image"]), answers, str(entry.get("label", "")))


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("verdict", "method", "drift_measure", "drift_axis"), str),
    **dict.fromkeys(("images", "changed", "compared", "compared_changed"), int),
    **dict.fromkeys(("sample", "batches_a_point"), int),
    **{f"{what}_{who}": float for what in PAIRS for who in ("source", "adapted")},
    **dict.fromkeys(("config", "environment"), dict),
    **dict.fromkeys(("notes", "drift_points"), _texts),
    **dict.fromkeys(("entropy", "online_error"), _curves),
    "sample_gain": lambda values: Interval(*map(float, values)),
    "skipped_first": lambda pairs: [(str(file), str(reason)) for file, reason in pairs],
    "reliability": _bins,
    "classes": lambda counts: {name: float(count) for name, count in counts.items()},
    "drift": lambda layers: [_drift_of_layer(layer) for layer in layers],
    "examples": lambda entries: [_example(entry) for entry in entries],
}
