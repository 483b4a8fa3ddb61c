"""One training run and its files, whatever is trained: identity, lock, resume, budget, result.

A kind of training says what makes a run this run (its identity), where its files lie and how to
begin; `TrainingRun` brings the rest. A run is finished when its result exists and its resume file
does not: killing, resuming and asking twice are the same case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple

import torch

from driftnorm._internal.files import exclusive
from driftnorm.models.checkpoint_files import facts_in
from driftnorm.training.loop import (
    BatchT,
    Hooks,
    LoopSettings,
    Progress,
    Source,
    StepFunction,
    Stop,
    TrainState,
    train,
)
from driftnorm.training.resume_file import ResumeFile, check_identity


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        stop: Why it ended.
        step: Steps done.
        steps: Steps planned.
        seconds: Spent in training, over all resumptions.
        history: Its records.
        files: The networks that it saved; none if it was interrupted.
        accuracy: Of the network, where the kind of training measures it at the end.
        earlier: Whether it was finished already and nothing had to be done.
    """

    stop: Stop
    step: int
    steps: int
    seconds: float
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    files: tuple[Path, ...] = ()
    accuracy: float | None = None
    earlier: bool = False


class Saved(NamedTuple):
    """What a run left: its networks, and the accuracy if it was measured."""

    files: tuple[Path, ...]
    accuracy: float | None = None


class Limits(NamedTuple):
    """How long to train, and how often to keep a checkpoint.

    Attributes:
        budget_seconds: Stop when the run took this long, over all resumptions.
        more_seconds: Stop this long from now on, whatever it took before.
        checkpoint_seconds: Time between checkpoints.
    """

    budget_seconds: float | None = None
    more_seconds: float | None = None
    checkpoint_seconds: float = 60.0

    def applied(self, settings: LoopSettings, progress: Progress) -> LoopSettings:
        """The loop's settings within these limits."""
        more = None if self.more_seconds is None else progress.seconds + self.more_seconds
        given = [limit for limit in (self.budget_seconds, more) if limit is not None]
        return dataclasses.replace(
            settings,
            budget_seconds=min(given, default=None),
            checkpoint_seconds=self.checkpoint_seconds,
        )


@dataclasses.dataclass(frozen=True)
class Work(Generic[BatchT]):
    """What a kind of training brings to the loop.

    Attributes:
        state: What is trained.
        source: Gives the batches.
        step: Trains on one.
        plan: Makes the progress of a run that has not begun.
        settings: Of the loop, for a run's progress.
        save: Saves the result of a run that was not interrupted.
        evaluate: Its numbers are added to every record.
        enough: Ends the run before its last step.
        on_record: Called with each record, before the hooks are.
    """

    state: TrainState
    source: Source[BatchT]
    step: StepFunction[BatchT]
    plan: Callable[[], Progress]
    settings: Callable[[Progress], LoopSettings]
    save: Callable[[Progress, Stop], Saved]
    evaluate: Callable[[TrainState], Mapping[str, float]] | None = None
    enough: Callable[[], bool] = lambda: False
    on_record: Callable[[Progress, Mapping[str, float]], None] = lambda progress, record: None


@dataclasses.dataclass(frozen=True)
class TrainingRun(Generic[BatchT]):
    """One run.

    Attributes:
        identity: All that the result depends on, fit for JSON.
        result: The file that is there when the run is finished.
        resume: The last checkpoint of an unfinished run.
        lock: Held while training.
        read: The identity and the outcome that a result file tells.
        begin: Makes all that training needs; changes none of the files.
    """

    identity: Mapping[str, Any]
    result: Path
    resume: Path
    lock: Path
    read: Callable[[Path], tuple[Mapping[str, Any], Outcome]]
    begin: Callable[[], Work[BatchT]]

    def finished(self) -> Outcome | None:
        """What the run left, or None if it is not finished.

        Raises:
            TrainingError: The result is another run's.
        """
        if self.resume.exists() or not self.result.exists():
            return None
        identity, outcome = self.read(self.result)
        check_identity(self.result, identity, self.identity)
        return dataclasses.replace(outcome, earlier=True)

    def run(
        self,
        limits: Limits,
        hooks: Hooks | None = None,
        tell: Callable[[str], None] = lambda text: None,
        on_begin: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Train, or resume where an earlier run into the same files stopped.

        Args:
            limits: How long, and how often to keep a checkpoint.
            hooks: Called during training.
            tell: Called with a few words about each phase.
            on_begin: Called when all checks have passed and training begins.
        """
        finished = self.finished()
        if finished is not None:
            return finished
        work = self.begin()  # what cannot be trained leaves no folder behind
        self.result.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self.lock, f"Another process trains into {self.result.parent}."):
            # The process that held the lock before may have finished it.
            return self.finished() or self._train(work, limits, hooks or Hooks(), tell, on_begin)

    def _train(
        self,
        work: Work[BatchT],
        limits: Limits,
        hooks: Hooks,
        tell: Callable[[str], None],
        on_begin: Callable[[], object],
    ) -> Outcome:
        keeper = ResumeFile(self.resume, self.identity)
        progress = keeper.restore(work.state) if self.resume.exists() else None
        on_begin()
        if progress is None:
            progress = work.plan()
        else:
            tell(f"resuming at step {progress.step} of {progress.steps}")

        def record(numbers: Mapping[str, float]) -> None:
            work.on_record(progress, numbers)
            hooks.on_record(numbers)

        if progress.step == 0:
            for numbers in progress.history:  # what the plan measured before the first step
                record(numbers)
        tell("training")
        stop = train(
            work.state,
            work.source,
            work.step,
            progress,
            limits.applied(work.settings(progress), progress),
            keeper=keeper,
            evaluate=work.evaluate,
            enough=work.enough,
            hooks=dataclasses.replace(hooks, on_record=record),
        )
        saved = Saved(()) if stop == "interrupted" else work.save(progress, stop)
        if stop == "finished":
            self.resume.unlink()
        return Outcome(
            stop,
            progress.step,
            progress.steps,
            progress.seconds,
            progress.history,
            saved.files,
            saved.accuracy,
        )


def facts_of_run(identity: Mapping[str, Any], progress: Progress, stop: Stop) -> dict[str, Any]:
    """What a network's file says about the run that made it."""
    return {
        "run": dict(identity),
        "stop": stop,
        "steps_done": progress.step,
        "steps_planned": progress.steps,
        "seconds": round(progress.seconds, 1),
        "history": progress.history,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def run_in(file: Path) -> tuple[Mapping[str, Any], Outcome]:
    """The identity and the outcome of the run whose facts are in a network's file.

    A file of other origins has no identity.
    """
    facts = facts_in(file)
    done = facts.get("steps_done", 0)
    outcome = Outcome(
        facts.get("stop", "finished"),
        done,
        facts.get("steps_planned", done),
        facts.get("seconds", 0.0),
        facts.get("history", []),
        (file,),
        facts.get("clean_accuracy"),
    )
    return facts.get("run", {}), outcome
