"""Will adaptation help? Verdicts on real digits, distances against formulas, and every warning."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cyclopts
import numpy as np
import pytest
import torch
from conftest import PixelNet, pretend_trained
from PIL import Image
from torch import Tensor, nn

from driftnorm.adapter.drift import channel_distance
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS
from driftnorm.bench.studies.digits import digit_network, train_digits
from driftnorm.cli.diagnose import diagnose as command
from driftnorm.diagnosis import Diagnosis, diagnose, take_inventory
from driftnorm.diagnosis.layer_drift import DriftMeter, pooled
from driftnorm.diagnosis.order import serial
from driftnorm.diagnosis.sample import SampledBatches
from driftnorm.functional import Moments, batch_moments
from driftnorm.images import open_inputs
from driftnorm.images.embedded_digits import Digits, split_digits
from driftnorm.methods import METHODS
from driftnorm.models import Normalized, Preprocessing

MEAN, STD = 0.305, 0.376
Network = Callable[..., nn.Module]


class Grey(nn.Module):
    """The demo's network for digits, shown colour images."""

    def __init__(self) -> None:
        super().__init__()
        self.digits = digit_network()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.digits(x.mean(dim=1, keepdim=True))
        return logits


FACTORY = "test_diagnose:Grey"


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    grey = Grey()
    grey.digits = train_digits(split_digits(0)[0], seed=0, epochs=6)
    return Normalized(grey, [MEAN], [STD]).eval()


@pytest.fixture(scope="module")
def digits() -> Digits:
    images, labels = split_digits(0)[1]
    return Digits(images[:512], labels[:512])


def in_batches(images: Tensor, labels: Tensor | None = None, size: int = 64) -> list[Any]:
    colour = images.expand(-1, 3, -1, -1)
    if labels is None:
        return list(colour.split(size))
    return list(zip(colour.split(size), labels.split(size), strict=True))


def shifted(digits: Digits, name: str = "contrast", severity: int = 2) -> Tensor:
    return DIGIT_SHIFTS[name](digits.images, severity, torch.Generator().manual_seed(0))


def kinds(found: Diagnosis) -> set[str]:
    return {finding.kind for finding in found.findings}


# --------------------------------------------------------------------------- verdicts


def test_clean_images_need_no_adaptation(trained: nn.Module, digits: Digits) -> None:
    found = diagnose(trained, in_batches(digits.images))
    assert found.outcome == "no need"
    assert found.verdict().startswith("No need to adapt")
    assert found.findings == ()
    assert [(a.topic, a.choice) for a in found.advice] == [("method", "source")]


@pytest.mark.parametrize("name", ["contrast", "blur", "noise"])
def test_shifted_images_want_it(name: str, trained: nn.Module, digits: Digits) -> None:
    found = diagnose(trained, in_batches(shifted(digits, name)))
    assert found.outcome == "help"
    assert found.verdict().startswith("Adaptation will help")
    advice = {advice.topic: advice.choice for advice in found.advice}
    assert advice["method"] == "gprebn"
    assert advice["learning rate"] == "0.001"
    assert int(advice["batch size"].split()[0]) >= 8


def test_labels_decide_where_there_are_some(trained: nn.Module, digits: Digits) -> None:
    labels = digits.labels.clone()
    labels[::3] = -1  # unknown
    found = diagnose(trained, in_batches(shifted(digits), labels))
    source, bn = found.run.trials[:2]
    with torch.no_grad():
        predicted = trained(shifted(digits).expand(-1, 3, -1, -1)).argmax(dim=1)
    known = labels >= 0
    assert source.accuracy == pytest.approx(
        float((predicted == labels)[known].float().mean()), abs=2e-3
    )
    assert source.gain is None
    assert bn.gain is not None
    assert bn.accuracy is not None
    assert bn.gain.value == pytest.approx(bn.accuracy - source.accuracy)
    assert found.outcome == "help"
    assert "labelled images" in found.verdict()
    best = max(found.run.trials, key=lambda trial: trial.accuracy or 0)
    assert found.advice[0].choice == best.method


def test_the_curve_of_theta_is_shown(trained: nn.Module, digits: Digits) -> None:
    """Over all images, from networks with the moments of all of them so far."""
    clean, drifted = (
        diagnose(trained, in_batches(images))
        for images in (digits.images, shifted(digits, "contrast", 3))
    )
    assert [*clean.run.thetas] == [0, 0.2, 0.5, 1]
    assert clean.run.thetas[0] > clean.run.thetas[1.0] - 0.05
    assert drifted.run.thetas[0.5] > drifted.run.thetas[0] + 0.1
    with torch.no_grad():
        p = torch.cat([trained(x).softmax(1) for x in in_batches(shifted(digits, "contrast", 3))])
    spread, entropy = torch.special.entr(p.mean(0)).sum(), torch.special.entr(p).sum(1).mean()
    expected = float((spread - 4 * entropy) / (spread + 0.5))
    assert drifted.run.thetas[0] == pytest.approx(expected, abs=1e-4)
    table = drifted.tables()[-1]
    assert [row[0] for row in table.rows] == ["0", "0.2", "0.5", "1"]
    assert json.loads(drifted.to_json())["thetas"]["0.5"] == drifted.run.thetas[0.5]


def test_sorted_images_are_recognised(trained: nn.Module, digits: Digits) -> None:
    order = digits.labels.argsort(stable=True)
    for images in (digits.images, shifted(digits, "noise", 1)):
        found = diagnose(trained, in_batches(images[order]))
        assert "class-order" in kinds(found)
        assert found.outcome == "harm"
        assert "ordered by class" in found.verdict()
        assert ("order", "shuffle") in [(a.topic, a.choice) for a in found.advice]
    labelled = diagnose(trained, in_batches(digits.images[order], digits.labels[order]))
    assert labelled.run.serial["labels"].excess > 0.9


def test_images_of_one_class_are_not_adapted_to(trained: nn.Module) -> None:
    images, labels = split_digits(0)[1]
    found = diagnose(trained, in_batches(images[labels == 3]))
    assert "narrow" in kinds(found)
    assert found.outcome in ("harm", "unclear")


# --------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x * 255, "as if they were bytes"),
        (lambda x: (x - MEAN) / STD, "normalised already"),
        (lambda x: x / 255, "divided by 255 twice"),
    ],
)
def test_a_wrong_scale_is_recognised(
    change: Callable[[Tensor], Tensor], words: str, trained: nn.Module, digits: Digits
) -> None:
    found = diagnose(trained, in_batches(change(digits.images[:128])))
    assert found.outcome == "mend"
    assert found.findings[0].kind == "input-scale"
    assert words in found.verdict()
    assert found.advice == ()


def test_wrong_constants_are_recognised(trained: nn.Module, digits: Digits) -> None:
    assert isinstance(trained, Normalized)
    forgotten = Normalized(trained.network, [MEAN], [4 * STD])
    assert "normalisation" in kinds(diagnose(forgotten, in_batches(digits.images[:256])))
    # A network that does not normalise by itself may be given normalised input.
    normalised = (digits.images - MEAN) / STD
    assert kinds(diagnose(trained.network, in_batches(normalised[:256]))) == set()


def test_broken_images_are_left_out(trained: nn.Module, digits: Digits) -> None:
    images = digits.images[:128].clone()
    images[5] = torch.nan
    found = diagnose(trained, in_batches(images))
    assert (found.run.images, found.run.broken) == (127, 1)
    assert "broken-images" in kinds(found)
    with pytest.raises(ValueError, match="no usable image"):
        diagnose(trained, in_batches(images[5:6]))
    with pytest.raises(ValueError, match="no usable image"):
        diagnose(trained, [])


def test_few_images_and_small_batches_are_told(trained: nn.Module, digits: Digits) -> None:
    found = diagnose(trained, in_batches(shifted(digits)[:12], size=4))
    assert {"few-images", "small-batch"} <= kinds(found)
    assert found.run.batch_sizes == (4, 4, 4)


# --------------------------------------------------------------------------- network


def test_the_network_is_left_as_it_was(trained: nn.Module, digits: Digits) -> None:
    trained.train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    hooks = [len(m._forward_pre_hooks) for m in trained.modules()]
    diagnose(trained, in_batches(digits.images[:64]))
    for name, value in trained.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert trained.training
    assert all(parameter.requires_grad for parameter in trained.parameters())
    assert [len(m._forward_pre_hooks) for m in trained.modules()] == hooks
    trained.eval()


@pytest.mark.parametrize(
    ("kind", "statistics"), [("2d", "kept"), ("untracked", "missing"), ("sync", "kept")]
)
def test_inventory(kind: str, statistics: str, network: Network) -> None:
    inventory = take_inventory(network(kind))
    assert [layer.name for layer in inventory.layers] == ["bn1", "bn2"]
    assert {layer.statistics for layer in inventory.layers} == {statistics}
    assert inventory.channels == 12
    assert all(
        layer.affine and not layer.frozen and layer.eps == 1e-5 for layer in inventory.layers
    )


def test_inventory_of_odd_layers(network: Network) -> None:
    assert [layer.affine for layer in take_inventory(network("affineless")).layers] == [False, True]
    assert len(take_inventory(network("aliased")).layers) == 1  # one layer under two names
    untrained = PixelNet(2, nn.BatchNorm2d).requires_grad_(False)
    inventory = take_inventory(untrained)
    assert inventory.named("initial") == ("bn1", "bn2")
    assert all(layer.frozen for layer in inventory.layers)
    assert inventory.active_dropout == ("drop",)
    assert take_inventory(untrained.eval()).active_dropout == ()


class Unsafe(PixelNet):
    """InstanceNorm, and dropout that evaluation mode does not stop."""

    def __init__(self) -> None:
        super().__init__(2, nn.BatchNorm2d)
        self.own = nn.InstanceNorm2d(6)

    def features(self, x: Tensor) -> Tensor:
        x = self.own(torch.relu(self.bn1(self.conv1(x))))
        x = torch.relu(self.bn2(self.conv2(x))).flatten(2).mean(dim=2)
        return nn.functional.dropout(x, 0.5, training=True)


def test_layers_that_are_unsafe_at_test_time(batches: Any) -> None:
    found = diagnose(pretend_trained(Unsafe()).train(), batches(size=16))
    assert {"instance-norm", "random", "training-mode"} <= kinds(found)


def test_networks_that_cannot_be_judged(network: Network, batches: Any) -> None:
    found = diagnose(network("normless"), batches())
    assert found.outcome == "mend"
    assert found.verdict().startswith("Nothing to adapt: the network has no batch norm")
    assert "GroupNorm x2" in found.verdict()
    assert [trial.method for trial in found.run.trials] == ["source"]
    json.loads(found.to_json())
    found = diagnose(PixelNet(2, nn.BatchNorm2d).eval(), batches())
    assert found.findings[0].kind == "untrained"
    assert found.outcome == "mend"


def test_layers_without_statistics(network: Network, batches: Any) -> None:
    found = diagnose(network("untracked"), batches(size=16))
    assert "no-statistics" in kinds(found)
    assert json.loads(found.to_json())["drift_mean"] is None
    assert all(text for table in found.tables() for text in (table.to_markdown(), table.to_csv()))


def test_dense_predictions(batches: Any) -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1))
    found = diagnose(pretend_trained(dense), batches(size=16))
    assert found.run.classes == 4
    assert found.run.serial == {}
    assert found.run.trials[1].agreement["bn"] == 1.0
    # One picture holds many predictions, so its statistics are not noise.
    found = diagnose(pretend_trained(dense), batches(size=1))
    assert "small-batch" not in kinds(found)


def test_a_network_of_timm(timm: Any) -> None:
    torch.manual_seed(0)
    network = pretend_trained(timm.create_model("mobilenetv3_small_050", num_classes=5))
    x = torch.randn(16, 3, 64, 64)
    found = diagnose(network, [x], methods=["bn", "tent"])
    inventory = found.inventory
    assert len(inventory.layers) == sum(isinstance(m, nn.BatchNorm2d) for m in network.modules())
    assert {layer.kind for layer in inventory.layers} == {"BatchNormAct2d"}
    assert found.run.drift.layers[0].name == "bn1"
    assert [trial.method for trial in found.run.trials] == ["source", "bn", "tent"]
    assert len(found.tables(most_layers=5)[2].rows) == 5
    assert len(found.tables()[2].rows) == len(inventory.layers)


def test_every_method_that_needs_no_source_images_can_be_tried(trained: nn.Module) -> None:
    names = [name for name, m in METHODS.items() if not m.recipe.needs_fit and name != "source"]
    images = shifted(Digits(*(part[:64] for part in split_digits(0)[1])))
    found = diagnose(trained, in_batches(images, size=32), methods=["source", *names, "tent+lame"])
    assert [trial.method for trial in found.run.trials] == ["source", *names, "tent+lame"]
    moved = {trial.method: trial.moved for trial in found.run.trials}
    assert moved["tent"] == moved["tent+lame"] > 0
    assert moved["bn"] == moved["t3a"] == moved["lame"] == 0


def test_methods_that_cannot_be_tried(trained: nn.Module, digits: Digits) -> None:
    with pytest.raises(ValueError, match=r"`methods` must name .* besides the source"):
        diagnose(trained, in_batches(digits.images), methods=["source"])
    with pytest.raises(ValueError, match="'eata' must first see images like those"):
        diagnose(trained, in_batches(digits.images), methods=["bn", "eata"])


# --------------------------------------------------------------------------- measures


def test_distance_is_the_wasserstein_distance_of_gaussians() -> None:
    generator = torch.Generator().manual_seed(0)
    mu_s, mu_t = torch.randn(2, 5, generator=generator).double()
    sd_s, sd_t = torch.rand(2, 5, generator=generator).double() + 0.5
    # Optimal transport on the line pairs equal quantiles.
    quantile = torch.special.ndtri((torch.arange(200_000).double() + 0.5) / 200_000).unsqueeze(1)
    between = ((mu_s + sd_s * quantile) - (mu_t + sd_t * quantile)).square().mean(dim=0).sqrt()
    source, target = Moments(mu_s, sd_s.square()), Moments(mu_t, sd_t.square())
    torch.testing.assert_close(
        channel_distance(source, target, 0.0), between / sd_s, rtol=1e-3, atol=0
    )
    assert bool((channel_distance(source, source, 1e-5) == 0).all())


def test_pooled_moments_are_those_of_everything() -> None:
    x = torch.randn(20, 3, 4, 4, dtype=torch.float64) * 2 + 1
    whole, parts = batch_moments(x), pooled([batch_moments(p) for p in x.split([3, 10, 7])])
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.var, whole.var)
    assert (parts.values, parts.samples) == (whole.values, whole.samples)


def test_the_meter_sees_what_the_layers_receive(network: Network, batches: Any) -> None:
    net, stream = network("2d"), batches(count=3, size=10)
    meter = DriftMeter(net)
    with torch.no_grad():
        for x in stream:
            net(x)
        drift = meter.read(30)
        meter.close()
        received = net.conv1(torch.cat(stream))
    source = Moments(net.bn1.running_mean, net.bn1.running_var)
    expected = channel_distance(source, batch_moments(received), net.bn1.eps)
    assert drift.layers[0].name == "bn1"
    assert drift.layers[0].mean == pytest.approx(float(expected.mean()), rel=1e-4)
    assert drift.layers[0].largest == pytest.approx(float(expected.max()), rel=1e-4)


def test_chance_is_what_chance_gives() -> None:
    layer = nn.Sequential(nn.BatchNorm1d(64)).eval()  # its statistics are those of the data
    meter = DriftMeter(layer)
    with torch.no_grad():
        layer(torch.randn(400, 64))
    drift = meter.read(400)
    assert drift.chance == pytest.approx(drift.mean, rel=0.2)
    assert drift.chance_of_batch(100) == pytest.approx(2 * drift.chance)


def test_agreement_spread_and_entropy(network: Network, batches: Any) -> None:
    net, stream = network("2d"), batches(count=2, size=16)
    found = diagnose(net, stream, methods=["bn"])
    with torch.no_grad():
        logits = net(torch.cat(stream))
    p = logits.softmax(dim=1)
    entropy = -(p * p.log()).sum(dim=1).mean() / np.log(4)
    shares = torch.bincount(logits.argmax(dim=1), minlength=4) / 32
    source, bn = found.run.trials
    assert source.entropy == pytest.approx(float(entropy), rel=1e-4)
    assert source.spread == pytest.approx(float(torch.special.entr(shares).sum() / np.log(4)))
    assert source.predicted == int((shares > 0).sum())
    assert source.agreement["bn"] == bn.agreement["source"]
    assert source.agreement["source"] == 1.0


def test_order_of_streams() -> None:
    shuffled = [i % 10 for i in range(500)]
    random.Random(0).shuffle(shuffled)
    assert not serial(shuffled).ordered
    assert serial(sorted(shuffled)).excess > 0.95
    # Right on 40 % of a sorted stream, and wrong at random otherwise, is enough to see it.
    unsure = [
        c if random.Random(i).random() < 0.4 else i * 7 % 10 for i, c in enumerate(sorted(shuffled))
    ]
    assert serial(unsure).ordered
    assert serial([3] * 50) == serial([1])


def test_the_onset_of_a_shift_is_no_order() -> None:
    """Predictions that collapse in mid-stream look alike, though the images are shuffled."""
    draw = random.Random(0)
    for images in (160, 640):
        collapsed = [3 if draw.random() < 0.8 else draw.randrange(10) for _ in range(images)]
        found = serial([draw.randrange(10) for _ in range(images)] + collapsed)
        assert found.excess > 0.1
        assert found.z > 3
        assert not found.ordered, images


@pytest.mark.parametrize(("classes", "right"), [(2, 0.95), (3, 0.95), (5, 0.5), (10, 0.5)])
def test_an_order_of_few_classes_is_no_onset(classes: int, right: float) -> None:
    draw = random.Random(0)
    run = [label * classes // 640 for label in range(640)]
    unsure = [c if draw.random() < right else draw.randrange(classes) for c in run]
    assert serial(unsure).ordered


# --------------------------------------------------------------------------- command


@pytest.fixture
def files(tmp_path: Path, trained: nn.Module, digits: Digits) -> Path:
    assert isinstance(trained, Normalized)
    torch.save(trained.network.state_dict(), tmp_path / "weights.pt")
    for name, images in (("clean", digits.images), ("shifted", shifted(digits))):
        np.save(tmp_path / f"{name}.npy", images.expand(-1, 3, -1, -1).numpy())
    np.save(tmp_path / "labels.npy", digits.labels.numpy())
    return tmp_path


def run(*arguments: object) -> None:
    app = cyclopts.App(result_action="return_value")
    app.default(command)
    app([*map(str, arguments)], exit_on_error=False)


def model(files: Path) -> list[object]:
    return ["--weights", files / "weights.pt", "--mean", MEAN, "--std", STD, "--size", 8]


def test_command_says_opposite_things(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(FACTORY, files / "clean.npy", *model(files))
    out = capsys.readouterr().out
    assert out.startswith("No need to adapt")
    assert "What adapting changes" in out
    assert "digits.1" in out.replace("network.", "")  # the layers by name
    run(FACTORY, files / "shifted.npy", "--quiet", *model(files))
    out = capsys.readouterr().out
    assert out.startswith("Adaptation will help")
    assert len(out.splitlines()) == 1


def test_command_as_json_with_labels(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ["--labels", files / "labels.npy", "--limit", 256, "--json"]
    run(FACTORY, files / "shifted.npy", *model(files), *labels)
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "help"
    assert found["images"] == 256
    assert found["trials"][0]["accuracy"] < found["trials"][1]["accuracy"]
    assert {"drift", "inventory", "findings", "advice", "verdict"} <= found.keys()


def test_command_with_class_folders_and_a_broken_picture(
    files: Path, digits: Digits, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (image, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
        if number == 100:
            break
        folder = files / "pictures" / str(int(label))
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (255 * image[0]).round().byte().numpy()
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (files / "pictures" / "3" / "broken.png").write_bytes(b"no picture")
    run(FACTORY, files / "pictures", "--labels", "folders", "--json", *model(files))
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["images"] == 100
    assert found["trials"][0]["accuracy"] > 0.9
    findings = {finding["kind"]: finding["text"] for finding in found["findings"]}
    assert "class-order" in findings
    assert "3/broken.png" in err
    run(FACTORY, files / "pictures", "--labels", "folders", "--json", "--shuffle", 0, *model(files))
    mixed = json.loads(capsys.readouterr().out)
    assert "class-order" not in [finding["kind"] for finding in mixed["findings"]]
    best = max(mixed["trials"][1:], key=lambda trial: trial["accuracy"])
    (before,) = [t["accuracy"] for t in found["trials"] if t["method"] == best["method"]]
    assert best["accuracy"] > before
    said = f"{best['method']} is right on {before:.1%} of the labelled images as they come, and on"
    assert f"{said} {best['accuracy']:.1%} of shuffled ones" in findings["order-cost"]


def test_command_refuses_wrong_use(files: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(FACTORY, files / "nowhere", *model(files))
    with pytest.raises(
        ValueError, match=r"`limit` must allow for one batch of 64.*smaller `batch_size`"
    ):
        run(FACTORY, files / "clean.npy", "--limit", 10, *model(files))
    with pytest.raises(ValueError, match="'tnet' is not known"):
        run(FACTORY, files / "clean.npy", "--methods", "tnet", "--limit", 64, *model(files))


def test_batches_come_from_all_over_and_stay_whole(tmp_path: Path) -> None:
    images = np.zeros((100, 4, 4, 3), dtype=np.uint8)
    images[:] = np.arange(100, dtype=np.uint8)[:, None, None, None]
    np.save(tmp_path / "counted.npy", images)
    inputs, wanted = open_inputs(tmp_path / "counted.npy"), Preprocessing((0,), (1,), 4)

    def numbers(limit: int | None) -> list[list[int]]:
        batches = SampledBatches(inputs, wanted, batch_size=10, limit=limit)
        return [(255 * x[:, 0, 0, 0]).round().int().tolist() for x, _ in batches]

    assert numbers(35) == [[*range(s, s + 10)] for s in (0, 30, 60)]
    assert numbers(None) == numbers(1000) == [[*range(s, s + 10)] for s in range(0, 100, 10)]


def test_cifar_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shared, cifar = os.environ.get("DRIFTNORM_SHARED"), os.environ.get("DRIFTNORM_CIFAR10")
    if not shared or not cifar:
        pytest.skip("set DRIFTNORM_SHARED (weights) and DRIFTNORM_CIFAR10 (official files)")
    from driftnorm.images.cifar import load_cifar10
    from driftnorm.shifts import corrupt

    images = load_cifar10(cifar).images[:128]
    weights = Path(shared) / "weights" / "cifar10-resnet20.safetensors"
    for name, pixels, answer in (
        ("clean", images, "No need"),
        ("noise", corrupt(images, "gaussian_noise", 5), "Adaptation will help"),
    ):
        np.save(tmp_path / f"{name}.npy", pixels)
        run(
            "resnet20", tmp_path / f"{name}.npy", "--weights", weights, "--quiet", "--methods", "bn"
        )
        assert capsys.readouterr().out.startswith(answer)


def test_a_diagnosis_is_data(trained: nn.Module, digits: Digits) -> None:
    found = diagnose(trained, in_batches(digits.images), most_batches=2)
    assert found.run.images == 128
    assert dataclasses.replace(found, findings=()) == found
    with pytest.raises(ValueError, match="`most_batches`"):
        diagnose(trained, in_batches(digits.images), most_batches=0)
    with pytest.raises(ValueError, match="`methods`"):
        diagnose(trained, in_batches(digits.images), methods=())
