"""Choosing without looking at the target: DomainBed's three selectors, and T3A's for adaptation.

All are pure functions: histories or rows in, choices out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from driftnorm._internal.counts import counted
from driftnorm._internal.options import Options
from driftnorm.bench.cell import Cell
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import ABLATIONS, VALIDATION
from driftnorm.errors import MixedRowsError

History = Sequence[Mapping[str, float]]

SEARCHED = ("rho", "steps", "theta", "target_weight", "supports")
"""The hyper-parameters that are selected; the first ones break ties."""


class Choice(NamedTuple):
    """A chosen evaluation of a run: its validation accuracy, the target's accuracy, the step."""

    validation: float
    accuracy: float
    step: int


def best(choices: Sequence[Choice]) -> Choice | None:
    """The highest validation; NaN ranks last, the first one wins ties."""
    if not choices:
        return None
    return max(choices, key=lambda c: -math.inf if math.isnan(c.validation) else c.validation)


def training_validation(history: History, trained: Sequence[str], target: str) -> Choice | None:
    """The evaluation with the best mean accuracy on the training domains' held-out splits."""
    return best(
        [
            Choice(_mean(record, trained, "out"), record[f"{target} in"], int(record["step"]))
            for record in history
        ]
    )


def oracle(history: History, target: str) -> Choice | None:
    """The last evaluation, validated on the target's held-out split: no early stopping."""
    if not history:
        return None
    last = history[-1]
    return Choice(last[f"{target} out"], last[f"{target} in"], int(last["step"]))


def leave_one_out(history: History, held_out: Mapping[str, History], target: str) -> Choice | None:
    """Validated on held-out training domains, in runs that leave out both them and the target.

    Args:
        history: Of the run that leaves out the target alone.
        held_out: For each other domain v, the history of the run that leaves out the target and v.
        target: Its name.

    Returns:
        The step with the best mean of v's accuracies in those runs; None if any run is missing
        or no step was evaluated in all of them.
    """
    by_step = {
        domain: {int(record["step"]): record[f"{domain} in"] for record in own}
        for domain, own in held_out.items()
    }
    choices = []
    for record in history:
        step = int(record["step"])
        scores = [own[step] for own in by_step.values() if step in own]
        if by_step and len(scores) == len(by_step):
            choices.append(Choice(sum(scores) / len(scores), record[f"{target} in"], step))
    return best(choices)


def _mean(record: Mapping[str, float], domains: Sequence[str], part: str) -> float:
    return sum(record[f"{domain} {part}"] for domain in domains) / len(domains)


def select_setting(rows: Sequence[Row]) -> list[Row]:
    """T3A's choice: rows of one network and method in, those of the best setting out.

    The best setting has the highest mean accuracy, after adaptation, over the held-out splits of
    the training domains; on ties the one with the smaller values. Neither the target's rows nor the
    order of the rows matter.

    Raises:
        MixedRowsError: Not every setting was validated on every stream.
    """
    settings = sorted({row.cell.method.settings for row in rows}, key=_size)
    held_out = [row for row in rows if row.cell.stream.split == VALIDATION]
    errors: dict[Options, dict[tuple[str, int], float]] = {options: {} for options in settings}
    for row in held_out:
        errors[row.cell.method.settings][row.shift, row.seed] = row.metrics["error"]
    streams = {stream for own in errors.values() for stream in own}
    lacking = [options for options, own in errors.items() if len(own) < max(len(streams), 1)]
    if lacking and len(settings) > 1:
        raise MixedRowsError(
            f"{rows[0].method} at {dict(lacking[0])} was validated on {len(errors[lacking[0]])} of "
            f"{counted(len(streams), 'stream')} ({rows[0].network}): nothing can be selected "
            "before the run is finished."
        )

    def validation(options: Options) -> float:
        own = errors[options].values()
        # A plain sum would depend on the order, and so would ties.
        return -math.fsum(own) / len(own) if own else -math.inf

    chosen = max(settings, key=validation)
    return [row for row in rows if row.cell.method.settings == chosen]


def _size(settings: Options) -> tuple[float, ...]:
    values = dict(settings)
    ordered = (values[name] for name in SEARCHED if name in values)
    return tuple(math.inf if value < 0 else value for value in ordered)  # -1 supports: all


def agrees(settings: Options, with_tents: Options) -> bool:
    """Whether a setting agrees with Tent's where Tent has one, and uses target statistics only."""
    own, chosen = dict(settings), dict(with_tents)
    return all(chosen[name] == own[name] for name in chosen.keys() & own.keys()) and (
        own.get("theta", 1.0) == 1.0
    )


def without_source(rows: Sequence[Row]) -> list[Row]:
    """Those without a share of the source's statistics (theta 1)."""
    return [row for row in rows if dict(row.cell.method.settings).get("theta") == 1.0]


def shown_cells(cells: Sequence[Cell], validation: Sequence[Row]) -> list[Cell]:
    """Those of a network's cells on its target that a table shows.

    Args:
        cells: Of all methods and settings.
        validation: The same network's rows on the held-out splits of its training domains.

    Returns:
        The cells of the setting selected for their method; of the ablations' methods also those of
        the best setting without the source's statistics, and those that agree with Tent's.
    """
    chosen: dict[str, set[Options]] = defaultdict(set)
    tents = None
    for method in dict.fromkeys(row.method for row in validation):
        own = [row for row in validation if row.method == method]
        with suppress(MixedRowsError):  # a cell failed: it is reported, and the others continue
            best_setting = select_setting(own)[0].cell.method.settings
            chosen[method].add(best_setting)
            tents = best_setting if method == "tent" else tents
            if method in ABLATIONS and (target := without_source(own)):
                chosen[method].add(select_setting(target)[0].cell.method.settings)
    return [
        cell
        for cell in cells
        if cell.method.settings in chosen[cell.method.word]
        or (
            tents is not None
            and cell.method.word in ABLATIONS
            and agrees(cell.method.settings, tents)
        )
    ]


def most_settings(method: str, settings: Sequence[Options], tents: Sequence[Options]) -> int:
    """How many settings of a method `shown_cells` can pick at most.

    Args:
        method: Its word.
        settings: All that are tried.
        tents: All that are tried of Tent; empty if it is not measured.
    """
    if method == "tent" or method not in ABLATIONS:
        return 1
    alone = any(dict(own).get("theta") == 1.0 for own in settings)
    shared = max((sum(agrees(own, each) for own in settings) for each in tents), default=0)
    return min(len(settings), 1 + alone + shared)
