"""How a user's network is opened: the flags that every command on own images shares."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from rich.console import Console

from driftnorm.cli._devices import check_device
from driftnorm.models.opener import Model, open_model
from driftnorm.models.sources import is_factory

__all__ = [
    "DEFAULTS",
    "Mean",
    "NetworkFlags",
    "Shared",
    "Std",
    "announce_own_code",
    "find_own_code",
]


def _many(text: str) -> Parameter:
    return Parameter(consume_multiple=True, negative="", help=text)


Mean: TypeAlias = Annotated[list[float] | None, _many("Mean per channel, for images in [0, 1].")]
Std: TypeAlias = Annotated[list[float] | None, _many("Standard deviation per channel.")]


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
    mean: Mean = None
    std: Std = None
    size: Annotated[
        int | None, Parameter(help="Height and width of the network's input in pixels.")
    ] = None
    device: Annotated[str, Parameter(help="Where to compute: cpu, cuda, mps.")] = "cpu"
    trust: Annotated[bool, Parameter(negative="", help="Open files that can run code.")] = False

    def open(self, model: str, console: Console) -> Model:
        """The model, on its device; a device that is not there is refused first."""
        where = check_device(self.device)
        find_own_code()
        opened = open_model(
            model,
            weights=self.weights,
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            size=self.size,
            trust=self.trust,
        )
        announce_own_code(opened.architecture, console)
        opened.network.to(where)
        return opened


def find_own_code() -> None:
    """Let package.module:factory be in the current folder, as `python -m` has it."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def announce_own_code(spec: str | None, console: Console) -> None:
    """One line if a factory's module was imported from the current folder."""
    if spec is None or not is_factory(spec):
        return
    module = spec.partition(":")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None and Path(file).resolve().is_relative_to(Path.cwd().resolve()):
        text = f"note: {module} was imported from the current folder ({Path(file).name})."
        console.print(text, markup=False, highlight=False, soft_wrap=True)


DEFAULTS = NetworkFlags()
Shared: TypeAlias = Annotated[NetworkFlags, Parameter(name="*")]
"""Its fields are flags of the command itself."""
