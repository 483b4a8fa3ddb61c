"""Running a function over tasks in processes that do not crowd each other's cores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from driftnorm.data.image_set import DataError

__all__ = ["available_cores", "in_processes"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_TASKS_AHEAD = 3  # a worker: enough that none waits, few enough that results do not pile up


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result as they become ready, in any order.

    Every worker computes with one thread and ends when this process does, even when this one is
    killed. With one worker all is done in this process.

    Args:
        function: Must be importable by name.
        tasks: Made only as fast as they are worked on.
        workers: Number of processes.
    """
    if workers == 1:
        for task in tasks:
            yield task, function(task)
        return
    pending: dict[Future[Result], Task] = {}
    with _one_thread_in_children(), _pool(workers) as pool:
        for task in tasks:
            pending[pool.submit(function, task)] = task
            if len(pending) >= _TASKS_AHEAD * workers:
                yield from _collect(pending)
        while pending:
            yield from _collect(pending)


def _collect(pending: dict[Future[Result], Task]) -> Iterator[tuple[Task, Result]]:
    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        yield pending.pop(future), future.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # A forked child of a process with threads, such as that of a progress bar, may hang.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise DataError(
            "A worker process died, perhaps for lack of memory. What was finished is kept: run the "
            "same again, with fewer workers."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_in_children() -> Iterator[None]:
    # Libraries read these when they are loaded, so children must be born with them.
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent sees to the rest
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
