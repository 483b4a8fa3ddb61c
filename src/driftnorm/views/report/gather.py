"""What a report is made of: rows, failures and runs from the given paths.

The record of a run on the user's own data is ``run.json`` in its folder, one object. Every key is
optional; the report shows what is there:

* ``verdict``: one sentence, which then heads the page.
* ``model``, ``data``, ``method``: text; ``images``, ``skipped``, ``changed`` (predictions that the
  adapted network gives differently), ``alarms``: numbers.
* ``config``, ``environment``: objects of settings.
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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftnorm.bench.rows import Failure, Row, RowStore, load_rows
from driftnorm.bench.samples import Exhibits, read_exhibits

__all__ = ["RUN_FILE", "Gathered", "Run", "gather"]

RUN_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """A run's name and its record."""

    name: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Gathered:
    """Everything in the given paths, each row once, and images of the rows' streams by key."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()
    runs: tuple[Run, ...] = ()
    exhibits: Mapping[str, Exhibits] = field(default_factory=dict)


def gather(paths: Iterable[str | Path]) -> Gathered:
    """Read rows and runs; the same row from two places counts once.

    Args:
        paths: Folders of rows, ``.jsonl`` files, folders of a demo or a benchmark with rows in
            them, folders of a run, or ``run.json`` files.
    """
    rows: dict[str, Row] = {}
    failures: dict[str, Failure] = {}
    runs: list[Run] = []
    exhibits: dict[str, Exhibits] = {}
    for path in map(Path, paths):
        found = _read(path)
        rows |= {row.cell.key: row for row in found.rows}
        failures |= {failure.cell.key: failure for failure in found.failures}
        runs += found.runs
        exhibits |= found.exhibits
    if not rows and not runs:
        raise ValueError("`rows` must hold at least one row or run; there is nothing to report.")
    lasting = [failure for key, failure in failures.items() if key not in rows]
    return Gathered(tuple(rows.values()), tuple(lasting), tuple(runs), exhibits)


def _read(path: Path) -> Gathered:
    if not path.exists():
        raise FileNotFoundError(
            f"`rows`: nothing is at {path}; expected a folder of rows or of a run, a .jsonl file "
            f"or a {RUN_FILE}."
        )
    if path.is_file():
        run = path.with_suffix(".run")
        if path.suffix == ".csv" and run.is_dir():
            raise ValueError(f"`rows`: {path} holds predictions; the run that made them is {run}.")
        if path.suffix == ".json":
            return Gathered((), runs=(_read_run(path),))
        return Gathered(tuple(_rows(path)), exhibits=read_exhibits(path.parent))
    runs = (_read_run(path / RUN_FILE),) if (path / RUN_FILE).exists() else ()
    inner = path / "rows"
    store = inner if inner.is_dir() else path
    if runs and store == path:
        return Gathered((), runs=runs)
    rows = _rows(store)
    if not rows and not runs and (path / "rows.jsonl").exists():
        rows = _rows(path / "rows.jsonl")
    if not rows and not runs:
        raise ValueError(f"`rows`: {path} holds neither rows nor a {RUN_FILE}.")
    return Gathered(tuple(rows), tuple(RowStore(store).failures()), runs, read_exhibits(store))


def _rows(path: Path) -> list[Row]:
    try:
        return load_rows(path)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"`rows`: {path} must hold rows that a driftnorm benchmark wrote; reading them failed "
            f"with {type(error).__name__}: {error}."
        ) from error


def _read_run(path: Path) -> Run:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`rows`: {path} is not valid JSON: {error}.") from error
    if not isinstance(record, dict):
        raise ValueError(f"`rows`: {path} must hold one object, got {type(record).__name__}.")
    return Run(path.resolve().parent.name, record)
