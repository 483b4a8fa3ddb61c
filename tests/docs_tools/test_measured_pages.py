"""Every page about measurements is what its committed rows say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
MEASURED = (
    *("adapt_throughput", "changing_stream", "corruption_speed", "diagnose_verdicts"),
    *("evidence_domains", "evidence_robustness", "grid_overhead", "guard_page"),
    *("one_default_page", "speed"),
)


@pytest.fixture
def benchmark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("benchmark", MEASURED, indirect=True)
def test_a_page_is_made_of_its_rows(benchmark: ModuleType) -> None:
    assert benchmark.PAGE.read_text() == benchmark.page()


def test_every_module_that_writes_a_page_is_listed() -> None:
    pages = [path for path in ROOT.glob("benchmarks/*.py") if "def page(" in path.read_text()]
    assert sorted(path.stem for path in pages) == sorted(MEASURED)


@pytest.mark.parametrize("benchmark", ["guard_page"], indirect=True)
def test_the_guard_was_measured_at_every_batch_size(benchmark: ModuleType) -> None:
    assert {case.batch for case in benchmark.every_case()} == {1, 4, 8, 64}


@pytest.mark.parametrize("benchmark", ["speed"], indirect=True)
def test_every_candidate_of_the_speed_benchmark_runs(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(benchmark.SETTINGS, "resnet20", (8, 32))
    with torch.random.fork_rng():
        network, x = benchmark.material("resnet20")
        for name in benchmark.candidates():
            benchmark.candidate(name, network, x)()
