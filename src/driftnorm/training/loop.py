"""The training loop, written once for every kind of training.

A kind of training brings a step function, which trains on one batch and returns its losses, and a
source, which gives the batch of a step as a pure function of its number. The loop brings everything
around them: learning rates, random numbers, records, evaluation, checkpoints, the time budget,
stopping. Since batches and random numbers follow from the number of the step, a run that was
killed and resumed from its last checkpoint ends with the same bits as one that was not.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import nn

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm._internal.interrupts import stop_requests
from driftnorm.errors import TrainingError
from driftnorm.training.batches import random_numbers
from driftnorm.training.schedule import Schedule, constant

Stop = Literal["finished", "budget", "interrupted"]


@dataclasses.dataclass
class TrainState:
    """All that training changes.

    Attributes:
        module: The network, with whatever else has parameters or buffers.
        optimizers: By name; the loop sets their learning rates.
    """

    module: nn.Module
    optimizers: Mapping[str, torch.optim.Optimizer]


BatchT = TypeVar("BatchT")
BatchIn = TypeVar("BatchIn", contravariant=True)
BatchOut = TypeVar("BatchOut", covariant=True)


class Source(Protocol[BatchOut]):
    """Gives the batch of a step, counted from 0: the same for every call."""

    def __call__(self, step: int, /) -> BatchOut:
        """The batch."""
        ...


class StepFunction(Protocol[BatchIn]):
    """Trains on one batch and returns its losses and other numbers to be shown."""

    def __call__(self, state: TrainState, batch: BatchIn, /) -> Mapping[str, float]:
        """Changes the state in place."""
        ...


@dataclasses.dataclass
class Progress:
    """How far a run is; plain numbers, saved with every checkpoint.

    Attributes:
        steps: Planned in all.
        step: Done so far.
        seconds: Spent so far, over all resumptions.
        history: One record every so often: step, seconds, means of the losses since the last one.
        sums: Of the losses since the last record.
        summed: Number of steps in them.
    """

    steps: int
    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    summed: int = 0

    def __post_init__(self) -> None:
        check_whole("steps", self.steps)


class Keeper(Protocol):
    """Keeps checkpoints."""

    def save(self, state: TrainState, progress: Progress) -> None:
        """Replaces the last checkpoint."""
        ...


def _nothing(*_: Any) -> None:
    return None


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Called during training; for progress bars and logs, not for changing it.

    Attributes:
        on_step: After each step, with the progress and the step's losses.
        on_record: With each new record of the history.
        on_checkpoint: After each checkpoint, with the progress.
    """

    on_step: Callable[[Progress, Mapping[str, float]], None] = _nothing
    on_record: Callable[[Mapping[str, float]], None] = _nothing
    on_checkpoint: Callable[[Progress], None] = _nothing


@dataclasses.dataclass(frozen=True)
class LoopSettings:
    """How to run.

    Attributes:
        seed: Of whatever the network itself draws, such as dropout.
        schedule: Factor of the learning rates by the part of the run that is done.
        budget_seconds: Stop when this much time is spent; None for no limit.
        checkpoint_seconds: Time between checkpoints.
        record_every: Steps between records.
        first_record: The step of the first one; 0 leaves it to `record_every`.
    """

    seed: int = 0
    schedule: Schedule = constant
    budget_seconds: float | None = None
    checkpoint_seconds: float = 60.0
    record_every: int = 100
    first_record: int = 0

    def __post_init__(self) -> None:
        for name in ("budget_seconds", "checkpoint_seconds", "record_every"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, most=math.inf)

    def records(self, step: int) -> bool:
        """Whether a record follows the step, counted from 1."""
        return step >= self.first_record and (step - self.first_record) % self.record_every == 0


def train(
    state: TrainState,
    source: Source[BatchT],
    step: StepFunction[BatchT],
    progress: Progress,
    settings: LoopSettings,
    *,
    keeper: Keeper,
    evaluate: Callable[[TrainState], Mapping[str, float]] | None = None,
    enough: Callable[[], bool] = lambda: False,
    hooks: Hooks | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Stop:
    """Trains from where `progress` is until it is done, out of time, or told to stop.

    Args:
        state: Changed in place.
        source: Gives the batches.
        step: Trains on one.
        progress: Changed in place.
        settings: How to run.
        keeper: Gets a checkpoint at the start, every so often, and at the end.
        evaluate: Its numbers are added to every record.
        enough: Ends the run as finished before its last step, for methods that decide so.
        hooks: Called during training.
        clock: Tells the time in seconds.

    Returns:
        Why it ended. Ctrl-C and SIGTERM count as "interrupted": the step at hand is finished and a
        checkpoint kept.

    Raises:
        TrainingError: A loss is not finite. The last checkpoint stays as it is.
    """
    hooks = hooks or Hooks()
    started = clock() - progress.seconds
    keeper.save(state, progress)
    saved = clock()
    with stop_requests() as stopped, torch.random.fork_rng(devices=[]):
        while (reason := _reason_to_stop(progress, settings, enough(), stopped())) is None:
            losses = _one_step(state, source, step, progress, settings)
            progress.seconds = clock() - started
            hooks.on_step(progress, losses)
            if settings.records(progress.step) or progress.step == progress.steps:
                _record(progress, {} if evaluate is None else evaluate(state))
                hooks.on_record(progress.history[-1])
                progress.seconds = clock() - started
            if clock() - saved >= settings.checkpoint_seconds:
                keeper.save(state, progress)
                hooks.on_checkpoint(progress)
                saved = clock()
    keeper.save(state, progress)
    hooks.on_checkpoint(progress)
    return reason


def _reason_to_stop(
    progress: Progress, settings: LoopSettings, enough: bool, stopped: bool
) -> Stop | None:
    if progress.step >= progress.steps or enough:
        return "finished"
    if stopped:
        return "interrupted"
    out_of_time = settings.budget_seconds is not None and progress.seconds > settings.budget_seconds
    return "budget" if out_of_time else None


def _one_step(
    state: TrainState,
    source: Source[BatchT],
    step: StepFunction[BatchT],
    progress: Progress,
    settings: LoopSettings,
) -> Mapping[str, float]:
    number = progress.step
    factor = settings.schedule(number / progress.steps)
    for optimizer in state.optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
    torch.manual_seed(int(random_numbers(settings.seed, "network", number).integers(2**63)))
    losses = step(state, source(number))
    for name, value in losses.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"step {number + 1} of {progress.steps}: `{name}` is {value}; training cannot go "
                "on from there. Checkpoints of earlier steps are kept; start again with a lower "
                "learning rate."
            )
        progress.sums[name] = progress.sums.get(name, 0.0) + value
    progress.summed += 1
    progress.step += 1
    return losses


def _record(progress: Progress, measured: Mapping[str, float]) -> None:
    means = {name: total / progress.summed for name, total in progress.sums.items()}
    seconds = round(progress.seconds, 3)
    progress.history.append({"step": progress.step, "seconds": seconds, **means, **measured})
    progress.sums, progress.summed = {}, 0
