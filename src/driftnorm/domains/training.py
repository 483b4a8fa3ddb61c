"""Train an algorithm on all domains but the tested ones: one run, resumable bit for bit.

What a run leaves in its folder: ``best.safetensors`` (the best by training-domain validation, which
is what the published tables use), ``last.safetensors`` (the oracle's, since it may not stop early),
with SWAD ``swad.safetensors``, ``history.json`` with every evaluation (and that of SWAD's average),
and while it is unfinished ``resume.pt``. The model files describe themselves.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import nn

from driftnorm.data.atomic import write_atomically
from driftnorm.domains.algorithm import Algorithm, DomainBatch, Minibatch
from driftnorm.domains.algorithms import find_algorithm
from driftnorm.domains.algorithms.swad import SWAD, reestimate_statistics
from driftnorm.domains.arrays import (
    EVALUATION_BATCH,
    Batches,
    DomainArray,
    DomainArrays,
    evaluation_batches,
)
from driftnorm.domains.backbones import backbone
from driftnorm.domains.network import BatchNormMode, DomainNetwork
from driftnorm.models import Normalized, Preprocessing, save_checkpoint
from driftnorm.models.deployed import variant_of
from driftnorm.shifts._common import Integers
from driftnorm.training.batches import random_numbers
from driftnorm.training.checkpoint import ResumeFile
from driftnorm.training.loop import Hooks, LoopSettings, Progress, Stop, TrainState, train

__all__ = ["BEST", "HISTORY", "LAST", "SWAD_FILE", "Cost", "DomainTraining", "Features", "Outcome"]

Features: TypeAlias = Literal["trained", "fixed"]
BEST, LAST, SWAD_FILE = "best.safetensors", "last.safetensors", "swad.safetensors"
HISTORY = "history.json"
_STATISTICS_BATCHES = 500  # as SWAD's authors do
_RESUME = "resume.pt"


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and where its networks are."""

    reason: Stop
    folder: Path
    steps: int
    seconds: float
    history: list[dict[str, float]]

    @property
    def files(self) -> list[Path]:
        """The networks that were kept."""
        return [path for name in (BEST, LAST, SWAD_FILE) if (path := self.folder / name).exists()]


class Cost(NamedTuple):
    """Seconds of one step, and of evaluating one image."""

    step: float
    image: float


@dataclass(frozen=True)
class DomainTraining:
    """The settings of a run; DomainBed's defaults come from `hparams.default_hparams`.

    Attributes:
        algorithm: Its name.
        test_domains: Not trained on.
        backbone: As `backbones.backbone` takes it.
        weights: File of its pre-trained weights.
        batch_norm: How batch-norm layers are trained.
        steps: In all.
        batch_size: Images a domain and step.
        lr: Adam's rate.
        weight_decay: Adam's L2.
        dropout: On the features.
        options: The algorithm's own hyper-parameters.
        swad: Average weights over the valley of the validation loss, around any algorithm.
        side: Of the augmented images, if another than that of the stored ones.
        trial_seed: Of the splits.
        seed: Of everything else.
        evaluate_every: Steps between evaluations.
        every_split: Evaluate every split of every domain as DomainBed does, not just those that
            selection needs: the held-out splits of all domains.
        augmented_validation: Augment the held-out images of training domains, as DomainBed does.
        features: Whether they are trained, or stay as the pre-training left them and only the
            classifier is trained (the paper's "pre-trained" setting; its statistics are fixed too).
    """

    algorithm: str
    test_domains: tuple[str, ...]
    backbone: str = "resnet50"
    weights: str | None = None
    batch_norm: BatchNormMode = "frozen"
    steps: int = 5001
    batch_size: int = 32
    lr: float = 5e-5
    weight_decay: float = 0.0
    dropout: float = 0.0
    options: tuple[tuple[str, Any], ...] = ()
    swad: bool = False
    side: int | None = None
    trial_seed: int = 0
    seed: int = 0
    evaluate_every: int = 300
    every_split: bool = False
    augmented_validation: bool = False
    features: Features = "trained"

    def __post_init__(self) -> None:
        if self.features not in get_args(Features):
            raise ValueError(
                f"`features` must be one of {get_args(Features)}, got {self.features!r}."
            )
        why = find_algorithm(self.algorithm).trains_features
        if self.features == "fixed" and why is not None:
            raise ValueError(
                f"{self.algorithm} cannot be trained on fixed features: {why}. Train them, or "
                "choose an algorithm such as erm, groupdro, mixup, irm, mtl, rsc or mixstyle."
            )

    def run(
        self,
        arrays: DomainArrays,
        folder: Path,
        *,
        budget_seconds: float | None = None,
        more_seconds: float | None = None,
        checkpoint_seconds: float = 60.0,
        hooks: Hooks | None = None,
    ) -> Outcome:
        """Train, or go on where a killed run was.

        Args:
            arrays: The data.
            folder: Of the run.
            budget_seconds: Stop when the run took so long, over all resumptions.
            more_seconds: Stop so long from now on, whatever it took before.
            checkpoint_seconds: Between checkpoints.
            hooks: Called as training goes on.
        """
        folder.mkdir(parents=True, exist_ok=True)
        run = _Run(self, arrays, folder, hooks or Hooks())
        finished = run.finished()
        if finished is not None:
            return finished
        return run.train(budget_seconds, more_seconds, checkpoint_seconds)

    def finished(self, arrays: DomainArrays, folder: Path) -> Outcome | None:
        """What the run left in its folder, or None if it is not done.

        Raises:
            ValueError: The folder holds another run.
        """
        return _Run(self, arrays, folder, Hooks()).finished()

    def timed(self, arrays: DomainArrays) -> Cost:
        """Take two steps, of which the first only warms up, and measure the second."""
        return _Run(self, arrays, Path(), Hooks()).timed()

    def identity(self, arrays: DomainArrays) -> dict[str, Any]:
        """What makes the run this run; where data and weights lie is not part of it."""
        own = {**asdict(self), "weights": Path(self.weights).name if self.weights else None}
        if self.features == "trained":  # runs that are older than this setting go on
            del own["features"]
        return {**own, "data": arrays.name, "content": arrays.content}


@dataclass
class _Run:
    """One run at work."""

    plan: DomainTraining
    arrays: DomainArrays
    folder: Path
    hooks: Hooks
    _stop: bool = field(default=False)

    def __post_init__(self) -> None:
        self.tested = [self.arrays.index(name) for name in self.plan.test_domains]
        every = range(len(self.arrays.domains))
        self.trained = [index for index in every if index not in self.tested]
        if not self.tested or not self.trained:
            raise ValueError(
                f"`test_domains` must leave some of the {len(self.arrays.domains)} domains of "
                f"{self.arrays.name} to train on, and name at least one; got "
                f"{self.plan.test_domains}."
            )
        self.splits = self.arrays.splits(self.plan.trial_seed)
        channels = self.arrays.image_shape[0]
        usual = 1 if self.plan.backbone.startswith("mnist") else 3
        self.model_options = {} if channels == usual else {"in_channels": channels}

    def finished(self) -> Outcome | None:
        """What a run that came to its end left."""
        path = self.folder / HISTORY
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        wanted = json.loads(json.dumps(self.plan.identity(self.arrays)))
        for key in sorted(kept["identity"].keys() | wanted.keys()):
            if kept["identity"].get(key) != wanted.get(key):
                raise ValueError(
                    f"{self.folder} holds another run: there `{key}` is "
                    f"{kept['identity'].get(key)!r}, here {wanted.get(key)!r}. Name another folder."
                )
        shape = [*self.arrays.image_shape]
        if kept.get("image_shape", shape) != shape:
            raise ValueError(
                f"{self.folder} holds another run: there images are {kept['image_shape']}, here "
                f"{shape} (channels, height, width). Name another folder."
            )
        return Outcome("finished", self.folder, kept["steps"], kept["seconds"], kept["history"])

    def timed(self) -> Cost:
        """One step and one evaluation batch; nothing is kept."""
        algorithm = self._build()
        state, source = TrainState(algorithm, algorithm.optimizers()), self._source()
        algorithm.train()
        with torch.random.fork_rng(devices=[]):
            _step(state, source(0))
            begun = time.perf_counter()
            _step(state, source(1))
            step = time.perf_counter() - begun
        algorithm.eval()
        domain, split = self.arrays.domains[self.trained[0]], self.splits[self.trained[0]]
        positions = split.inner[:EVALUATION_BATCH]
        begun = time.perf_counter()
        self._score(algorithm, domain, positions, False)
        return Cost(step, (time.perf_counter() - begun) / len(positions))

    def train(
        self,
        budget_seconds: float | None,
        more_seconds: float | None,
        checkpoint_seconds: float,
    ) -> Outcome:
        """From the last checkpoint on, or from the start."""
        plan = self.plan
        algorithm = self._build()
        state = TrainState(algorithm, algorithm.optimizers())
        keeper = ResumeFile(self.folder / _RESUME, plan.identity(self.arrays))
        progress = keeper.restore(state) if keeper.path.exists() else Progress(plan.steps)
        self._stop = isinstance(algorithm, SWAD) and algorithm.valley.dead
        limits = [None if more_seconds is None else progress.seconds + more_seconds, budget_seconds]
        settings = LoopSettings(
            plan.seed,
            budget_seconds=min((limit for limit in limits if limit is not None), default=None),
            checkpoint_seconds=checkpoint_seconds,
            record_every=plan.evaluate_every,
        )
        algorithm.train()
        reason = train(
            state,
            self._source(),
            _step,
            progress,
            settings,
            keeper=keeper,
            evaluate=lambda state: self._evaluate(algorithm),
            enough=lambda: self._stop,
            hooks=Hooks(
                self.hooks.on_step, self._on_record(algorithm, progress), self.hooks.on_checkpoint
            ),
        )
        outcome = Outcome(reason, self.folder, progress.step, progress.seconds, progress.history)
        if reason == "interrupted":
            return outcome
        averaged: dict[str, float] | None = None
        if isinstance(algorithm, SWAD):
            algorithm.finish()
            model = self._averaged(algorithm)
            averaged, _ = self._measured(model)
            self._save(model, SWAD_FILE, progress)
            self._save(algorithm.algorithm.deployed(), LAST, progress)
        else:
            self._save(algorithm.deployed(), LAST, progress)
        if reason == "finished":
            kept = {
                "identity": plan.identity(self.arrays),
                "steps": progress.step,
                "seconds": progress.seconds,
                "history": progress.history,
                "image_shape": self.arrays.image_shape,
                **({} if averaged is None else {"averaged": averaged}),
            }
            write_atomically(self.folder / HISTORY, json.dumps(kept, indent=1) + "\n")
            keeper.path.unlink()
        return outcome

    def _averaged(self, algorithm: SWAD) -> nn.Module:
        """SWAD's network; averaged weights need statistics of their own if BN was trained."""
        model = algorithm.deployed()
        if self.plan.batch_norm == "trained" and self.plan.features == "trained":
            source, batches = self._source(), min(self.plan.steps, _STATISTICS_BATCHES)
            with torch.no_grad():
                reestimate_statistics(
                    model, (source(step).joint().images for step in range(batches))
                )
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
            kind, options = find_algorithm(plan.algorithm), dict(plan.options)
            if "group_size" in inspect.signature(kind).parameters:  # one domain's minibatch
                options = {"group_size": plan.batch_size, **options}
            algorithm = kind(
                network, len(self.trained), lr=plan.lr, weight_decay=plan.weight_decay, **options
            )
            if plan.swad:
                algorithm = SWAD(algorithm)
        return algorithm.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

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
            minibatches = tuple(Minibatch(*pair) for pair in batches.batch(step))
            return DomainBatch(minibatches, random_numbers(self.plan.seed, "algorithm", step))

        return source

    def _evaluate(self, algorithm: Algorithm) -> dict[str, float]:
        """Accuracy by domain and split; their mean over the training domains selects."""
        algorithm.eval()
        found, loss = self._measured(algorithm)
        algorithm.train()
        found["validation loss"] = loss
        if isinstance(algorithm, SWAD):
            self._stop = algorithm.evaluated(loss)
        return found

    def _measured(self, model: nn.Module) -> tuple[dict[str, float], float]:
        """Accuracies, and the mean loss on the training domains' held-out splits."""
        found, losses = {}, []
        for index, domain in enumerate(self.arrays.domains):
            split = self.splits[index]
            accuracy, loss = self._score(model, domain, split.out, index in self.trained)
            found[f"{domain.name} out"] = accuracy
            if index in self.trained:
                losses.append(loss)
            if self.plan.every_split:
                found[f"{domain.name} in"], _ = self._score(model, domain, split.inner, False)
        own = [found[f"{self.arrays.domains[i].name} out"] for i in self.trained]
        found["validation"] = sum(own) / len(own)
        return found, sum(losses) / len(losses)

    @torch.no_grad()
    def _score(
        self, model: nn.Module, domain: DomainArray, positions: Integers, trained: bool
    ) -> tuple[float, float]:
        augmented = trained and self.plan.augmented_validation and self.arrays.augmented
        rng = random_numbers(self.plan.seed, "augmentation", 2**31) if augmented else None
        right, loss = 0, 0.0
        for images, labels in evaluation_batches(domain, positions, augmentation=rng):
            logits = model(images)
            right += int((logits.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        return right / len(positions), loss / len(positions)

    def _on_record(
        self, algorithm: Algorithm, progress: Progress
    ) -> Callable[[Mapping[str, float]], None]:
        def keep_best(record: Mapping[str, float]) -> None:
            before = [earlier["validation"] for earlier in progress.history[:-1]]
            if record["validation"] > max(before, default=-1.0):  # the first one, on ties
                current = algorithm.algorithm if isinstance(algorithm, SWAD) else algorithm
                self._save(current.deployed(), BEST, progress)
            self.hooks.on_record(record)

        return keep_best

    def _save(self, model: nn.Module, name: str, progress: Progress) -> None:
        suffix, options = variant_of(model)
        plan, last = self.plan, progress.history[-1] if progress.history else {}
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
            step=progress.step,
            validation=last.get("validation"),
            training=json.loads(json.dumps(self.plan.identity(self.arrays))),
        )


def _step(state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
    algorithm = state.module
    assert isinstance(algorithm, Algorithm)
    losses = algorithm.step(state, batch)
    if isinstance(algorithm, SWAD):
        algorithm.after_step()
    return losses
