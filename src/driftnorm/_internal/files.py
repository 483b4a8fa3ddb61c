"""Files that appear whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from driftnorm.errors import BusyError, DataError


def check_regular(path: Path, flag: str | None = None) -> None:
    """Refuse what is neither a file nor a folder: opening a pipe may wait for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        named = f"`{flag}` {path}" if flag else str(path)
        raise DataError(
            f"{named} is a pipe, a socket or a device, which cannot be read twice: save "
            "its content in a file."
        )


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file."""
    check_regular(path)
    return hashlib.sha256(path.read_bytes()).digest()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let the system's errors name the file that the user knows of: a full disk names none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # an error of the system, not one of ours
            error.filename = str(path)
        raise


@contextmanager
def written_beside(path: Path, suffix: str = "") -> Iterator[Path]:
    """A new name beside ``path``; what is written there takes its place if nothing raises."""
    temporary = path.with_name(f".writing-{uuid.uuid4().hex}{suffix}")
    try:
        with naming(path):
            yield temporary
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file that is never seen half-written under its name."""
    with written_beside(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def exclusive(lock: Path, busy: str, wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock file while the block runs; the system frees it when the process dies.

    Not `filelock`: it leaves the file, or removes it, depending on its version.

    Args:
        lock: The lock file; its folder must exist. It is removed afterwards.
        busy: What another process is doing when it holds the lock, for the error's text.
        wait: Called between two tries to get the lock, instead of raising an error.
    """
    while (file := _locked(lock)) is None:
        if wait is None:
            raise BusyError(f"{busy} Wait for it to end, or choose another folder.")
        wait()
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file
            lock.unlink()
        file.close()


def _locked(lock: Path) -> IO[bytes] | None:
    """The lock file, open and locked; None if another process holds it."""
    while True:
        file = lock.open("ab")
        try:
            _lock_file(file)
        except (BlockingIOError, PermissionError):  # Linux and macOS, Windows
            file.close()
            return None
        # The holder before us may have removed the file between our opening and our locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        file.close()


if sys.platform == "win32":

    def _lock_file(file: IO[bytes]) -> None:
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:

    def _lock_file(file: IO[bytes]) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
