"""How networks are trained on domains: the flags that one training and a sweep share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from driftnorm.training.domains.network import BatchNormMode
from driftnorm.training.domains.plans import PlanOptions
from driftnorm.training.domains.training import Features, Precision

__all__ = ["DEFAULTS", "Shared", "TrainingFlags"]


def _help(text: str) -> Parameter:
    return Parameter(help=text)


@dataclass(frozen=True)
class TrainingFlags:
    """Fields of `PlanOptions` that every command on domains takes; None leaves it to them."""

    backbone: Annotated[
        str | None,
        _help(
            "resnet18, resnet50, resnet50-v1, efficientnet-lite0, mnist-gn or mnist-bn; default: "
            "resnet50, for digits mnist-gn."
        ),
    ] = None
    weights: Annotated[
        str | None,
        _help('A file of pre-trained weights, or "timm", "torchvision", "package".'),
    ] = None
    batch_norm: Annotated[
        BatchNormMode | None,
        _help(
            "frozen (statistics fixed, affine parameters trained: the published setting), trained "
            "or fused; default: frozen, for digits trained."
        ),
    ] = None
    features: Annotated[
        Features,
        _help("trained, or fixed: only the classifier is trained, all else stays pre-trained."),
    ] = "trained"
    precision: Annotated[
        Precision,
        _help("float32, or bfloat16 for the steps (weights and evaluations stay in float32)."),
    ] = "float32"
    evaluate_images: Annotated[
        int | None,
        _help("At most so many images of each split are evaluated while training; default: all."),
    ] = None
    steps: Annotated[int | None, _help("Default: 5001.")] = None
    evaluate_every: Annotated[
        int | None, _help("Steps between evaluations; default: 300, for digits and SWAD 100.")
    ] = None
    augmented_validation: Annotated[
        bool, _help("Augment held-out images of training domains, as DomainBed does.")
    ] = False

    def options(self, data: str, **more: Any) -> PlanOptions:
        """All that is asked of trainings on these data."""
        return PlanOptions(data, **{f.name: getattr(self, f.name) for f in fields(self)}, **more)


DEFAULTS = TrainingFlags()
Shared: TypeAlias = Annotated[TrainingFlags, Parameter(name="*")]
"""Its fields are flags of the command itself."""
