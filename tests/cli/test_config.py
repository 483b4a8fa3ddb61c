"""Configs: what is kept is what was called, and a run from it is the same run."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import driftnorm
from driftnorm.bench.rows import load_rows
from driftnorm.cli import app, main
from driftnorm.cli._config import keep_config, load_config
from driftnorm.cli.run import REPEATABLE, parse_config, run
from driftnorm.images.embedded_digits import load_digits
from driftnorm.models import build

DRIFTNORM = [sys.executable, "-c", "from driftnorm.cli import main; main()"]


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def call(*words: object) -> None:
    """The command line in this process, as `main` calls it but for exit codes."""
    app([str(word) for word in words], result_action="return_value")


# ------------------------------------------------------------------ the file


def test_kept_and_loaded(tmp_path: Path) -> None:
    arguments = {
        "data": tmp_path / "ü ö",
        "limit": None,
        "batch_size": 64,
        "lr": 1e-3,
        "short": True,
        "guard": "off",
        "date": "2026-01-01",
        "methods": ["tent", "gprebn:theta=0.5"],
        "sizes": (1, 2),
        "quiet": True,
    }
    path = keep_config(tmp_path / "run", "bench robustness", arguments)
    assert path == tmp_path / "run" / "config.yaml"
    kept = load_config(path)
    assert kept.command == "bench robustness"
    assert kept.version == driftnorm.__version__
    assert kept.arguments == {
        "data": str(tmp_path / "ü ö"),
        "batch_size": "64",
        "lr": "0.001",
        "short": "true",
        "guard": "off",
        "date": "2026-01-01",
        "methods": ["tent", "gprebn:theta=0.5"],
        "sizes": ["1", "2"],
    }


def test_other_arguments_get_another_file(tmp_path: Path) -> None:
    first = keep_config(tmp_path, "adapt", {"data": "a"})
    second = keep_config(tmp_path, "adapt", {"data": "b"})
    assert keep_config(tmp_path, "adapt", {"data": "a"}) == first
    assert keep_config(tmp_path, "adapt", {"data": "b"}) == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config-2.yaml", "config.yaml"]
    assert load_config(second).arguments == {"data": "b"}


def test_what_yaml_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got Linear"):
        keep_config(tmp_path, "adapt", {"model": torch.nn.Linear(1, 1)})


@pytest.mark.parametrize("value", ["off", "no", "1e-3", "2026-01-01", "12:30", "null-hypothesis"])
def test_plain_words_stay_words(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"command: adapt\narguments:\n  data: {value}\n  out: ~\n")
    assert load_config(path).arguments == {"data": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("comand: adapt", "unknown key `comand`. Did you mean 'command'?"),
        ("arguments: {}", "`command` must be words such as adapt, got nothing"),
        ("command: [adapt]", "`command` must be words such as adapt, got a list"),
        ("command: adapt\narguments: x", "`arguments` must be names and values, got 'x'"),
        ("command: adapt\narguments: {out: {a: b}}", "`out` must be one value or a list"),
        ("command: adapt\ncommand: adapt", "the key 'command' comes twice"),
        ("- adapt", "must hold the keys driftnorm, command, arguments, got a list"),
        ("", "must hold the keys driftnorm, command, arguments, got nothing"),
        ("command: [", "is not YAML"),
        ("command: !!python/object/apply:os.getcwd []", "is not YAML: could not determine"),
    ],
)
def test_a_wrong_file_is_told(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


# ------------------------------------------------------------------ the command line reads it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "command: bench robust",
            "unknown command `bench robust`. Did you mean 'bench robustness'?",
        ),
        ("command: run", "unknown command `run`"),
        (
            "command: adapt\narguments: {bacth_size: 3}",
            "unknown argument of `adapt` `bacth_size`. Did you mean 'batch_size'?",
        ),
        ("command: adapt\narguments: {batch_size: many, network: a, data: b}", "many"),
        ("command: adapt\narguments: {network: a}", "requires an argument"),
        ("command: adapt\narguments: {batch_size: [1, 2], network: a, data: b}", "batch-size"),
        ("command: adapt\narguments: {guard: of, network: a, data: b}", "off"),
    ],
)
def test_wrong_arguments_are_told(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError) as caught:
        parse_config(path, load_config(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def value_for(hint: Any) -> Any:
    """Something other than the default, by the words of the annotation."""
    kinds: dict[str, Any] = {"list[int]": [1, 2], "list[float]": [0.5, -1e-4]}
    kinds |= {"list[Path]": [Path("a b"), Path("c")], "list[str]": ["x=1", "-y"]}
    kinds |= {"tuple[str": ("alpha=0.2", "beta=-1"), "float": 1e-5, "int": 7, "bool": True}
    kinds |= {"Path": Path("some where"), "str": "off"}
    return next(value for kind, value in kinds.items() if kind in str(hint).replace("pathlib.", ""))


def last_choice(hint: Any) -> Any:
    """The last word of a `Literal`, also one that may be left open; None for any other type."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return get_args(part)[-1]
    return None


def filled(shared: Any) -> Any:
    """Flags that several commands share, each with a value."""
    hints = get_type_hints(shared)
    return shared(
        **{
            f.name: False
            if f.name in ("quiet", "as_json")
            else last_choice(hints[f.name]) or value_for(hints[f.name])
            for f in fields(shared)
        }
    )


@pytest.mark.parametrize("command", REPEATABLE)
def test_every_argument_of_every_command_comes_back(command: str, tmp_path: Path) -> None:
    _, apps, _ = app.parse_commands(command.split())
    function = apps[-1].default_command
    assert function is not None
    parameters, hints = inspect.signature(function).parameters, get_type_hints(function)
    given = {
        name: filled(hints[name])
        if is_dataclass(hints[name])
        else False
        if name in ("quiet", "as_json", "fresh")
        else last_choice(hints[name]) or value_for(hints[name])
        for name in parameters
    }
    path = keep_config(tmp_path, command, given)
    found, bound = parse_config(path, load_config(path))
    bound.apply_defaults()
    assert found is function
    assert bound.arguments == given
    defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    path = keep_config(tmp_path, command, given | defaults)
    _, bound = parse_config(path, load_config(path))
    bound.apply_defaults()
    assert bound.arguments == given | defaults


def test_words_after_the_file_win(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "command: train domains\n"
        "arguments: {data: a, test-domains: [b, c], set: [x=1], batch-size: 8, swad: true}\n",
    )
    changes = ["--test-domains", "d", "--batch-size=4", "--no-swad", "--set=y=2", "--seed", "3"]
    _, bound = parse_config(path, load_config(path), changes)
    training = bound.arguments.pop("training")  # the settings that trainings share, in one
    assert (training.data, training.batch_size) == ("a", 4)
    assert bound.arguments == {
        "test_domains": ["d"],
        "settings": ("y=2",),
        "swad": False,
        "seed": 3,
    }


@pytest.mark.parametrize("change", [["--out", "b"], ["-o", "b"], ["-o=b"]])
def test_short_flags_win_as_well(change: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, "command: bench robustness\narguments: {data: a, model: m, out: c}\n")
    _, bound = parse_config(path, load_config(path), change)
    assert bound.arguments["out"] == Path("b")


# ------------------------------------------------------------------ real runs, repeated


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Digits as 32 x 32 pictures with three channels, in one file."""
    found = load_digits()
    gray = (255 * found.images[:60, 0]).round().to(torch.uint8).numpy()
    large = np.repeat(np.repeat(gray, 4, axis=1), 4, axis=2)
    path = tmp_path / "digits.npz"
    classes = np.array(list("0123456789"))
    images = np.repeat(large[..., None], 3, axis=3)
    np.savez(path, images=images, labels=found.labels[:60].numpy(), classes=classes)
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "resnet20.safetensors"
    torch.manual_seed(0)
    save_file(build("resnet20").state_dict(), path)
    return path


def only_config(folder: Path) -> Path:
    (path,) = folder.glob("config*.yaml")
    return path


def test_a_benchmark_is_repeated(
    digits: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(
        *("bench", "robustness", "--data", digits, "--model", "resnet20", "--weights", weights),
        *("--methods", "source", "gprebn:theta=0.5", "--corruptions", "contrast"),
        *("--severities", "5", "--batch-size", "20", "--workers", "1", "--out", tmp_path / "a"),
    )
    kept = load_config(only_config(tmp_path / "a")).arguments
    assert kept["preset"] == "paper"
    assert kept["seeds"] == ["0"]  # what was left open is there as it was resolved
    run(only_config(tmp_path / "a"), "--out", str(tmp_path / "b"))
    first, second = ({r.cell: r.metrics for r in load_rows(tmp_path / n)} for n in "ab")
    assert len(first) == 2
    assert {cell: m["error"] for cell, m in first.items()} == {
        cell: m["error"] for cell, m in second.items()
    }
    capsys.readouterr()
    run(only_config(tmp_path / "a"))  # in its own folder all is done already
    assert "2 cells, 2 done already" in capsys.readouterr().out
    assert only_config(tmp_path / "a").name == "config.yaml"


def test_an_adapt_run_is_repeated_by_a_process(digits: Path, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    (tmp_path / "classes.txt").write_text("\n".join("0123456789"))
    call(
        *("adapt", "resnet20", digits, "--weights", weights, "--out", out, "--quiet"),
        *("--classes", tmp_path / "classes.txt", "--batch-size", "16", "--guard", "off"),
    )
    config = only_config(tmp_path / "a.run")
    again = subprocess.run(
        [*DRIFTNORM, "run", str(config), "--out", str(tmp_path / "b.csv"), "--quiet"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout == again.stderr == ""
    assert (tmp_path / "b.csv").read_bytes() == out.read_bytes()


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
def test_misuse_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "command: adapt\narguments: {gard: off}\n")
    monkeypatch.setattr(sys, "argv", ["driftnorm", "run", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "Did you mean 'guard'?" in told
    assert told.count("\n") == 1


def test_a_training_is_repeated(digits: Path, tmp_path: Path) -> None:
    call(
        *("train", "robust", "--recipe", "cutout", "--data", digits, "--test-data", digits),
        *("--steps", "2", "--batch-size", "8", "--set", "size=4", "--out", tmp_path / "a"),
    )
    run(only_config(tmp_path / "a"), "--out", str(tmp_path / "b"))
    first, second = (load_file(next((tmp_path / n).glob("*.safetensors"))) for n in "ab")
    assert all(torch.equal(first[key], second[key]) for key in first | second)


def test_a_training_that_cannot_begin_keeps_no_config(digits: Path, tmp_path: Path) -> None:
    words = ["train", "robust", "--recipe", "cutout", "--data", digits, "--test-data", digits]
    with pytest.raises(ValueError, match="resnet21"):
        call(*words, "--model", "resnet21", "--steps", "1", "--out", tmp_path / "a")
    assert not [*(tmp_path / "a").glob("config*.yaml")]


def test_corrupted_data_are_made_again(digits: Path, tmp_path: Path) -> None:
    call("corrupt", digits, tmp_path / "a", "--corruptions", "fog", "--severities", "2", "--quiet")
    run(only_config(tmp_path / "a"), "--out", str(tmp_path / "b"))
    first, second = (np.load(tmp_path / name / "fog-2.npy") for name in "ab")
    assert np.array_equal(first, second)


def test_domains_are_trained_and_measured_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for domain in ("ink", "chalk", "pencil"):
        for label in ("across", "along"):
            (tmp_path / "data" / domain / label).mkdir(parents=True)
            for number in range(6):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "data" / domain / label / f"{number}.png")
    places = ("--data", tmp_path / "data", "--cache", tmp_path / "cache")
    call(
        *("train", "domains", *places, "--test-domains", "ink", "--backbone", "mnist-bn"),
        *("--batch-norm", "trained", "--size", "32", "--steps", "2", "--evaluate-every", "1"),
        *("--batch-size", "2", "--out", tmp_path / "a"),
    )
    run(only_config(tmp_path / "a"), "--out", str(tmp_path / "b"))
    first, second = (load_file(tmp_path / n / "last.safetensors") for n in "ab")
    assert all(torch.equal(first[key], second[key]) for key in first | second)
    call(
        *("bench", "domains", *places, "--models", tmp_path / "a", "--methods", "source", "bn"),
        *("--batch-size", "4", "--workers", "1", "--out", tmp_path / "rows"),
    )
    run(only_config(tmp_path / "rows"), "--out", str(tmp_path / "again"))
    rows, again = (
        {r.cell: r.metrics["error"] for r in load_rows(tmp_path / n)} for n in ("rows", "again")
    )
    assert rows == again
    assert len(rows) == 6


def test_another_version_is_noted(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "driftnorm: 0.0.1\ncommand: bench robustness\narguments:\n")
    text = path.read_text() + f"  data: {digits}\n  model: resnet20\n"
    with pytest.raises(ValueError, match="`--weights`"):
        run(written(tmp_path, text))
    noted = capsys.readouterr().err
    assert f"written by driftnorm 0.0.1, this is {driftnorm.__version__}" in noted


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff\xfe\xff")]
)
def test_no_file_no_text(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "config.yaml")
    with pytest.raises((OSError, ValueError), match=r"config\.yaml"):
        load_config(tmp_path / "config.yaml")
