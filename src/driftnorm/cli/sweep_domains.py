"""``driftnorm sweep domains``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.options import read_options
from driftnorm._internal.processes import checked_workers
from driftnorm.cli._config import keep_config
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import (
    MANY,
    OUT,
    RARE,
    SWITCH,
    Cache,
    DryRun,
    Hours,
    Quiet,
    Settings,
    Workers,
)
from driftnorm.cli._output import say
from driftnorm.cli._progress import Bar
from driftnorm.cli._training_flags import Training
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.training.domains.sweep import FAILED, Job, Sweep, estimated_seconds


def sweep_domains(
    *,
    training: Training,
    algorithms: Annotated[list[str], MANY],
    test_domains: Annotated[list[str] | None, MANY] = None,
    hparams: int = 20,
    trials: int = 3,
    leave_one_out: Annotated[bool, SWITCH, Parameter(group=RARE)] = False,
    size: int = 224,
    settings: Settings = (),
    hours: Hours = None,
    dry_run: DryRun = False,
    workers: Workers = None,
    cache: Cache = None,
    out: Annotated[Path, OUT] = Path("runs/sweep"),
    quiet: Quiet = False,
) -> None:
    """Train algorithms with DomainBed's random search; an interrupted sweep resumes.

    Every target domain x algorithm x configuration x trial is one training. The tables `selected-*`
    choose among them.

    Parameters
    ----------
    algorithms
        Any of erm, groupdro, mixup, coral, mmd, irm, arm, mtl, sagnet, rsc, mixstyle, swad.
    test_domains
        The targets; default: each domain in turn.
    hparams
        Configurations, the defaults first.
    trials
        Splits, each with its own configurations.
    leave_one_out
        Also train without each pair of domains, for selected-leave-one-out.
    size
        Height and width of the images.
    settings
        A hyper-parameter, such as gamma=1, of the algorithms that have it; can be repeated.
    hours
        Time budget; the same command again resumes.
    out
        Folder for the trainings.
    """
    given, processes = dict(locals()), checked_workers(workers)
    check_device(training.device)
    sweep = Sweep(
        training,
        tuple(algorithms),
        tuple(test_domains or ()),
        hparams,
        trials,
        leave_one_out,
        size,
        cache,
        read_options(settings),
    )
    console = Console(quiet=quiet)
    with Bar(console) as bar:
        arrays = sweep.arrays(bar)
    every, missing = len(sweep.jobs(arrays)), sweep.missing(out, arrays)
    console.print(f"{counted(every, 'training')}, {every - len(missing)} done already.")
    if dry_run:
        _estimate(console, missing, arrays, processes)
        return
    keep_config(out, "sweep domains", given)
    ends = _run(console, sweep, out, every, len(missing), processes, hours)
    left = len(missing) - ends["finished"] - ends["failed"]
    if ends["interrupted"]:
        raise KeyboardInterrupt
    if left:
        console.print(f"Out of time with {left} to go; the same command with more --hours resumes.")
    say(
        console,
        f"{every - left - ends['failed']} of {counted(every, 'training')} in {out}; "
        f"{ends['failed']} failed. `driftnorm table selected-training` makes a table of them.",
    )
    if ends["failed"]:
        raise SystemExit(1)


def _run(
    console: Console,
    sweep: Sweep,
    out: Path,
    every: int,
    missing: int,
    workers: int,
    hours: float | None,
) -> Counter[str]:
    """Run every training with its progress; counts how they ended."""
    ends: Counter[str] = Counter()
    seconds = None if hours is None else 3600 * hours
    with Bar(console) as bar:
        bar("training", every - missing, every)
        for job, reason, error in sweep.run(out, LAUNCHERS["processes"], workers, seconds=seconds):
            ends[reason] += 1
            if reason == "finished":
                bar(f"{job.label} is done", every - missing + ends[reason], every)
            elif reason == "failed":
                where = out / job.label / FAILED
                say(console, f"failed: {job.label}: {error} ({where})")
    return ends


def _estimate(console: Console, jobs: list[Job], arrays: DomainArrays, workers: int) -> None:
    if not jobs:
        console.print("Nothing is left to do.")
        return
    for job in jobs:
        plan = job.plan
        hparams = ", ".join(
            f"{name} {value if isinstance(value, str) else format(value, '.3g')}"
            for name, value in (
                ("lr", plan.lr),
                ("weight decay", plan.weight_decay),
                ("batch", plan.batch_size),
                ("dropout", plan.dropout),
                *plan.options,
            )
        )
        say(console, f"  {job.label}: {hparams}")
    threads = torch.get_num_threads()
    if workers > 1:
        torch.set_num_threads(1)  # as each process will compute
    seconds = estimated_seconds(jobs, arrays)
    torch.set_num_threads(threads)
    console.print(
        f"{counted(len(jobs), 'training')} to run; about {seconds / workers / 3600:.1f} hours with "
        f"{counted(workers, 'process')}, from one step and one evaluation batch of each algorithm."
    )
