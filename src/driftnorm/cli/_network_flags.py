"""How a user's network is opened: the flags that every command on own images shares."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from driftnorm.cli._devices import check_device
from driftnorm.models.opener import OpenedModel, open_model

__all__ = ["DEFAULTS", "NetworkFlags", "Shared"]


def _many(text: str) -> Parameter:
    return Parameter(consume_multiple=True, negative="", help=text)


@dataclass(frozen=True)
class NetworkFlags:
    """What `open_model` takes beside the model's name, and where the network shall be."""

    weights: Annotated[
        Path | None,
        Parameter(
            help="A file of the model's weights. Without it, timm:NAME and torchvision:NAME get "
            "the ones that those projects publish, downloaded the first time, and a factory's "
            "network is taken as it comes; a built-in name needs it."
        ),
    ] = None
    classes: Annotated[
        Path | None, Parameter(help="A text file with one class name a line, or a JSON list.")
    ] = None
    mean: Annotated[list[float] | None, _many("Mean per channel, for images in [0, 1].")] = None
    std: Annotated[list[float] | None, _many("Standard deviation per channel.")] = None
    size: Annotated[
        int | None, Parameter(help="Height and width of the network's input in pixels.")
    ] = None
    device: Annotated[str, Parameter(help="Where to compute: cpu, cuda, mps.")] = "cpu"
    trust: Annotated[bool, Parameter(negative="", help="Open files that can run code.")] = False

    def open(self, model: str) -> OpenedModel:
        """The model, on its device; a device that is not there is refused first."""
        where = check_device(self.device)
        # As `python -m` has it: package.module:factory may be in the current folder.
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())
        opened = open_model(
            model,
            weights=self.weights,
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            size=self.size,
            trust=self.trust,
        )
        opened.network.to(where)
        return opened


DEFAULTS = NetworkFlags()
Shared: TypeAlias = Annotated[NetworkFlags, Parameter(name="*")]
"""Its fields are flags of the command itself."""
