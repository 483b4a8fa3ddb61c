"""Workers: one thread each, and no silent death."""

import os

import pytest

from driftnorm.data.image_set import DataError
from driftnorm.data.processes import in_processes


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
    with pytest.raises(DataError, match="A worker process died"):
        list(in_processes(die, range(3), 2))
