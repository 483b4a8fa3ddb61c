"""The network that training starts from: fresh, or with the weights of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftnorm._internal.counts import counted
from driftnorm._internal.files import file_digest
from driftnorm._internal.own_code import given_as
from driftnorm.errors import CheckpointError
from driftnorm.images.image_set import ImageSet
from driftnorm.models import Normalized, Preprocessing, load, open_checkpoint

DECIMALS = 6  # of the normalisation constants, which a model holds in single precision


@dataclasses.dataclass(frozen=True)
class Start:
    """A network to train, and what a checkpoint must say about it.

    Attributes:
        model: Takes images in [0, 1].
        preprocessing: Its normalisation, and the size of the images.
        options: Of the architecture.
    """

    model: Normalized
    preprocessing: Preprocessing
    options: Mapping[str, Any]


def starting_point(architecture: str, init: Path | None, data: ImageSet, seed: int) -> Start:
    """Builds the network for a data set.

    Args:
        architecture: Spec, as for `driftnorm.models.load`.
        init: A self-describing checkpoint or plain weights; None for fresh ones.
        data: Tells the classes and the size of the images.
        seed: Of fresh weights.

    Returns:
        The network, its preprocessing and its options.
    """
    options: Mapping[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        described = None if init is None else _described(init)
        if described is None:
            with given_as("architecture"):
                model = load(architecture, weights=init, num_classes=len(data.classes))
        else:
            model, options = described.model, described.options
            if (described.architecture, described.classes) != (architecture, data.classes):
                raise ValueError(
                    f"{init} is a {described.architecture} for "
                    f"{counted(len(described.classes), 'class')} "
                    f"({', '.join(described.classes[:3])}, ...); expected a {architecture} for the "
                    f"{counted(len(data.classes), 'class')} of {data.name}."
                )
    if not isinstance(model, Normalized):
        raise ValueError(f"{architecture!r} does not say how its input is normalised.")
    mean, std = (
        tuple(round(value, DECIMALS) for value in constants.flatten().tolist())
        for constants in (model.mean, model.std)
    )
    return Start(model, Preprocessing(mean, std, data.images.shape[1]), options)


def _described(init: Path) -> Any:
    """The self-describing checkpoint in a file, or None if it holds plain weights."""
    try:
        return open_checkpoint(init)
    except CheckpointError as error:
        if error.problem == "undescribed":
            return None
        raise


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: expected a weight file.")
    return file_digest(path).hex()
