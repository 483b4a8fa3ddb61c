"""The settings of trainings on domains as flags, each under its heading."""

# No postponed annotations here: the commands read them from a class in another module.
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from driftnorm.cli._flags import FIRST, RARE, SPREAD, TRAINING
from driftnorm.training.domains.plans import PlanOptions
from driftnorm.training.domains.settings import Reading

_Rare = Parameter(group=RARE)


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(PlanOptions):
    """What is not declared again here belongs to how the networks are trained."""

    data: Annotated[str, Parameter(group=FIRST)]
    reading: Annotated[Reading | None, _Rare] = None
    evaluate_every: Annotated[int | None, _Rare] = None
    evaluate_images: Annotated[int | None, _Rare] = None
    every_split: Annotated[bool | None, _Rare] = None
    augmented_validation: Annotated[bool, _Rare] = False


Training: TypeAlias = Annotated[TrainingFlags, SPREAD, Parameter(group=TRAINING)]
