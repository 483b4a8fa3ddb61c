"""A progress bar for all ``progress`` arguments of the package; plain lines in a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from driftnorm.cli._output import say

SECONDS_BETWEEN_LINES = 30.0


class Bar:
    """Call it with what is being done, how much is done, and the total or None.

    Args:
        console: Where to draw. If it is not a terminal, a line goes to stderr every half minute,
            unless the console is quiet.
        in_bytes: Show megabytes instead of counts.
    """

    def __init__(self, console: Console, *, in_bytes: bool = False) -> None:
        amount: ProgressColumn = DownloadColumn() if in_bytes else MofNCompleteColumn()
        self._progress = Progress(
            TextColumn("{task.description:<40}"),
            BarColumn(),
            amount,
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._unit, self._suffix = (1e6, " MB") if in_bytes else (1.0, "")
        self._log = None
        if not console.is_terminal:
            self._log = Console(stderr=True, quiet=console.quiet)
        self._logged = time.monotonic()
        self._new = True

    def __call__(self, text: str, done: int, total: int | None) -> None:
        """Show the current state."""
        now = time.monotonic()
        if self._log is None:
            if self._new:  # what an earlier call has done says nothing about the speed
                self._progress.reset(self._task, completed=done)
                self._new = False
            self._progress.update(self._task, description=text, completed=done, total=total)
        elif now - self._logged >= SECONDS_BETWEEN_LINES:
            self._logged = now
            of = "" if total is None else f" of {total / self._unit:,.0f}"
            line = f"{text}: {done / self._unit:,.0f}{of}{self._suffix}"
            say(self._log, line)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._progress.stop()
