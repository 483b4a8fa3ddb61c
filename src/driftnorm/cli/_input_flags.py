"""The network and the images that a command reads: their flags, and how they are opened."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.own_code import given_as
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import MANY, NETWORK, RARE, SPREAD, SWITCH, Device
from driftnorm.cli._output import say
from driftnorm.images import Inputs, Shuffled, open_inputs
from driftnorm.models.opened_model import Model, open_model
from driftnorm.models.sources import is_factory

_NETWORK = (
    "A driftnorm checkpoint, a built-in name, timm:NAME, torchvision:NAME or "
    "package.module:factory."
)
Network: TypeAlias = Annotated[str, Parameter(help=_NETWORK)]
Networks: TypeAlias = Annotated[
    list[str] | None, MANY, Parameter(help=_NETWORK.replace("A", "Each a", 1))
]
Data: TypeAlias = Annotated[
    Path,
    Parameter(
        help="A folder of images (searched recursively), a text file with one path per line, an "
        ".npy or .npz array, or a .tar of images."
    ),
]
Labels: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="To report accuracy: a CSV file (columns name, label), an .npy of class numbers, "
        "`folders` or `parents` (an image's first or last folder is its class), or `own` (in the "
        ".npz or .tar)."
    ),
]
Mean: TypeAlias = Annotated[
    list[float] | None,
    MANY,
    Parameter(group=NETWORK, help="Mean per channel, for images in [0, 1]."),
]
Std: TypeAlias = Annotated[
    list[float] | None, MANY, Parameter(group=NETWORK, help="Standard deviation per channel.")
]
Shuffle: TypeAlias = Annotated[
    list[int] | None,
    MANY,
    Parameter(
        help="Shuffle the images with this seed (default: 0); not for a compressed .tar or .npz."
    ),
]


@dataclass(frozen=True)
class NetworkFlags:
    """What `open_model` takes beside the network's name, and the device."""

    weights: Annotated[
        Path | None,
        Parameter(
            group=NETWORK,
            help="A file of weights. Without it, timm:NAME and torchvision:NAME get the "
            "published ones, and a factory's network is used as returned.",
        ),
    ] = None
    classes: Annotated[
        Path | None,
        Parameter(group=NETWORK, help="A text file, one class name per line, or a JSON list."),
    ] = None
    mean: Mean = None
    std: Std = None
    size: Annotated[
        int | None, Parameter(group=NETWORK, help="Height and width of its input in pixels.")
    ] = None
    device: Device = "cpu"
    trust: Annotated[bool, SWITCH, Parameter(group=RARE, help="Open files that can run code.")] = (
        False
    )

    @property
    def files(self) -> dict[str, Path | None]:
        """What is read, by flag."""
        return {"--weights": self.weights, "--classes": self.classes}

    def open(self, network: str, console: Console) -> Model:
        """The network, on its device; a missing device is reported first."""
        where = check_device(self.device)
        find_own_code()
        announce_own_code(network, console)
        with given_as("NETWORK"):
            opened = open_model(
                network,
                weights=self.weights,
                classes=self.classes,
                mean=self.mean,
                std=self.std,
                size=self.size,
                trust=self.trust,
            )
        if opened.architecture != network:  # a checkpoint that names a factory
            announce_own_code(opened.architecture, console)
        opened.network.to(where)
        return opened


DEFAULTS = NetworkFlags()
Opening: TypeAlias = Annotated[NetworkFlags, SPREAD]


def find_own_code() -> None:
    """Let package.module:factory be in the current folder, as with `python -m`."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def announce_own_code(spec: str | None, console: Console) -> None:
    """Print a note if a factory's module comes from the current folder.

    May be called before the module is imported, so the note also precedes its errors.
    """
    if spec is None or not is_factory(spec):
        return
    module = spec.partition(":")[0]
    with suppress(ImportError, ValueError):  # importing it will report what is wrong
        found = importlib.util.find_spec(module.partition(".")[0])
        places = [found.origin, *(found.submodule_search_locations or ())] if found else []
        file = next((Path(place) for place in places if place is not None), None)
        if file is not None and file.resolve().is_relative_to(Path.cwd().resolve()):
            say(console, f"note: {module} was imported from the current folder ({file.name}).")


def seed_of(shuffle: list[int] | None) -> int | None:
    """The given seed, or the default one; None for no shuffling."""
    if shuffle is None:
        return None
    if len(shuffle) > 1:
        raise ValueError(f"`--shuffle` takes one seed, got {' '.join(map(str, shuffle))}.")
    return shuffle[0] if shuffle else 0


def open_images(data: Path, seed: int | None) -> Inputs:
    """The images in their own order, or shuffled."""
    inputs = open_inputs(data)
    return inputs if seed is None else Shuffled(inputs, seed)


def tested_images(data: Path, test_data: Path | None) -> Path:
    """Where the test images are: with those to train on, unless they are elsewhere."""
    if test_data is None and data.suffix == ".npz":
        raise ValueError(
            f"`test_data` must name the test images: {data} holds only one set, which is trained "
            "on."
        )
    return test_data or data
