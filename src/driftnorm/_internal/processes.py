"""Running a function over tasks in processes that do not crowd each other's cores."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from driftnorm._internal.process_memory import keep_freed_memory
from driftnorm.errors import WorkerError

WORKER_DIED = "the worker process died, perhaps for lack of memory"  # in results made by `died`

Task = TypeVar("Task")
Result = TypeVar("Result")

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TASKS_AHEAD = 3  # a worker: enough that none waits, few enough that results do not pile up

# In a worker: a byte that the parent sets. Without a lock, which a killed worker would never free.
_stop: Any = None


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_workers(workers: int | None) -> int:
    """The number of processes requested; one per core for None."""
    if workers is None:
        return available_cores()
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    return workers


def end_if_stopped() -> None:
    """Called now and then by long work in a worker, so that Ctrl-C does not wait for all of it.

    Raises:
        KeyboardInterrupt: The parent was stopped; nobody waits for the result any more.
    """
    if _stop is not None and _stop.value:
        raise KeyboardInterrupt


def in_processes(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    died: Callable[[Task], Result] | None = None,
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result as they become ready, in any order.

    Every worker computes with one thread and ends when this process does, even when this one is
    killed. With one worker all is done in this process.

    Args:
        function: Must be importable by name.
        tasks: Made only as fast as they are worked on.
        workers: Number of processes.
        died: The result of a task whose worker died. What was running when a worker died is tried
            once more, each in a process of its own, so that only the culprit is given up. Without
            it a dead worker ends everything.

    Raises:
        WorkerError: A worker died, and there is no ``died``.
    """
    if workers == 1:
        for task in tasks:
            yield task, function(task)
        return
    waiting = iter(tasks)
    with _one_thread_in_children():
        while True:
            pending: dict[Future[Result], Task] = {}
            try:
                with _pool(workers) as pool:
                    for task in waiting:
                        pending[_submitted(pool, function, task)] = task
                        if len(pending) >= _TASKS_AHEAD * workers:
                            yield from _collect(pending)
                    while pending:
                        yield from _collect(pending)
                return
            except BrokenProcessPool as error:
                if died is None:
                    raise WorkerError(
                        "A worker process died, perhaps for lack of memory. What was finished is "
                        "kept: run the same again, with fewer workers."
                    ) from error
            lost = []
            for future, task in pending.items():
                if future.exception() is None:
                    yield task, future.result()
                else:
                    lost.append(task)
            # Tasks begin in the order in which they came: later ones were only waiting.
            for task in lost[:workers]:
                yield task, _alone(function, task, died)
            waiting = chain(lost[workers:], waiting)


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[[Task], Result], task: Task
) -> Future[Result]:
    """The task's future; of a pool that broke a moment ago, one that says so."""
    try:
        with _signals_held():  # submitting is what starts a worker
            return pool.submit(function, task)
    except BrokenProcessPool as error:
        future: Future[Result] = Future()
        future.set_exception(error)
        return future


def _collect(pending: dict[Future[Result], Task]) -> Iterator[tuple[Task, Result]]:
    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in finished:
        result = future.result()  # a task whose worker died stays pending
        yield pending.pop(future), result


def _alone(
    function: Callable[[Task], Result], task: Task, died: Callable[[Task], Result]
) -> Result:
    try:
        with _pool(1) as pool:
            return _submitted(pool, function, task).result()
    except BrokenProcessPool:
        return died(task)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # A forked child of a process with threads, such as that of a progress bar, may hang.
    context = get_context("spawn")
    stop = context.RawValue(ctypes.c_bool, False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare, initargs=(stop,))
    try:
        yield pool
    finally:
        stop.value = True
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back: one between a worker's start and its first task would orphan it.

    Blocking them is not enough, since any other thread may receive a signal that Python then
    handles in this one. Workers start with signals blocked until `_prepare`: Ctrl-C in a terminal
    reaches them too.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {each: signal.signal(each, lambda n, _: held.append(n)) for each in _SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for each, handler in handlers.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


@contextmanager
def _one_thread_in_children() -> Iterator[None]:
    # Libraries read these when they are loaded, so children must start with them.
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


def _prepare(stop: Any) -> None:
    global _stop
    _stop = stop
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent handles it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
