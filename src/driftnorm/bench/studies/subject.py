"""The network that a study measures: opened once a process, known by the hash of its weights."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from driftnorm.models import MODELS, facts_in, load, load_published, weights_hash
from driftnorm.models.efficientnet_lite import NAME as LITE

__all__ = ["Subject", "check_weights", "open_subject", "outputs_of", "subject_name"]

_PUBLISHERS = ("timm", "torchvision")


class Subject(NamedTuple):
    """A network with its weights.

    Attributes:
        network: In evaluation mode.
        digest: The first letters of the weights' hash.
        recipe: What it was trained with, if its file says so.
    """

    network: nn.Module
    digest: str
    recipe: str | None


@lru_cache(maxsize=2)
def open_subject(spec: str, weights: str | None, pretrained: bool = False) -> Subject:
    """Load the network of a study."""
    network = load_published(spec) if pretrained else load(spec, weights)
    digest = weights_hash(network.state_dict())[:8]
    file = Path(spec if weights is None else weights)
    run = facts_in(file).get("run") if file.is_file() else None
    recipe = run.get("recipe") if isinstance(run, dict) else None
    return Subject(network, digest, recipe if isinstance(recipe, str) else None)


def subject_name(spec: str) -> str:
    """An architecture, or a file with the folder of its run."""
    path = Path(spec)
    return f"{path.parent.name}/{path.name}" if path.is_file() else path.name


def check_weights(spec: str, weights: str | None, pretrained: bool) -> None:
    """Refuse to measure a network that nobody trained.

    Raises:
        ValueError: The spec is that of an architecture and no weights are given, or two are.
    """
    base = spec.split("+")[0]
    family = base.partition(":")[0]
    if pretrained and weights is not None:
        raise ValueError("`--weights` and `--pretrained` both name weights: give one of them.")
    if pretrained and family not in _PUBLISHERS:
        raise ValueError(
            f"`--pretrained` takes the weights that timm or torchvision publish, but the model is "
            f"`{spec}`: give `--weights` FILE."
        )
    if weights is None and not pretrained and (base in MODELS or base == LITE):
        raise ValueError(f"`{spec}` is an architecture without weights: give `--weights` FILE.")
    if weights is None and not pretrained and family in _PUBLISHERS:
        raise ValueError(
            f"`{spec}` is an architecture without weights: give `--weights` FILE, or "
            f"`--pretrained` for those that {family} publishes."
        )


@lru_cache(maxsize=8)
def outputs_of(
    spec: str, weights: str | None, pretrained: bool, height: int, width: int
) -> int | None:
    """How many classes the network tells apart; None if it cannot be run on such images.

    What it raises then is not hidden: every cell runs into it again, and records it.
    """
    network = open_subject(spec, weights, pretrained).network
    try:
        with torch.no_grad():
            answer = network(torch.full((1, 3, height, width), 0.5))
    except Exception:  # whatever a network of the user's raises
        return None
    fits = isinstance(answer, Tensor) and answer.ndim == 2
    return int(answer.shape[1]) if fits else None
