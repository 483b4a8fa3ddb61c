"""Train an algorithm on all domains but the tested ones: one run, resumable bit for bit.

What a run leaves in its folder: ``best.safetensors`` (the best by training-domain validation, which
is what the published tables use), ``last.safetensors`` (the oracle's, since it may not stop early),
with SWAD ``swad.safetensors``, ``history.json`` with every evaluation (and that of SWAD's average),
and while it is unfinished ``resume.pt``. The model files describe themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from driftnorm._internal.arguments import check_choice, check_number, check_whole
from driftnorm._internal.files import file_digest
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.training.domains.algorithm import Algorithm
from driftnorm.training.domains.algorithms import find_algorithm
from driftnorm.training.domains.algorithms.swad import SWAD
from driftnorm.training.domains.domain_run import Cost, DomainRun
from driftnorm.training.domains.network import BatchNormMode
from driftnorm.training.domains.settings import Features, Precision, TrainingSettings
from driftnorm.training.loop import Hooks
from driftnorm.training.training_run import Limits, Outcome


@dataclass(frozen=True)
class DomainTraining(TrainingSettings):
    """A whole plan: `PlanOptions` makes one with DomainBed's defaults.

    Attributes:
        algorithm: Its name.
        test_domains: Not trained on.
        backbone: As `backbones.backbone` takes it.
        batch_norm: How batch-norm layers are trained.
        batch_size: Images per domain and step.
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
    """

    algorithm: str
    test_domains: tuple[str, ...]
    backbone: str = "resnet50"
    batch_norm: BatchNormMode = "frozen"
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

    def __post_init__(self) -> None:
        for name, choices in (("features", Features), ("precision", Precision)):
            check_choice(name, getattr(self, name), get_args(choices))
        for name in ("steps", "batch_size", "lr", "evaluate_every", "evaluate_images"):
            if (value := getattr(self, name)) is not None:
                check_number(name, value)
        if len(set(self.test_domains)) < len(self.test_domains):
            raise ValueError(
                f"`test_domains` must name each domain once, got {', '.join(self.test_domains)}."
            )
        check_whole("trial_seed", self.trial_seed, 0)
        kind = find_algorithm(self.algorithm)
        known = {*options_of(kind), *(options_of(SWAD) if self.swad else ())}
        unknown = [name for name, _ in self.options if name not in known]
        if unknown:
            raise ValueError(
                f"{self.algorithm} has no hyper-parameter `{unknown[0]}`; its own: "
                f"{', '.join(sorted(known)) or 'none'}."
            )
        why = kind.trains_features
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
        on_begin: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Train, or resume where a stopped run was.

        Args:
            arrays: The data.
            folder: Of the run.
            budget_seconds: Stop when the run took this long, over all resumptions.
            more_seconds: Stop this long from now on, whatever it took before.
            checkpoint_seconds: Between checkpoints.
            hooks: Called during training.
            on_begin: Called when all checks have passed: the network is built, and the folder
                holds this run or none.
        """
        limits = Limits(budget_seconds, more_seconds, checkpoint_seconds)
        return DomainRun(self, arrays, folder).run().run(limits, hooks, on_begin=on_begin)

    def finished(self, arrays: DomainArrays, folder: Path) -> Outcome | None:
        """What the run left in its folder, or None if it is not finished.

        Raises:
            TrainingError: The folder holds another run.
        """
        return DomainRun(self, arrays, folder).run().finished()

    def timed(self, arrays: DomainArrays) -> Cost:
        """Take two steps, of which the first only warms up, and measure the second."""
        return DomainRun(self, arrays, Path()).timed()

    def identity(self, arrays: DomainArrays) -> dict[str, Any]:
        """What makes the run this run; where data and weights lie and it runs is not part of it."""
        own = {**asdict(self), "weights": self.weights and _named_by_content(self.weights)}
        del own["device"]
        about = {"data": arrays.name, "content": arrays.content, "image_shape": arrays.image_shape}
        return {**own, **about}

    def split_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The algorithm's own hyper-parameters, and SWAD's."""
        names = options_of(SWAD) if self.swad else ()
        chosen = dict(self.options)
        of_swad = {name: chosen.pop(name) for name in names if name in chosen}
        return chosen, of_swad


def options_of(kind: type[Algorithm]) -> tuple[str, ...]:
    """The names of an algorithm's own hyper-parameters."""
    common = ("self", "network", "algorithm", "domains", "lr", "weight_decay")
    return tuple(name for name in inspect.signature(kind).parameters if name not in common)


def _named_by_content(weights: str) -> str:
    """A file's name and the start of its hash; the name of a package as it is."""
    path = Path(weights)
    return f"{path.name}@{_digest(path, path.stat().st_mtime_ns)}" if path.is_file() else path.name


@lru_cache
def _digest(path: Path, changed: int) -> str:
    return file_digest(path).hex()[:8]
