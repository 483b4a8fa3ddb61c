"""The script that measures the shape of the package, on packages small enough to count by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    return importlib.import_module("house_numbers")


def test_a_small_package_is_measured_as_counted_by_hand(script: ModuleType, tmp_path: Path) -> None:
    package, tests = tmp_path / "house", tmp_path / "tests"
    files = {
        "__init__.py": "",
        "__init__.pyi": "from .rooms import door as door\nfrom .rooms import roof as roof\n",
        "rooms.py": "from house.garden import tree\n\n"
        "def door(width: int) -> int:\n    'Open.'\n    return width\n\n"
        "def roof(slope):\n    raise ValueError\n",
        "garden/__init__.py": "__all__ = ['tree']\n",
        "garden/rooms.py": "from house.rooms import door\n",
        "garden/digging.py": "def _deep() -> None:\n" + "    x = 1\n" * 60,
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    tests.mkdir()
    (tests / "test_house.py").write_text("x = 1\n" * 36)
    found = script.measured(package, tests)
    assert found["source files / lines"] == "5 / 73"
    assert found["entries in the package folder (plain files)"] == "3 (1)"
    assert found["median file (p90, longest)"] == "2 (8, 61)"
    assert found["functions over 50 lines"] == "33.3 %"
    assert found["annotated"] == "66.7 %"
    assert found["public with a docstring"] == "50.0 %"
    assert found["exported names"] == "3"
    assert found["raises per 1,000 lines"] == "13.7"
    assert found["module names in -ing"] == "1 (digging)"
    assert found["base names that occur twice"] == "1 (rooms)"
    assert found["mutual imports"] == "1 (garden, rooms)"
    assert found["tests / source, in lines"] == "0.49"


def test_our_own_package_can_be_measured(script: ModuleType) -> None:
    found = script.measured(ROOT / "src" / "driftnorm", ROOT / "tests")
    assert found["annotated"] == "100.0 %"
    assert found["mutual imports"] == "0"
    assert "files of code that name a method (fewest, median)" in found
