"""The same flag for the same thing in every command, and help that fits a screen."""

from __future__ import annotations

import inspect
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cyclopts
import pytest
import torch
from data_files import write_npz, write_pictures
from rich.console import Console
from safetensors.torch import save_file

from driftnorm.cli import (
    COMMANDS,
    _input_flags,
    app,
    main,
    sweep_domains,
    train_domains,
    train_robust,
)
from driftnorm.cli._input_flags import NetworkFlags
from driftnorm.training import RobustTraining
from driftnorm.training.domains.plans import PlanOptions
from driftnorm.training.domains.sweep import Sweep

# Commands are run as the shell does it, from `sys.argv`.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

OLD = {
    "--lr",
    "--init",
    "--minutes",
    "--form",
    "--output",
    "--to",
    "--test-domain",
    "--state",
    "--train",
}
# Values of one thing, however many they are.
NOT_PLURAL = {"--mean", "--std", "--set", "--shuffle", "--where"}
# A terminal is 80 columns wide unless someone widened it, and shows 50 lines on a laptop's screen.
HELP_LINES, HELP_COLUMNS = 50, 80
NETWORK = """
from torch import nn
def factory():
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4, 2))
"""


def commands(group: cyclopts.App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its words."""
    for name in group:
        if not name.startswith("-"):
            command = group[name]
            if command.default_command is None:
                yield from commands(command, (*path, name))
            else:
                yield " ".join((*path, name)), command


EVERY = dict(commands())


def flags(command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for argument in command.assemble_argument_collection():
        if argument.parse and not argument.name.startswith("*"):
            yield argument.names, argument


@pytest.mark.parametrize("name", [*EVERY])
def test_flags_keep_to_the_conventions(name: str) -> None:
    for names, argument in flags(EVERY[name]):
        assert not OLD & set(names), names
        if "--out" in names:
            assert "-o" in names
        if "list[" in str(argument.hint) and argument.field_info.kind in (
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            flag = names[0]
            assert flag.endswith("s") or flag in NOT_PLURAL or not flag.startswith("--"), flag
        if {"--seeds", "--methods", "--models", "--algorithms"} & set(names):
            assert "list[" in str(argument.hint), names


def help_of(name: str) -> str:
    screen = io.StringIO()
    app.help_print(name.split(), console=Console(file=screen, width=HELP_COLUMNS))
    return screen.getvalue()


@pytest.mark.parametrize("name", ["", "bench", "train", "sweep", "data", *EVERY])
def test_help_fits_a_screen(name: str) -> None:
    assert len(help_of(name).splitlines()) <= HELP_LINES


@pytest.mark.parametrize("name", list(EVERY))
def test_every_flag_is_explained(name: str) -> None:
    shown = help_of(name)
    for argument in EVERY[name].assemble_argument_collection(parse_docstring=True):
        if argument.parse and argument.show:
            assert (argument.parameter.help or "").strip(), argument.name
            assert argument.names[0] in shown


def test_help_says_how_to_turn_off_only_what_may_be_on() -> None:
    shown = help_of("train domains")
    assert "--no-every-split" in shown  # a sweep evaluates every split
    for noise in ("--no-swad", "--no-augmented-validation", "False", "*  --"):
        assert noise not in shown


def test_data_come_first() -> None:
    for name in ("train domains", "sweep domains"):
        flagged = [line for line in help_of(name).splitlines() if line.startswith("--")]
        assert flagged[0].startswith("--data")


@pytest.mark.parametrize("name", list(EVERY))
def test_help_of_a_command_is_its_docstring_and_lists_show_the_first_line(name: str) -> None:
    said = inspect.cleandoc(EVERY[name].default_command.__doc__).partition("\nParameters\n")[0]
    shown = " ".join(help_of(name).split())
    assert " ".join(said.split()).replace("`", "") in shown.replace("`", "")
    if name in COMMANDS:
        assert COMMANDS[name] == said.splitlines()[0]


def test_shared_flags_are_described_alike() -> None:
    for flag in ("--workers", "--threads", "--device", "--cache", "--json"):
        said = {
            argument.parameter.help
            for name, command in EVERY.items()
            for names, argument in flags(command)
            if flag in names
        }
        said = {" ".join(text.split()) for text in said if text is not None}
        assert len(said) <= 1, (flag, said)


@pytest.mark.parametrize("verb", ["data", "table", "plot", "methods"])
def test_lists_are_alike(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    app([verb, "list"], result_action="return_value")
    shown = capsys.readouterr().out.splitlines()
    assert shown[2].split()[0] in ("name", "method")  # a titled table
    app([verb, "list", "--json"], result_action="return_value")
    assert json.loads(capsys.readouterr().out)


# --------------------------------------------------------------------------- devices


def test_networks_are_opened_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("meta_net.py").write_text(NETWORK)
    monkeypatch.setattr(_input_flags, "check_device", lambda name: name)  # it holds no numbers
    opening = NetworkFlags(size=8, mean=[0.0] * 3, std=[1.0] * 3, device="meta")
    opened = opening.open("meta_net:factory", Console(quiet=True))
    assert {value.device.type for value in opened.network.parameters()} == {"meta"}


class Caught(Exception):
    """What a command was about to run."""


def test_training_gets_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, *_: object, **__: object) -> None:
        raise Caught(self.device if hasattr(self, "device") else self.options.device)

    for module in (train_robust, train_domains, sweep_domains):
        monkeypatch.setattr(module, "check_device", lambda name: name)
    monkeypatch.setattr(RobustTraining, "run", stop)
    monkeypatch.setattr(PlanOptions, "plan", stop)
    monkeypatch.setattr(Sweep, "arrays", stop)
    pets = str(write_npz(tmp_path / "pets.npz", 4))
    for words in (
        ["train", "robust", "--recipe", "mixup", "--data", pets, "--test-data", pets],
        ["train", "domains", "--data", "x", "--test-domains", "y"],
        ["sweep", "domains", "--data", "x", "--algorithms", "erm"],
    ):
        with pytest.raises(Caught, match=r"^meta$"):
            app([*words, "--device", "meta"], result_action="return_value")


# --------------------------------------------------------------------------- one opener


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network of one's own and some pictures, where the user is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_net", raising=False)  # of another folder
    (tmp_path / "own_net.py").write_text(NETWORK)
    write_pictures(tmp_path / "pics", {f"{n}.png": (16, 16) for n in range(4)})
    write_npz(tmp_path / "pets.npz", 4)
    return tmp_path


def said(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command that cannot work prints."""
    monkeypatch.setattr("sys.argv", ["driftnorm", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_every_command_says_the_same_of_a_network_without_constants(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        said(f"{words} --size 32", capsys, monkeypatch)
        for words in (
            "diagnose own_net:factory pics",
            "adapt own_net:factory pics",
            "export own_net:factory out.onnx --data pics",
            "bench robustness --model own_net:factory --data pets.npz --corruptions fog",
        )
    }
    lines = {line for text in told for line in text.splitlines()}
    assert [line for line in lines if line.startswith("driftnorm: ")] == [
        "driftnorm: 'own_net:factory' does not say how it normalises its input: give `mean` and "
        "`std` per channel (`--mean`, `--std`), for images in [0, 1]; 0 0 0 and 1 1 1 if it takes "
        "them as they are."
    ]


def test_all_that_a_network_does_not_say_is_asked_for_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = said("diagnose own_net:factory pics", capsys, monkeypatch)
    assert "which input size it expects: give `size` (`--size`)" in told
    assert "nor how it normalises its input: give `mean` and `std`" in told


@pytest.mark.parametrize(
    "words",
    [
        "diagnose own_net:factory pics --size 16",
        "adapt own_net:factory pics --size 16",
        "export own_net:factory out.onnx --data pics --size 16",
        "train robust --recipe mixup --data pets.npz --test-data pets.npz --model own_net:factory",
    ],
)
def test_code_from_the_current_folder_is_announced_even_if_it_fails(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note, error = said(words, capsys, monkeypatch).splitlines()
    assert note == "note: own_net was imported from the current folder (own_net.py)."
    assert error.startswith("driftnorm: ")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("diagnose {} pics", "NETWORK"),
        ("adapt {} pics", "NETWORK"),
        ("export {} out.onnx --data pics", "NETWORK"),
        ("bench robustness --model {} --data pets.npz --corruptions fog", "--model"),
        ("bench streams --models {} --data pets.npz --corruptions fog", "--models"),
        (
            "bench fine-tuned --model {} --weights w.safetensors --data pets.npz "
            "--test-data pets.npz",
            "--model",
        ),
        ("train robust --recipe mixup --data pets.npz --test-data pets.npz --model {}", "--model"),
    ],
)
def test_a_wrong_factory_is_named_by_the_flag_that_names_it(
    words: str,
    flag: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_file({"w": torch.zeros(1)}, folder / "w.safetensors")
    for given, problem in (
        ("nowhere:net", " names the module 'nowhere', which cannot be imported."),
        ("own_net:other", ": 'own_net' has no function 'other'."),
    ):
        told = said(words.format(given), capsys, monkeypatch).splitlines()[-1]
        assert told.startswith(f"driftnorm: `{flag}` {given!r}{problem}")


# --------------------------------------------------------------------------- slips


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("adapt", "`NETWORK` is missing; `--help` says what it is."),
        ("adapt own_net:factory", "`DATA` is missing; `--help` says what it is."),
        ("export own_net:factory", "`OUT` is missing; `--help` says what it is."),
        ("adapt own_net:factory pics --method", "parameter --method requires an argument."),
        ("adapt own_net:factory pics --mean 0,0,0", "have spaces between them: `--mean 0 0 0`."),
        ("sweep domains --data x --algorithms erm,coral", "`--algorithms erm coral`."),
        ("train robust --recipe mixup --data x --threads 0", "--threads. Must be >= 1."),
        ("train domains --data x --test-domains y --hours 0", "--hours. Must be > 0."),
        ("corrupt nowhere out --corruptions fog", "nowhere does not exist"),
    ],
)
def test_slips_are_one_line(
    words: str,
    told: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = said(words, capsys, monkeypatch)
    assert text.startswith("driftnorm: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert told in text


def test_a_folder_that_cannot_be_written_to_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "tmpabc")

    monkeypatch.setattr("driftnorm.cli._places.tempfile.TemporaryFile", refuse)
    flags = "--size 16 --mean 0 0 0 --std 1 1 1 --quiet --out made/p.csv"
    text = said(f"adapt own_net:factory pics {flags}", capsys, monkeypatch)
    told = "`--out` made/p.csv: the folder made cannot be written to: Permission denied."
    assert text == f"driftnorm: {told}\n"
