"""The script that traces data flows, on a package small enough to count by hand."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "__init__.py": "",
    "kitchen.py": """import re

from toyhouse.cellar import fetch

WORD = re.compile("[a-z]+")


class Pot:
    def __post_init__(self):
        pass


def cook(names):
    Pot().__post_init__()
    return [fetch(name) for name in names]


def read(text):
    return WORD.match(text), re.sub("a", "b", text), text.upper()


def serve(plates):
    for plate in range(plates):
        yield plate


begun = [*serve(3)]
""",
    "cellar.py": """def fetch(name):
    return (lambda word: word)(name)
""",
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    return importlib.import_module("trace_flows")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "toyhouse"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_a_small_package_is_traced_as_counted_by_hand(script: ModuleType, package: Path) -> None:
    tracer = script.Tracer(package)
    with tracer.active():
        kitchen = importlib.import_module("toyhouse.kitchen")  # which calls, uncounted, `serve`
        kitchen.cook(["salt", "oil"])
        kitchen.read("tea")
        list(kitchen.serve(5))
        other = threading.Thread(target=kitchen.cook, args=(["salt"],))
        other.start()
        other.join()
    kitchen.cook(["afterwards"])
    calls = {code.co_name: count for code, count in tracer.calls.items()}
    by_hand = {"cook": 2, "__post_init__": 2, "fetch": 3, "<lambda>": 3, "read": 1, "serve": 1}
    assert calls == by_hand
    assert tracer.deepest == 3  # cook, fetch, the lambda
    assert tracer.changes == 3  # into the cellar, back to read, into it again
    assert tracer.matches == 2
    assert {Path(file).name for file in tracer.files} == {"kitchen.py", "cellar.py"}
    assert tracer.count({"kitchen.__post_init__", "kitchen.read", "cellar.read"}) == 3


def test_the_table_has_a_column_for_each_flow(script: ModuleType) -> None:
    watched = dict.fromkeys(script.WATCHED, 7)
    one = script.Trace("a: one", 2, 1234, 4, 5, 6, 7, 8, True, 9, watched)
    lines = script.table([one, one]).splitlines()
    assert lines[:2] == ["|  | a: one | a: one |", "| --- | ---: | ---: |"]
    assert "| their lines | 1,234 | 1,234 |" in lines
    assert "| imports torch | yes | yes |" in lines
    assert "| recipes built | 7 | 7 |" in lines
    assert len({line.count("|") for line in lines}) == 1


def test_what_is_watched_exists(script: ModuleType) -> None:
    for name in {name for names in script.WATCHED.values() for name in names}:
        module, _, function = name.partition(".")
        found = [*(ROOT / "src").rglob(f"{module}.py")]
        assert sum(f"def {function}(" in path.read_text() for path in found) == 1, name
