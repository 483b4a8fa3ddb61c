"""Learning rates over a run, and how many steps fit a time budget."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from driftnorm._internal.arguments import check_number

if TYPE_CHECKING:
    from driftnorm.training.loop import BatchT, Source, StepFunction, TrainState

Schedule = Callable[[float], float]  # part of the run that is done -> factor of the learning rate

WARM_UP_STEPS = 2  # the first steps allocate memory and choose kernels
PLANNED_PART = 0.9  # of a time budget; the rest is for checkpoints and a busier machine


def constant(done: float) -> float:
    """Always the full rate."""
    return 1.0


def cosine(floor: float = 0.0) -> Schedule:
    """Half a cosine from 1 down to `floor` (Loshchilov and Hutter, SGDR, ICLR 2017)."""
    check_number("floor", floor, least=0, most=1)
    return lambda done: floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2


def seconds_a_step(
    state: TrainState,
    source: Source[BatchT],
    step: StepFunction[BatchT],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Times the first steps on a copy, so that the run itself starts untouched.

    Args:
        state: What would be trained.
        source: Gives the batches.
        step: Trains on one.
        seconds: How long to measure; at least one step is.
        clock: Tells the time in seconds.

    Returns:
        Mean duration of a step.
    """
    trial = copy.deepcopy(state)
    with torch.random.fork_rng(devices=[]):
        for number in range(WARM_UP_STEPS):
            step(trial, source(number))
        begun, spent, done = clock(), 0.0, 0
        while not done or spent < seconds:
            step(trial, source(WARM_UP_STEPS + done))
            spent, done = clock() - begun, done + 1
    return spent / done


def steps_within(budget: float, step_seconds: float, at_most: int) -> int:
    """How many steps to plan for a budget in seconds; at least one."""
    return max(1, min(at_most, int(PLANNED_PART * budget / step_seconds)))
