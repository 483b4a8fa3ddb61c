"""Many trainings: algorithms x hyper-parameters x trials x domains left out, as DomainBed has them.

A job is one training in a folder of its own, and done when its history is there: killing, resuming
and running twice are the same case. A job that fails leaves its error in ``failed.json`` until it
succeeds; the others continue. Defaults come first, so that an interrupted sweep is still useful.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product, takewhile
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.files import write_atomically
from driftnorm._internal.launch import Launcher, serial
from driftnorm._internal.names import nearest
from driftnorm._internal.processes import WORKER_DIED
from driftnorm._internal.progress import Report, no_report
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.named import open_arrays
from driftnorm.images.domains.splits import seed_hash
from driftnorm.training.domains.algorithms import find_algorithm
from driftnorm.training.domains.domain_run import Cost
from driftnorm.training.domains.domain_training import DomainTraining
from driftnorm.training.domains.plans import PlanOptions, is_swad, settings_of
from driftnorm.training.loop import Stop

FAILED = "failed.json"
Reason: TypeAlias = Stop | Literal["failed", "not started"]


class Job(NamedTuple):
    """One training, and the name of its folder."""

    label: str
    plan: DomainTraining


class Ended(NamedTuple):
    """How a job ended: ``finished``, or why not."""

    job: Job
    reason: Reason
    error: str = ""


@dataclass(frozen=True)
class Sweep:
    """What is trained.

    Attributes:
        options: What all trainings share. As in DomainBed's sweep every split is evaluated and its
            reading of the algorithms is trained, unless they ask for something else.
        algorithms: Their names; ``swad`` stands for SWAD around ERM.
        test_domains: Targets; all domains if empty.
        hparams: How many configurations of hyper-parameters are tried: DomainBed's defaults, then
            draws of its random search.
        trials: How many splits.
        leave_one_out: Train also without every two domains, one of them a target; the
            leave-one-domain-out selector needs these.
        size: Side of the images in pixels.
        cache: Folder of decoded images.
        settings: Hyper-parameters that win over DomainBed's, each for the algorithms that have it.
    """

    options: PlanOptions
    algorithms: tuple[str, ...]
    test_domains: tuple[str, ...] = ()
    hparams: int = 20
    trials: int = 3
    leave_one_out: bool = False
    size: int = 224
    cache: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name in ("hparams", "trials"):
            check_whole(name, getattr(self, name))
        if not self.algorithms:
            raise ValueError("`algorithms` must name at least one training algorithm.")
        known = {name for algorithm in self.algorithms for name in settings_of(algorithm)}
        for name, _ in self.settings:
            if name not in known:
                raise ValueError(
                    f"none of {', '.join(self.algorithms)} has a hyper-parameter `{name}`."
                    f"{nearest(name, known)} Known: {', '.join(sorted(known))}."
                )

    def arrays(self, progress: Report = no_report) -> DomainArrays:
        """The data."""
        return open_arrays(self.options.data, self.size, self.cache, progress)

    def jobs(self, arrays: DomainArrays) -> list[Job]:
        """Every training: configuration by configuration, the defaults first."""
        left_out = self._left_out(arrays)
        seeds = product(range(self.hparams), range(self.trials))
        return [
            self._job(arrays, algorithm, tested, *own)
            for own in seeds
            for tested in left_out
            for algorithm in self.algorithms
        ]

    def missing(self, folder: Path, arrays: DomainArrays) -> list[Job]:
        """The jobs that are not done."""
        return [
            job
            for job in self.jobs(arrays)
            if job.plan.finished(arrays, folder / job.label) is None
        ]

    def run(
        self,
        folder: Path,
        launcher: Launcher = serial,
        workers: int = 1,
        *,
        seconds: float | None = None,
    ) -> Iterator[Ended]:
        """Train what is not done.

        Args:
            folder: Holds a folder for each job.
            launcher: Runs them.
            workers: How many at a time.
            seconds: After these, no job starts, and those at work stop at their next step.

        Yields:
            Each job as it ends. An interrupted one is the last.
        """
        deadline = None if seconds is None else time.time() + seconds
        tasks = (
            Task(self, job, folder / job.label, deadline)
            for job in self.missing(folder, self.arrays())
        )
        in_time = takewhile(lambda task: task.seconds_left() > 0, tasks)
        for _, ended in launcher(train_job, in_time, workers, give_up):
            yield ended
            if ended.reason == "interrupted":
                return

    def _left_out(self, arrays: DomainArrays) -> list[tuple[int, ...]]:
        names = [domain.name for domain in arrays.domains]
        targets = {arrays.index(name) for name in self.test_domains or names}
        alone: list[tuple[int, ...]] = [(index,) for index in sorted(targets)]
        if not self.leave_one_out:
            return alone
        if len(names) < 3:
            raise ValueError(
                f"`leave_one_out` trains without every two domains, and {arrays.name} has only "
                f"{len(names)}."
            )
        pairs = combinations(range(len(names)), 2)
        return [*alone, *(pair for pair in pairs if targets & {*pair})]

    def _job(
        self,
        arrays: DomainArrays,
        algorithm: str,
        tested: tuple[int, ...],
        hparams_seed: int,
        trial_seed: int,
    ) -> Job:
        names = [arrays.domains[index].name for index in tested]
        options = replace(
            self.options,
            every_split=self.options.every_split is not False,
            reading=self.options.reading or "domainbed",
        )
        own = settings_of(algorithm)
        plan = options.plan(
            algorithm,
            names,
            settings=[(name, value) for name, value in self.settings if name in own],
            hparams_seed=hparams_seed,
            trial_seed=trial_seed,
            seed=job_seed(arrays.name, algorithm, tested, hparams_seed, trial_seed),
            data_name=arrays.name,
        )
        words = f"{algorithm.lower()} {' and '.join(names)} h{hparams_seed} t{trial_seed}"
        return Job(words.replace(" ", "-").replace("/", "-"), plan)


def job_seed(
    data: str, algorithm: str, tested: Sequence[int], hparams_seed: int, trial_seed: int
) -> int:
    """DomainBed's seed of a job, from its own spelling of the algorithm.

    >>> job_seed("PACS", "erm", [0], 0, 0)
    94828300
    """
    spelling = "SWAD" if is_swad(algorithm) else find_algorithm(algorithm).__name__
    return seed_hash(data, spelling, [*tested], hparams_seed, trial_seed)


class Task(NamedTuple):
    """One job, where it goes, and the time on the clock when it must stop."""

    sweep: Sweep
    job: Job
    folder: Path
    deadline: float | None

    def seconds_left(self) -> float:
        """Until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.time()


# Set in a worker process that was told to stop: Ctrl-C reaches all of them, and the jobs that wait
# in their queue, which cannot be taken back, must not begin.
_told_to_stop = threading.Event()


def train_job(task: Task) -> Ended:
    """Train, and keep the error if it fails."""
    left, path = task.seconds_left(), task.folder / FAILED
    if left <= 0 or _told_to_stop.is_set():
        return Ended(task.job, "not started")
    try:
        outcome = task.job.plan.run(
            task.sweep.arrays(), task.folder, more_seconds=None if math.isinf(left) else left
        )
    except Exception as error:  # whatever it is, the other jobs must not suffer from it
        return _failed(task, f"{type(error).__name__}: {error}")
    path.unlink(missing_ok=True)
    if outcome.stop == "interrupted" and parent_process() is not None:
        _told_to_stop.set()
    return Ended(task.job, outcome.stop)


def give_up(task: Task) -> Ended:
    """How a job ends whose process died; its checkpoints are kept."""
    return _failed(task, WORKER_DIED)


def _failed(task: Task, error: str) -> Ended:
    task.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"job": task.job.label, "error": error})
    write_atomically(task.folder / FAILED, text + "\n")
    return Ended(task.job, "failed", error)


def estimated_seconds(jobs: Sequence[Job], arrays: DomainArrays) -> float:
    """How long jobs take one after the other, from one step and one evaluation batch of each kind.

    A kind is an algorithm; the time of a step is scaled by batch size and number of domains.
    """
    costs: dict[tuple[str, bool], Cost] = {}
    total = 0.0
    for job in jobs:
        plan = job.plan
        kind = plan.algorithm, plan.swad
        images = plan.batch_size * (len(arrays.domains) - len(plan.test_domains))
        if kind not in costs:
            measured = plan.timed(arrays)
            costs[kind] = Cost(measured.step / images, measured.image)
        parts = [
            len(part[: plan.evaluate_images])
            for split in arrays.splits(plan.trial_seed)
            for part in ((split.out, split.inner) if plan.every_split else (split.out,))
        ]
        evaluations = 1 + math.ceil((plan.steps - 1) / plan.evaluate_every)
        total += costs[kind].step * images * plan.steps
        total += costs[kind].image * sum(parts) * evaluations
    return total
