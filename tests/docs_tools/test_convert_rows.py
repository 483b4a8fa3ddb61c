"""Rows of the first format: refused with the way to convert them, and converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_cells import made_cell
from small_study import call

from driftnorm.bench.cell import DataId, MethodId, Shift, Trainer, Training
from driftnorm.bench.rows import RowStore, load_rows
from driftnorm.errors import OldRowsError

OLD = {
    "study": "domains",
    "model": (
        "swad erm, fixed features -> art_painting, trial 2, resnet50 at 224 px, frozen BN@1a2b"
    ),
    "shift": "art_painting/in",
    "severity": 0,
    "method": "gprebn:momentum=0.1",
    "options": [["rho", 10], ["steps", 3]],
    "seed": 1,
    "protocol": {
        "data": "PACS",
        "count": 1638,
        "batch_size": 32,
        "severities": [],
        "order": "shuffled",
        "steps": 3,
        "reset": "per shift",
        "predict": "before",
        "seeds": [1],
    },
}


def old_row(**changes: Any) -> str:
    record = {"key": "0123", "cell": {**OLD, **changes}, "metrics": {"error": 0.25}}
    return json.dumps({**record, "environment": {"torch": "2"}})


def convert(*words: object) -> None:
    import sys

    from convert_rows import main

    given = sys.argv
    sys.argv = ["convert_rows.py", *map(str, words)]
    try:
        main()
    finally:
        sys.argv = given


def test_every_fact_has_its_field(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(old_row() + "\n")
    convert(tmp_path / "rows.jsonl")
    (row,) = load_rows(tmp_path / "rows.jsonl")
    cell = row.cell
    trainer = Trainer("erm", averaged=True, features="fixed")
    assert cell.network.training == Training(trainer, ("art_painting",), 2, "frozen", 224)
    assert (cell.network.name, cell.network.digest) == ("resnet50", "1a2b")
    assert cell.network.label == OLD["model"]  # people read the same
    assert cell.stream.shifts == (Shift("art_painting"),)
    assert (cell.stream.split, cell.stream.count, cell.stream.seed) == ("in", 1638, 1)
    settings = (("rho", 10), ("steps", 3))
    assert cell.method == MethodId("gprebn", (("momentum", 0.1),), settings)
    assert (cell.method.steps, cell.protocol.batch_size, cell.protocol.guard) == (3, 32, "off")
    assert (row.metrics, row.environment) == ({"error": 0.25}, {"torch": "2"})


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("cifar-10-c", DataId("cifar-10", "released")),
        ("cifar-10-c (generated)", DataId("cifar-10", "generated")),
        ("cifar-10-c (generated, seed 3)", DataId("cifar-10", "generated", 3)),
        ("own imagenet-c (few)", DataId("own imagenet", "released", subset="few")),
        ("digits", DataId("digits")),
    ],
)
def test_data_are_told_apart_and_called_as_before(label: str, expected: DataId) -> None:
    assert made_cell(data=label).stream.data == expected
    assert expected.label == label


def test_streams_and_fine_tuned_networks() -> None:
    frost = made_cell(shift="frost (procedural)", severity=3)
    assert frost.stream.shifts == (Shift("frost", 3, "procedural"),)
    assert frost.stream.shift == "frost (procedural)"
    clean = made_cell(shift="clean", severity=0)
    assert (clean.stream.shifts, clean.stream.label) == ((), "clean")
    name = "networks/resnet20-without-fog-1000-images-2-epochs-lr-0.001-seed-0-ab12.safetensors"
    training = made_cell(model=f"{name}@12").network.training
    assert training is not None
    assert (training.trainer.algorithm, training.left_out) == ("fine-tuning", ("fog",))
    assert dict(training.settings)["learning_rate"] == 0.001
    guarded = made_cell(settings=(("guard", "reset"), ("lr", 0.1)))
    assert (guarded.protocol.guard, guarded.method.settings) == ("reset", (("lr", 0.1),))


def test_a_folder_is_converted_in_place_and_again(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / f"{seed:016}.json").write_text(old_row(seed=seed))
    (tmp_path / "failed").mkdir()
    failed = {"cell": {**OLD, "seed": 9}, "error": "ValueError: no"}
    (tmp_path / "failed" / "0123.json").write_text(json.dumps(failed))
    convert(tmp_path)
    store = RowStore(tmp_path)
    rows = list(store.rows())
    assert sorted(row.seed for row in rows) == [0, 1, 2]
    assert all(store.has(row.cell) for row in rows)
    assert [failure.cell.stream.seed for failure in store.failures()] == [9]
    assert len([*tmp_path.glob("*.json")]) == 3
    (tmp_path / "another.json").write_text(old_row(seed=5))  # an older run went on
    convert(tmp_path)
    assert sorted(row.seed for row in RowStore(tmp_path).rows()) == [0, 1, 2, 5]


def test_another_folder_leaves_the_old_rows_as_they_are(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "exhibits").mkdir(parents=True)
    (old / "exhibits" / "ab.json").write_text("{}")
    (old / "0123.json").write_text(old_row())
    (old / "run.json").write_text('{"verdict": "not a row"}')
    convert(old, "--out", new)
    assert (old / "0123.json").read_text() == old_row()
    assert [row.shift for row in RowStore(new).rows()] == ["art_painting"]
    assert (new / "exhibits" / "ab.json").exists()


def test_old_rows_are_refused_in_one_line_that_names_the_script(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(old_row() + "\n")
    with pytest.raises(
        OldRowsError, match=r"rows\.jsonl, line 1: it has the format of an older driftnorm"
    ):
        load_rows(path)
    for words in (("table", "domains", path), ("report", path)):
        ended = call(*words)
        assert ended.returncode == 2
        assert "docs/tools/convert_rows.py" in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1
