"""Output files: never over an input, nor two outputs into one file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from rich.console import Console

from driftnorm.cli._output import say

__all__ = ["check_places", "check_view", "make_folders"]


def check_places(
    written: Mapping[str, str | Path | None], read: Mapping[str, str | Path | None]
) -> None:
    """Reject output files that would overwrite an input or each other.

    Args:
        written: Files that the command will write, by flag.
        read: What it reads, likewise; what is not a file, such as a model's name, is ignored.
    """
    out = {flag: Path(file).resolve() for flag, file in written.items() if file is not None}
    for flag, file in out.items():
        if file.is_dir():
            raise IsADirectoryError(f"`{flag}` must be a file, but {file} is a folder.")
        if not file.parent.exists() and not file.parent.parent.is_dir():
            raise FileNotFoundError(
                f"`{flag}` {file}: the folder {file.parent.parent} does not exist. Create it "
                "first: only the last folder of a path is created."
            )
    for (one, file), (other, same) in combinations(out.items(), 2):
        if file == same:
            raise ValueError(f"`{one}` and `{other}` name the same file, {file.name}.")
    for flag, file in out.items():
        for other, given in read.items():
            if given is not None and Path(given).resolve() == file:
                raise ValueError(f"`{flag}` would overwrite {given}, which is `{other}`.")


def check_view(out: Path, rows: Sequence[Path]) -> None:
    """Reject the output file of a command that shows rows, if it would overwrite these."""
    for path in (*rows, None):  # the file itself is checked without rows, too
        check_places({"--out": out}, {"ROWS": path})


def make_folders(written: Mapping[str, Path | None], console: Console) -> None:
    """Create the folders of output files, and check that they are writable.

    Args:
        written: As for `check_places`.
        console: Where to print which folder was created.
    """
    for flag, file in written.items():
        if file is None:
            continue
        if not file.parent.exists():
            file.parent.mkdir()
            say(console, f"note: created the folder {file.parent}.")
        try:
            with tempfile.TemporaryFile(dir=file.parent):  # a folder may be read-only
                pass
        except OSError as error:  # its message names the temporary file
            raise OSError(
                f"`{flag}` {file}: the folder {file.parent} cannot be written to: {error.strerror}."
            ) from error
