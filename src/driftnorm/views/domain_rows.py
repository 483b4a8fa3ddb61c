"""What every table of the domain study does with rows: check, select, average, compare.

Pure functions, no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from driftnorm._internal.partition import partition
from driftnorm.bench.cell import Trainer, Training
from driftnorm.bench.metrics import Interval, interval_over_runs, standard_error
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row
from driftnorm.bench.selection import agrees, select_setting, without_source
from driftnorm.bench.vocabulary import TARGET, VALIDATION
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import (
    by_method,
    check_protocol,
    check_some,
    error_of,
    notes_of,
    one_batch_note,
    paired_change,
)


def training_of(row: Row) -> Training:
    """How a row's network was trained; it must have been on domains."""
    training = row.cell.network.training
    if training is None or training.trial is None:
        raise MixedRowsError(f"{row.network!r} is not a network of `driftnorm train domains`.")
    return training


def trainer_of(row: Row) -> Trainer:
    """The algorithm that trained a row's network."""
    return training_of(row).trainer


def trial_of(row: Row) -> int:
    """The trial of a row's network."""
    return training_of(row).trial or 0


def published_set(rows: Sequence[Row]) -> str:
    """The published set that rows are of; empty for the user's own data, even if they resemble one.

    If the data differ from the published set, a note says how.
    """
    return "" if notes_of(rows) or not rows else rows[0].cell.stream.data.name


def with_trained_features(rows: Sequence[Row]) -> list[Row]:
    """Rows whose networks were trained completely."""
    return [row for row in rows if trainer_of(row).features == "trained"]


def _check_networks(rows: Sequence[Row]) -> None:
    """Refuse to average over networks as if they were trials."""
    kinds: dict[Trainer, str] = {}
    known: dict[tuple[Trainer, tuple[str, ...], int], str] = {}
    for row in rows:
        trainer, kind = trainer_of(row), row.cell.network.kind
        if kinds.setdefault(trainer, kind) != kind:
            raise MixedRowsError(
                f"networks of two kinds, both trained by {trainer.label}, cannot be mixed: "
                f"{kinds[trainer]}, and {kind}."
            )
        trial = trainer, training_of(row).left_out, trial_of(row)
        if known.setdefault(trial, row.network) != row.network:
            raise MixedRowsError(
                f"{known[trial]!r} and {row.network!r} are two networks of one trial: a table "
                "shows one. Give the rows of one of them (a folder that `driftnorm bench domains` "
                "gets as `--models` gives the one selected by validation)."
            )


def check_protocol_of_streams(rows: Sequence[Row]) -> None:
    """Refuse to mix data sets, batch sizes or networks; streams may differ in length."""
    check_some(rows)
    _check_networks(rows)
    for _, own in sorted(partition(rows, _network_and_stream).items()):
        check_protocol([_without_settings(row) for row in own])
    kinds = {(r.cell.stream.data.label, r.cell.protocol.batch_size) for r in rows}
    if len(kinds) > 1:
        raise MixedRowsError(f"data and batch sizes cannot be mixed: {sorted(kinds)}.")


def _network_and_stream(row: Row) -> tuple[str, str]:
    return row.cell.stream.label, row.network


def _without_settings(row: Row) -> Row:
    return replace(row, cell=replace(row.cell, method=replace(row.cell.method, settings=())))


def at_selected(rows: Sequence[Row]) -> list[Row]:
    """For every network and method, the rows of the selected setting."""
    check_protocol_of_streams(rows)
    chosen = []
    for model in _models(rows):
        for own in by_method(model).values():
            chosen += select_setting(own)
    return chosen


def at_theta_one(rows: Sequence[Row]) -> list[Row]:
    """For every network and method with theta, the best validated setting at theta 1."""
    target = without_source(rows)
    return at_selected(target) if target else []


def at_tents(rows: Sequence[Row]) -> list[Row]:
    """For every network, the rows that share the setting selected for Tent."""
    check_protocol_of_streams(rows)
    shared = []
    for model in _models(rows):
        tents = [row for row in model if row.method == "tent"]
        if not tents:
            raise MixedRowsError("the ablation shares the setting selected for `tent`: run it too.")
        chosen = select_setting(tents)[0].cell.method.settings
        shared += [row for row in model if agrees(row.cell.method.settings, chosen)]
    return shared


def _models(rows: Sequence[Row]) -> list[list[Row]]:
    return [own for _, own in sorted(partition(rows, lambda row: row.network).items())]


def targets_of(rows: Sequence[Row]) -> list[str]:
    """The target domains in the rows."""
    found = {row.shift for row in on_targets(rows)}
    if not found:
        raise MixedRowsError("no row is of a target domain: the run is not finished.")
    return sorted(found)


def of_target(rows: Sequence[Row], target: str) -> list[float]:
    """Accuracies on a target domain in %, one per network: orders are not trials."""
    own = [row for row in on_targets(rows) if row.shift == target]
    return [100 - error_of(model) for model in _models(own)]


def mean_text(scores: Sequence[float]) -> str | None:
    """Mean and DomainBed's standard error of accuracies in %; None without any.

    >>> mean_text([10, 20, 30])
    '20.0 +/- 4.7'
    """
    if not scores:
        return None
    spread = f" +/- {standard_error([*scores]):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread}"


def average(rows: Sequence[Row], targets: Sequence[str]) -> float | None:
    """Mean of the targets' means; None while a target is missing."""
    scores = [of_target(rows, target) for target in targets]
    return float(np.mean([np.mean(own) for own in scores])) if all(scores) else None


def change(rows: Sequence[Row], reference: Sequence[Row]) -> Interval:
    """Gain over another method, paired image by image on the targets of both, in points.

    Every target counts the same, however many trials it was run in.
    """
    pairs = _pairs(rows, reference)
    times = Counter(row.shift for row, _ in pairs)
    parts = []
    for own in _by_trial(pairs).values():
        factors = [len(own) / (len(times) * times[row.shift]) for row, _ in own]
        parts.append(paired_change(own, factors))
    # Splits of different trials share four images in five. The mean of their intervals is as wide
    # as if they shared all, which is on the safe side.
    return Interval(*(float(sum(ends)) for ends in zip(*parts, strict=True)))


def change_over_trainings(rows: Sequence[Row], reference: Sequence[Row]) -> Interval | None:
    """The same gain with an interval over trainings, on the targets that every trial has.

    None if there is one trial, or if no target was run in all of them.
    """
    by_trial = _by_trial(_pairs(rows, reference))
    shared = set.intersection(*({row.shift for row, _ in own} for own in by_trial.values()))
    if len(by_trial) < 2 or not shared:
        return None
    common = [[pair for pair in own if pair[0].shift in shared] for own in by_trial.values()]
    return interval_over_runs([paired_change(own).value for own in common])


def _pairs(rows: Sequence[Row], reference: Sequence[Row]) -> list[tuple[Row, Row]]:
    before = {place_of(row): row for row in on_targets(reference)}
    pairs = [(row, before[at]) for row in on_targets(rows) if (at := place_of(row)) in before]
    if not pairs:
        raise MixedRowsError("no target has rows of both methods: the run is not finished.")
    return pairs


def _by_trial(pairs: Sequence[tuple[Row, Row]]) -> dict[int, list[tuple[Row, Row]]]:
    return dict(sorted(partition(pairs, lambda pair: trial_of(pair[0])).items()))


def change_text(rows: Sequence[Row], reference: Sequence[Row]) -> str:
    """Such as ``+1.3 [+0.9, +1.7]``."""
    return interval_text(change(rows, reference))


def interval_text(found: Interval) -> str:
    """A difference in points with its interval."""
    return f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def on_targets(rows: Sequence[Row]) -> list[Row]:
    """Rows that are results, not validation."""
    return [row for row in rows if row.cell.stream.split == TARGET]


def place_of(row: Row) -> tuple[str, str, int]:
    """What must agree between rows that are compared: network, stream, order."""
    return row.network, row.cell.stream.label, row.seed


def note_of(rows: Sequence[Row]) -> str:
    """The protocol, and whatever else must be shown with the numbers."""
    trials = sorted({trial_of(row) for row in rows})
    protocol = protocol_text(row.cell for row in on_targets(rows))
    networks = ", ".join(sorted({row.cell.network.kind for row in rows} - {""}))
    settings = {(row.network, row.method, row.cell.method.settings) for row in rows}
    several = len(settings) > len({(model, method) for model, method, _ in settings})
    held_out = {row.cell.stream.count for row in rows if row.cell.stream.split == VALIDATION}
    chosen = (
        "; settings selected on the training domains' held-out splits "
        f"({' or '.join(f'{count:,}' for count in sorted(held_out))} images each) after adaptation"
    )
    return (
        f"Accuracy in % on the target's 80 % split. {networks and networks + '. '}{protocol}"
        f"{chosen if several else ''}; trials {trials}, +/- standard error. "
        "Intervals: paired bootstrap over images, which says nothing about other training runs."
        + "".join(f" {note}" for note in notes_of(rows))
        + one_batch_note(on_targets(rows))
    )
