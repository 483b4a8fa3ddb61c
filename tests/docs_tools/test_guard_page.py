"""The page about the guard is what its committed rows say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    made = importlib.import_module("guard_page")
    cases = made.every_case()
    assert {case.batch for case in cases} == {1, 4, 8, 64}
    assert (ROOT / "docs" / "guard.md").read_text() == made.page(cases)
