"""``driftnorm train domains``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.options import read_options
from driftnorm.cli._config import keep_config
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import (
    MANY,
    OUT,
    RARE,
    Cache,
    Hours,
    Quiet,
    Settings,
    Threads,
)
from driftnorm.cli._output import say
from driftnorm.cli._progress import Bar
from driftnorm.cli._training_bar import TrainingBar
from driftnorm.cli._training_flags import Training
from driftnorm.images.domains.named import open_arrays
from driftnorm.training import Hooks
from driftnorm.training.domains.domain_training import DomainTraining
from driftnorm.training.training_run import Outcome

Rare = Parameter(group=RARE)


def train_domains(
    *,
    training: Training,
    test_domains: Annotated[list[str], MANY],
    algorithm: str = "erm",
    swad: bool = False,
    size: int = 224,
    settings: Settings = (),
    hparams_seed: Annotated[int, Rare] = 0,
    trial_seed: Annotated[int, Rare] = 0,
    seed: int = 0,
    hours: Hours = None,
    out: Annotated[Path | None, OUT] = None,
    cache: Cache = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train on all domains except the test domains; an interrupted run resumes.

    Parameters
    ----------
    test_domains
        Held out from training, usually one; if a name starts with a dash: --test-domains=-90%.
    algorithm
        erm, groupdro, mixup, coral, mmd, irm, arm, mtl, sagnet, rsc, mixstyle or swad.
    swad
        Average weights along the valley of the validation loss, around any algorithm.
    size
        Height and width of the images.
    settings
        A hyper-parameter, such as gamma=1; can be repeated.
    hparams_seed
        0 for DomainBed's defaults, others for a draw of its random search.
    trial_seed
        Seed of the splits.
    seed
        Seed of everything else.
    hours
        Time budget; the same command again resumes.
    out
        Folder of the run; default: runs/domains/DATA-ALGORITHM-TARGET-tTRIAL.
    """
    given = dict(locals())
    if threads is not None:
        torch.set_num_threads(threads)
    check_device(training.device)

    def plan_for(data_name: str | None) -> DomainTraining:
        return training.plan(
            algorithm,
            test_domains,
            swad=swad,
            settings=read_options(settings),
            hparams_seed=hparams_seed,
            trial_seed=trial_seed,
            seed=seed,
            data_name=data_name,
        )

    plan_for(None)  # bad settings are reported before pictures are decoded
    console = Console(quiet=quiet)
    with Bar(console) as bar:
        arrays = open_arrays(training.data, size, cache, bar)
    plan = plan_for(arrays.name)
    if arrays.note:
        say(console, f"note: {arrays.note}")
    target = "-".join(test_domains)
    kind = f"{'swad-' if swad else ''}{algorithm}{'-fixed' if training.features == 'fixed' else ''}"
    label = f"{arrays.name}-{kind}-{target}-t{trial_seed}"
    folder = out or Path("runs/domains") / label.replace(" ", "_")
    resolved: dict[str, object] = {
        name: getattr(plan, name)
        for name in ("backbone", "batch_norm", "evaluate_every", "batch_size")
    }
    resolved |= {"learning_rate": plan.lr, "out": folder}
    images = plan.batch_size * (len(arrays.domains) - len(test_domains))
    with TrainingBar(console, plan.algorithm, images) as watcher:
        watcher.tell(target)
        outcome = plan.run(
            arrays,
            folder,
            more_seconds=None if hours is None else 3600 * hours,
            hooks=Hooks(on_step=watcher.step, on_record=watcher.record),
            on_begin=lambda: keep_config(folder, "train domains", given | resolved),
        )
    _report(console, outcome, folder)


def _report(console: Console, outcome: Outcome, folder: Path) -> None:
    done = (
        f"{outcome.step:,} of {counted(outcome.steps, 'step')}, {outcome.seconds / 60:.1f} minutes"
    )
    if outcome.stop == "interrupted":
        console.print(f"Stopped after {done}. The same command resumes ({folder}).")
        raise KeyboardInterrupt
    if outcome.stop == "budget":
        console.print(f"Out of time after {done}. The same command resumes.")
    best = max(outcome.history, key=lambda record: record["validation"], default=None)
    if best is not None:
        console.print(
            f"Best validation {100 * best['validation']:.2f} % at step {best['step']:.0f}; {done}."
        )
    say(console, "Saved " + ", ".join(map(str, outcome.files)))
