"""Training the augmentation baselines: from a recipe and images to a self-describing checkpoint."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from driftnorm._internal.files import exclusive
from driftnorm.errors import TrainingError
from driftnorm.images.image_set import ImageSet
from driftnorm.models import open_checkpoint, save_checkpoint
from driftnorm.training.augmentation.catalog import RECIPES, TrainingRecipe
from driftnorm.training.batches import Batch, ShuffledBatches
from driftnorm.training.checkpoint import ResumeFile
from driftnorm.training.evaluation import as_tensors, clean_accuracy, fingerprint
from driftnorm.training.loop import (
    Hooks,
    LoopSettings,
    Progress,
    StepFunction,
    Stop,
    TrainState,
    train,
)
from driftnorm.training.optimization import FULL, Optimization, descend
from driftnorm.training.schedule import seconds_a_step, steps_within
from driftnorm.training.start import Start, file_hash, starting_point

__all__ = ["Outcome", "RobustTraining"]

MODEL_FILE = "model.safetensors"
RESUME_FILE = "resume.pt"
TIMED_PART = 0.02  # of a time budget goes into finding out how long a step takes
TIMED_SECONDS = 10.0  # at most
FEWEST_RECORDS = 20  # a short run has records within its epochs too


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        stop: Why it ended.
        step: Steps done.
        steps: Steps planned.
        seconds: Spent in training, over all resumptions.
        accuracy: On clean test images; None if interrupted.
        file: The checkpoint; None if interrupted.
        earlier: Whether it was there already and nothing had to be done.
    """

    stop: Stop
    step: int
    steps: int
    seconds: float
    accuracy: float | None = None
    file: Path | None = None
    earlier: bool = False


@dataclasses.dataclass(frozen=True)
class RobustTraining:
    """One training run.

    Attributes:
        recipe: What the losses are.
        architecture: Spec of the network, as for `driftnorm.models.load`.
        init: Weights to start from; None for fresh ones.
        optimization: Optimiser and length.
        steps: Exact number of steps instead of epochs.
        minutes: Time budget. Unless `steps` is given, as many steps are planned as fit, after
            timing a few; and training stops when the time is over, whatever was planned.
        seed: Of initial weights, order and augmentation.
        device: Where to train.
    """

    recipe: TrainingRecipe
    architecture: str = "resnet20"
    init: Path | None = None
    optimization: Optimization = FULL
    steps: int | None = None
    minutes: float | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"`minutes` must be positive, got {self.minutes}.")

    def run(
        self,
        training: ImageSet,
        test: ImageSet,
        folder: Path,
        *,
        checkpoint_seconds: float = 60.0,
        hooks: Hooks | None = None,
        tell: Callable[[str], None] = lambda text: None,
        on_begin: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Trains, or goes on where an earlier run into this folder stopped.

        Args:
            training: Images to learn from.
            test: Clean images for the accuracy; nothing is chosen by them.
            folder: Gets `model.safetensors`, and while training `resume.pt`.
            checkpoint_seconds: Time between resumable checkpoints.
            hooks: Called as training goes on.
            tell: Called with a few words about each phase.
            on_begin: Called when the network is there and training begins.

        Returns:
            How it ended.
        """
        if training.classes != test.classes:
            raise ValueError("`training` and `test` must have the same classes.")
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / ".lock", f"Another process trains into {folder}."):
            identity = self.identity(training)
            resume = ResumeFile(folder / RESUME_FILE, identity)
            if not resume.path.exists() and (folder / MODEL_FILE).exists():
                return _finished(folder / MODEL_FILE, identity)
            start = starting_point(self.architecture, self.init, training, self.seed)
            on_begin()
            return self._train(start, training, test, resume, checkpoint_seconds, hooks, tell)

    def identity(self, training: ImageSet) -> dict[str, Any]:
        """What makes a run this run: all that its result depends on, but its time budget."""
        names = {kind: name for name, kind in RECIPES.items()}
        return {
            "recipe": names[type(self.recipe)],
            "settings": dataclasses.asdict(self.recipe),
            "architecture": self.architecture,
            "init": None if self.init is None else file_hash(self.init),
            "optimization": dataclasses.asdict(self.optimization),
            "steps": self.steps,
            "seed": self.seed,
            "data": fingerprint(training),
        }

    def _train(
        self,
        start: Start,
        training: ImageSet,
        test: ImageSet,
        resume: ResumeFile,
        checkpoint_seconds: float,
        hooks: Hooks | None,
        tell: Callable[[str], None],
    ) -> Outcome:
        model = start.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        state = TrainState(model, {"sgd": self.optimization.optimizer(model.parameters())})
        images, labels = (tensor.to(self.device) for tensor in as_tensors(training))
        source = ShuffledBatches(images, labels, self.optimization.batch_size, self.seed)
        step = descend(self.recipe)
        if resume.path.exists():
            progress = resume.restore(state)
            tell(f"resuming at step {progress.step} of {progress.steps}")
        else:
            tell("timing a few steps")
            progress = self._plan(state, source, step)
        settings = self._settings(progress, len(images), checkpoint_seconds)
        tell("training")
        # A test in every epoch costs time, of which a budget has none to spare.
        evaluate = None if self.minutes is not None else lambda state: self._test(state, test)
        stop = train(
            state, source, step, progress, settings, keeper=resume, evaluate=evaluate, hooks=hooks
        )
        if stop == "interrupted":
            return Outcome(stop, progress.step, progress.steps, progress.seconds)
        tell("testing on clean images")
        accuracy = clean_accuracy(model, test, self.device)
        file = resume.path.with_name(MODEL_FILE)
        self._save(file, start, training, resume.identity, progress, stop, accuracy, len(test))
        if stop == "finished":
            resume.path.unlink()
        return Outcome(stop, progress.step, progress.steps, progress.seconds, accuracy, file)

    def _settings(self, progress: Progress, images: int, checkpoint_seconds: float) -> LoopSettings:
        epoch = math.ceil(images / self.optimization.batch_size)
        few = math.ceil(progress.steps / FEWEST_RECORDS)
        return LoopSettings(
            seed=self.seed,
            schedule=self.optimization.schedule(),
            budget_seconds=None if self.minutes is None else 60 * self.minutes,
            checkpoint_seconds=checkpoint_seconds,
            record_every=epoch if self.minutes is None else min(epoch, few),
        )

    def _test(self, state: TrainState, test: ImageSet) -> dict[str, float]:
        return {"clean_accuracy": clean_accuracy(state.module, test, self.device)}

    def _plan(
        self, state: TrainState, source: ShuffledBatches, step: StepFunction[Batch]
    ) -> Progress:
        most = self.optimization.steps(len(source.images))
        if self.steps is not None or self.minutes is None:
            return Progress(most if self.steps is None else self.steps)
        budget, begun = 60 * self.minutes, time.perf_counter()
        timed = min(TIMED_SECONDS, TIMED_PART * budget)
        duration = seconds_a_step(state, source, step, timed)
        spent = time.perf_counter() - begun
        return Progress(steps_within(budget - spent, duration, most), seconds=spent)

    def _save(
        self,
        file: Path,
        start: Start,
        training: ImageSet,
        identity: Mapping[str, Any],
        progress: Progress,
        stop: Stop,
        accuracy: float,
        tested: int,
    ) -> None:
        save_checkpoint(
            file,
            start.model,
            architecture=self.architecture,
            classes=training.classes,
            preprocessing=start.preprocessing,
            options=start.options,
            run=dict(identity),
            init_file=None if self.init is None else self.init.name,
            minutes=self.minutes,
            stop=stop,
            steps_done=progress.step,
            steps_planned=progress.steps,
            seconds=round(progress.seconds, 1),
            clean_accuracy=accuracy,
            tested_images=tested,
            history=progress.history,
            torch=torch.__version__,
            threads=torch.get_num_threads(),
        )


def _finished(file: Path, identity: Mapping[str, Any]) -> Outcome:
    """The outcome of a run that is done already."""
    facts = open_checkpoint(file).facts
    if facts.get("run") != identity:
        raise TrainingError(
            f"{file} is there already, from another run; name another folder or delete it."
        )
    return Outcome(
        facts["stop"],
        facts["steps_done"],
        facts["steps_planned"],
        facts["seconds"],
        facts["clean_accuracy"],
        file,
        earlier=True,
    )
