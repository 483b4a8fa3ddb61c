"""How a user's images are opened: the flags that every command on own images shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from driftnorm.images import Inputs, Shuffled, open_inputs

__all__ = ["Shuffle", "open_images", "seed_of"]

Shuffle: TypeAlias = Annotated[
    list[int] | None,
    Parameter(
        consume_multiple=True,
        negative="",
        help="Take the images in a shuffled order, which the seed (default: 0) settles. Not from a "
        "compressed .tar or .npz.",
    ),
]


def seed_of(shuffle: list[int] | None) -> int | None:
    """The seed that was given, or the default one; None if nothing shall be shuffled."""
    if shuffle is None:
        return None
    if len(shuffle) > 1:
        raise ValueError(f"`--shuffle` takes one seed, got {' '.join(map(str, shuffle))}.")
    return shuffle[0] if shuffle else 0


def open_images(data: Path, seed: int | None) -> Inputs:
    """The images in their own order, or shuffled."""
    inputs = open_inputs(data)
    return inputs if seed is None else Shuffled(inputs, seed)
