"""Training the augmentation baselines: from a recipe and images to a self-describing checkpoint."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from driftnorm._internal.arguments import check_number
from driftnorm.images.image_set import ImageSet
from driftnorm.images.tensors import tensors
from driftnorm.models import save_checkpoint
from driftnorm.training.augmentation.catalog import RECIPES, TrainingRecipe
from driftnorm.training.batches import Batch, ShuffledBatches
from driftnorm.training.evaluation import clean_accuracy, fingerprint
from driftnorm.training.loop import (
    Hooks,
    LoopSettings,
    Progress,
    StepFunction,
    Stop,
    TrainState,
)
from driftnorm.training.optimization import FULL, Optimization, descend
from driftnorm.training.schedule import seconds_a_step, steps_within
from driftnorm.training.start import Start, file_hash, starting_point
from driftnorm.training.training_run import (
    Limits,
    Outcome,
    Saved,
    TrainingRun,
    Work,
    facts_of_run,
    run_in,
)

MODEL_FILE = "model.safetensors"
RESUME_FILE = "resume.pt"
TIMED_PART = 0.02  # of a time budget goes into finding out how long a step takes
TIMED_SECONDS = 10.0  # at most
FEWEST_RECORDS = 20  # a short run has records within its epochs too


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
        if self.minutes is not None:
            check_number("minutes", self.minutes, most=math.inf)

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
        """Trains, or resumes where an earlier run into this folder stopped.

        Args:
            training: Images to learn from.
            test: Clean images for the accuracy; nothing is chosen by them.
            folder: Gets `model.safetensors`, and while training `resume.pt`.
            checkpoint_seconds: Time between resumable checkpoints.
            hooks: Called during training. Weights to start from give a record of step 0, the
                accuracy that training begins with.
            tell: Called with a few words about each phase.
            on_begin: Called when the network is there and training begins.

        Returns:
            How it ended; its accuracy is that on clean test images.
        """
        if training.classes != test.classes:
            raise ValueError("`training` and `test` must have the same classes.")
        identity = self.identity(training)
        run = TrainingRun(
            identity,
            folder / MODEL_FILE,
            folder / RESUME_FILE,
            folder / ".lock",
            run_in,
            lambda: self._work(training, test, folder / MODEL_FILE, identity, tell),
        )
        budget = None if self.minutes is None else 60 * self.minutes
        limits = Limits(budget, checkpoint_seconds=checkpoint_seconds)
        return run.run(limits, hooks, tell, on_begin)

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

    def _work(
        self,
        training: ImageSet,
        test: ImageSet,
        file: Path,
        identity: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> Work[Batch]:
        start = starting_point(self.architecture, self.init, training, self.seed)
        model = start.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        state = TrainState(model, {"sgd": self.optimization.optimizer(model.parameters())})
        images, labels = (tensor.to(self.device) for tensor in tensors(training))
        source = ShuffledBatches(images, labels, self.optimization.batch_size, self.seed)
        step = descend(self.recipe)

        def plan() -> Progress:
            begun: list[dict[str, float]] = []
            if self.init is not None:
                tell("testing the weights to start from")
                begun.append({"step": 0, "seconds": 0.0, **self._test(state, test)})
            tell("timing a few steps")
            return dataclasses.replace(self._plan(state, source, step), history=begun)

        def save(progress: Progress, stop: Stop) -> Saved:
            tell("testing on clean images")
            accuracy = clean_accuracy(model, test, self.device)
            self._save(file, start, training, identity, progress, stop, accuracy, len(test))
            return Saved((file,), accuracy)

        # A test in every epoch costs time, of which a budget has none to spare.
        evaluate = None if self.minutes is not None else lambda state: self._test(state, test)
        return Work(
            state,
            source,
            step,
            plan,
            lambda progress: self._settings(progress, len(images)),
            save,
            evaluate,
        )

    def _settings(self, progress: Progress, images: int) -> LoopSettings:
        epoch = math.ceil(images / self.optimization.batch_size)
        few = math.ceil(progress.steps / FEWEST_RECORDS)
        return LoopSettings(
            seed=self.seed,
            schedule=self.optimization.schedule(),
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
            **facts_of_run(identity, progress, stop),
            init_file=None if self.init is None else self.init.name,
            minutes=self.minutes,
            clean_accuracy=accuracy,
            tested_images=tested,
        )
