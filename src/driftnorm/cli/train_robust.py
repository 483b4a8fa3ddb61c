"""``driftnorm train robust``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import torch
from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.own_code import given_as
from driftnorm.cli._config import keep_config
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import OUT, RARE, Device, Hours, Quiet, Settings, Threads
from driftnorm.cli._input_flags import announce_own_code, find_own_code, tested_images
from driftnorm.cli._training_bar import TrainingBar
from driftnorm.images.image_set import ImageSet
from driftnorm.images.labelled import load_arrays
from driftnorm.training import (
    FULL,
    SHORT,
    Hooks,
    Optimization,
    Outcome,
    RobustTraining,
    make_recipe,
)

SHORT_HOURS = 1 / 3


def train_robust(
    *,
    recipe: str,
    data: Path,
    test_data: Path | None = None,
    model: str = "resnet20",
    weights: Path | None = None,
    short: bool = False,
    hours: Hours = None,
    epochs: float | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    settings: Settings = (),
    seed: int = 0,
    out: Annotated[Path | None, OUT] = None,
    checkpoint_seconds: Annotated[float, Parameter(group=RARE)] = 60.0,
    threads: Threads = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Train an augmentation baseline into a self-describing checkpoint.

    An interrupted run resumes. The default schedule is SGD with Nesterov momentum 0.9, weight decay
    5e-4, learning rate 0.1 decaying to 1e-6 along a cosine, batch 128, 100 epochs.

    Parameters
    ----------
    recipe
        standard, cutout, mixup, cutmix, autoaugment, adversarial or augmix.
    data
        Folder of CIFAR-10's or CIFAR-100's official binary files, or an .npz file with images,
        labels and classes.
    test_data
        Clean test images; default: the test split of --data.
    model
        Network to train.
    weights
        Weights to start from; default: random ones.
    short
        A schedule for two CPU cores: 20 minutes, at most 20 epochs, and with --weights a learning
        rate of 0.02 decaying to 0.
    hours
        Time budget: plans as many steps as fit into it.
    epochs
        Maximum number of passes over the training images.
    steps
        Exact number of steps instead.
    learning_rate
        Initial learning rate.
    batch_size
        Images per step.
    settings
        Settings of the recipe, such as alpha=0.2; can be repeated.
    seed
        Seed of initial weights, order and augmentation.
    out
        Folder for the checkpoint; default: runs/robust/RECIPE-MODEL-sSEED.
    checkpoint_seconds
        Time between resumable checkpoints.
    """
    given = dict(locals())
    if threads is not None:
        torch.set_num_threads(threads)
    if short and hours is None and steps is None:
        hours = SHORT_HOURS
    job = RobustTraining(
        recipe=make_recipe(recipe, settings),
        architecture=model,
        init=weights,
        optimization=_optimization(short, weights, epochs, learning_rate, batch_size),
        steps=steps,
        minutes=None if hours is None else 60 * hours,
        seed=seed,
        device=check_device(device),
    )
    folder = out or Path("runs/robust") / f"{recipe}-{model.replace(':', '-')}-s{seed}"
    training, test = _images(data, test_data)
    resolved = {
        name: getattr(job.optimization, name) for name in ("epochs", "learning_rate", "batch_size")
    }
    kept = given | resolved | {"hours": hours, "out": folder}
    console = Console(quiet=quiet)
    find_own_code()
    announce_own_code(model, Console(stderr=True, quiet=quiet))
    with (
        given_as("--model"),
        TrainingBar(console, recipe, job.optimization.batch_size) as watcher,
    ):
        outcome = job.run(
            training,
            test,
            folder,
            checkpoint_seconds=checkpoint_seconds,
            hooks=Hooks(on_step=watcher.step, on_record=watcher.record),
            tell=watcher.tell,
            on_begin=lambda: keep_config(folder, "train robust", kept),
        )
    _report(console, job, outcome, folder)


def _optimization(
    short: bool,
    weights: Path | None,
    epochs: float | None,
    learning_rate: float | None,
    batch_size: int | None,
) -> Optimization:
    """The preset, with the user's changes."""
    preset = FULL
    if short:  # the low rate is for pre-trained weights
        preset = SHORT if weights is not None else dataclasses.replace(FULL, epochs=SHORT.epochs)
    given = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(preset, **changes)  # type: ignore[arg-type]


def _images(data: Path, test_data: Path | None) -> tuple[ImageSet, ImageSet]:
    """The images to train on and the clean ones to test on."""
    return load_arrays(data, "train"), load_arrays(tested_images(data, test_data), "test")


def _report(console: Console, job: RobustTraining, outcome: Outcome, folder: Path) -> None:
    done = (
        f"{outcome.step:,} of {counted(outcome.steps, 'step')}, {outcome.seconds / 60:.1f} minutes"
    )
    if outcome.stop == "interrupted" or outcome.accuracy is None:
        console.print(f"Stopped after {done}. The same command resumes from there ({folder}).")
        raise KeyboardInterrupt
    if outcome.stop == "budget":
        console.print(
            f"Out of time before the plan was done ({done}), so the learning rate has not decayed "
            "fully. The same command with more --hours resumes from there."
        )
    images = outcome.step * job.optimization.batch_size
    # A very short run, read from its file, may have a duration of 0.
    rate = f", {images / outcome.seconds:.0f} per second" if outcome.seconds else ""
    verb = "Already exists:" if outcome.earlier else "Saved"
    first = next((each for each in outcome.history if each["step"] == 0), None)
    begun = "" if first is None else f", from {100 * first['clean_accuracy']:.2f} % at the start,"
    (file,) = outcome.files
    console.print(
        f"{verb} {file}, {100 * outcome.accuracy:.2f} % on clean test images{begun} after {done} "
        f"({counted(images, 'image')}{rate})."
    )
