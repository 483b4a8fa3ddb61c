"""``driftnorm data`` and ``driftnorm corrupt`` as a user types them."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cyclopts import CycloptsError
from data_files import (
    CONTENT,
    toy_archive,
    toy_dataset,
    tree,
    write_cifar_c,
    write_npz,
    write_pictures,
)
from rich.console import Console

from driftnorm import cli
from driftnorm.cli._corruption_names import settle_corruptions
from driftnorm.cli._progress import Bar
from driftnorm.cli.corrupt import corrupt
from driftnorm.cli.data import app, check
from driftnorm.cli.train_domains import train_domains
from driftnorm.errors import DataError
from driftnorm.images.cifar_c import load_cifar_c
from driftnorm.images.domains.known import KNOWN_SETS
from driftnorm.images.download.data_sets import DATASETS
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS
from driftnorm.shifts._overlays import ENVIRONMENT_VARIABLE as FROST_VARIABLE
from driftnorm.training.domains.plans import PlanOptions


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """A data set called toy, and the archive it comes in."""
    monkeypatch.setitem(DATASETS, "toy", toy_dataset())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.tar").write_bytes(toy_archive())
    return tmp_path


def run(*arguments: str) -> None:
    app(list(arguments), result_action="return_value")


def test_list_get_and_check(toy, capsys) -> None:
    run("list")
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("cifar-10", "mnist", "184 MB", "official, npm, PATH"))
    run("get", "toy", "--from", "toy.tar")
    assert tree(toy / "data" / "toy") == CONTENT
    assert capsys.readouterr().out == "toy came from toy.tar; every file in data/toy is verified.\n"
    run("get", "toy")
    assert "was there already" in capsys.readouterr().out
    run("get", "toy", "--from", "toy.tar", "--out", "elsewhere/mine")
    run("check", "toy", "elsewhere/mine")
    assert capsys.readouterr().out.endswith("elsewhere/mine is a valid toy.\n")


def test_check_exits_with_one(toy, capsys) -> None:
    run("get", "toy", "--from", "toy.tar")
    (toy / "data" / "toy" / "first.bin").unlink()
    (toy / "data" / "toy" / "[red]more").write_text("")
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        run("check", "toy", "data/toy")
    assert stopped.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        "missing: first.bin",
        "stray: [red]more",
        "data/toy is not a valid toy: 2 problems.",
    ]
    write_cifar_c(toy / "c", ("fog",))
    with pytest.raises(SystemExit):
        run("check", "cifar-10-c", "c")
    assert "snow.npy does not exist" in capsys.readouterr().out


def test_check_cifar_100_and_imagenet_c(toy, capsys) -> None:
    for split, each in (("train", 500), ("test", 100)):
        fine = np.repeat(np.arange(100, dtype=np.uint8), each)
        records = np.zeros((len(fine), 2 + 3072), dtype=np.uint8)
        records[:, 1] = fine
        records.tofile(toy / f"{split}.bin")
    run("check", "cifar-100", ".")
    assert capsys.readouterr().out == ". is a valid cifar-100.\n"
    records[0, 1] = 99
    records.tofile(toy / "test.bin")
    (toy / "train.bin").unlink()
    with pytest.raises(SystemExit):
        run("check", "cifar-100", ".")
    shown = capsys.readouterr().out
    assert "train.bin does not exist" in shown
    assert "every class must have 100 images, but 'apple' has 99; 2 classes are wrong" in shown
    with pytest.raises(SystemExit):
        run("check", "imagenet-c", ".")
    assert "holds no corruption such as fog/5" in capsys.readouterr().out


def test_what_was_generated_says_how_large_it_is(toy, capsys) -> None:
    write_pictures(toy / "pets", {"cat/1.png": (64, 64), "dog/2.png": (64, 64)})
    corrupt(Path("pets"), Path("c"), corruptions=["fog"], severities=[5], workers=1, quiet=True)
    run("check", "imagenet-c", "c")
    assert "c is a valid imagenet-c, generated from 2 images of pets." in capsys.readouterr().out


def run_in_vain(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 1


def domain_folder(folder: Path, domains: tuple[str, ...], classes: tuple[str, ...]) -> Path:
    names = [f"{domain}/{name}/{n}.png" for domain in domains for name in classes for n in range(5)]
    write_pictures(folder, dict.fromkeys(names, (32, 32)))
    return folder


def test_own_domains_are_checked_and_trained_on(toy, capsys) -> None:
    domain_folder(toy / "mine", ("photo", "sketch", "clipart"), ("cat", "dog"))
    run("check", "domains", "mine")
    assert capsys.readouterr().out.splitlines() == [
        "mine in mine",
        "  clipart: 10 pictures (cat 5, dog 5)",
        "  photo: 10 pictures (cat 5, dog 5)",
        "  sketch: 10 pictures (cat 5, dog 5)",
        "mine is a valid set of domains.",
    ]
    run("check", "own", "mine", "--quiet")
    assert capsys.readouterr().out == ""
    small = {"backbone": "resnet18", "batch_norm": "trained", "steps": 1, "batch_size": 2}
    for number, data in enumerate(("mine", "own:mine")):
        out = toy / str(number)
        training = PlanOptions(data, **small)
        train_domains(test_domains=["photo"], training=training, out=out, size=32, cache="cache")
        assert (out / "last.safetensors").is_file()
    capsys.readouterr()
    (toy / "mine" / "photo" / "notes.txt").write_text("")
    run_in_vain("check", "domains", "mine")
    assert capsys.readouterr().out.splitlines()[4:] == [
        "stray: photo/notes.txt (not a picture)",
        "mine is not a valid set of domains: 1 problem.",
    ]


def test_a_part_of_pacs_is_told_from_pacs(toy, capsys) -> None:
    known = KNOWN_SETS["pacs"]
    domain_folder(toy / "PACS", known.domains, known.classes)
    run_in_vain("check", "PACS", "PACS")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "PACS in PACS, not as published"
    assert shown[5] == "missing: art_painting/dog (expected 379 pictures, found 5)"
    assert shown[-1].startswith(
        "PACS is not a valid PACS: 28 problems. It is not PACS as published; "
    )
    assert "`driftnorm data check own PACS`, and `--data own:PACS`" in shown[-1]
    for name in ("own", "domains"):  # nobody asked whether it is PACS
        run("check", name, "PACS")
        assert capsys.readouterr().out.endswith("PACS is a valid set of domains.\n")
    (toy / "PACS" / "photo").rename(toy / "elsewhere")
    for name in ("PACS", "pacs"):
        run_in_vain("check", name, "PACS")
        shown = capsys.readouterr().out.splitlines()
        assert "missing: photo (a domain of PACS)" in shown
        assert "1 problem. It was taken for PACS. If it is a set of your own: " in shown[-1]


def test_an_archive_is_checked_and_not_kept(toy, capsys, monkeypatch) -> None:
    monkeypatch.setenv("DRIFTNORM_CACHE", str(toy / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(toy / "cache"))
    domain_folder(toy / "mine", ("photo", "sketch"), ("cat", "dog"))
    with tarfile.open(toy / "mine.tar", "w") as archive:
        archive.add(toy / "mine", "mine")
    run("check", "domains", "mine.tar")
    said = capsys.readouterr().out
    assert said.startswith("mine in mine.tar\n")
    assert "mine.tar is a valid set of domains." in said
    assert not (toy / "cache").exists()


def test_digit_sets_are_checked_as_their_mnist_files(toy, capsys, monkeypatch) -> None:
    monkeypatch.setitem(DATASETS, "mnist", toy_dataset())
    run("get", "toy", "--from", "toy.tar", "--out", "m", "--quiet")
    for name in ("rotated-mnist", "RotatedMNIST", "rotated_mnist"):
        run("check", name, "m")
        assert capsys.readouterr().out == "m is a valid MNIST for rotated-mnist.\n"
    (toy / "m" / "first.bin").unlink()
    run_in_vain("check", "colored-mnist", "m")
    assert capsys.readouterr().out.splitlines() == [
        "missing: first.bin",
        "m is not a valid MNIST for colored-mnist: 1 problem.",
    ]


def test_check_lists_every_name_it_takes(toy) -> None:
    (toy / "data").mkdir()
    with pytest.raises(ValueError, match=r"got 'rotatd-mnist'\. Did you mean 'rotated-mnist'"):
        check("rotatd-mnist", toy)
    with pytest.raises(ValueError, match=r"`name` must be one of .*; got 'xyz'\.$") as refused:
        check("xyz", toy)
    names = str(refused.value).removeprefix("`name` must be one of ").partition(";")[0].split(", ")
    assert set(names) >= {"cifar-10", "mnist", "toy", "rotated-mnist", "PACS", "domains", "own"}
    for name in names:  # each is taken, and finds nothing here
        with pytest.raises((SystemExit, DataError)):
            check(name, toy / "data")


def test_corrupt(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    source, out = write_npz(tmp_path / "pets.npz", 12), tmp_path / "out"
    corrupt(
        source, out, corruptions=["fog", "frost"], severities=[1, 5], frost="procedural", workers=1
    )
    shown = capsys.readouterr().out
    assert "2 corruptions of 12 images of pets" in shown
    assert "Frost is a procedural stand-in" in shown
    assert len(load_cifar_c(out, "frost", 5)) == 12
    corrupt(source, out, corruptions=["extra"], severities=[2], workers=1)
    assert len(list(out.glob("*-2.npy"))) == 4
    with pytest.raises(DataError, match="another `seed`"):
        corrupt(source, out, corruptions=["fog"], seed=1)


@pytest.fixture
def no_frost(monkeypatch) -> None:
    """As on a machine without the overlay pictures."""
    monkeypatch.delenv(FROST_VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_frost_is_left_out_where_nobody_asked_for_it(
    no_frost, tmp_path, capsys, monkeypatch
) -> None:
    told, quiet = Console(), Console(quiet=True)
    common = settle_corruptions(None, None, told)
    assert common == tuple(name for name in CORRUPTIONS if name != "frost")
    shown = capsys.readouterr().out
    assert shown.startswith("note: frost is left out: its overlay pictures are not on this machine")
    assert shown.count("\n") == 1
    assert settle_corruptions(["extra", "fog", "fog"], None, quiet) == (*EXTRA_CORRUPTIONS, "fog")
    assert "frost" in settle_corruptions(["common"], "procedural", quiet)
    assert settle_corruptions(["frost"], None, quiet) == ("frost",)
    source = write_npz(tmp_path / "pets.npz", 2)
    with pytest.raises(FileNotFoundError, match="none were found"):
        corrupt(source, tmp_path / "out", corruptions=["frost"], workers=1)
    corrupt(source, tmp_path / "out", severities=[1], workers=1)
    assert "14 corruptions of 2 images" in capsys.readouterr().out
    monkeypatch.setenv(FROST_VARIABLE, "nowhere")  # a slip, not a choice to go without
    assert "frost" in settle_corruptions(None, None, quiet)


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("--corruptions", "fog,snow"), "--corruptions fog snow"),
        (("--corruptions", "fog,", "snow"), "--corruptions fog snow"),
        (("--severities", "1,2,3"), "--severities 1 2 3"),
    ],
)
def test_lists_have_spaces_between_their_values(words, right) -> None:
    with pytest.raises(CycloptsError) as refused:
        cli.app(["corrupt", "in", "out", *words], exit_on_error=False, print_error=False)
    assert f"values have spaces between them: `{right}`." in " ".join(str(refused.value).split())


def test_a_bar_draws_on_a_terminal_only() -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        with Bar(Console(file=screen, force_terminal=terminal, width=120), in_bytes=True) as bar:
            bar("downloading", 5_000_000, 10_000_000)
        assert ("downloading" in screen.getvalue()) == terminal


def test_no_command_waits_for_torch() -> None:
    code = "import sys, driftnorm.cli.data, driftnorm.cli.corrupt; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
