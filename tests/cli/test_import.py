"""Methods of one's own on the command line: ``--import MODULE``, and entry points."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from data_files import write_pictures
from own_network import FACTORY

import driftnorm
from driftnorm import methods
from driftnorm.cli._config import load_config
from driftnorm.cli._method_table import method_options
from driftnorm.errors import DriftnormWarning
from driftnorm.parts import Running
from driftnorm.recipe import Recipe

OWN = """
import driftnorm
from driftnorm.parts import Running

def slow(*, momentum: float = 0.01) -> driftnorm.Recipe:
    \"\"\"Running statistics.\"\"\"
    return driftnorm.Recipe(statistics=Running(momentum=momentum), gradient="detached")

METHOD = driftnorm.register(
    driftnorm.Method("slow-bn", slow, paper="-", summary="mine", helps="-", hurts="-")
)
"""


def driftnorm_command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "driftnorm", *words], cwd=folder, capture_output=True, text=True
    )


def test_a_module_of_the_current_folder_registers_methods(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = driftnorm_command("methods", "--import", "mine", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "slow-bn" in done.stdout
    assert "importing mine, also from the current folder" in done.stderr
    without = driftnorm_command("methods", "--json", folder=tmp_path)
    assert "slow-bn" not in without.stdout


def test_a_run_that_is_repeated_knows_its_modules(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "own_net.py").write_text(FACTORY)
    write_pictures(tmp_path / "pics", {f"{n}.png": (16, 16) for n in range(4)})
    words = "adapt own_net:build pics --size 16 --mean 0 0 0 --std 1 1 1 --method slow-bn"
    done = driftnorm_command(*words.split(), "--import", "mine", "--out", "a.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    again = driftnorm_command("run", "a.run", "--out", "b.csv", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "importing mine, also from the current folder" in again.stderr
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    kept = [load_config(tmp_path / run / "config.yaml") for run in ("a.run", "b.run")]
    assert [each.imports for each in kept] == [("mine",), ("mine",)]


def test_a_module_that_a_file_names(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("command: adapt\nimport: mine\narguments: {network: resnet20, data: x}\n")
    assert load_config(file).imports == ("mine",)
    file.write_text("command: adapt\nimport: {mine: 1}\n")
    with pytest.raises(ValueError, match="`import` must be one value or a list of values"):
        load_config(file)


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    for words in (("--import", "nowhere"), ("--import",)):
        done = driftnorm_command("methods", *words, folder=tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("driftnorm: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = 1\nx = (\n", "mine.py, line 2 raises SyntaxError: '(' was never closed."),
        ("x = 1\nx / 0\n", "mine.py, line 2 raises ZeroDivisionError: division by zero."),
    ],
)
@pytest.mark.parametrize("words", [("methods", "--import", "mine"), ("adapt", "mine:net", ".")])
def test_a_module_that_is_broken_is_one_line(
    code: str, why: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(code)
    done = driftnorm_command(*words, folder=tmp_path)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("driftnorm: ")]
    assert said == done.stderr.splitlines()[-1:]
    assert "names the module 'mine', which cannot be imported" in said[0]
    assert said[0].endswith(why)


def test_a_file_in_place_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = driftnorm_command("methods", "--import", "mine.py", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("without its .py.")


def test_only_methods_can_be_registered() -> None:
    with pytest.raises(TypeError, match=r"`method` must be a driftnorm\.Method, got 'bn'"):
        driftnorm.register("bn")  # type: ignore[arg-type]


def test_a_broken_package_is_one_line_on_the_command_line(tmp_path: Path) -> None:
    about = tmp_path / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[driftnorm.methods]\nx = driftnorm:adapt\n")
    done = driftnorm_command("methods", "bn", folder=tmp_path)  # -m looks there first
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("note: the method 'x' of theirs is left out")
    assert ".." not in done.stderr


@pytest.mark.parametrize("registers", [False, True])
def test_installed_packages_offer_methods(
    registers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OWN if registers else OWN.replace("driftnorm.register(", "(")
    (tmp_path / "offered.py").write_text(own.replace("slow-bn", "offered"))
    monkeypatch.delitem(sys.modules, "offered", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("offered", "offered:METHOD", "driftnorm.methods")
    monkeypatch.setattr(methods, "entry_points", lambda group: [point])
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    monkeypatch.setattr(methods, "_loaded", set())
    assert "offered" in methods.known_methods()
    assert methods.build("offered", {"momentum": 0.5}).statistics == Running(momentum=0.5)


def test_a_builder_without_annotations_is_shown_too(tmp_path: Path) -> None:
    plain = OWN.replace("*, momentum: float = 0.01", "momentum=0.01, lr=0.5")
    (tmp_path / "mine.py").write_text(plain)
    done = driftnorm_command("methods", "slow-bn", "--import", "mine", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "slow-bn:momentum=VALUE" in done.stdout


def test_the_types_of_own_options_are_those_of_the_builder() -> None:
    def own(*, lr: float = 0.1) -> Recipe:
        return Recipe(statistics=Running())

    method = methods.Method("own", own, paper="-", summary="-", helps="-", hurts="-")
    assert method_options(method)["lr"]["values"] == "number"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("offered:nothing", "has no attribute 'nothing'"),
        ("offered:slow", "it must name a driftnorm.Method, got <function slow"),
        ("offered", "it must name a driftnorm.Method, got <module 'offered'"),
        ("nowhere:METHOD", "No module named 'nowhere'"),
        ("offered:METHOD", "'gprebn' is taken"),
    ],
)
def test_a_broken_package_stops_no_other_method(
    value: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OWN.replace("driftnorm.register(", "(").replace("slow-bn", "gprebn")
    (tmp_path / "offered.py").write_text(own)
    monkeypatch.delitem(sys.modules, "offered", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("theirs", value, "driftnorm.methods")]
    monkeypatch.setattr(methods, "entry_points", lambda group: points)
    before = dict(methods.METHODS)
    monkeypatch.setattr(methods, "METHODS", dict(before))
    monkeypatch.setattr(methods, "_loaded", set())
    with pytest.warns(DriftnormWarning, match="the method 'theirs' of .* is left out") as seen:
        assert methods.known_methods() == before
    assert why in str(seen[0].message)
