"""Where commands write: never over what they read, nor two things into one file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from rich.console import Console

__all__ = ["check_places", "make_folders"]


def check_places(
    written: Mapping[str, str | Path | None], read: Mapping[str, str | Path | None]
) -> None:
    """Refuse a file that would be overwritten while it is needed.

    Args:
        written: Files that the command will write, by the flag that names them.
        read: What it reads, likewise; what is no file, such as a model's name, does not matter.
    """
    out = {flag: Path(file).resolve() for flag, file in written.items() if file is not None}
    for flag, file in out.items():
        if file.is_dir():
            raise IsADirectoryError(f"`{flag}` must be a file, but {file} is a folder.")
        if not file.parent.exists() and not file.parent.parent.is_dir():
            raise FileNotFoundError(
                f"`{flag}` {file}: the folder {file.parent.parent} is not there. Make it first: "
                "only the last folder of a path is made."
            )
    for (one, file), (other, same) in combinations(out.items(), 2):
        if file == same:
            raise ValueError(f"`{one}` and `{other}` name the same file, {file.name}.")
    for flag, file in out.items():
        for other, given in read.items():
            if given is not None and Path(given).resolve() == file:
                raise ValueError(f"`{flag}` would overwrite {given}, which is `{other}`.")


def make_folders(written: Mapping[str, Path | None], console: Console) -> None:
    """Make the folders of files that will be written, and see whether they can be.

    Args:
        written: What `check_places` has seen.
        console: Where to say which folder was made.
    """
    for flag, file in written.items():
        if file is None:
            continue
        if not file.parent.exists():
            file.parent.mkdir()
            text = f"note: made the folder {file.parent}."
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        try:
            with tempfile.TemporaryFile(dir=file.parent):  # a folder may be read-only
                pass
        except OSError as error:  # which names the file of the try
            raise OSError(
                f"`{flag}` {file}: the folder {file.parent} cannot be written to: {error.strerror}."
            ) from error
