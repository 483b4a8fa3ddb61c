"""How commands behave toward shells: silent when asked, one line for a device that is not there."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import toy_archive, toy_dataset, write_npz
from made_rows import made_rows
from safetensors.torch import save_file

import driftnorm
from driftnorm import cli
from driftnorm.bench.rows import save_rows
from driftnorm.cli import app, main
from driftnorm.images.download.data_sets import DATASETS
from driftnorm.models import build

Capture = pytest.CaptureFixture[str]


def test_quiet_commands_print_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "toy", toy_dataset())
    (tmp_path / "toy.tar").write_bytes(toy_archive())
    rows, pets = tmp_path / "rows.jsonl", write_npz(tmp_path / "pets.npz", 4)
    save_rows(made_rows({"tent": 0.2, "gprebn": 0.1}, [("fog", 5), ("fog", 4)]), rows)
    commands: list[tuple[object, ...]] = [
        ("report", rows, "--out", tmp_path / "report.html"),
        ("plot", "severity", rows, "--out", tmp_path / "plot.png"),
        ("data", "get", "toy", "--from", tmp_path / "toy.tar", "--out", tmp_path / "toy"),
        ("data", "check", "toy", tmp_path / "toy"),
        ("corrupt", pets, tmp_path / "C", "--corruptions", "fog", "--workers", "1"),
    ]
    for words in commands:
        app([*map(str, words), "--quiet"], result_action="return_value")
        assert capsys.readouterr() == ("", ""), words
    (tmp_path / "toy" / "first.bin").unlink()
    with pytest.raises(SystemExit):
        app(["data", "check", "toy", str(tmp_path / "toy"), "--quiet"])
    assert "missing: first.bin" in capsys.readouterr().out  # what is wrong is told in any case


# ------------------------------------------------------------------ one line, exit code 2


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("table", "summary", "{home}"), "there are no rows in {home}."),
        (("plot", "severity", "{home}"), "there are no rows in {home}."),
        (
            ("demo", "--trials", "0", "--out", "{home}/demo"),
            "`--trials` must be at least 1, got 0.",
        ),
    ],
)
def test_nothing_to_work_on_is_told(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = str(tmp_path)
    monkeypatch.setattr(sys, "argv", ["driftnorm", *(word.format(home=home) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"driftnorm: {message.format(home=home)}\n"


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
@pytest.mark.parametrize("device", ["foo", "cuda:99", "meta"])
@pytest.mark.parametrize(
    "words",
    [
        ("adapt", "resnet20", "{data}", "--weights", "{weights}", "--out", "{home}/a.csv"),
        ("diagnose", "resnet20", "{data}", "--weights", "{weights}"),
        ("export", "resnet20", "{home}/e.onnx", "--data", "{data}", "--weights", "{weights}"),
        ("train", "robust", "--recipe", "cutout", "--data", "{data}", "--out", "{home}/t"),
    ],
)
def test_a_device_that_is_not_there(
    words: tuple[str, ...],
    device: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((4, 32, 32, 3), np.uint8))
    places = {"data": tmp_path / "x.npz", "weights": tmp_path / "w.safetensors", "home": tmp_path}
    save_file(build("resnet20").state_dict(), places["weights"])
    given = [word.format(**places) for word in words]
    monkeypatch.setattr(sys, "argv", ["driftnorm", *given, "--device", device])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "`--device` must be one that this machine has (cpu" in told
    assert repr(device) in told
    assert told.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"x.npz", "w.safetensors"}


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("adapt resnet20 x.npz --methd bn", "Unknown option: --methd. Did you mean --method?"),
        ("adapt resnet20", "`DATA` is missing; `--help` says what it is."),
        ("adapt resnet20 x.npz --batch-size many", '"many"'),
        ("adpt", '"adpt"'),
        ("train domains --data x --test-domains y --precision half", '"half"'),
    ],
)
def test_a_slip_in_a_command_is_told_in_one_line(
    words: str, told: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["driftnorm", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("driftnorm: ")
    assert told in said
    assert said.count("\n") == 1


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-c", "from driftnorm.cli import main; main()", "completion", "bash"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_as_a_module() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "driftnorm", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == driftnorm.__version__


def test_a_file_in_place_of_a_folder_for_rows(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    words = ["bench", "streams", "--data", "digits", "--part", "20", "-o", "taken"]
    monkeypatch.setattr(cli, "app", functools.partial(app, words))
    with pytest.raises(SystemExit):
        main()
    assert "driftnorm: taken exists, and is not a folder" in capsys.readouterr().err


def test_a_model_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((4, 32, 32, 3), np.uint8))
    for words in (["no.safetensors"], ["resnet20", "--weights", "no.safetensors"]):
        with pytest.raises(
            FileNotFoundError, match=r"must name a file, but no\.safetensors does not exist"
        ):
            app(["diagnose", words[0], str(tmp_path / "x.npz"), *words[1:]])
    with pytest.raises(ValueError, match="pickle:loads must build a network when called without"):
        app(["diagnose", "pickle:loads", str(tmp_path / "x.npz")])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nope.yaml"], "driftnorm: No such file or directory: nope.yaml\n"),
        (["run", "."], "driftnorm: No such file or directory: config.yaml\n"),
        (
            ["report", "p.csv", "-o", "r.html"],
            "driftnorm: `rows`: p.csv holds predictions; the run",
        ),
        (
            ["report", "p.csv", "-o", "p.csv"],
            "driftnorm: `--out` must be a file that ends in .html",
        ),
        (
            ["table", "summary", "r.jsonl", "-o", "r.jsonl"],
            "driftnorm: `--out` would overwrite r.jsonl, which is `ROWS`.",
        ),
        (
            ["plot", "severity", "r.jsonl", "-o", "a/b/p.png"],
            "driftnorm: `--out` ",
        ),
        (
            ["report", "r.jsonl", "-o", "a/b/r.html"],
            "driftnorm: `--out` ",
        ),
        (
            ["adapt", "x:y", "d", "--method", "gprebn:theta=abc"],
            "driftnorm: 'gprebn' with theta='abc': `theta` is the weight of the target statistics",
        ),
    ],
)
def test_slips_are_told_in_words(
    words: list[str], message: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text("name\n")
    (tmp_path / "p.run").mkdir()
    save_rows(made_rows({"source": 0.5, "bn": 0.4}, [("fog", 1)]), tmp_path / "r.jsonl")
    held = (tmp_path / "r.jsonl").read_bytes()
    monkeypatch.setattr(cli, "app", functools.partial(app, words))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert "Errno" not in told
    assert len(told.splitlines()) == 1
    assert (tmp_path / "r.jsonl").read_bytes() == held
    assert not (tmp_path / "a").exists()
