"""Rows of the robustness study as tables, by name; pure functions, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from driftnorm._internal.arguments import check_choice
from driftnorm.bench.cell import CLEAN
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE
from driftnorm.shifts.registry import CORRUPTIONS
from driftnorm.views.ablations import (
    ABLATION,
    HALF_TARGET,
    INTRO,
    ablation_table,
    half_table,
    intro_table,
)
from driftnorm.views.batch_sizes import batch_size_table
from driftnorm.views.claim_tables import claims_table
from driftnorm.views.claims import ABOUT_ROBUSTNESS, claimed_methods
from driftnorm.views.compare import (
    by_method,
    change_cell,
    check_same,
    clean_error,
    data_set,
    errors_by_severity,
    lacking_of_all,
    mean_error,
    methods_of,
    note_of,
    scored_rows,
    shifts_of,
)
from driftnorm.views.networks import augmentation_table, fine_tuned_table, imagenet_table
from driftnorm.views.paper import DETAILED, MEAN, difference
from driftnorm.views.stream_tables import (
    STREAM_METHODS,
    stream_domain_table,
    stream_table,
    stream_visit_table,
)
from driftnorm.views.table import Column, Table


def detailed_table(rows: Sequence[Row]) -> Table:
    """Mean error of each method on each corruption, and what the paper prints."""
    check_same(rows)
    methods, shifts = methods_of(rows), shifts_of(rows)
    lacking = {shift for shift, _ in lacking_of_all(rows)}
    # The paper's are means over all severities: beside other means they would be misleading.
    paper = {k: v for k, v in DETAILED.get(data_set(rows), {}).items() if k[0] not in lacking}
    lines: list[tuple[str | float | None, ...]] = [
        (shift, *(mean_error(rows, m, shift) for m in methods)) for shift in shifts
    ]
    clean = [clean_error(rows, method) for method in methods]
    if None not in clean:
        lines.insert(0, (CLEAN, *clean))
    lines.append(("mean", *(mean_error(rows, m) for m in methods)))
    said = " Mean: without the clean images." if None not in clean else ""
    printed = [m for m in methods if any((shift, m) in paper for shift in shifts)]
    means = {("mean", method): error for method, error in _paper_means(rows).items()}
    columns = [Column("corruption"), *(Column(m, best="lowest") for m in methods)]
    columns += [Column(f"{m}, paper") for m in printed]
    known = {**paper, **means}
    lines = [(*line, *_printed(line, methods, printed, known)) for line in lines]
    if printed:
        said += " Paper: WRN-40-2 trained with AugMix; in brackets ours minus it."
    title = "Error by corruption"
    return Table(title, tuple(columns), tuple(lines), note_of(rows) + said, best_by="row")


def _printed(
    line: Sequence[str | float | None],
    methods: Sequence[str],
    printed: Sequence[str],
    known: Mapping[tuple[str, str], float],
) -> list[str | None]:
    """The paper's numbers for a line, each with ours minus it."""
    ours = dict(zip(methods, line[1:], strict=True))
    cells: list[str | None] = []
    for method in printed:
        paper, error = known.get((str(line[0]), method)), ours[method]
        if paper is None or not isinstance(error, float):
            cells.append(None)
        else:
            cells.append(f"{paper} ({error - paper:+.1f})")
    return cells


def summary_table(rows: Sequence[Row], against: str = "tent") -> Table:
    """Mean error of each method, with a paired interval against one of them."""
    check_same(rows)
    methods = methods_of(rows)
    reference = against if against in methods else methods[0]
    paper, scored = _paper_means(rows), by_method(scored_rows(rows))
    lines: list[tuple[str | float | None, ...]] = []
    for method in methods:
        change = change_cell(rows, method, reference)
        scores = [float(np.mean([r.metrics[k] for r in scored[method]])) for k in ("nll", "ece")]
        error, printed = mean_error(rows, method), paper.get(method)
        both = (printed, difference(error, printed)) if paper else ()
        lines.append((method, clean_error(rows, method), error, change, *scores, *both))
    columns = (
        Column("method"),
        Column("clean", best="lowest", decimals=2),
        Column("error", best="lowest", decimals=2),
        Column(f"error minus {reference}'s, 95 %"),
        Column("NLL", best="lowest", decimals=3),
        Column("ECE", best="lowest", decimals=3),
        *((Column("paper's error"), Column("ours minus it")) if paper else ()),
    )
    whose = " Paper: WRN-40-2, AugMix." if paper else ""
    note = f"{note_of(rows)} Intervals: paired bootstrap over images.{whose}"
    title = "Mean error over corruptions" if shifts_of(rows) else "Error on clean images"
    return Table(title, columns, tuple(lines), note).without_empty("clean")


def _paper_means(rows: Sequence[Row]) -> dict[str, float]:
    """The paper's mean errors, if these rows are means over the same streams."""
    same = not lacking_of_all(rows) and set(shifts_of(rows)) == set(CORRUPTIONS)
    return MEAN.get(data_set(rows), {}) if same else {}


def severity_table(rows: Sequence[Row]) -> Table:
    """Mean error of each method at each severity."""
    errors = errors_by_severity(rows)
    lines: tuple[tuple[str | float | None, ...], ...] = tuple(
        (method, *own.values()) for method, own in errors.items()
    )
    titles = (f"severity {s}" if s else "clean" for s in sorted({row.severity for row in rows}))
    columns = (Column("method"), *(Column(title, best="lowest") for title in titles))
    return Table("Error by severity", columns, lines, note_of(rows))


class View(NamedTuple):
    """A named table, and the methods it is about."""

    make: Callable[[Sequence[Row]], Table]
    methods: tuple[str, ...]
    help: str


_MAIN = ("source", "bn", "t3a", "tent", "gprebn")

VIEWS = {
    "summary": View(summary_table, _MAIN, "mean error, with paired intervals"),
    "detailed": View(detailed_table, _MAIN, "error by corruption, next to the paper's"),
    "severity": View(severity_table, _MAIN, "error by severity"),
    "intro": View(
        intro_table,
        tuple(setting.method for setting in INTRO),
        "Tent on source statistics, on target ones, and with stopped gradients",
    ),
    "ablation": View(
        ablation_table,
        tuple(setting.method for setting in ABLATION),
        "what the preserved gradient and the running statistics bring",
    ),
    "half-target": View(
        half_table,
        tuple(setting.method for setting in HALF_TARGET),
        "target statistics in the first half of the layers",
    ),
    "batch-size": View(
        batch_size_table, ("bn", "bn:running=True", "tent", "gprebn"), "error against batch size"
    ),
    "augmentation": View(augmentation_table, _MAIN, "networks trained with augmentation"),
    "imagenet": View(imagenet_table, _MAIN, "ImageNet-C: groups and mCE"),
    "claims": View(
        claims_table,
        claimed_methods(ABOUT_ROBUSTNESS),
        "the paper's claims about robustness, with verdicts",
    ),
    "streams": View(
        stream_table, STREAM_METHODS, "streams that change, against the source (`bench streams`)"
    ),
    "streams-domains": View(
        stream_domain_table, STREAM_METHODS, "accuracy on each domain of streams that change"
    ),
    "streams-visits": View(
        stream_visit_table, STREAM_METHODS, "accuracy on each visit of streams that come back"
    ),
    "fine-tuned": View(
        fine_tuned_table,
        ("source", TENT_ON_SOURCE, "bn", "tent"),
        "pre-trained against fine-tuned networks (`bench fine-tuned`)",
    ),
}


AnyView = TypeVar("AnyView")


def find_view(name: str, views: Mapping[str, AnyView], kind: str = "table") -> AnyView:
    """The table, or what else they are, of this name."""
    check_choice(kind, name, views)
    return views[name]
