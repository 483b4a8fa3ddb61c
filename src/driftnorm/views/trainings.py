"""Finished trainings as DomainBed's tables: one of its three selectors chooses for each target.

Within a data set, algorithm, target and trial, a selector chooses among all hyper-parameters and
evaluations; trials become a mean and a standard error. Pure functions of `history.json` files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from driftnorm._internal.counts import agreeing, counted
from driftnorm._internal.partition import partition
from driftnorm._internal.training_files import BEST, HISTORY, SWAD_FILE
from driftnorm.bench.cell import Trainer
from driftnorm.bench.selection import (
    Choice,
    History,
    best,
    leave_one_out,
    oracle,
    training_validation,
)
from driftnorm.errors import MixedRowsError
from driftnorm.views.domain_rows import mean_text
from driftnorm.views.paper import published
from driftnorm.views.table import Column, Table

Selector: TypeAlias = Literal["training", "leave-one-out", "oracle"]
Options: TypeAlias = tuple[tuple[str, Any], ...]

# What must agree between runs in one table; of one algorithm, also when they were evaluated.
_PROTOCOL = (
    *("data", "content", "backbone", "weights", "batch_norm", "steps", "side"),
    "image_shape",
    *("augmented_validation", "evaluate_images", "precision"),
)
_HPARAMS = ("lr", "weight_decay", "batch_size", "dropout")
_MISSING = "X"
_TITLES = {
    "training": "selected by training-domain validation",
    "leave-one-out": "selected by leave-one-domain-out validation",
    "oracle": "selected by the target's held-out split (oracle)",
}
_CHOSEN_BY = {
    "training": "the mean accuracy on the training domains' held-out splits",
    "leave-one-out": "the accuracy on domains left out of the training as well",
    "oracle": "the last accuracy on the target's held-out split, which is unknown in practice",
}


@dataclass(frozen=True)
class FinishedRun:
    """What a training left in its `history.json`.

    Attributes:
        folder: Of the run.
        identity: Its settings; see `DomainTraining`.
        history: Its evaluations; of SWAD, that of the average alone.
        note: What must be said about the data beside a result.
    """

    folder: Path
    identity: Mapping[str, Any]
    history: History
    note: str = ""

    @property
    def trainer(self) -> Trainer:
        """The algorithm, with SWAD or fixed features if used."""
        identity = self.identity
        return Trainer(identity["algorithm"], identity["swad"], identity.get("features", "trained"))

    @property
    def tested(self) -> frozenset[str]:
        """The domains that were not trained on."""
        return frozenset(self.identity["test_domains"])

    @property
    def domains(self) -> list[str]:
        """All domains, in the order of the set."""
        first = self.history[0]
        return [name[: -len(" out")] for name in first if name.endswith(" out")]

    @property
    def hparams(self) -> Options:
        """What a random search draws."""
        own = {name: self.identity[name] for name in _HPARAMS}
        return (*own.items(), *((name, value) for name, value in self.identity["options"]))

    @property
    def protocol(self) -> Options:
        """What must agree between runs in one table."""
        return tuple((name, self.identity.get(name)) for name in _PROTOCOL)

    @property
    def best_validation(self) -> float:
        """The highest mean accuracy on the training domains' held-out splits; NaN ranks last."""
        found = [record["validation"] for record in self.history]
        return max((value for value in found if not math.isnan(value)), default=-math.inf)

    def needs(self, domain: str) -> None:
        """Raise if a domain's larger split was not evaluated."""
        if any(f"{domain} in" not in record for record in self.history):
            raise ValueError(
                f"{self.folder} has no accuracy on the larger split of {domain}: train it with "
                "--every-split (`driftnorm sweep domains` does)."
            )


def load_runs(folders: Iterable[Path]) -> list[FinishedRun]:
    """Every finished training below these folders, each once."""
    places = [*folders]
    files = {path.resolve(): path for place in places for path in place.rglob(HISTORY)}
    runs = [_read(path) for _, path in sorted(files.items())]
    if not runs:
        raise FileNotFoundError(
            f"no finished training (history.json) below {', '.join(map(str, places)) or 'nothing'};"
            " `driftnorm train domains` and `driftnorm sweep domains` leave them."
        )
    return runs


def selected_networks(folder: Path) -> list[Path]:
    """The networks to benchmark among the finished trainings below a folder.

    For every algorithm, target and trial, that of the run with the best validation on the training
    domains. Runs that left out two domains only serve selection, and are ignored.
    """
    best: dict[tuple[Trainer, frozenset[str], int], FinishedRun] = {}
    runs = load_runs([folder])
    for own in partition(runs, _trainer).values():
        _check_alike(own)
    for run in runs:
        trial = _trial(run)
        if len(run.tested) == 1 and (
            trial not in best or run.best_validation > best[trial].best_validation
        ):
            best[trial] = run
    return [run.folder / (SWAD_FILE if run.identity["swad"] else BEST) for run in best.values()]


def _read(path: Path) -> FinishedRun:
    return finished_run(path, json.loads(path.read_text()))


def finished_run(path: Path, kept: Mapping[str, Any]) -> FinishedRun:
    """What a `history.json` of this path holds."""
    if "identity" not in kept or "test_domains" not in kept["identity"]:
        raise ValueError(f"{path} is not a history of `driftnorm train domains`.")
    identity, history = kept["identity"], kept["history"]
    if identity["swad"]:
        if "averaged" not in kept:
            raise ValueError(
                f"{path} does not have the accuracy of SWAD's average (written by an older "
                "driftnorm); remove the folder and train it again."
            )
        # It belongs to no step; with the planned one, runs that ended early compare.
        history = [{**kept["averaged"], "step": identity["steps"]}]
    return FinishedRun(path.parent, identity, history, kept.get("note", ""))


def selected_table(runs: Sequence[FinishedRun], selector: Selector) -> Table:
    """Accuracy by algorithm and target, chosen by one selector, beside DomainBed's."""
    _check(runs)
    data, domains = runs[0].identity["data"], runs[0].domains
    targets = [domain for domain in domains if any(run.tested == {domain} for run in runs)]
    if not targets:
        raise MixedRowsError("no run leaves out one domain alone: there is no target to score.")
    lines: list[tuple[str | float | None, ...]] = []
    for trainer, own in partition(runs, _trainer).items():
        scores = {target: _scores(own, target, selector) for target in targets}
        means = [float(np.mean(found)) for found in scores.values() if found]
        whole = len(means) == len(targets)
        lines.append(
            (
                trainer.label,
                *(mean_text(found) or _MISSING for found in scores.values()),
                float(np.mean(means)) if whole else _MISSING,
                published(selector, data, trainer.printed),
            )
        )
    columns = (
        Column("algorithm"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column("published"),
    )
    return Table(f"{data}, {_TITLES[selector]}", columns, tuple(lines), _note(runs, selector))


def _scores(runs: Sequence[FinishedRun], target: str, selector: Selector) -> list[float]:
    """For each trial, the chosen accuracy on the target in %."""
    trials = partition(runs, lambda run: run.identity["trial_seed"])
    chosen = (best(_choices(own, target, selector)) for _, own in sorted(trials.items()))
    return [100 * choice.accuracy for choice in chosen if choice is not None]


def _choices(runs: Sequence[FinishedRun], target: str, selector: Selector) -> list[Choice]:
    """The choice within each run of one trial that leaves out the target alone."""
    alone = [run for run in runs if run.tested == {target}]
    for run in alone:
        run.needs(target)
    if selector == "training":
        found = [
            training_validation(run.history, [d for d in run.domains if d != target], target)
            for run in alone
        ]
    elif selector == "oracle":
        found = [oracle(run.history, target) for run in alone]
    else:
        found = [leave_one_out(run.history, _left_out(runs, run, target), target) for run in alone]
    return [choice for choice in found if choice is not None]


def _left_out(runs: Sequence[FinishedRun], run: FinishedRun, target: str) -> dict[str, History]:
    """For each other domain, what the run that leaves out it and the target evaluated.

    Runs belong together if their hyper-parameters are equal; a missing run is empty, and then
    nothing is chosen.
    """
    found: dict[str, History] = {}
    for domain in (name for name in run.domains if name != target):
        same = [r for r in runs if r.tested == {target, domain} and r.hparams == run.hparams]
        for other in same:
            other.needs(domain)
        found[domain] = same[0].history if same else []
    return found


def _check(runs: Sequence[FinishedRun]) -> None:
    """Refuse runs that were not trained alike, or not evaluated alike."""
    _check_alike(runs)
    for trainer, own in partition(runs, _trainer).items():
        every = {run.identity["evaluate_every"] for run in own}
        if len(every) > 1:
            raise MixedRowsError(
                f"runs of {trainer.label} differ in `evaluate_every`: {sorted(every)}; a selector "
                "that chooses among more evaluations has an advantage."
            )


def _check_alike(runs: Sequence[FinishedRun]) -> None:
    for name, found in _differences(runs, lambda run: run.protocol):
        raise MixedRowsError(f"these runs differ in `{name}`: {found}; give one kind at a time.")


def _differences(
    runs: Sequence[FinishedRun], of: Callable[[FinishedRun], Options]
) -> list[tuple[str, str]]:
    first = dict(of(runs[0]))
    values = {name: {str(dict(of(run))[name]) for run in runs} for name in first}
    return [(name, " and ".join(sorted(own))) for name, own in values.items() if len(own) > 1]


def _note(runs: Sequence[FinishedRun], selector: Selector) -> str:
    common = runs[0].identity
    side = f"{runs[0].identity['image_shape'][1]} px"
    weights = f" from {common['weights']}" if common["weights"] else ""
    batches = sorted({run.identity["batch_size"] for run in runs})
    every = sorted({run.identity["evaluate_every"] for run in runs})
    trials = sorted({run.identity["trial_seed"] for run in runs})
    tried = [len({run.hparams for run in own}) for own in partition(runs, _trial).values()]
    part, half = common.get("evaluate_images"), common.get("precision", "float32")
    most = "" if part is None else f" on at most {counted(part, 'image')} of each split"
    return (
        f"Accuracy in % on the target's 80 % split, chosen by {_CHOSEN_BY[selector]}. "
        f"{common['data']}, {side}, {common['backbone']}{weights}, batch norm "
        f"{common['batch_norm']}, {counted(common['steps'], 'step')} in {half}, {_span(batches)} "
        f"{agreeing(batches[-1], 'image', 'images')} per domain and step, evaluated every "
        f"{_span(every)} {agreeing(every[-1], 'step', 'steps')}{most}; trials {trials}, +/- "
        "standard error; hyper-parameter settings tried per target and trial: "
        f"{_span(sorted(tried))}. {_MISSING}: not finished. Published: the mean over all targets "
        "of the set, 5,001 steps, 20 settings, 3 trials."
        + "".join(f" {note}" for note in sorted({run.note for run in runs} - {""}))
    )


def _trainer(run: FinishedRun) -> Trainer:
    return run.trainer


def _trial(run: FinishedRun) -> tuple[Trainer, frozenset[str], int]:
    return run.trainer, run.tested, run.identity["trial_seed"]


def _span(numbers: Sequence[int]) -> str:
    low, high = numbers[0], numbers[-1]
    return str(low) if low == high else f"{low} to {high}"


class RunView(NamedTuple):
    """A named table of finished trainings."""

    make: Callable[[Sequence[FinishedRun]], Table]
    help: str


RUN_VIEWS = {
    "selected-training": RunView(
        lambda runs: selected_table(runs, "training"),
        "trainings (not rows), chosen by training-domain validation",
    ),
    "selected-leave-one-out": RunView(
        lambda runs: selected_table(runs, "leave-one-out"),
        "trainings (not rows), chosen by leave-one-domain-out validation",
    ),
    "selected-oracle": RunView(
        lambda runs: selected_table(runs, "oracle"),
        "trainings (not rows), chosen by the target's held-out split",
    ),
}
