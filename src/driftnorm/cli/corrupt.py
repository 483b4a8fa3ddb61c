"""``driftnorm corrupt``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm.cli._config import keep_config
from driftnorm.cli._corruption_names import Corruptions, settle_corruptions
from driftnorm.cli._flags import MANY, OUT, Frost, Quiet, Workers
from driftnorm.cli._output import say
from driftnorm.cli._progress import Bar
from driftnorm.images.corrupted_sets import generate
from driftnorm.images.corruption import SEVERITIES


def corrupt(
    data: Path,
    out: Annotated[Path, OUT],
    *,
    corruptions: Corruptions = None,
    severities: Annotated[list[int] | None, MANY] = None,
    limit: int | None = None,
    seed: int = 0,
    workers: Workers = None,
    frost: Frost = None,
    quiet: Quiet = False,
) -> None:
    """Generate corrupted images in the layout of CIFAR-10-C or of ImageNet-C.

    An interrupted run resumes, and the files come out the same.

    Parameters
    ----------
    data
        A folder of CIFAR-10's or CIFAR-100's official files, an .npz file with images, labels and
        classes, or any folder of images.
    out
        The folder to write to; driftnorm.json in it records how it was made.
    severities
        From 1 to 5; default: all five.
    limit
        At most this many images.
    seed
        Seed of the noise.
    """
    given = dict(locals())
    begun, console = time.perf_counter(), Console(quiet=quiet)
    names = settle_corruptions(corruptions, frost, console)
    levels = tuple(severities or SEVERITIES)
    with Bar(console) as bar:
        made = generate(
            data,
            out,
            corruptions=names,
            severities=levels,
            workers=workers,
            seed=seed,
            frost=frost,
            limit=limit,
            progress=bar,
        )
    keep_config(made.folder, "corrupt", given | {"corruptions": names, "severities": levels})
    say(
        console,
        f"{made.folder} holds {counted(len(names), 'corruption')} of "
        f"{counted(made.count, 'image')} of {made.source} ({time.perf_counter() - begun:.0f} s).",
    )
    if made.frost == "procedural":
        console.print("Frost is a procedural stand-in: not comparable with published results.")
