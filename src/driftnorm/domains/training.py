"""Train an algorithm on all domains but the tested ones: one run, resumable bit for bit.

What a run leaves in its folder: ``best.safetensors`` (the best by training-domain validation, which
is what the published tables use), ``last.safetensors`` (the oracle's, since it may not stop early),
with SWAD ``swad.safetensors``, ``history.json`` with every evaluation (and that of SWAD's average),
and while it is unfinished ``resume.pt``. The model files describe themselves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from driftnorm.domains.algorithms import find_algorithm
from driftnorm.domains.arrays import DomainArrays
from driftnorm.domains.network import BatchNormMode
from driftnorm.domains.running import (
    BEST,
    HISTORY,
    LAST,
    SWAD_FILE,
    Cost,
    Outcome,
    TrainingRun,
)
from driftnorm.training.loop import Hooks

__all__ = [
    "BEST",
    "HISTORY",
    "LAST",
    "SWAD_FILE",
    "Cost",
    "DomainTraining",
    "Features",
    "Outcome",
    "Precision",
]

Features: TypeAlias = Literal["trained", "fixed"]
Precision: TypeAlias = Literal["float32", "bfloat16"]
# Settings that are younger than the first runs; at these values they leave an identity as it was.
_LATER = {"features": "trained", "evaluate_images": None, "precision": "float32"}


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
        evaluate_images: At most so many images of each split are evaluated while training, the
            first ones of its shuffled order; all by default.
        precision: Of the steps' forward and backward passes. Weights stay in float32, and so do
            evaluations; bfloat16 halves the time of a ResNet-50's step where the CPU has it.
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
    evaluate_images: int | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name, kind in (("features", Features), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"`{name}` must be one of {get_args(kind)}, got {getattr(self, name)!r}."
                )
        if self.evaluate_images is not None and self.evaluate_images < 1:
            raise ValueError(f"`evaluate_images` must be positive, got {self.evaluate_images}.")
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
        run = TrainingRun(self, arrays, folder, hooks or Hooks())
        finished = run.finished()
        if finished is not None:
            return finished
        return run.train(budget_seconds, more_seconds, checkpoint_seconds)

    def finished(self, arrays: DomainArrays, folder: Path) -> Outcome | None:
        """What the run left in its folder, or None if it is not done.

        Raises:
            ValueError: The folder holds another run.
        """
        return TrainingRun(self, arrays, folder, Hooks()).finished()

    def timed(self, arrays: DomainArrays) -> Cost:
        """Take two steps, of which the first only warms up, and measure the second."""
        return TrainingRun(self, arrays, Path(), Hooks()).timed()

    def identity(self, arrays: DomainArrays) -> dict[str, Any]:
        """What makes the run this run; where data and weights lie is not part of it."""
        own = {**asdict(self), "weights": Path(self.weights).name if self.weights else None}
        own = {k: v for k, v in own.items() if k not in _LATER or v != _LATER[k]}
        return {**own, "data": arrays.name, "content": arrays.content}
