"""Cells: streams with parameters, and keys that stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driftnorm.bench.cell import (
    Cell,
    DataId,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
    read_cell,
)
from driftnorm.bench.protocol import protocol_text
from driftnorm.streams import Domain, Stream, parse_stream

ROWS = Path(__file__).parents[2] / "docs" / "rows"
STREAM = StreamId(
    DataId("cifar-10", "generated"),
    (Shift("clean"), Shift("fog", 5)),
    count=3200,
    order="continual+dirichlet-slots",
    seed=2,
    settings=(("slots", 10), ("concentration", 0.1), ("part", 1600)),
)
CELL = Cell("streams", NetworkId("net"), STREAM, MethodId("bn"), Protocol(8, reset="never"))


@pytest.mark.parametrize(
    "name", ["demo", "robustness-cifar10-resnet20-severity1", "domains-pacs-resnet50-v1"]
)
def test_keys_of_committed_rows_stay(name: str) -> None:
    lines = (ROWS / f"{name}.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "cell" in record]
    assert records
    for record in records:
        assert read_cell(record["cell"]).key == record["key"]
        assert "settings" not in record["cell"]["stream"]


def test_a_stream_with_parameters_is_read_from_its_record() -> None:
    record = json.loads(json.dumps(CELL.record()))
    assert record["stream"]["settings"] == {"concentration": 0.1, "part": 1600, "slots": 10}
    assert read_cell(record) == CELL
    assert read_cell(record).key == CELL.key


def test_parameters_make_another_cell_and_their_order_does_not() -> None:
    turned = replace(CELL, stream=replace(STREAM, settings=STREAM.settings[::-1]))
    assert turned == CELL
    assert turned.key == CELL.key
    fewer = replace(CELL, stream=replace(STREAM, settings=(("part", 1600),)))
    assert fewer.key != CELL.key
    assert replace(CELL, stream=replace(STREAM, settings=())).key != CELL.key


def test_a_cell_says_which_stream_it_is() -> None:
    stream = Stream.of(STREAM.order, STREAM.settings, STREAM.seed)
    assert stream == parse_stream("continual+dirichlet-slots:part=1600,slots=10,seed=2")
    assert (stream.kind, stream.settings) == (STREAM.order, STREAM.settings)
    domains = [Domain(shift.label, shift.severity) for shift in STREAM.shifts]
    assert stream.course.segments(domains)[1].domains == (Domain("fog", 5),)


def test_the_protocol_names_every_parameter() -> None:
    text = protocol_text([CELL])
    assert "continual+dirichlet-slots:concentration=0.1,part=1600,slots=10, batch 8" in text
    assert "seed 2" in text
