"""A progress bar that any of the package's ``progress`` arguments takes; silent in a pipe."""

from __future__ import annotations

from types import TracebackType

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

__all__ = ["Bar"]


class Bar:
    """Call it with what is being done, how much is done, and how much there is or None.

    Args:
        console: Where to draw; nothing is drawn unless it is a terminal.
        in_bytes: Show amounts as megabytes rather than as counts.
    """

    def __init__(self, console: Console, *, in_bytes: bool = False) -> None:
        amount: ProgressColumn = DownloadColumn() if in_bytes else MofNCompleteColumn()
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            amount,
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None)

    def __call__(self, text: str, done: int, total: int | None) -> None:
        """Show the state of things."""
        self._progress.update(self._task, description=text, completed=done, total=total)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
