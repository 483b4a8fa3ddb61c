"""Choosing without looking at the target: DomainBed's three selectors, and T3A's for adaptation.

All are pure functions: histories or rows in, choices out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from driftnorm.records import Row

__all__ = ["Choice", "leave_one_out", "oracle", "select_setting", "training_validation"]

History = Sequence[Mapping[str, float]]


class Choice(NamedTuple):
    """A chosen evaluation of a run: its validation accuracy, the target's accuracy, the step."""

    validation: float
    accuracy: float
    step: int


def _best(choices: Sequence[Choice]) -> Choice | None:
    """The highest validation; NaN ranks last, the first one wins ties."""
    if not choices:
        return None
    return max(choices, key=lambda c: -math.inf if math.isnan(c.validation) else c.validation)


def training_validation(history: History, trained: Sequence[str], target: str) -> Choice | None:
    """The evaluation with the best mean accuracy on the training domains' held-out splits."""
    return _best(
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
    """Validated on domains that were not trained on, in runs that leave out them and the target.

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
    return _best(choices)


def _mean(record: Mapping[str, float], domains: Sequence[str], part: str) -> float:
    return sum(record[f"{domain} {part}"] for domain in domains) / len(domains)


def select_setting(rows: Sequence[Row]) -> list[Row]:
    """T3A's choice: rows of one network and method in, those of the best setting out.

    The best setting has the highest mean accuracy, after adaptation, over the held-out splits of
    the training domains; the first one on ties. What it does on the target is never looked at.
    """
    settings = list(dict.fromkeys(row.cell.options for row in rows))

    def validation(options: object) -> float:
        errors = [
            row.metrics["error"]
            for row in rows
            if row.cell.options == options and row.cell.shift.endswith("/out")
        ]
        return -sum(errors) / len(errors) if errors else -math.inf

    chosen = max(settings, key=validation)
    return [row for row in rows if row.cell.options == chosen]
