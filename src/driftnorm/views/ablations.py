"""The paper's comparisons of settings of one network: rows are settings, each a method's word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from driftnorm._internal.counts import agreeing
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE, TENT_STOPPED
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import (
    change_cell,
    check_same,
    clean_error,
    mean_error,
    methods_of,
    note_of,
)
from driftnorm.views.paper import SETTINGS, beside_paper, difference, severity_5_note
from driftnorm.views.table import Column, Table


class Setting(NamedTuple):
    """A line of a table: the method's word, what the paper calls it, what the paper measured."""

    method: str
    names: tuple[str, ...]
    paper: tuple[float | None, ...]


def _setting(method: str, *names: str) -> Setting:
    """With the paper's numbers for its standard network and for the one trained with AugMix."""
    return Setting(method, names, SETTINGS[method])


INTRO = tuple(
    each._replace(paper=each.paper[1:])
    for each in (
        _setting("source", "source", ""),
        _setting(TENT_ON_SOURCE, "source", "+ Tent"),
        _setting("bn", "target", ""),
        _setting("tent", "target", "+ Tent"),
        _setting(TENT_STOPPED, "target", "+ Tent(de)"),
    )
)
# BN type, statistics, gradient preserved, running statistics
ABLATION = (
    Setting("bn", ("BN, no step", "batch", "", ""), (None, None)),
    Setting("bn:running=True", ("BN, no step", "running", "", "yes"), (None, None)),
    _setting(TENT_ON_SOURCE, "BN", "source", "", ""),
    _setting("gprebn:statistics=source", "GpreBN", "source", "yes", ""),
    _setting(TENT_STOPPED, "BN(de)", "batch", "", ""),
    _setting("tent", "BN", "batch", "yes", ""),
    _setting("gprebn", "GpreBN", "running", "yes", "yes"),
    _setting("gprebn:momentum=0.1", "GpreBN(EMA)", "running", "yes", "yes"),
)
HALF_TARGET = tuple(
    each._replace(paper=each.paper[:1])
    for each in (
        _setting("source", "no layer"),
        _setting("bn:only=first(0.5)", "the first half of the layers"),
        _setting("bn", "every layer"),
    )
)


def intro_table(rows: Sequence[Row]) -> Table:
    """Tent on source statistics, on target statistics, and with stopped gradients."""
    return _settings_table(
        "Tent on source and on target statistics", INTRO, ("statistics", "step"), ("AM",), rows
    )


def ablation_table(rows: Sequence[Row]) -> Table:
    """What the preserved gradient and the running statistics each bring."""
    heads = ("BN type", "statistics", "gradient preserved", "running")
    title = "Gradient preserving and running statistics"
    return _settings_table(title, ABLATION, heads, ("standard", "AM"), rows)


def half_table(rows: Sequence[Row]) -> Table:
    """Target statistics in the first half of the BN layers only."""
    title = "Where target statistics are needed"
    return _settings_table(
        title, HALF_TARGET, ("target statistics in",), ("standard",), rows, reference="bn"
    )


def _settings_table(
    title: str,
    settings: tuple[Setting, ...],
    heads: tuple[str, ...],
    papers: tuple[str, ...],
    rows: Sequence[Row],
    reference: str = "tent",
) -> Table:
    wanted = [setting.method for setting in settings]
    rows = [row for row in rows if row.method in wanted]
    check_same(rows)
    lacking = sorted(set(wanted) - set(methods_of(rows)))
    if lacking:
        raise MixedRowsError(
            f"{title!r} also needs the {agreeing(len(lacking), 'method', 'methods')} "
            f"{', '.join(lacking)}."
        )
    beside = beside_paper(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method, names, paper in settings:
        change = change_cell(rows, method, reference)
        error, clean = mean_error(rows, method), clean_error(rows, method)
        both = [value for printed in paper for value in (printed, difference(error, printed))]
        lines.append((*names, clean, error, change, *(both if beside.shown else ())))
    networks = papers if beside.shown else ()
    columns = (
        *(Column(head, align="left") for head in heads),
        Column("clean", best="lowest", decimals=2),
        Column("error", best="lowest", decimals=2),
        Column(f"error minus {reference}'s, 95 %"),
        *(
            column
            for network in networks
            for column in (Column(f"paper, {network}"), Column(f"ours minus {network}"))
        ),
    )
    printed = {value for setting in settings for value in setting.paper}
    severest = severity_5_note(printed) if beside.shown else ""
    note = f"{note_of(rows)} Intervals: paired bootstrap over images.{beside.note}{severest}"
    return Table(title, columns, tuple(lines), note).without_empty("clean")
