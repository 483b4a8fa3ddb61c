"""What is the same in every plan of a training on domains, whatever the data and the algorithm."""

# No postponed annotations here: the command line reads them from a class in another module.
from dataclasses import dataclass
from typing import Literal, TypeAlias

Features: TypeAlias = Literal["trained", "fixed"]
Precision: TypeAlias = Literal["float32", "bfloat16"]

Reading: TypeAlias = Literal["paper", "domainbed"]
"""Whose version of an algorithm: its paper's, or that of DomainBed's code where they differ."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings without defaults of DomainBed's own.

    Attributes:
        weights: Pre-trained weights: a file, timm, torchvision, package.
        features: fixed trains the classifier alone ("pre-trained" in the paper).
        precision: bfloat16 halves the time of a step on CPUs that have it.
        steps: Number of training steps.
        evaluate_images: At most this many of each split while training.
        augmented_validation: Augment the validation images, as DomainBed does.
        device: Where to compute: cpu, cuda, mps.
    """

    weights: str | None = None
    features: Features = "trained"
    precision: Precision = "float32"
    steps: int = 5001
    evaluate_images: int | None = None
    augmented_validation: bool = False
    device: str = "cpu"
