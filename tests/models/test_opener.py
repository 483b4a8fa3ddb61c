"""The user's model, however it is named: what is opened, what goes with it, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PixelNet, pretend_trained
from torch import Tensor, nn

import driftnorm
from driftnorm.errors import CheckpointError
from driftnorm.models import Normalized, build, open_model, save_checkpoint, weights_hash
from driftnorm.models.adapted import check_rebuilt, save_adapted
from driftnorm.models.opened_model import read_class_names

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
NAMES = ("ant", "bee", "<b>cat</b>", "dög")


def make_network(num_classes: int = 4) -> nn.Module:
    """The factory that these tests name."""
    network = PixelNet(2, nn.BatchNorm2d)
    network.fc = nn.Linear(6, num_classes)
    return network


class Normalising(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pixel_mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("pixel_std", torch.tensor(STD).view(3, 1, 1))
        self.network = make_network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network((x - self.pixel_mean) / self.pixel_std)


def make_normalising_network() -> nn.Module:
    return Normalising()


def make_fixed_network() -> nn.Module:
    """A factory that knows its number of classes."""
    return make_network()


def make_odd_network(num_classes: int = 3) -> nn.Module:
    """A factory that has one output more than classes, as where there is a background."""
    return make_network(num_classes + 1)


FACTORY = "test_opener:make_network"
FLAGS = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "size": 8}


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    network = pretend_trained(make_network())
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


@pytest.fixture
def class_file(tmp_path: Path) -> Path:
    (tmp_path / "classes.txt").write_text("\n".join(NAMES) + "\n\n", encoding="utf-8")
    return tmp_path / "classes.txt"


def described(folder: Path, **changes: Any) -> Path:
    """A tiny self-describing file."""
    torch.manual_seed(3)
    network = pretend_trained(build("mnist-bn", 4, in_channels=3))
    facts = {
        "architecture": "mnist-bn",
        "classes": NAMES,
        "preprocessing": {"mean": MEAN, "std": STD, "size": 12},
        "options": {"in_channels": 3},
        **changes,
    }
    save_checkpoint(folder / "net.safetensors", network, **facts)
    return folder / "net.safetensors"


def test_a_self_describing_file_needs_nothing_else(tmp_path: Path) -> None:
    file = described(tmp_path)
    opened = open_model(file)
    assert (opened.classes, opened.preprocessing.size, opened.name) == (NAMES, 12, "net")
    assert opened.architecture == "mnist-bn"
    assert dict(opened.options) == {"in_channels": 3}
    assert not opened.network.training
    torch.manual_seed(3)
    bare = pretend_trained(build("mnist-bn", 4, in_channels=3))
    x = torch.rand(2, 3, 12, 12)
    normalised = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(opened.network(x), bare(normalised))
    assert open_model(file, size=16).preprocessing.size == 16


def test_a_self_describing_file_takes_no_other_weights_or_constants(tmp_path: Path) -> None:
    file = described(tmp_path)
    with pytest.raises(ValueError, match="is a file with its own weights"):
        open_model(file, weights=file)
    with pytest.raises(ValueError, match="describes its own normalisation"):
        open_model(file, mean=MEAN, std=STD)


def test_a_factory_with_flags(state_file: Path, class_file: Path) -> None:
    opened = open_model(FACTORY, weights=state_file, classes=class_file, mean=MEAN, std=STD, size=8)
    assert opened.classes == NAMES
    assert opened.preprocessing.mean == tuple(MEAN)
    assert opened.architecture == opened.name == FACTORY
    assert opened.network(torch.rand(2, 3, 8, 8)).shape == (2, 4)


def test_what_nobody_knows_is_asked_for(state_file: Path, class_file: Path) -> None:
    with pytest.raises(ValueError, match="`size`"):
        open_model(FACTORY, weights=state_file, mean=MEAN, std=STD)
    with pytest.raises(ValueError, match="normalises its input: give `mean` and `std`"):
        open_model(FACTORY, weights=state_file, size=8)
    with pytest.raises(ValueError, match="go together"):
        open_model(FACTORY, weights=state_file, size=8, mean=MEAN)
    with pytest.raises(ValueError, match="architecture without weights"):
        open_model("resnet20")
    class_file.write_text("one\ntwo\n")
    with pytest.raises(ValueError, match="must name the 4 classes of the network, it has 2"):
        open_model(FACTORY, weights=state_file, classes=class_file, mean=MEAN, std=STD, size=8)


def test_an_adapted_network_of_a_factory_without_num_classes_opens_again(tmp_path: Path) -> None:
    opened = open_model("test_opener:make_fixed_network", **FLAGS)
    adapter = driftnorm.adapt(pretend_trained(opened.network), "bn")
    x = torch.rand(8, 3, 8, 8)
    adapter(x)
    save_adapted(tmp_path / "net.safetensors", adapter, opened)
    again = open_model(tmp_path / "net.safetensors", trust=True)
    with torch.no_grad():
        torch.testing.assert_close(again.network(x), adapter.freeze()(x))
    assert again.adapted_by == "bn"


def test_what_cannot_be_opened_again_is_not_put_in_its_place(tmp_path: Path) -> None:
    opened = open_model("test_opener:make_odd_network", **FLAGS)
    assert len(opened.classes) == 4
    with pytest.raises(CheckpointError, match=r"4 classes, .*make_odd_network .* was built for 5"):
        check_rebuilt(opened)
    adapter = driftnorm.adapt(opened.network, "bn")
    with pytest.raises(CheckpointError):
        save_adapted(tmp_path / "net.safetensors", adapter, opened)
    assert [*tmp_path.iterdir()] == []


def test_one_digest_and_the_facts_of_the_weights(tmp_path: Path) -> None:
    file = described(tmp_path, run={"recipe": "augmix"})
    opened = open_model(file)
    assert opened.digest == weights_hash(opened.network.state_dict())
    by_name = open_model("mnist-bn", weights=file, mean=MEAN, std=STD, size=12)
    assert dict(opened.facts) == dict(by_name.facts) == {"run": {"recipe": "augmix"}}
    assert opened.digest == by_name.digest
    assert open_model(FACTORY, **FLAGS).facts == {}


def test_images_that_come_prepared_settle_the_size() -> None:
    constants = {"mean": MEAN, "std": STD}
    assert open_model(FACTORY, **constants, shown=(8, 10)).preprocessing.size == 8
    with pytest.raises(ValueError, match="8 x 10 pixels, got 8"):
        open_model(FACTORY, **constants, shown=(8, 10), size=8)


def test_own_constants_are_found_under_any_of_their_names() -> None:
    """`load` and `open_model` ask one function."""
    with pytest.raises(ValueError, match="normalises its input itself: leave out `mean` and `std`"):
        open_model("test_opener:make_normalising_network", **FLAGS)
    opened = open_model("test_opener:make_normalising_network", size=8)
    assert opened.preprocessing.std == (1.0, 1.0, 1.0)


def test_a_builtin_name_knows_its_input(tmp_path: Path) -> None:
    network = pretend_trained(build("resnet20"))
    torch.save(network.state_dict(), tmp_path / "net.pt")
    opened = open_model("resnet20", weights=tmp_path / "net.pt")
    assert opened.preprocessing.size == 32
    assert opened.preprocessing.mean == (0.4914, 0.4822, 0.4465)
    assert opened.classes == tuple(map(str, range(10)))  # nobody named them


def test_a_grey_network_is_told_apart(tmp_path: Path) -> None:
    torch.save(pretend_trained(build("mnist-bn")).state_dict(), tmp_path / "grey.pt")
    with pytest.raises(ValueError, match="does not take a batch of RGB images of 28 x 28"):
        open_model("mnist-bn", weights=tmp_path / "grey.pt")


def half_network() -> nn.Module:
    return make_network().half()


def pair_network() -> nn.Module:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = make_network()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.body(x), x

    return Pair()


@pytest.mark.parametrize(
    ("factory", "what_to_do"),
    [
        ("half_network", r"it is in torch\.float16; images are float32: call `\.float\(\)`"),
        ("pair_network", r"got tuple: let its `forward` return nothing else"),
    ],
)
def test_networks_that_cannot_be_run_are_told_what_to_do(factory: str, what_to_do: str) -> None:
    with pytest.raises((ValueError, TypeError), match=what_to_do):
        open_model(f"test_opener:{factory}", **FLAGS)


def test_class_names_from_text_and_json(tmp_path: Path, class_file: Path) -> None:
    assert read_class_names(class_file) == NAMES
    as_json = tmp_path / "classes.json"
    as_json.write_text(json.dumps(NAMES))
    assert read_class_names(as_json) == NAMES
    for wrong in ("", "[1, 2]", '["a", '):
        as_json.write_text(wrong)
        with pytest.raises(ValueError, match="`classes`"):
            read_class_names(as_json)


def test_a_pickled_module_is_refused_unless_trusted(tmp_path: Path) -> None:
    network = pretend_trained(make_network())
    torch.save(network, tmp_path / "whole.pt")
    with pytest.raises(CheckpointError, match="runs code") as caught:
        open_model(tmp_path / "whole.pt", mean=MEAN, std=STD, size=8)
    assert caught.value.problem == "pickled"
    opened = open_model(tmp_path / "whole.pt", mean=MEAN, std=STD, size=8, trust=True)
    assert opened.architecture is None
    x = torch.rand(2, 3, 8, 8)
    normalised = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(opened.network(x), network(normalised))


def test_what_normalises_itself_is_not_normalised_twice(tmp_path: Path) -> None:
    whole = Normalized(pretend_trained(make_network()), MEAN, STD)
    torch.save(whole, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="normalise its input itself"):
        open_model(tmp_path / "whole.pt", trust=True, size=8, mean=MEAN, std=STD)
    assert open_model(tmp_path / "whole.pt", trust=True, size=8).network is not None


def test_constants_for_bytes_are_told(state_file: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"`mean` and `std`: the network subtracts 125, 123, 114 .* for bytes; divide both",
    ):
        open_model(FACTORY, weights=state_file, size=8, mean=(125, 123, 114), std=(60, 60, 60))


def test_a_program_of_torch_export_is_told(tmp_path: Path) -> None:
    program = torch.export.export(make_network().eval(), (torch.rand(2, 3, 8, 8),))
    torch.export.save(program, tmp_path / "net.pt2")
    for given in (
        {"model": tmp_path / "net.pt2"},
        {"model": FACTORY, "weights": tmp_path / "net.pt2"},
    ):
        with pytest.raises(CheckpointError, match=r"a program that torch\.export wrote"):
            open_model(size=8, **given)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_and_gives_its_weights_if_trusted(tmp_path: Path) -> None:
    network = pretend_trained(make_network())
    file = tmp_path / "scripted.pt"
    torch.jit.trace(network, torch.rand(1, 3, 8, 8)).save(str(file))
    with pytest.raises(CheckpointError, match="layers cannot be replaced"):
        open_model(file, mean=MEAN, std=STD, size=8, trust=True)
    with pytest.raises(CheckpointError, match="TorchScript"):
        open_model(FACTORY, weights=file, mean=MEAN, std=STD, size=8)
    opened = open_model(FACTORY, weights=file, mean=MEAN, std=STD, size=8, trust=True)
    held = opened.network.state_dict()
    for name, value in network.state_dict().items():
        assert torch.equal(held[f"network.{name}"], value), name


def test_a_file_that_names_code_needs_trust(tmp_path: Path) -> None:
    torch.manual_seed(0)
    facts = {"classes": NAMES, "preprocessing": {"mean": MEAN, "std": STD, "size": 8}}
    file = tmp_path / "own.safetensors"
    save_checkpoint(file, pretend_trained(make_network()), architecture=FACTORY, **facts)
    with pytest.raises(CheckpointError, match="imports and runs that code"):
        open_model(file)
    assert open_model(file, trust=True).classes == NAMES


def test_wrong_files_say_what_they_are(tmp_path: Path, state_file: Path) -> None:
    page = tmp_path / "net.safetensors"
    page.write_text("<!DOCTYPE html><html>Sign in</html>")
    with pytest.raises(CheckpointError, match="web page"):
        open_model(page)
    with pytest.raises(FileNotFoundError):
        open_model(tmp_path / "nowhere.safetensors")
    with pytest.raises(CheckpointError, match="without driftnorm's description"):
        open_model(state_file)
    with pytest.raises(ValueError, match="There is no model 'resnet21'"):
        open_model("resnet21", weights=state_file)
    with pytest.raises(CheckpointError, match="does not fit"):
        open_model("resnet20", weights=state_file)


def test_timm_brings_its_data_configuration(timm: Any, tmp_path: Path) -> None:
    network = pretend_trained(timm.create_model("mobilenetv3_small_050", num_classes=5))
    file = tmp_path / "timm.pt"
    torch.save(network.state_dict(), file)
    opened = open_model("timm:mobilenetv3_small_050", weights=file, size=64)
    wanted = timm.data.resolve_model_data_config(network)
    assert opened.preprocessing.mean == pytest.approx(wanted["mean"])
    assert opened.preprocessing.std == pytest.approx(wanted["std"])
    assert opened.preprocessing.crop_ratio == wanted["crop_pct"]
    assert opened.preprocessing.size == 64
    assert opened.classes == ("0", "1", "2", "3", "4")


def test_timm_names_the_classes_of_imagenet(timm: Any, tmp_path: Path) -> None:
    network = pretend_trained(timm.create_model("mobilenetv3_small_050"))
    torch.save(network.state_dict(), tmp_path / "timm.pt")
    opened = open_model("timm:mobilenetv3_small_050", weights=tmp_path / "timm.pt", size=64)
    assert len(opened.classes) == 1000
    assert "tench" in opened.classes[0]


def test_torchvision_names_its_classes(torchvision: Any, tmp_path: Path) -> None:
    network = pretend_trained(torchvision.models.get_model("mobilenet_v3_small", weights=None))
    torch.save(network.state_dict(), tmp_path / "tv.pt")
    opened = open_model("torchvision:mobilenet_v3_small", weights=tmp_path / "tv.pt", size=64)
    assert opened.classes[0] == "tench"
    assert opened.preprocessing.interpolation == "bilinear"


def test_a_failed_download_says_what_to_do(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("connection refused\nand much more")

    monkeypatch.setattr("timm.models._builder.load_pretrained", offline)
    with pytest.raises(OSError, match=r"connection refused\); give a file as `weights`"):
        open_model("timm:mobilenetv3_small_050")
    with pytest.raises(ValueError, match="no timm model"):
        open_model("timm:mobilenet_v99")
