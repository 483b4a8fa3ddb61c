"""DomainBed's tables from finished trainings: which numbers, which refusals, which forms."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinted import SIDE, driftnorm, make_domains, plan

from driftnorm._internal.training_files import HISTORY, SWAD_FILE
from driftnorm.errors import MixedRowsError
from driftnorm.images.domains.named import open_arrays
from driftnorm.training.domains.domain_training import DomainTraining
from driftnorm.views.domain_rows import mean_text
from driftnorm.views.paper import published
from driftnorm.views.trainings import RUN_VIEWS, load_runs, selected_table

NAMES = ("a", "b", "c")


def write(
    folder: Path,
    tested: tuple[str, ...],
    records: list[dict[str, float]],
    *,
    data: str = "PACS",
    averaged: dict[str, float] | None = None,
    **changes: Any,
) -> None:
    """A history; accuracies that ``records`` do not tell are 0.5."""
    own = DomainTraining("erm", tested, every_split=True, **changes)
    identity = {**asdict(own), "data": data, "content": "0", "image_shape": (3, 8, 8)}
    usual = {f"{name} {part}": 0.5 for name in NAMES for part in ("out", "in")}
    kept = {
        "identity": identity,
        "steps": own.steps,
        "seconds": 1.0,
        "history": [
            {"step": 10 * (number + 1), **usual, **record} for number, record in enumerate(records)
        ],
        **({} if averaged is None else {"averaged": {**usual, **averaged}}),
    }
    folder.mkdir(parents=True)
    (folder / HISTORY).write_text(json.dumps(kept))


def lines(root: Path, selector: str) -> dict[object, tuple[object, ...]]:
    return {
        line[0]: line[1:] for line in RUN_VIEWS[f"selected-{selector}"].make(load_runs([root])).rows
    }


def test_golden_text() -> None:
    assert mean_text([10.0, 20.0, 30.0]) == "20.0 +/- 4.7"
    assert mean_text([20.0]) == "20.0"
    assert mean_text([]) is None


def test_a_trial_chooses_among_hyper_parameters_and_evaluations(tmp_path: Path) -> None:
    for trial, target in enumerate((0.1, 0.2, 0.3)):
        early = {"b out": 0.9, "c out": 0.7, "a in": target, "a out": 0.1}
        late = {"b out": 0.7, "c out": 0.8, "a in": 0.99, "a out": 0.2}
        write(tmp_path / f"{trial}-0", ("a",), [early, late], trial_seed=trial)
        other = {"b out": 0.7, "c out": 0.6, "a in": 0.6, "a out": 0.9}
        write(tmp_path / f"{trial}-1", ("a",), [other], trial_seed=trial, lr=1e-3)
    write(tmp_path / "b", ("b",), [{"b in": 0.4}])
    assert lines(tmp_path, "training")["erm"] == ("20.0 +/- 4.7", "40.0", pytest.approx(30), 85.5)
    assert lines(tmp_path, "oracle")["erm"][0] == "60.0 +/- 0.0"
    table = RUN_VIEWS["selected-training"].make(load_runs([tmp_path, tmp_path / "b"]))
    assert [column.title for column in table.columns][1:3] == ["a", "b"]
    assert table.title.startswith("PACS")
    for words in ("8 px", "resnet50", "batch norm frozen", "5,001 steps", "trials [0, 1, 2]"):
        assert words in table.note
    assert "hyper-parameter settings tried per target and trial: 1 to 2." in table.note


def test_leave_one_out_needs_the_runs_that_leave_out_two(tmp_path: Path) -> None:
    settings = {"h0": 1e-5, "h1": 1e-4}
    for name, lr in settings.items():
        better = 0.1 if name == "h1" else 0.0
        write(tmp_path / f"{name}-a", ("a",), [{"a in": 0.3}, {"a in": 0.4 + better}], lr=lr)
        for pair in combinations(NAMES, 2):
            second = {f"{domain} in": 0.6 + better for domain in pair}
            write(tmp_path / f"{name}-{'-'.join(pair)}", pair, [{}, second], lr=lr)
    assert lines(tmp_path, "leave-one-out")["erm"][0] == "50.0"  # the second step of h1
    (tmp_path / "h1-a-b" / HISTORY).unlink()
    assert lines(tmp_path, "leave-one-out")["erm"][0] == "40.0"  # only h0 is complete
    (tmp_path / "h0-a-c" / HISTORY).unlink()
    assert lines(tmp_path, "leave-one-out")["erm"] == ("X", "X", 83.0)
    assert lines(tmp_path, "training")["erm"][0] == "30.0"  # runs of two targets do not count


def test_swad_is_its_average_and_fixed_features_are_a_line_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "erm", ("a",), [{"a in": 0.3}])
    write(tmp_path / "fixed", ("a",), [{"a in": 0.2}], features="fixed")
    write(tmp_path / "swad", ("a",), [{"a in": 0.3}], swad=True, averaged={"a in": 0.8})
    found = lines(tmp_path, "training")
    assert {name: line[0] for name, line in found.items()} == {
        "erm": "30.0",
        "erm, fixed features": "20.0",
        "swad erm": "80.0",
    }
    assert found["swad erm"][-1] == 88.1
    assert found["erm, fixed features"][-1] is None
    write(tmp_path / "old", ("b",), [{}], swad=True)
    with pytest.raises(ValueError, match="does not have the accuracy of SWAD's average"):
        load_runs([tmp_path])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 3}, "differ in `steps`: 3 and 5001"),
        ({"backbone": "resnet18"}, "differ in `backbone`"),
        ({"batch_norm": "fused"}, "differ in `batch_norm`"),
        ({"data": "VLCS"}, "differ in `data`: PACS and VLCS"),
        ({"evaluate_every": 100}, "runs of erm differ in `evaluate_every`"),
    ],
)
def test_other_protocols_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    write(tmp_path / "one", ("a",), [{}])
    write(tmp_path / "two", ("b",), [{}], **changes)
    with pytest.raises(MixedRowsError, match=words):
        selected_table(load_runs([tmp_path]), "training")


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no finished training"):
        load_runs([tmp_path])
    write(tmp_path / "pair", ("a", "b"), [{}])
    with pytest.raises(MixedRowsError, match="no target to score"):
        selected_table(load_runs([tmp_path]), "training")
    (tmp_path / "pair" / HISTORY).write_text("{}")
    with pytest.raises(ValueError, match="is not a history of"):
        load_runs([tmp_path])


def test_published_numbers() -> None:
    assert published("training", "PACS", "sagnet") == 86.3
    assert published("training", "VLCS", "groupdro") == 76.7
    assert published("training", "RotatedMNIST", "arm") == 98.2
    assert published("training", "ColoredMNIST", "swad") is None
    assert published("oracle", "PACS", "erm") == 86.7
    assert published("oracle", "PACS", "coral") is None


def test_real_runs_in_every_form(tmp_path: Path) -> None:
    data = make_domains(tmp_path / "data")
    arrays = open_arrays(str(data), SIDE, str(tmp_path / "cache"))
    runs = tmp_path / "runs"
    for trial in (0, 1):
        plan(every_split=True, trial_seed=trial).run(arrays, runs / str(trial))
    averaging = plan(every_split=True, swad=True, batch_norm="frozen", evaluate_every=1)
    averaging.run(arrays, runs / "swad")
    kept = json.loads((runs / "swad" / HISTORY).read_text())
    assert kept["averaged"].keys() >= {"red in", "red out", "validation"}
    assert (runs / "swad" / SWAD_FILE).exists()
    history = [json.loads((runs / str(t) / HISTORY).read_text())["history"] for t in (0, 1)]
    chosen = [max(own, key=lambda record: record["validation"])["red in"] for own in history]
    # Another mode of batch norm is another protocol.
    mixed = driftnorm("table", "selected-training", runs)
    assert mixed.returncode == 2
    assert "differ in `batch_norm`" in mixed.stderr
    said = driftnorm("table", "selected-oracle", runs / "0", runs / "1", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["rows"][0][0] == "erm"
    for form, begin in (("markdown", "**data, "), ("csv", "algorithm,red"), ("latex", "% data")):
        said = driftnorm("table", "selected-training", runs / "0", runs / "1", "--format", form)
        assert any(line.startswith(begin) for line in said.stdout.splitlines())
        assert f"{100 * np.mean(chosen):.1f}" in said.stdout
    plan(steps=3).run(arrays, runs / "poor")
    poor = driftnorm("table", "selected-training", runs / "poor")
    assert poor.returncode == 2
    assert "--every-split" in poor.stderr
    assert "selected-leave-one-out" in driftnorm("table").stdout
    assert "about training" in driftnorm("table", "selected-oracle", runs, "--methods", "bn").stderr
    assert "Did you mean 'selected-oracle'" in driftnorm("table", "selected-oracl").stderr
    # A finished run is not taken for one with images of another size.
    with pytest.raises(ValueError, match="there `image_shape` is"):
        plan(every_split=True).run(open_arrays(str(data), 16, str(tmp_path / "cache")), runs / "0")
