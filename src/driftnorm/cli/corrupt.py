"""``driftnorm corrupt``."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from driftnorm.cli._config import keep_config
from driftnorm.cli._output_flags import Quiet
from driftnorm.cli._progress import Bar
from driftnorm.images.corrupted_sets import generate
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS

__all__ = ["corrupt"]

_GROUPS = {
    "common": CORRUPTIONS,
    "extra": EXTRA_CORRUPTIONS,
    "all": CORRUPTIONS + EXTRA_CORRUPTIONS,
}


def corrupt(
    data: Path,
    out: Path,
    *,
    corruptions: str = "common",
    severities: str = "1,2,3,4,5",
    workers: int | None = None,
    seed: int = 0,
    frost: str | None = None,
    limit: int | None = None,
    quiet: Quiet = False,
) -> None:
    """Generate corrupted images in the layout of CIFAR-10-C or of ImageNet-C.

    Stopped and started again, it goes on where it was, and the files come out the same.

    Parameters
    ----------
    data
        A folder of CIFAR-10's or CIFAR-100's official files, an .npz file with images, labels and
        classes, or any folder of pictures.
    out
        The folder to write to; driftnorm.json in it says how it was made.
    corruptions
        Names with commas between them, or `common` (15), `extra` (4), `all` (19).
    severities
        From 1 to 5, with commas between them.
    workers
        Number of processes; one for each core by default.
    seed
        Another seed gives other noise.
    frost
        Folder of the frost pictures, or `procedural` for a stand-in. By default $DRIFTNORM_FROST or
        an installed package that ships them.
    limit
        Take only so many images.
    """
    given = dict(locals())
    begun, console = time.perf_counter(), Console(quiet=quiet)
    names = _GROUPS.get(corruptions) or tuple(name.strip() for name in corruptions.split(","))
    with Bar(console) as bar:
        made = generate(
            data,
            out,
            corruptions=names,
            severities=_numbers(severities),
            workers=workers,
            seed=seed,
            frost=frost,
            limit=limit,
            progress=bar,
        )
    keep_config(made.folder, "corrupt", given)
    console.print(
        f"{len(names)} corruptions of {made.count:,} images of {made.source} are in {made.folder} "
        f"({time.perf_counter() - begun:.0f} s).",
        markup=False,
        soft_wrap=True,
    )
    if made.frost == "procedural":
        console.print("Frost is a procedural stand-in: not comparable with published results.")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ValueError(
            f"`--severities` must be numbers from 1 to 5 with commas between them, got {text!r}."
        ) from None
