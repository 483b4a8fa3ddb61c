"""What a plan means for some domains: batches, steps, evaluations, and the files they leave."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.counts import counted
from driftnorm._internal.files import write_atomically
from driftnorm._internal.training_files import BEST, HISTORY, LAST, SWAD_FILE
from driftnorm._internal.types import Integers
from driftnorm.images.domains.domain_arrays import (
    EVALUATION_BATCH,
    DomainArrays,
    evaluation_batches,
)
from driftnorm.images.image_set import ImageSet
from driftnorm.models import Normalized, Preprocessing, save_checkpoint
from driftnorm.models.checkpoint_files import facts_in
from driftnorm.models.deployed import ArmNetwork, variant_of
from driftnorm.training.batches import random_numbers
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch
from driftnorm.training.domains.algorithms import find_algorithm
from driftnorm.training.domains.algorithms.swad import SWAD, reestimate_statistics
from driftnorm.training.domains.backbones import backbone
from driftnorm.training.domains.minibatches import Batches
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import LoopSettings, Progress, Stop, TrainState
from driftnorm.training.training_run import Outcome, Saved, TrainingRun, Work

if TYPE_CHECKING:
    from driftnorm.training.domains.domain_training import DomainTraining

_STATISTICS_BATCHES = 500  # as SWAD's authors do
_RESUME = "resume.pt"


class Cost(NamedTuple):
    """Seconds of one step, and of evaluating one image."""

    step: float
    image: float


@dataclass
class DomainRun:
    """What one plan means for some data: its networks, batches, evaluations and files."""

    plan: DomainTraining
    arrays: DomainArrays
    folder: Path

    def __post_init__(self) -> None:
        self.tested = [self.arrays.index(name) for name in self.plan.test_domains]
        every = range(len(self.arrays.domains))
        self.trained = [index for index in every if index not in self.tested]
        if not self.tested or not self.trained:
            raise ValueError(
                "`test_domains` must leave some of the "
                f"{counted(len(self.arrays.domains), 'domain')} of {self.arrays.name} to train on, "
                f"and name at least one; got {self.plan.test_domains}."
            )
        self._check_weights()
        self.splits = self.arrays.splits(self.plan.trial_seed)
        channels = self.arrays.image_shape[0]
        usual = 1 if self.plan.backbone.startswith("mnist") else 3
        self.model_options = {} if channels == usual else {"in_channels": channels}

    def _check_weights(self) -> None:
        """Weights that were trained on a target make it a seen one."""
        weights = self.plan.weights
        facts = facts_in(weights) if weights is not None and Path(weights).is_file() else {}
        seen = {*facts.get("trained_on", ())} & {*self.plan.test_domains}
        if seen and facts.get("data") == self.arrays.name:
            raise ValueError(
                f"`weights`: {weights} was trained on {', '.join(sorted(seen))} of "
                f"{self.arrays.name}, which would then not be an unseen domain. Start from weights "
                "that have not seen it, or test on another one."
            )

    def run(self) -> TrainingRun[DomainBatch]:
        """Resumable, in its folder."""
        return TrainingRun(
            self.plan.identity(self.arrays),
            self.folder / HISTORY,
            self.folder / _RESUME,
            self.folder / ".lock",
            _finished,
            self._work,
        )

    def timed(self) -> Cost:
        """One step and one evaluation batch; nothing is kept."""
        algorithm = self._build()
        state, source = TrainState(algorithm, algorithm.optimizers()), self._source()
        algorithm.train()
        with torch.random.fork_rng(devices=[]):
            self._step(state, source(0))
            begun = time.perf_counter()
            self._step(state, source(1))
            step = time.perf_counter() - begun
        algorithm.eval()
        domain, split = self.arrays.domains[self.trained[0]], self.splits[self.trained[0]]
        positions = split.inner[:EVALUATION_BATCH]
        begun = time.perf_counter()
        self._score(algorithm, domain, positions, False)
        return Cost(step, (time.perf_counter() - begun) / len(positions))

    def _work(self) -> Work[DomainBatch]:
        algorithm = self._build()
        algorithm.train()

        def enough() -> bool:
            return isinstance(algorithm, SWAD) and algorithm.valley.dead

        return Work(
            TrainState(algorithm, algorithm.optimizers()),
            self._source(),
            self._step,
            lambda: Progress(self.plan.steps),
            # The first record is as DomainBed's, whose step 0 this is.
            lambda progress: LoopSettings(
                self.plan.seed, record_every=self.plan.evaluate_every, first_record=1
            ),
            lambda progress, stop: self._finish(algorithm, progress, stop),
            lambda state: self._evaluate(algorithm),
            enough,
            lambda progress, record: self._keep_best(algorithm, progress, record),
        )

    def _finish(self, algorithm: Algorithm, progress: Progress, stop: Stop) -> Saved:
        """The networks of a run that ended, and if it came to its end, its history."""
        averaged: dict[str, float] | None = None
        if isinstance(algorithm, SWAD) and algorithm.valley.seen:
            algorithm.finish()
            model = self._averaged(algorithm)
            averaged, _ = self._measured(model)
            self._save(model, SWAD_FILE, progress, averaged["validation"])
        last = progress.history[-1] if progress.history else {}
        measured = last.get("validation") if last.get("step") == progress.step else None
        self._save(_inner(algorithm).deployed(), LAST, progress, measured)
        if stop == "finished":
            kept = {
                "identity": self.plan.identity(self.arrays),
                "steps": progress.step,
                "seconds": progress.seconds,
                "history": progress.history,
                **({} if averaged is None else {"averaged": averaged}),
                **({"note": self.arrays.note} if self.arrays.note else {}),
            }
            write_atomically(self.folder / HISTORY, json.dumps(kept, indent=1) + "\n")
        return Saved(_networks(self.folder))

    def _averaged(self, algorithm: SWAD) -> nn.Module:
        """SWAD's network; averaged weights need statistics of their own if BN was trained."""
        model = algorithm.deployed()
        all_move = self.plan.batch_norm == "trained" and self.plan.features == "trained"
        # ARM's context network is new: its statistics move, whatever those of the backbone do.
        contexts = [part.context for part in model.modules() if isinstance(part, ArmNetwork)]
        if moving := [model] if all_move else contexts:
            source, batches = self._source(), min(self.plan.steps, _STATISTICS_BATCHES)
            with torch.no_grad():
                images = (source(step).joint().images for step in range(batches))
                reestimate_statistics(model, images, moving)
        return model

    def _build(self) -> Algorithm:
        plan = self.plan
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            channels, side, _ = self.arrays.image_shape
            model = backbone(
                plan.backbone, plan.weights, len(self.arrays.classes), channels, plan.side or side
            )
            fixed = plan.features == "fixed"
            network = DomainNetwork(model, plan.batch_norm, plan.dropout, fixed=fixed)
            kind, (options, of_swad) = find_algorithm(plan.algorithm), plan.split_options()
            if "group_size" in inspect.signature(kind).parameters:  # one domain's minibatch
                options = {"group_size": plan.batch_size, **options}
            algorithm = kind(
                network, len(self.trained), lr=plan.lr, weight_decay=plan.weight_decay, **options
            )
            if plan.swad:
                algorithm = SWAD(algorithm, **of_swad)
        return algorithm.to(plan.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _source(self) -> Callable[[int], DomainBatch]:
        batches = Batches(
            [self.arrays.domains[i] for i in self.trained],
            [self.splits[i].inner for i in self.trained],
            self.plan.batch_size,
            self.plan.seed,
            augmented=self.arrays.augmented,
            side=self.plan.side,
        )

        def source(step: int) -> DomainBatch:
            minibatches = tuple(Minibatch(*self._placed(pair)) for pair in batches.batch(step))
            return DomainBatch(minibatches, random_numbers(self.plan.seed, "algorithm", step))

        return source

    def _placed(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Images and labels on the plan's device."""
        images, labels = pair
        return images.to(self.plan.device), labels.to(self.plan.device)

    def _step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        algorithm, half = state.module, self.plan.precision == "bfloat16"
        assert isinstance(algorithm, Algorithm)
        with torch.autocast(torch.device(self.plan.device).type, torch.bfloat16, enabled=half):
            losses = algorithm.step(state, batch)
        if isinstance(algorithm, SWAD):
            algorithm.after_step()
        return losses

    def _evaluate(self, algorithm: Algorithm) -> dict[str, float]:
        """Accuracy by domain and split; their mean over the training domains selects."""
        algorithm.eval()
        found, loss = self._measured(algorithm)
        algorithm.train()
        found["validation loss"] = loss
        if isinstance(algorithm, SWAD):
            algorithm.evaluated(loss)
        return found

    def _measured(self, model: nn.Module) -> tuple[dict[str, float], float]:
        """Accuracies, and the mean loss on the training domains' held-out splits."""
        found, losses = {}, []
        for index, domain in enumerate(self.arrays.domains):
            split, most = self.splits[index], self.plan.evaluate_images
            accuracy, loss = self._score(model, domain, split.out[:most], index in self.trained)
            found[f"{domain.name} out"] = accuracy
            if index in self.trained:
                losses.append(loss)
            if self.plan.every_split:
                inner = split.inner[:most]
                found[f"{domain.name} in"], _ = self._score(model, domain, inner, False)
        own = [found[f"{self.arrays.domains[i].name} out"] for i in self.trained]
        found["validation"] = sum(own) / len(own)
        return found, sum(losses) / len(losses)

    @torch.no_grad()
    def _score(
        self, model: nn.Module, domain: ImageSet, positions: Integers, trained: bool
    ) -> tuple[float, float]:
        augmented = trained and self.plan.augmented_validation and self.arrays.augmented
        rng = random_numbers(self.plan.seed, "augmentation", 2**31) if augmented else None
        right, loss = 0, 0.0
        for pair in evaluation_batches(domain, positions, augmentation=rng):
            images, labels = self._placed(pair)
            logits = model(images)
            right += int((logits.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        return right / len(positions), loss / len(positions)

    def _keep_best(
        self, algorithm: Algorithm, progress: Progress, record: Mapping[str, float]
    ) -> None:
        before = [earlier["validation"] for earlier in progress.history[:-1]]
        if record["validation"] > max(before, default=-1.0):  # the first one, on ties
            self._save(_inner(algorithm).deployed(), BEST, progress, record["validation"])

    def _save(
        self, model: nn.Module, name: str, progress: Progress, validation: float | None
    ) -> None:
        suffix, options = variant_of(model)
        plan = self.plan
        side = plan.side or self.arrays.image_shape[1]
        mean, std = ((0.0,), (1.0,))
        if isinstance(model, Normalized):
            mean, std = (tuple(t.flatten().tolist()) for t in (model.mean, model.std))
        save_checkpoint(
            self.folder / name,
            model,
            architecture=plan.backbone + suffix,
            classes=self.arrays.classes,
            preprocessing=Preprocessing(mean, std, side),
            options={**self.model_options, **options},
            data=self.arrays.name,
            content=self.arrays.content,
            trained_on=[self.arrays.domains[i].name for i in self.trained],
            test_domains=list(plan.test_domains),
            averaged=name == SWAD_FILE,
            step=progress.step,
            validation=validation,
            training=json.loads(json.dumps(self.plan.identity(self.arrays))),
        )


def _inner(algorithm: Algorithm) -> Algorithm:
    """The algorithm that SWAD wraps, or the algorithm itself."""
    return algorithm.algorithm if isinstance(algorithm, SWAD) else algorithm


def _networks(folder: Path) -> tuple[Path, ...]:
    return tuple(path for name in (BEST, LAST, SWAD_FILE) if (path := folder / name).exists())


def _finished(history: Path) -> tuple[Mapping[str, Any], Outcome]:
    """The identity and the outcome of the run that left a history."""
    kept = json.loads(history.read_text())
    identity, steps = kept["identity"], kept["steps"]
    files = _networks(history.parent)
    outcome = Outcome("finished", steps, identity["steps"], kept["seconds"], kept["history"], files)
    return identity, outcome
