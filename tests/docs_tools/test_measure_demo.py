"""The script that measures the demo again finds the table that it replaces in the README."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "tools"))
    return importlib.import_module("measure_demo")


def test_the_table_in_the_readme_is_replaced_and_nothing_else(script: ModuleType) -> None:
    before, rest = README.split(script.MARK)
    table, after = rest.split(script.END)
    assert "| gprebn |" in table
    assert script.with_table(README, "new\n") == f"{before}{script.MARK}new\n{script.END}{after}"
    assert script.with_table(README, table) == README


def test_a_readme_without_the_table_is_refused(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="once, found 0"):
        script.with_table("# driftnorm\n", "new\n")
