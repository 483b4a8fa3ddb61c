"""The fine-tuned study: for each corruption a network that was fine-tuned on all the others.

Each network and the pre-trained one meet the corruption that was left out, with source and with
target statistics, without and with Tent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from pathlib import Path
from typing import NamedTuple

from driftnorm._internal.interrupts import stop_requests
from driftnorm._internal.launch import Launcher, serial
from driftnorm._internal.processes import WORKER_DIED
from driftnorm.bench.cell import Cell, Trainer, Training
from driftnorm.bench.rows import Failure, Row, RowStore
from driftnorm.bench.studies.corruptions import Study
from driftnorm.bench.vocabulary import FINE_TUNED, TENT_ON_SOURCE
from driftnorm.methods.spec import parse_method
from driftnorm.training.fine_tuning import FineTuning

__all__ = ["METHODS", "FineTunedStudy", "Outcome"]

METHODS = tuple(map(parse_method, ("source", TENT_ON_SOURCE, "bn", "tent")))

_STOPPED = threading.Event()  # in a worker: calls that wait in its queue are not begun any more


class Outcome(NamedTuple):
    """What became of one corruption: rows and failures, or why its network could not be made."""

    left_out: str
    results: list[Row | Failure]
    error: str | None = None


@dataclass(frozen=True)
class FineTunedStudy:
    """Fine-tuned networks against the one they came from.

    Attributes:
        tuning: How the networks are made.
        pretrained: What is measured on the pre-trained network; its corruptions are left out in
            turn, and what else it says holds for the fine-tuned networks too.
    """

    tuning: FineTuning
    pretrained: Study

    def pools(self) -> list[str]:
        """The corruptions whose training images are not there yet."""
        left_out = self.pretrained.corruptions
        needed = [c for c in self.tuning.corruptions if left_out != (c,)]
        return [c for c in needed if not self.tuning.pool_file(c).exists()]

    def make_pools(self, launcher: Launcher = serial, workers: int = 1) -> Iterator[str]:
        """Corrupt the training images; yields each corruption when it is done."""
        tasks = [(self.tuning, corruption) for corruption in self.pools()]
        for (_, corruption), _ in launcher(_make_pool, tasks, workers):
            yield corruption

    def tuned(self, left_out: str) -> Study:
        """What is measured on the network that did not see a corruption; needs its file."""
        return replace(
            self.pretrained,
            model=str(self.tuning.file(left_out)),
            weights=None,
            corruptions=(left_out,),
            training=self._training(left_out),
            name=FINE_TUNED,
        )

    def _training(self, left_out: str) -> Training:
        tuning = self.tuning
        settings = (
            ("epochs", tuning.optimization.epochs),
            ("images", tuning.images),
            ("learning_rate", tuning.optimization.learning_rate),
            ("seed", tuning.seed),
        )
        return Training(Trainer("fine-tuning"), (left_out,), settings=settings)

    def cells(self) -> list[Cell]:
        """All measurements whose networks are there."""
        cells = self.pretrained.cells()
        for corruption in self.pretrained.corruptions:
            if self.tuning.file(corruption).exists():
                cells += self.tuned(corruption).cells()
        return cells

    def missing(self, store: RowStore) -> list[str]:
        """The corruptions whose network or whose rows are not there yet."""
        return [
            c
            for c in self.pretrained.corruptions
            if not self.tuning.file(c).exists() or not all(map(store.has, self.tuned(c).cells()))
        ]

    def run(
        self, store: RowStore, launcher: Launcher = serial, workers: int = 1
    ) -> Iterator[Outcome]:
        """Fine-tune and measure what is missing; yields an outcome for each corruption."""
        tasks = [Task(self, store.folder, c) for c in self.missing(store)]
        for _, outcome in launcher(tune_and_measure, tasks, workers, _died):
            yield outcome


class Task(NamedTuple):
    """One corruption to leave out."""

    study: FineTunedStudy
    folder: Path
    left_out: str


def tune_and_measure(task: Task) -> Outcome:
    """Make the network without a corruption, then measure it on that corruption."""
    if _STOPPED.is_set():
        raise KeyboardInterrupt
    try:
        return _outcome(task)
    except KeyboardInterrupt:
        if parent_process() is not None:
            _STOPPED.set()
        raise


def _outcome(task: Task) -> Outcome:
    try:
        task.study.tuning.tune(task.left_out)
    except (ValueError, RuntimeError, OSError) as error:
        return Outcome(task.left_out, [], f"{type(error).__name__}: {error}")
    results: list[Row | Failure] = []
    with stop_requests() as stopped:
        for result in task.study.tuned(task.left_out).run(RowStore(task.folder)):
            results.append(result)
            if stopped():
                raise KeyboardInterrupt
    return Outcome(task.left_out, results)


def _died(task: Task) -> Outcome:
    return Outcome(task.left_out, [], WORKER_DIED)


def _make_pool(task: tuple[FineTuning, str]) -> None:
    tuning, corruption = task
    tuning.make_pool(corruption)
