"""What a study refuses before it runs, and what its data and networks are called in rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from data_files import write_cifar_c, write_pictures
from made_cells import with_stream
from made_rows import made_row
from small_study import call, rows_of, study, write_data, write_weights
from torch import nn

from driftnorm.bench.cell import Shift, Trainer, Training
from driftnorm.bench.rows import RowStore, load_rows
from driftnorm.bench.runner import Measurement, run
from driftnorm.cli import app
from driftnorm.errors import DataError, MixedRowsError
from driftnorm.images.corrupted_sets import generate
from driftnorm.models import Preprocessing, build, load_published, save_checkpoint, sources
from driftnorm.models.opened_model import check_weights
from driftnorm.views.compare import data_set, in_order, shifts_of

NETWORKS = """
import torch

def network(outputs):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(3, outputs),
    )

def two(): return network(2)
def three(): return network(3)
def ten(): return network(10)
def thousand(): return network(1000)
def unsteady(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
"""
AS_IT_IS = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # the networks take images in [0, 1]
WNIDS = tuple(f"n{number:08d}" for number in range(1000))


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_data(tmp_path / "small.npz")


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"networks_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return name


# ------------------------------------------------------------------ frost and its stand-in


def write_frost(folder: Path) -> str:
    folder.mkdir()
    names = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
    write_pictures(folder, dict.fromkeys(names, (200, 200)))
    return str(folder)


def test_the_stand_in_of_frost_is_another_shift(data: str, tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows")
    both = ("frost", "fog")
    made_up = study(data, "source", corruptions=both, severities=(5,), frost="procedural")
    real = study(
        data, "source", corruptions=both, severities=(5,), frost=write_frost(tmp_path / "f")
    )
    first, second = rows_of(run(made_up, store)), rows_of(run(real, store))
    assert [row.shift for row in first] == ["frost (procedural)", "fog"]
    assert [row.shift for row in second] == ["frost"]  # fog is the same, and is there
    assert first[0].metrics["note"] == "frost is procedural"
    assert "note" not in second[0].metrics
    assert second[0].cell == with_stream(first[1], shifts=(Shift("frost", 5),)).cell
    assert shifts_of([*second, *first]) == ["frost", "frost (procedural)", "fog"]


def test_two_results_of_one_measurement_are_refused() -> None:
    row = made_row(error=0.2, seconds=1.0, peak_megabytes=5, nll=float("nan"))
    again = made_row(error=0.2, seconds=2.0, peak_megabytes=9, nll=float("nan"))
    assert in_order([row, again]) == [row]
    with pytest.raises(MixedRowsError, match="two rows of one measurement differ: net@12345678"):
        in_order([row, made_row(error=0.4)])


# ------------------------------------------------------------------ what data are called


def test_generated_folders_say_so(data: str, tmp_path: Path, networks: str) -> None:
    for seed, label in ((0, "small-c (generated)"), (7, "small-c (generated, seed 7)")):
        out = tmp_path / f"c{seed}"
        how = {"corruptions": ["contrast", "frost"], "severities": [5], "workers": 1}
        generate(data, out, **how, seed=seed, frost="procedural")
        assert (out / "contrast-5.npy").exists()  # the other severities were not asked for
        small = study(str(out), "source", corruptions=("contrast", "frost"), severities=(5,))
        rows = rows_of(run(small, RowStore(tmp_path / f"rows{seed}")))
        assert [row.shift for row in rows] == ["contrast", "frost (procedural)"]
        assert {row.cell.stream.data.label for row in rows} == {label}
        assert data_set(rows) == "small"
    one = {"corruptions": ("contrast",), "severities": (5,)}
    stored = study(str(tmp_path / "c0"), "source", **one)
    assert study(data, "source", **one).cells() == stored.cells()  # the same pixels


def test_own_pictures_do_not_borrow_a_name(tmp_path: Path, networks: str) -> None:
    pictures = {f"{name}/{number}.png": (40, 40) for name in "ab" for number in range(2)}
    how = {"model": f"{networks}:two", **AS_IT_IS, "corruptions": ("contrast",), "severities": (1,)}
    for name, label in (("imagenet", "own imagenet-c (generated)"), ("pets", "pets-c (generated)")):
        write_pictures(tmp_path / name, pictures)
        out = tmp_path / f"{name}-c"
        generate(tmp_path / name, out, corruptions=["contrast"], severities=[1], workers=1)
        for place in (tmp_path / name, out):
            (cell,) = study(str(place), "source", **how).cells()
            assert cell.stream.data.label == label
        (out / "driftnorm.json").unlink()
        (cell,) = study(str(out), "source", **how).cells()
        assert cell.stream.data.label == f"own {name}-c"


def test_released_arrays_keep_their_name(tmp_path: Path) -> None:
    write_cifar_c(tmp_path / "CIFAR-10-C", ("contrast", "gaussian_noise"))
    cells = study(str(tmp_path / "CIFAR-10-C"), "source").cells()
    assert {cell.stream.data.label for cell in cells} == {"cifar-10-c"}


def test_some_classes_of_imagenet_c(tmp_path: Path, networks: str) -> None:
    names = [f"{wnid}/{number}.JPEG" for wnid in WNIDS[5:7] for number in range(2)]
    write_pictures(tmp_path / "in" / "fog" / "1", dict.fromkeys(names, (16, 16)))
    how = {"model": f"{networks}:thousand", **AS_IT_IS, "corruptions": ("fog",), "severities": (1,)}
    with pytest.raises(DataError, match="2 of ImageNet's 1,000 class folders"):
        study(str(tmp_path / "in"), "source", **how).cells()
    small = study(str(tmp_path / "in"), "source", **how, classes=WNIDS)
    (cell,) = small.cells()
    assert cell.stream.data.label == "imagenet-c"
    assert sorted(small.images(cell).labels.tolist()) == [5, 5, 6, 6]


def test_own_pictures_with_the_classes_of_a_network(tmp_path: Path, networks: str) -> None:
    write_pictures(tmp_path / "pets", {f"{name}/1.png": (40, 40) for name in "ab"})
    how = {
        "model": f"{networks}:three",
        **AS_IT_IS,
        "corruptions": ("contrast",),
        "severities": (1,),
    }
    with pytest.raises(ValueError, match=r"has 3 outputs, but pets-c.* has 2 classes.*`--classes`"):
        study(str(tmp_path / "pets"), "source", **how).cells()
    small = study(str(tmp_path / "pets"), "source", **how, classes=("b", "x", "a"))
    assert sorted(small.images(small.cells()[0]).labels.tolist()) == [0, 2]
    with pytest.raises(DataError, match="the folder 'b' is not one of the 3 `classes`"):
        study(str(tmp_path / "pets"), "source", **how, classes=("a", "x", "y")).cells()


def test_classes_are_for_pictures(data: str, tmp_path: Path) -> None:
    write_cifar_c(tmp_path / "c", ("contrast", "gaussian_noise"))
    for place in (data, str(tmp_path / "c")):
        with pytest.raises(ValueError, match="`classes` is for folders of images"):
            study(place, "source", classes=("a",)).cells()


# ------------------------------------------------------------------ refused before anything runs


def test_a_network_for_another_number_of_classes(data: str, networks: str) -> None:
    with pytest.raises(ValueError, match=r"has 3 outputs, but small-c .* has 10 classes"):
        study(data, "source", model=f"{networks}:three", **AS_IT_IS).cells()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corruptions": ("fogg",)}, "there is no 'fogg'. Did you mean 'fog'?"),
        ({"corruptions": ()}, "`corruptions` must name at least one"),
        ({"severities": (6,)}, "`severities` must be from 0 to 5, got 6"),
        ({"severities": (-1,)}, "`severities` must be from 0 to 5, got -1"),
        ({"seeds": (0, -3)}, "`seeds` must be at least 0, got -3"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"limit": 0}, "`limit` must be at least 1, got 0"),
    ],
)
def test_numbers_and_names(data: str, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        study(data, "source", **changes)


def test_methods_that_must_see_the_source_are_refused_before_anything_runs(data: str) -> None:
    with pytest.raises(ValueError, match=r"'eata@gprebn' must first see images.*leave it out, or"):
        study(data, "source", "eata@gprebn").cells()


def test_streams_that_are_not_there(tmp_path: Path) -> None:
    write_cifar_c(tmp_path, ("contrast",))
    with pytest.raises(DataError, match="corrupted images only: severity 0"):
        study(str(tmp_path), "source", corruptions=("contrast",), severities=(0, 5)).cells()
    lacking = "lacks 2 of the 4 streams, such as gaussian_noise at severity 1. It holds contrast at"
    with pytest.raises(DataError, match=lacking):
        study(str(tmp_path), "source").cells()


def test_the_command_refuses_with_2_and_writes_nothing(data: str, tmp_path: Path) -> None:
    weights = write_weights(tmp_path / "resnet20.safetensors")
    words = ["bench", "robustness", "--data", data, "--out", str(tmp_path / "out")]
    with_weights = [*words, "--model", "resnet20", "--weights", str(weights)]
    for more, said in (
        (["--batch-size", "0"], "`batch_size` must be at least 1, got 0"),
        (["--batch-size=-5"], "`batch_size` must be at least 1, got -5"),
        (["--workers", "0"], "`workers` must be at least 1, got 0"),
        (["--frost", str(tmp_path / "nowhere")], "frost1.png"),
    ):
        with pytest.raises((ValueError, OSError), match=said):
            app([*with_weights, *more], result_action="return_value")
    for model in ("resnet20", "timm:resnet18"):
        with pytest.raises(ValueError, match="architecture without weights: give `--weights` FILE"):
            app([*words, "--model", model], result_action="return_value")
    wrong = call(*with_weights, "--corruptions", "fogg")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Did you mean 'fog'?" in wrong.stderr
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ weights


def test_weights_must_come_from_somewhere() -> None:
    for spec in ("wrn-40-2", "efficientnet-lite0", "resnet50+mtl", "torchvision:resnet18"):
        with pytest.raises(ValueError, match="give `--weights` FILE"):
            check_weights(spec, None, pretrained=False)
        check_weights(spec, "file.pt", pretrained=False)
    check_weights("timm:resnet18", None, pretrained=True)
    check_weights("my.module:factory", None, pretrained=False)  # its own business
    check_weights("runs/a/model.safetensors", None, pretrained=False)
    with pytest.raises(ValueError, match="both name weights"):
        check_weights("timm:resnet18", "file.pt", pretrained=True)
    with pytest.raises(
        ValueError, match="timm or torchvision publish, but the model is `resnet20`"
    ):
        check_weights("resnet20", None, pretrained=True)


def test_a_factory_without_constants_is_refused(data: str, networks: str, tmp_path: Path) -> None:
    """Raw pixels in a network that was trained on normalised ones give numbers of nothing."""
    with pytest.raises(ValueError, match="normalises its input: give `mean` and `std` per channel"):
        study(data, "source", model=f"{networks}:ten").cells()
    one = study(data, "source", model=f"{networks}:ten", **AS_IT_IS).cells()[0]
    other = study(data, "source", model=f"{networks}:ten", mean=(0.5,) * 3, std=(0.2,) * 3)
    assert one.network != other.cells()[0].network
    with pytest.raises(ValueError, match=r"shown as they are: 32 x 32 pixels, got 224"):
        study(data, "source", model=f"{networks}:ten", **AS_IT_IS, size=224).cells()


def test_the_command_finds_a_module_in_the_current_folder(data: str, tmp_path: Path) -> None:
    (tmp_path / "mynets.py").write_text(NETWORKS)
    out = tmp_path / "rows"
    words = ["bench", "robustness", "--data", data, "--model", "mynets:ten", "--out", str(out)]
    few = ["--corruptions", "contrast", "--severities", "5", "--methods", "source", "bn"]
    like_a_script = {"cwd": tmp_path, "PYTHONSAFEPATH": "1"}  # which has its own folder first
    refused = call(*words, *few, **like_a_script)
    assert refused.returncode == 2
    assert "give `mean` and `std`" in refused.stderr
    constants = ["--mean", "0.5", "0.5", "0.5", "--std", "0.25", "0.25", "0.25", "--size", "32"]
    done = call(*words, *few, *constants, "--workers", "2", **like_a_script)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mynets was imported from the current folder (mynets.py)") == 1
    assert len(load_rows(out)) == 2


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """A stand-in for timm that notes what it is asked for."""
    asked: list[dict[str, object]] = []

    def made(name: str, options: dict[str, object]) -> tuple[nn.Module, Preprocessing]:
        asked.append(dict(options))
        if name == "offline" and options.get("pretrained"):
            raise ConnectionError("no route\nto host")
        torch.manual_seed(0)
        wanted = Preprocessing((0.5,) * 3, (0.25,) * 3, 32)
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), wanted

    monkeypatch.setattr(sources, "_from_timm", made)
    return asked


def test_published_weights_are_asked_for(published: list[dict[str, object]], data: str) -> None:
    small = study(data, "source", model="timm:some", pretrained=True)
    assert small.cells()[0].network.label.startswith("timm:some@")
    assert {"pretrained": True} in published
    with pytest.raises(
        OSError, match=r"timm publishes for 'timm:offline' could not be obtained \(no r"
    ):
        load_published("timm:offline")


def test_weights_that_change_from_process_to_process(
    data: str, networks: str, tmp_path: Path
) -> None:
    small = study(data, "source", model=f"{networks}:unsteady", severities=(5,), **AS_IT_IS)
    cells = small.cells()
    store = RowStore(tmp_path / "rows")
    elsewhere = pickle.loads(pickle.dumps(Measurement(small, tuple(cells[:1]))))
    (failure,) = elsewhere.work(store.folder)
    assert "weights differ between processes" in failure.error


def test_rows_say_what_a_network_was_trained_with(data: str, tmp_path: Path) -> None:
    file = tmp_path / "augmix-of-mine" / "model.safetensors"
    file.parent.mkdir()
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 32}
    torch.manual_seed(0)
    network = build("resnet20")
    how = {"architecture": "resnet20", "classes": [f"class {i}" for i in range(10)]}
    small = study(data, "source", model=str(file), corruptions=("contrast",), severities=(5,))
    for number, (facts, recipe) in enumerate(
        (({}, None), ({"run": {"recipe": "cutout"}}, "cutout"))
    ):
        save_checkpoint(file, network, **how, preprocessing=preprocessing, **facts)
        (row,) = rows_of(run(replace(small), RowStore(tmp_path / str(number))))
        training = None if recipe is None else Training(Trainer(recipe))
        assert row.cell.network.training == training
        assert row.network.startswith("augmix-of-mine/model.safetensors@")
