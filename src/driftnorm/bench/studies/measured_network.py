"""The network of a study: opened once, and as a cell stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from driftnorm._internal.counts import counted
from driftnorm._internal.description import Description
from driftnorm.bench.cell import NetworkId, Trainer, Training
from driftnorm.models.opened_model import Model, open_model


@dataclass(frozen=True)
class MeasuredNetwork(Description):
    """What `open_model` takes.

    Attributes:
        model: A file or a name.
        weights: Its weights, if the name does not include them.
        pretrained: Use the weights that timm or torchvision publish for the model; without it
            nothing is downloaded.
        mean: Of the network's input, per channel of images in [0, 1]; None where it is known.
        std: Its deviation, likewise.
        size: Height and width that the images must have; None takes them as they are.
        shown: Height and width of the images; None takes the network's own.
        training: How the network was trained, if its file does not say so.
    """

    model: str
    weights: str | None = None
    pretrained: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    shown: tuple[int, int] | None = None
    training: Training | None = None

    @cached_property
    def opened(self) -> Model:
        """The network, checked to take such images."""
        with torch.random.fork_rng(enabled=":" not in self.model):
            if ":" not in self.model:  # a built-in network, the same in every process
                torch.manual_seed(0)
            return open_model(
                self.model,
                weights=self.weights,
                mean=self.mean,
                std=self.std,
                size=self.size,
                shown=self.shown,
                untrained=not self.pretrained,
            )

    @property
    def id(self) -> NetworkId:
        """Its identity in cells."""
        if "trained_on" in self.opened.facts:
            size = self.opened.preprocessing.size
            return domain_network_id(self.opened.facts, self.opened.digest, size)
        training, recipe = self.training, _recipe_of(self.opened)
        if training is None and recipe is not None:
            training = Training(Trainer(recipe))
        path = Path(self.model)
        folder = path.parent.name if path.is_file() else ""
        name = f"{folder}/{path.name}" if folder else path.name
        return NetworkId(name, self.opened.digest[:8], training)

    def network(self, known: NetworkId) -> nn.Module:
        """The network of a cell; raises if its weights differ."""
        digest = self.opened.digest[:8]
        if known.digest != digest:
            raise ValueError(
                f"the network's weights differ between processes ({known.label}, now "
                f"@{digest}): seed the function that builds it, or give weights."
            )
        return self.opened.network

    def check_classes(self, data: str, classes: Sequence[str]) -> None:
        """Refuse data with another number of classes; a network of unknown outputs passes."""
        outputs = len(self.opened.classes)
        if outputs not in (0, len(classes)):
            raise ValueError(
                f"`model` {self.model} has {counted(outputs, 'output')}, but {data} has "
                f"{counted(len(classes), 'class')}: give a network that was trained on these "
                "classes, or for folders of images `--classes` FILE, which names the class folder "
                "of every output, one per line."
            )


def domain_network_id(facts: Mapping[str, Any], digest: str, side: int) -> NetworkId:
    """The identity of a network that `driftnorm train domains` wrote, from what its file says."""
    training = facts["training"]
    trainer = Trainer(
        training["algorithm"], facts.get("averaged", False), training.get("features", "trained")
    )
    trained = Training(
        trainer,
        tuple(facts["test_domains"]),
        training["trial_seed"],
        training["batch_norm"],
        side,
    )
    return NetworkId(training["backbone"], digest[:8], trained)


def _recipe_of(model: Model) -> str | None:
    """The recipe that the network was trained with, if its file says so."""
    run = model.facts.get("run")
    recipe = run.get("recipe") if isinstance(run, dict) else None
    return recipe if isinstance(recipe, str) else None
