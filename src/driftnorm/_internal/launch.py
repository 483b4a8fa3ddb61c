"""Launchers: plain functions that run a function over tasks and yield each result as it comes.

A launcher knows about cores, not about experiments. A cluster engine fits in as one more entry of
`LAUNCHERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from typing import Protocol as Interface

from driftnorm._internal.processes import in_processes


class Launcher(Interface):
    """Runs a function over tasks and yields (task, result) pairs, in any order."""

    def __call__(
        self,
        function: Callable[[Any], Any],
        tasks: Iterable[Any],
        workers: int,
        died: Callable[[Any], Any] | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Begin; ``died`` makes the result of a task whose process died."""
        ...


def serial(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    workers: int = 1,
    died: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """One after the other, in this process, with all its threads."""
    for task in tasks:
        yield task, function(task)


LAUNCHERS: dict[str, Launcher] = {"serial": serial, "processes": in_processes}
