"""When `diagnose` must not be sure: few images, odd constants, batches of one, sorted folders."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from test_diagnose import (
    FACTORY,
    MEAN,
    STD,
    digits,
    files,
    in_batches,
    kinds,
    model,
    run,
    shifted,
    trained,
)
from torch import nn

from driftnorm.bench.metrics import Interval
from driftnorm.cli._output import print_table
from driftnorm.diagnosis import diagnose
from driftnorm.diagnosis.advice import decide
from driftnorm.diagnosis.layer_drift import DriftMeter
from driftnorm.images.embedded_digits import Digits
from driftnorm.models import Normalized
from driftnorm.views.table import Column, Table

__all__ = ["digits", "files", "trained"]  # fixtures

Capture = pytest.CaptureFixture[str]


def test_constants_for_bytes_are_severe(trained: nn.Module, digits: Digits) -> None:
    assert isinstance(trained, Normalized)
    found = diagnose(Normalized(trained.network, [123], [58]), in_batches(digits.images[:128]))
    told = found.verdict()
    assert told.startswith("No verdict yet: the network subtracts 123 and divides by 58")
    assert "divide both by 255 (0.482 and 0.227)" in told


def test_constants_for_bytes_are_refused_as_flags(files: Path) -> None:
    words = [*model(files)]
    words[words.index("--mean") + 1], words[words.index("--std") + 1] = 123, 58
    with pytest.raises(
        ValueError, match=r"subtracts 123 and divides by 58.* for bytes; divide both by 255"
    ):
        run(FACTORY, files / "clean.npy", "--quiet", *words)


@pytest.mark.parametrize(("mean", "std"), [(5.0, 0.2), (-3.0, 0.2), (0.5, 1e-4), (0.5, 40.0)])
def test_constants_that_no_images_have(
    mean: float, std: float, trained: nn.Module, digits: Digits
) -> None:
    assert isinstance(trained, Normalized)
    found = diagnose(Normalized(trained.network, [mean], [std]), in_batches(digits.images[:128]))
    assert [f.severe for f in found.findings if f.kind == "normalisation"] == [True]
    assert found.outcome == "mend"


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 0.5), (0.0, 1 / 255)])
def test_constants_that_networks_really_have(
    mean: float, std: float, trained: nn.Module, digits: Digits
) -> None:
    assert isinstance(trained, Normalized)
    found = diagnose(Normalized(trained.network, [mean], [std]), in_batches(digits.images[:128]))
    assert not any(finding.severe for finding in found.findings)


def test_a_doubtful_normalisation_changes_the_verdict(trained: nn.Module, digits: Digits) -> None:
    assert isinstance(trained, Normalized)
    wrong = Normalized(trained.network, [MEAN], [6 * STD])
    for labels in (None, digits.labels):
        found = diagnose(wrong, in_batches(digits.images, labels))
        assert found.outcome == "unclear"
        assert found.verdict().startswith("Unclear: all channels of the first batch-norm layer")
        assert found.advice == ()


@pytest.mark.parametrize("labelled", [False, True])
def test_five_images_are_not_enough(labelled: bool, files: Path, capsys: Capture) -> None:
    np.save(files / "few.npy", np.load(files / "shifted.npy")[:5])
    np.save(files / "few-labels.npy", np.load(files / "labels.npy")[:5])
    labels = ["--labels", files / "few-labels.npy"] if labelled else []
    run(FACTORY, files / "few.npy", "--quiet", *model(files), *labels)
    told = capsys.readouterr().out
    assert told.startswith("Unclear: 5 images are too few to judge by (chance alone moves the ")
    assert len(told.splitlines()) == 1


def test_one_image_says_so_and_no_more(trained: nn.Module, digits: Digits) -> None:
    found = diagnose(trained, in_batches(digits.images[:1]))
    assert found.verdict() == "Unclear: 1 image is too few to judge by; use a few hundred."


def test_batches_of_one_image_are_measured(trained: nn.Module, digits: Digits) -> None:
    images = shifted(digits)[:128]
    ones = diagnose(trained, in_batches(images, size=1), methods=["bn:running=True"],
                    most_batches=128)  # fmt: skip
    whole = diagnose(trained, in_batches(images, size=128), methods=["bn:running=True"])
    assert ones.run.drift.mean == pytest.approx(whole.run.drift.mean, rel=1e-3)
    assert ones.run.drift.chance == pytest.approx(whole.run.drift.chance, rel=1e-3)
    assert "no source statistics" not in ones.verdict()
    assert ones.outcome == "help"
    advice = {advice.topic: advice for advice in ones.advice}
    assert advice["method"].choice == "steady"
    assert "batches of 1 say little" in advice["method"].reason
    assert "bn-prior" not in " ".join(finding.text for finding in ones.findings)


@pytest.mark.parametrize("windowed", [False, True])
def test_small_labelled_batches_name_what_small_batches_need(
    windowed: bool, trained: nn.Module, digits: Digits
) -> None:
    pairs = in_batches(shifted(digits)[:128], digits.labels[:128], size=4)
    methods = ["bn:running=True", *["bn-window"] * windowed]
    found = diagnose(trained, pairs, methods=methods, most_batches=32)
    assert found.outcome == "help"
    advice = {advice.topic: advice for advice in found.advice}["method"]
    assert advice.choice in methods
    assert advice.reason.startswith("the most accurate on your labelled images")
    assert ("try `--methods steady bn-window` too" in advice.reason) != windowed


def test_halves_of_a_shared_layer_are_those_of_batches() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(4)
    network = nn.Sequential(layer, nn.Linear(4, 4), layer).eval()
    meter = DriftMeter(network)
    with torch.no_grad():
        for x in torch.randn(200, 1, 4):
            network(x)
    (drift,) = meter.read(200).layers
    assert drift.chance < 0.2  # and not the difference between the layer's two places


def test_folders_in_order_are_warned_of(
    files: Path, digits: Digits, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise hides the classes from the predictions, but not from the names of the folders."""
    monkeypatch.setenv("COLUMNS", "80")
    hidden = torch.rand(digits.images.shape, generator=torch.Generator().manual_seed(0))
    lines = []
    for number, (image, label) in enumerate(zip(hidden, digits.labels, strict=True)):
        folder = files / "pictures" / "all" / f"class {int(label)}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * image[0]).byte().numpy()).save(folder / f"{number}.png")
        lines.append(f"pictures/all/class {int(label)}/{number}.png")
    run(FACTORY, files / "pictures", *model(files))
    told = capsys.readouterr().out
    assert "the images come folder by folder (excess 0.9" in told
    assert "order: shuffle" in told
    assert "what the order costs: " in told
    assert not told.startswith("Adaptation will help")
    assert "\u2026" not in told  # no heading is cut
    (files / "list.txt").write_text("\n".join(lines))
    run(FACTORY, files / "list.txt", *model(files))
    assert "folder by folder" not in capsys.readouterr().out
    run(FACTORY, files / "pictures", "--shuffle", *model(files))
    told = capsys.readouterr().out
    assert "folder by folder" not in told
    assert "what the order costs" not in told


def test_folders_alone_turn_help_into_a_question(trained: nn.Module, digits: Digits) -> None:
    images = in_batches(shifted(digits))
    assert diagnose(trained, images).outcome == "help"
    found = diagnose(trained, images, folders=["a"] * 256 + ["b"] * 256)
    assert "folder-order" in kinds(found)
    assert found.verdict().startswith("Unclear: the images come folder by folder")
    mixed = diagnose(trained, images, folders=["a", "b", "b", "a"] * 128)
    assert mixed.outcome == "help"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_narrow_tables_lose_columns_and_no_letters(width: int) -> None:
    ranks = {"layer": 0, "kind": 1, "channels": 2, "distance": 0, "by chance": 3}
    columns = tuple(Column(title, spare=rank) for title, rank in ranks.items())
    rows = (("network.layer1.0.bn1", "BatchNormAct2d", 64.0, 0.123, 0.001),)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    print_table(console, Table("t", columns, rows, "Note."))
    told = " ".join(out.getvalue().split())
    assert "\u2026" not in told
    assert "network.layer1.0.bn1" in told
    assert ("Left out for lack of width: kind" in told) == (width < 80)


def test_a_note_is_wider_than_its_small_table() -> None:
    note = "Statistics mixed from the source's and the data's."
    out = io.StringIO()
    table = Table("How much of the data's statistics", (Column("theta"),), ((0.5,),), note)
    Console(file=out, width=60).print(table.to_rich())
    assert {table.title, note} <= {line.strip() for line in out.getvalue().splitlines()}


@pytest.mark.parametrize(
    ("gain", "outcome"),
    [
        (Interval(0.10, 0.02, 0.18), "help"),
        (Interval(0.05, -0.08, 0.18), "unclear"),  # too few labels
        (Interval(0.00, -0.02, 0.02), "little"),
        (Interval(-0.10, -0.18, -0.02), "no help"),
    ],
)
def test_few_labels_do_not_rule_a_gain_out(
    gain: Interval, outcome: str, trained: nn.Module, digits: Digits
) -> None:
    found = diagnose(trained, in_batches(shifted(digits), digits.labels))
    source, *others = found.run.trials
    trials = (source, *(replace(trial, gain=gain) for trial in others))
    judged = replace(found, run=replace(found.run, trials=trials))
    assert decide(judged.run, ()) == outcome
    if outcome == "unclear":
        assert (
            replace(judged, outcome="unclear", findings=())
            .verdict()
            .startswith("Unclear with so few labelled images: ")
        )


def test_less_sure_and_yet_more_varied_is_not_called_harm(
    trained: nn.Module, digits: Digits
) -> None:
    run_ = diagnose(trained, in_batches(shifted(digits))).run
    source, *others = run_.trials
    lost = replace(source, entropy=0.1, spread=0.3)
    for spread, outcome in ((0.9, "unclear"), (0.3, "harm")):
        trials = (lost, *(replace(trial, entropy=0.4, spread=spread) for trial in others))
        assert decide(replace(run_, trials=trials), ()) == outcome
