"""The cache of things that can be made again, and how a folder in it is made once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from multiprocessing import current_process
from pathlib import Path

from driftnorm._internal.files import exclusive
from driftnorm._internal.progress import Report

_SECONDS_BETWEEN_LOOKS = 0.2


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder to keep things in; all in it may be deleted at any time.

    Args:
        folder: Taken if given. Else the environment variable ``DRIFTNORM_CACHE`` decides, else
            ``driftnorm`` in ``XDG_CACHE_HOME``, else ``~/.cache/driftnorm``.
    """
    if folder is not None:
        return Path(folder)
    if own := os.environ.get("DRIFTNORM_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "driftnorm"
    return Path.home() / ".cache" / "driftnorm"


def made_once(target: Path, make: Callable[[Path], None], progress: Report) -> Path:
    """A folder that exists completely or not at all, safe under concurrent and killed processes.

    It is made as a draft beside its place, then renamed. If several processes want it, one makes it
    and the others wait, since two would only compete for the cores.

    Args:
        target: The folder.
        make: Fills an empty folder; called only if the target is not there.
        progress: Called while waiting for another process.

    Returns:
        The target.

    Raises:
        RuntimeError: A worker came here while it was starting: the script that started it has no
            main guard, and would wait for it forever.
    """
    if target.is_dir():
        return target
    if getattr(current_process(), "_inheriting", False):  # multiprocessing's own sign of it
        raise RuntimeError(
            "worker processes run a script's top level again, and this one makes a data set there: "
            'put what your script does under `if __name__ == "__main__":`.'
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_name(f".{target.name}.lock")

    def wait() -> None:
        progress("waiting for another process", 0, None)
        time.sleep(_SECONDS_BETWEEN_LOOKS)

    with exclusive(lock, f"Another process is at work on {target.parent}.", wait):
        if target.is_dir():  # another process has just finished it
            return target
        draft = target.with_name(f".{target.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
        draft.mkdir()
        try:
            make(draft)
            os.replace(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target
