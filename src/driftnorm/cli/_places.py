"""Where commands write: never over what they read, nor two things into one file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

__all__ = ["check_places"]


def check_places(
    written: Mapping[str, str | Path | None], read: Mapping[str, str | Path | None]
) -> None:
    """Refuse a file that would be overwritten while it is needed.

    Args:
        written: Files that the command will write, by the flag that names them.
        read: What it reads, likewise; what is no file, such as a model's name, does not matter.
    """
    out = {flag: Path(file).resolve() for flag, file in written.items() if file is not None}
    for (one, file), (other, same) in combinations(out.items(), 2):
        if file == same:
            raise ValueError(f"`{one}` and `{other}` name the same file, {file.name}.")
    for flag, file in out.items():
        for other, given in read.items():
            if given is not None and Path(given).resolve() == file:
                raise ValueError(f"`{flag}` would overwrite {given}, which is `{other}`.")
