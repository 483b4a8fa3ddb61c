"""Workers: one thread each, and no silent death."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftnorm._internal.processes import (
    _signals_held,
    checked_workers,
    end_if_stopped,
    in_processes,
)
from driftnorm.errors import WorkerError


def threads_and_square(number: int) -> tuple[str, int]:
    return os.environ["OPENBLAS_NUM_THREADS"], number * number


def test_workers_have_one_thread_each(monkeypatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "5")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    results = dict(in_processes(threads_and_square, range(20), 2))
    assert results == {number: ("1", number * number) for number in range(20)}
    assert os.environ["OPENBLAS_NUM_THREADS"] == "5"
    assert "MKL_NUM_THREADS" not in os.environ


def die(number: int) -> None:
    os._exit(3)


def test_a_dead_worker_is_reported() -> None:
    with pytest.raises(WorkerError, match="A worker process died"):
        list(in_processes(die, range(3), 2))


def die_on_three(number: int) -> int:
    if number == 3:
        os._exit(3)
    return number * number


def test_only_the_task_that_kills_its_worker_is_given_up() -> None:
    results = dict(in_processes(die_on_three, range(12), 2, died=lambda number: -number))
    assert results == {number: number * number for number in range(12)} | {3: -3}


def wait_or_begin(task: tuple[int, str]) -> None:
    number, folder = task
    (Path(folder) / str(number)).touch()
    while True:
        end_if_stopped()
        time.sleep(0.01)


def test_a_stop_reaches_tasks_at_work(tmp_path: Path) -> None:
    def begun() -> Iterator[tuple[int, str]]:
        # The first tasks are at work when the launcher asks for the last one.
        deadline = time.monotonic() + 60
        for number in range(100):
            yield number, str(tmp_path)
            while number == 3 and not (tmp_path / "1").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            if number == 4:
                raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(in_processes(wait_or_begin, begun(), 2))
    assert (tmp_path / "1").exists()
    assert time.monotonic() - before < 60


STOPPED_AT_BIRTH = """
import multiprocessing.util as util, os, signal, sys
from driftnorm._internal.processes import in_processes

def stop(*_):
    raise KeyboardInterrupt

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    bear = util.spawnv_passfds

    def bear_and_stop(path, words, passed):
        child = bear(path, words, passed)
        if any("spawn_main" in str(word) for word in words):
            sys.argv[2] == "all" and os.killpg(0, int(sys.argv[1]))
            sys.argv[2] == "one" and os.kill(os.getpid(), int(sys.argv[1]))
        return child

    util.spawnv_passfds = bear_and_stop
    try:
        list(in_processes(abs, range(9), 2))
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held here")
@pytest.mark.parametrize(
    ("number", "whom"), [("SIGTERM", "one"), ("SIGINT", "one"), ("SIGINT", "all")]
)
def test_a_signal_while_a_worker_starts(number: str, whom: str, tmp_path: Path) -> None:
    """Between the birth of a worker and its orders, to this process or to all of a terminal."""
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED_AT_BIRTH)
    ended = subprocess.run(
        [sys.executable, script, str(int(getattr(signal, number))), whom],
        capture_output=True,
        text=True,
        timeout=90,
        start_new_session=True,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("stopped\n", "", 0)


@pytest.mark.parametrize("workers", [0, -2])
def test_the_number_of_workers(workers: int) -> None:
    with pytest.raises(ValueError, match=f"`workers` must be at least 1, got {workers}"):
        checked_workers(workers)
    assert checked_workers(3) == 3
    assert checked_workers(None) >= 1


def test_a_signal_that_another_thread_receives_waits_until_a_worker_has_started() -> None:
    """Blocked in the main thread, it still goes to another one, and is handled in the main one."""
    told: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("handled"))
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with _signals_held():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            told.append("started")
        assert told == ["started", "handled"]
        assert signal.getsignal(signal.SIGTERM) is not before
    finally:
        over.set()
        other.join()
        signal.signal(signal.SIGTERM, before)
