"""What programs and shells get from the command line: JSON, silence, completion scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_rows import made_row, made_rows
from rich.console import Console
from safetensors.torch import save_file

from driftnorm.bench.rows import save_rows
from driftnorm.bench.studies.digits import DigitStudy
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.cli import app
from driftnorm.cli._output import table_record
from driftnorm.cli._progress import Bar
from driftnorm.cli._training_bar import TrainingBar
from driftnorm.cli.demo import demo
from driftnorm.models import build
from driftnorm.training.loop import Progress
from driftnorm.views.table import Column, Table

Capture = pytest.CaptureFixture[str]
DRIFTNORM = [sys.executable, "-c", "from driftnorm.cli import main; main()"]


def call(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DRIFTNORM, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )


# ------------------------------------------------------------------ --json and --quiet


@pytest.fixture
def bench(tmp_path: Path) -> list[object]:
    """A small benchmark's words."""
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    classes = np.array([f"class {i}" for i in range(10)])
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(20) % 10, classes=classes)
    torch.manual_seed(0)
    save_file(build("resnet20").state_dict(), tmp_path / "weights.safetensors")
    words: list[object] = ["bench", "robustness", "--data", tmp_path / "data.npz"]
    words += ["--model", "resnet20", "--weights", tmp_path / "weights.safetensors"]
    words += ["--methods", "source", "bn", "--corruptions", "contrast", "--severities", "5"]
    return [*words, "--workers", "1", "--out", tmp_path / "rows"]


def test_a_benchmark_for_programs_and_in_silence(
    bench: list[object], tmp_path: Path, capsys: Capture
) -> None:
    app([*map(str, bench), "--json"], result_action="return_value")
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["rows"], found["failed"], found["why_no_table"]) == (2, 0, None)
    assert found["folder"] == str(tmp_path / "rows")
    assert [row[0] for row in found["table"]["rows"]] == ["source", "bn"]
    assert "2 cells" in shown.err  # people can still read along
    app([*map(str, bench), "--quiet"], result_action="return_value")
    assert capsys.readouterr() == ("", "")


FLAT = """
import torch

class Touchy(torch.nn.Module):
    def forward(self, x):
        if 0 < x.std((2, 3)).mean() < 0.07:
            raise RuntimeError("too flat")
        return x

def touchy():
    torch.manual_seed(0)
    layers = (torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    return torch.nn.Sequential(Touchy(), *layers)
"""


@pytest.mark.parametrize("corruptions", [["contrast"], ["contrast", "gaussian_noise"]])
def test_a_failure_is_told_even_in_silence(
    corruptions: list[str],
    bench: list[object],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / f"flat_{len(corruptions)}.py").write_text(FLAT)
    monkeypatch.syspath_prepend(tmp_path)
    words = [*bench, "--quiet", "--corruptions", *corruptions]
    words[words.index("--corruptions") : words.index("--severities")] = []
    words[words.index("--model") : words.index("--methods")] = [
        "--model",
        f"flat_{len(corruptions)}:touchy",
        *("--mean", "0", "0", "0", "--std", "1", "1", "1"),
    ]
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in words], result_action="return_value")
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"2 failed; see {tmp_path / 'rows' / 'failed'}" in shown.err
    assert len([*(tmp_path / "rows" / "failed").glob("*.json")]) == 2


def test_tables_as_json(tmp_path: Path, capsys: Capture) -> None:
    save_rows(made_rows({"tent": 0.2, "gprebn": 0.1}, [("fog", 5)]), tmp_path / "rows.jsonl")
    words = ["table", "detailed", str(tmp_path / "rows.jsonl"), "--json"]
    app(words, result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    assert found["columns"][:3] == ["corruption", "tent", "gprebn"]
    assert found["rows"][0][:3] == ["fog", pytest.approx(20), pytest.approx(10)]
    assert made_row().cell.stream.data.label in found["note"]


def test_json_holds_no_nan() -> None:
    table = Table("t", (Column("a"), Column("b")), (("x", float("nan")), ("y", None)), "n")
    assert table_record(table)["rows"] == [["x", None], ["y", None]]


# ------------------------------------------------------------------ completion


def script_of(shell: str, capsys: Capture) -> str:
    app(["completion", shell], result_action="return_value")
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, tmp_path: Path, capsys: Capture) -> None:
    script = script_of(shell, capsys)
    for word in ("robustness", "batch-size", "completion", "diagnose"):
        assert word in script, word
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its script is made, but not read by it")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_bash_completes_commands_and_flags(tmp_path: Path, capsys: Capture) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    file = tmp_path / "script"
    file.write_text(script_of("bash", capsys))

    def completed(*words: str) -> set[str]:
        code = (
            f"source {file}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            "function=$(complete -p driftnorm | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
            f"$function driftnorm {words[-1]} {words[-2]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        out = subprocess.check_output(["bash", "--norc", "-c", code], text=True)
        return {line.strip() for line in out.splitlines()}

    assert completed("driftnorm", "be") == {"bench"}
    assert {"robustness", "domains"} <= completed("driftnorm", "bench", "''")
    assert "--severities" in completed("driftnorm", "bench", "robustness", "--sev")


def test_installing_writes_into_the_home_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in (
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "ZSH_CUSTOM",
        "ZSH",
        "BASH_COMPLETION_USER_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    app(["completion", "bash", "--install"], result_action="return_value")
    place = Path(capsys.readouterr().out.split("Installed ")[1].split(";")[0])
    assert tmp_path in place.parents
    assert "robustness" in place.read_text()
    assert str(place) in (tmp_path / ".bashrc").read_text()


def test_an_unknown_shell_is_refused() -> None:
    wrong = call("completion", "tcsh")
    assert wrong.returncode != 0
    assert "tcsh" in wrong.stderr


# ------------------------------------------------------------------ progress in a log


def test_progress_in_a_log_is_a_line_now_and_then(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, *range(10, 130, 10), *range(200, 400)])
    monkeypatch.setattr("driftnorm.cli._progress.time.monotonic", lambda: next(clock))
    with Bar(Console()) as bar:
        for done in range(6):
            bar("[b]reading", 1000 * done, 9000)
        bar("of who knows how many", 7000, None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "[b]reading: 2,000 of 9,000\n[b]reading: 5,000 of 9,000\n"
    with Bar(Console(), in_bytes=True) as bar:
        monkeypatch.setattr("driftnorm.cli._progress.time.monotonic", lambda: 1e9)
        bar("loading", 3_000_000, None)
    assert capsys.readouterr().err == "loading: 3 MB\n"
    with Bar(Console(quiet=True)) as bar:
        monkeypatch.setattr("driftnorm.cli._progress.time.monotonic", lambda: 2e9)
        bar("loading", 3_000_000, None)
    assert capsys.readouterr().err == ""


def test_training_tells_a_log_its_steps(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("driftnorm.cli._progress.time.monotonic", lambda: next(clock))
    with TrainingBar(Console(), "erm", 8) as bar:
        bar.tell("training")
        for step in range(1, 4):
            bar.step(Progress(9, step), {"loss": 0.5})
    said = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\d+ images/s", "N images/s", line) for line in said] == [
        "erm: training, loss 0.500, N images/s: 1 of 9",
        "erm: training, loss 0.500, N images/s: 3 of 9",
    ]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (None, 'plots need matplotlib: pip install "driftnorm[plots]"'),
        ("raise TypeError('a wheel of another numpy')", "TypeError: a wheel of another numpy"),
        ("", "AttributeError"),  # a folder that an interrupted installation left
    ],
)
def test_a_demo_without_matplotlib_is_told_first_and_costs_the_plots_alone(
    broken: str | None,
    said: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # and what was there comes back at the end
    if broken is not None:
        del sys.modules["matplotlib"]
        (tmp_path / "matplotlib").mkdir()
        (tmp_path / "matplotlib" / "__init__.py").write_text(broken)
        monkeypatch.syspath_prepend(tmp_path)
    for study in (DigitStudy, StreamStudy):  # what is measured is no matter of plots
        monkeypatch.setattr(study, "cells", lambda self: [])
        monkeypatch.setattr(study, "phases", lambda self, store: iter([]))
    monkeypatch.setattr("driftnorm.cli.demo.demo_table", lambda rows: Table("x", (), ()))
    monkeypatch.setattr("driftnorm.cli.demo.stream_table", lambda rows: Table("x", (), ()))
    monkeypatch.setattr("driftnorm.cli.demo.draw", lambda *about: pytest.fail("drawn"))
    monkeypatch.setattr("driftnorm.cli.demo.page", lambda found: "page")
    for name in ("rows", "stream"):
        (tmp_path / "demo" / name).mkdir(parents=True)
    demo(trials=1, out=tmp_path / "demo")
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("note: the plots are left out: plots need matplotlib")
    assert said in shown
    assert "Saved table.md, rows.jsonl, stream.jsonl and report.html" in shown
