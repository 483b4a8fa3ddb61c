"""The command line as people call it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from driftnorm.bench.rows import load_rows
from driftnorm.bench.studies.digits import DigitStudy
from driftnorm.cli import app
from driftnorm.cli._config import load_config
from driftnorm.cli._method_table import method_options
from driftnorm.cli.methods import list_methods
from driftnorm.methods import known_methods, lookup, options_of
from driftnorm.methods.spec import parse_method
from driftnorm.views.report.gather import gather

DRIFTNORM = [sys.executable, "-c", "from driftnorm.cli import main; main()"]


def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        [*DRIFTNORM, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_help_and_version() -> None:
    shown = call("--help")
    assert shown.returncode == 0
    for verb in ("demo", "methods", "data", "corrupt"):
        assert verb in shown.stdout
    assert call("--version").stdout.strip().count(".") == 2


def test_methods(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        app(["methods", *words], result_action="return_value")
        return capsys.readouterr().out

    assert "gprebn" in shown()
    assert "arXiv 2205.10210" in shown("gprebn")
    assert shown("list") == shown()
    facts = json.loads(shown("--json"))
    assert facts["tent"]["backward"] is True
    assert facts["t3a"]["batch_norm"] is False
    assert "recipe" not in shown("source")
    wrong = call("methods", "tnet")
    assert wrong.returncode == 2
    assert "Did you mean 'tent'?" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_composition_shows_what_follows_from_its_recipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    word = "tent@gprebn:theta=0.5+lame"
    list_methods(word, as_json=True)
    facts = json.loads(capsys.readouterr().out)[word]
    recipe = parse_method(word).recipe
    assert facts["recipe"] == recipe.settings()
    assert "Mixture(theta=0.5" in facts["recipe"]
    assert (facts["forwards"], facts["backwards"]) == (recipe.cost.forwards, recipe.cost.backwards)
    assert facts["bakes"] is False
    assert facts["summary"].startswith("tent: entropy")
    assert set(facts["options"]) == set(options_of("tent@gprebn+lame"))
    list_methods(word)
    assert "tent@gprebn+lame:" in capsys.readouterr().out
    with pytest.raises(ValueError, match="cannot be joined"):
        list_methods("tent+eata")


@pytest.mark.parametrize("name", list(known_methods()))
def test_every_option_of_a_method_is_described(name: str) -> None:
    options = method_options(lookup(name))
    assert tuple(options) == lookup(name).options
    for told in options.values():
        assert told["meaning"]
        assert told["values"]


def test_options_come_with_default_values_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert method_options(lookup("sar"))["lr"]["default"] == 0.001
    list_methods("gprebn")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "1.0" in lines["theta"]
    assert "Weight of the target statistics" in lines["theta"]
    assert "preserved, detached" in lines["gradient"]
    assert "adam" in lines["optimizer"]
    list_methods("source")
    assert "Options" not in capsys.readouterr().out


def test_demo_survives_a_kill_and_draws_no_control_codes_into_a_pipe(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [*DRIFTNORM, "demo", "--trials", "1", "--batch-size", "300", "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    while len(list(out.glob("rows/*.json"))) < 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("rows/*.json")}
    assert len(before) >= 20
    again = call("demo", "--trials", "1", "--batch-size", "300", "--out", str(out))
    assert again.returncode == 0, again.stderr
    assert "already holds" in again.stdout
    assert "\x1b" not in again.stdout
    for name, written in before.items():
        assert (out / "rows" / name).stat().st_mtime_ns == written  # nothing is measured twice
    rows = load_rows(out / "rows.jsonl")
    assert len(rows) == 16 * len(DigitStudy().names)  # clean, and five shifts at three severities
    assert (out / "accuracy.png").stat().st_size > 10_000
    assert "batch 300" in (out / "table.md").read_text()
    best = {r.method: r.metrics["error"] for r in rows if r.shift == "contrast"}
    assert best["gprebn"] < best["source"] - 0.3
    page = (out / "report.html").read_text()
    assert "mean drift, each shift" in page
    assert page.count("<img") > 12  # of the shifts; and those of the stream that changed
    assert "Over time" in page
    assert "windows worse than source, %" in page
    assert (out / "stream.png").stat().st_size > 10_000
    assert {row.cell.study for row in gather([out]).rows} == {"demo", "streams"}
    assert re.search(r"contrast 3, digit \d+", page)
    assert "helps on digits" in page
    assert load_config(out / "config.yaml").arguments["batch_size"] == "300"


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    command = [*DRIFTNORM, "demo", "--trials", "1", "--out", str(tmp_path / "demo")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("demo/rows/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=240)
    assert running.returncode == 130
    assert "what was finished is kept" in errors
    assert "Traceback" not in errors
