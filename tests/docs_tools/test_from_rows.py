"""Tables of the documentation that are more than one view of one file of rows."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from driftnorm.views import Column, Table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    monkeypatch.chdir(ROOT)
    return importlib.import_module("from_rows")


def test_the_glance_shows_plain_training_not_the_last_of_several(script: ModuleType) -> None:
    lines = (
        ("Tent helps", "confirmed", "+2.4 [+1.1, +3.7]", "erm"),
        ("rT3A adds", "not measured", None, "erm"),
        ("Tent helps", "contradicted", "-2.5 [-4.6, -0.4]", "swad erm"),
        ("rT3A adds", "confirmed", "+3.2 [+2.1, +4.3]", "swad erm"),
    )
    columns = tuple(map(Column, ("claim", "verdict", "difference, 95 %", "network")))
    glance = script._at_a_glance("in accuracy", [("PACS", Table("claims", columns, lines))])
    assert glance.rows == (("Tent helps", "confirmed (+2.4)"), ("rT3A adds", "confirmed (+3.2)"))
