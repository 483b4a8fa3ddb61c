"""The network that a study measures: opened once per process, known by the hash of its weights."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from driftnorm.models.opener import Model, open_model

__all__ = ["open_subject", "subject_name", "training_of"]


@lru_cache(maxsize=2)
def open_subject(
    spec: str,
    weights: str | None,
    pretrained: bool = False,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    size: int | None = None,
    shown: tuple[int, int] | None = None,
) -> Model:
    """Open the network of a study.

    Args:
        spec: As `driftnorm.models.open_model` takes it.
        weights: As there.
        pretrained: Whether to take published weights; without them nothing is downloaded.
        mean: As there.
        std: As there.
        size: As there.
        shown: Height and width of the study's images.
    """
    return open_model(
        spec,
        weights=weights,
        mean=mean,
        std=std,
        size=size,
        shown=shown,
        untrained=not pretrained,
    )


def subject_name(spec: str) -> str:
    """An architecture, or a file with the folder of its run."""
    path = Path(spec)
    folder = path.parent.name if path.is_file() else ""
    return f"{folder}/{path.name}" if folder else path.name


def training_of(model: Model) -> str | None:
    """The recipe that the network was trained with, if its file says so."""
    run = model.facts.get("run")
    recipe = run.get("recipe") if isinstance(run, dict) else None
    return recipe if isinstance(recipe, str) else None
