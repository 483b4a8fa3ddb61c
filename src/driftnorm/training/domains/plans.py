"""From what people ask for to a whole plan: DomainBed's defaults wherever they ask for nothing."""

# No postponed annotations here: the command line reads them from a class in another module.
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from driftnorm._internal.arguments import check_number
from driftnorm._internal.names import find_name
from driftnorm.images.domains.known import DIGIT_NAMES, find_known
from driftnorm.training.domains.algorithms import find_algorithm
from driftnorm.training.domains.algorithms.swad import SWAD
from driftnorm.training.domains.domain_training import DomainTraining, options_of
from driftnorm.training.domains.hparams import default_hparams, random_hparams
from driftnorm.training.domains.network import BatchNormMode
from driftnorm.training.domains.settings import Reading, TrainingSettings

_EVERY, _EVERY_SWAD, _EVERY_DIGITS = 300, 100, 100  # steps between evaluations: DomainBed's, SWAD's
_EVERY_SWAD_VLCS, _RATIO_SWAD_VLCS = 50, 0.2  # what SWAD's authors take there


@dataclass(frozen=True)
class PlanOptions(TrainingSettings):
    """What is asked of all trainings on some data; None leaves it to the defaults.

    The command line takes its flags from these fields, and their descriptions from here.

    Attributes:
        data: A folder domain/class/image or a tar of one, own:FOLDER, rotated-mnist:FOLDER or
            colored-mnist:FOLDER.
        backbone: resnet50 (default), resnet18, resnet50-v1, mnist-gn (default for digits), mnist-bn
            or efficientnet-lite0.
        batch_norm: Default: frozen statistics, as published; for digits trained.
        reading: How ARM, MTL, RSC and SagNet are read; default: paper, in a sweep domainbed.
        evaluate_every: Steps between evaluations; default: 300, for digits and SWAD 100.
        every_split: Evaluate every split, for the tables selected-*; default: the held-out ones, in
            a sweep every one.
        batch_size: Per domain and step; default: from the hyper-parameters.
        learning_rate: Adam's learning rate; default: from the hyper-parameters.
    """

    data: str
    backbone: str | None = None
    batch_norm: BatchNormMode | None = None
    reading: Reading | None = None
    evaluate_every: int | None = None
    every_split: bool | None = None
    batch_size: int | None = None
    learning_rate: float | None = None

    def plan(
        self,
        algorithm: str,
        test_domains: Sequence[str],
        *,
        swad: bool = False,
        settings: Sequence[tuple[str, Any]] = (),
        hparams_seed: int = 0,
        trial_seed: int = 0,
        seed: int = 0,
        data_name: str | None = None,
    ) -> DomainTraining:
        """The plan of one training.

        Args:
            algorithm: Its name; ``swad`` stands for SWAD around ERM.
            test_domains: Not trained on.
            swad: Wrap SWAD around the algorithm.
            settings: Hyper-parameters that win over those of the seed.
            hparams_seed: 0 for DomainBed's defaults, else a draw of its random search.
            trial_seed: Of the splits, and half of the draw's seed.
            seed: Of everything else.
            data_name: What the opened data are called; SWAD has values of its own for VLCS.

        Raises:
            ValueError: An impossible hyper-parameter; or nothing pre-trained where the
                defaults keep what pre-training left.
        """
        digits = find_name(self.data.split(":")[0], DIGIT_NAMES) is not None
        wraps = swad or is_swad(algorithm)
        name = "erm" if is_swad(algorithm) else algorithm.lower()
        kind = find_algorithm(name)
        values: dict[str, Any] = dict(random_hparams(name, digits, hparams_seed, trial_seed))
        if self.reading is not None and "reading" in options_of(kind):
            values["reading"] = self.reading
        values.update(settings)
        check_number("batch_size", values["batch_size"], least=1, whole=True)
        for common in ("lr", "weight_decay", "dropout"):
            check_number(common, values[common], least=0)
        batch_size, lr = int(values.pop("batch_size")), float(values.pop("lr"))
        every = _EVERY_DIGITS if digits else _EVERY_SWAD if wraps else _EVERY
        if wraps and data_name == find_known("VLCS").name:
            every = _EVERY_SWAD_VLCS
            values.setdefault("tolerance_ratio", _RATIO_SWAD_VLCS)
        backbone = self.backbone or ("mnist-gn" if digits else "resnet50")
        dropout = float(values.pop("dropout"))
        shared = {f.name: getattr(self, f.name) for f in fields(TrainingSettings)}
        plan = DomainTraining(
            algorithm=name,
            test_domains=tuple(test_domains),
            backbone=backbone,
            batch_norm=self.batch_norm or ("trained" if digits else "frozen"),
            batch_size=batch_size if self.batch_size is None else self.batch_size,
            lr=lr if self.learning_rate is None else self.learning_rate,
            weight_decay=float(values.pop("weight_decay")),
            # DomainBed draws it for the digits too, and its network for them has none.
            dropout=0.0 if backbone.startswith("mnist") else dropout,
            options=tuple(sorted(values.items())),
            swad=wraps,
            trial_seed=trial_seed,
            seed=seed,
            evaluate_every=every if self.evaluate_every is None else self.evaluate_every,
            every_split=bool(self.every_split),
            **shared,
        )
        kept = self.batch_norm is None or self.features == "fixed"
        if kept and self.weights is None and not backbone.startswith("mnist"):
            raise ValueError(
                "`--weights` must name pre-trained weights (a file, timm, torchvision or "
                "package), because by default their batch-norm statistics are kept as they are. "
                "To train from random weights, use `--batch-norm trained`."
            )
        return plan


def is_swad(algorithm: str) -> bool:
    """Whether a name stands for SWAD, which wraps an algorithm and is not one itself."""
    return algorithm.lower() == "swad"


def settings_of(algorithm: str) -> set[str]:
    """The names of the hyper-parameters that an algorithm takes as `settings`."""
    own = find_algorithm("erm" if is_swad(algorithm) else algorithm)
    return {*default_hparams(own.name, False), *options_of(own), *_swad_options(algorithm)}


def _swad_options(algorithm: str) -> tuple[str, ...]:
    return options_of(SWAD) if is_swad(algorithm) else ()
