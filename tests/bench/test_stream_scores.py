"""Metrics, protocol, rows and tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import driftnorm
from driftnorm.bench import batch_scores, metrics
from driftnorm.bench.batch_scores import joined, score_batch
from driftnorm.bench.cell import (
    Cell,
    DataId,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
    Trainer,
    Training,
)
from driftnorm.bench.metrics import BINS, filled_bins, pooled_bins, reliability
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row, RowStore, environment, load_rows, save_rows
from driftnorm.bench.stream_scores import evaluate
from driftnorm.predictions.answers_file import empty_bins, place_in_bin
from driftnorm.views.table import Column, Table

NETWORK = NetworkId("net", "12", Training(Trainer("erm"), ("art",), 0, "frozen", 112))
STREAM = StreamId(DataId("digits"), (Shift("noise", 2),), 100, seed=1)
METHOD = MethodId("gprebn", (("momentum", 0.1),), (("theta", 0.5),))
CELL = Cell("demo", NETWORK, STREAM, METHOD, Protocol(20))


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_bits_round_trip(bits: list[bool]) -> None:
    correct = np.array(bits)
    assert np.array_equal(metrics.unpack_bits(metrics.pack_bits(correct), len(bits)), correct)


def test_metrics_against_torch_and_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(200, 5, generator=generator) * 3, torch.arange(200) % 5
    scores = score_batch(logits.numpy(), labels.numpy())
    likelihood = -nn.functional.cross_entropy(logits.double(), labels, reduction="none")
    assert scores.log_likelihood == pytest.approx(likelihood.numpy())
    p = logits.double().softmax(dim=1)
    assert scores.entropy == pytest.approx(-(p * p.log()).sum(dim=1).numpy())
    confidence, correct = p.numpy().max(1), p.numpy().argmax(1) == labels.numpy()
    assert scores.confidence == pytest.approx(confidence)
    assert np.array_equal(scores.choice, p.numpy().argmax(1))
    assert np.array_equal(scores.correct, correct)
    gap = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            gap += inside.sum() * abs(confidence[inside].mean() - correct[inside].mean())
    ece = metrics.expected_calibration_error(confidence, correct)
    assert ece == pytest.approx(gap / 200)


def test_scores_do_not_depend_on_how_predictions_are_dealt_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In blocks, in batches, and as positions of dense predictions, some without a class."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, 4, 3, 5, generator=generator)
    labels = torch.randint(0, 4, (6, 3, 5), generator=generator)
    labels[labels == 2] = 255
    dense = score_batch(logits.numpy(), labels.numpy())
    known = labels != 255
    flat = score_batch(logits.movedim(1, -1)[known].numpy(), labels[known].numpy())
    monkeypatch.setattr(batch_scores, "BLOCK", 7)
    blocks = score_batch(logits.numpy(), labels.numpy())
    batches = joined(
        score_batch(*(each.numpy() for each in batch))
        for batch in zip(logits.split(2), labels.split(2), strict=True)
    )
    for other in (flat, blocks, batches):
        for one, two in zip(dense, other, strict=True):
            assert np.array_equal(one, two)
    assert len(dense.choice) == int(known.sum())
    unlabelled = score_batch(logits.numpy())
    assert unlabelled.correct is None
    assert len(unlabelled.choice) == labels.numel()
    with pytest.raises(ValueError, match=r"shape \(6, 3, 5\)"):
        score_batch(logits.numpy(), labels[0].numpy())


def test_impossible_classes_have_no_entropy_and_lost_answers_are_seen() -> None:
    infinite = np.array([[0.0, -np.inf], [np.nan, 0.0]], dtype=np.float32)
    scores = score_batch(infinite)
    assert scores.entropy[0] == 0
    assert scores.confidence[0] == 1
    assert np.isnan(scores.entropy[1])


def test_paired_interval_covers_and_is_repeatable() -> None:
    generator = np.random.default_rng(0)
    gains = [generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=2000) for _ in range(3)]
    interval = metrics.paired_interval(gains)
    assert interval == metrics.paired_interval(gains)
    assert interval.low < interval.value < interval.high
    spread = np.sqrt(np.mean([g.var() / len(g) for g in gains]) / 3)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert metrics.paired_interval([np.zeros(10)]) == (0, 0, 0)


def test_streams_of_the_same_images_do_not_narrow_the_interval() -> None:
    """A slow bootstrap over images is the reference."""
    generator = np.random.default_rng(0)
    image = generator.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=500)
    streams = [np.where(generator.random(500) < 0.8, image, 0.0) for _ in range(10)]
    drawn = [
        np.mean([stream[chosen] for stream in streams])
        for chosen in generator.integers(0, 500, size=(2000, 500))
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    together = metrics.paired_interval(streams, ["test set"] * 10)
    assert together.value == pytest.approx(np.mean(streams))
    assert together.low == pytest.approx(low, abs=0.005)
    assert together.high == pytest.approx(high, abs=0.005)
    apart = metrics.paired_interval(streams)
    assert apart.high - apart.low < 0.6 * (together.high - together.low)
    assert metrics.paired_interval(streams[:1], ["a"]) == metrics.paired_interval(streams[:1])


@pytest.mark.parametrize("confidence", [0.2, 0.4, 0.6, 0.8, 1 / 3, 2 / 3, 1.0, 0.0, 0.5])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_a_confidence_has_one_bin_wherever_it_is_counted(
    confidence: float, precision: type[np.floating]
) -> None:
    held = precision(confidence)
    lower, upper = (np.arange(BINS) + edge for edge in (0, 1))
    inside = (15 * confidence > lower + 1e-5) & (15 * confidence <= upper + 1e-5)
    expected = int(np.argmax(inside))
    counts, _, _ = reliability(np.array([held]), np.array([True]))
    assert np.flatnonzero(counts).tolist() == [expected]  # a benchmark
    counted = empty_bins()
    place_in_bin(counted, float(held), True)
    assert [count for count, _, _ in counted].index(1) == expected  # driftnorm adapt
    kept = filled_bins(np.array([held]), np.array([True]))
    other = [[1, (expected + 0.5) / BINS, 0.0]]
    assert [each.samples for each in pooled_bins([kept, other])] == [2]  # plots and pages


def test_standard_error_is_domainbeds() -> None:
    assert 100 * metrics.standard_error([0.1, 0.2, 0.3]) == pytest.approx(4.7, abs=0.05)


def test_evaluate_scores_what_the_adapter_answers() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    stream = [(torch.randn(n, 4), torch.arange(n) % 3) for n in (20, 20, 7)]
    found = evaluate(driftnorm.adapt(network, "gprebn", guard="off"), stream)
    other = driftnorm.adapt(network, "gprebn", guard="off")
    right = [(other(x).argmax(1) == y).numpy() for x, y in stream]
    assert found["error"] == pytest.approx(1 - np.concatenate(right).mean())
    assert found["online_error"] == pytest.approx([1 - r.mean() for r in right], abs=1e-6)
    assert found["count"] == 47
    unpacked = metrics.unpack_bits(str(found["correct"]), 47)
    assert np.array_equal(unpacked, np.concatenate(right))
    with pytest.raises(ValueError, match="no batch"):
        evaluate(other, [])


def test_cells_differ_in_everything_that_matters() -> None:
    training = NETWORK.training
    assert training is not None
    networks = [
        replace(NETWORK, name="x"),
        replace(NETWORK, digest="x"),
        replace(NETWORK, training=None),
        replace(NETWORK, training=replace(training, trainer=Trainer("erm", averaged=True))),
        replace(NETWORK, training=replace(training, trainer=Trainer("erm", features="fixed"))),
        replace(NETWORK, training=replace(training, left_out=("photo",))),
        replace(NETWORK, training=replace(training, trial=1)),
        replace(NETWORK, training=replace(training, batch_norm="trained")),
        replace(NETWORK, training=replace(training, side=224)),
        replace(NETWORK, training=replace(training, settings=(("epochs", 2),))),
    ]
    streams = [
        replace(STREAM, data=DataId("digits", "generated")),
        replace(STREAM, data=DataId("digits", subset="few")),
        replace(STREAM, shifts=(Shift("x", 2),)),
        replace(STREAM, shifts=(Shift("noise", 3),)),
        replace(STREAM, shifts=(Shift("noise", 2, "procedural"),)),
        replace(STREAM, shifts=(*STREAM.shifts, *STREAM.shifts)),
        replace(STREAM, count=99),
        replace(STREAM, split="out"),
        replace(STREAM, order="shuffled"),
        replace(STREAM, seed=2),
    ]
    methods = [MethodId("tent"), replace(METHOD, options=()), replace(METHOD, settings=())]
    protocols = [Protocol(10), Protocol(20, "never"), Protocol(20, guard="warn")]
    changes: list[dict[str, object]] = [
        {"study": "x"},
        *({"network": network} for network in networks),
        *({"stream": stream} for stream in streams),
        *({"method": method} for method in methods),
        *({"protocol": protocol} for protocol in (*protocols, Protocol(20, predict="after"))),
    ]
    keys = {replace(CELL, **change).key for change in changes}
    assert len(keys | {CELL.key}) == len(changes) + 1
    assert replace(CELL).key == CELL.key


def test_rows_round_trip_and_are_never_half_written(tmp_path: Path) -> None:
    row = Row(CELL, {"error": 0.25}, environment())
    assert Row.from_json(row.to_json()) == row
    store = RowStore(tmp_path / "rows")
    assert not store.has(CELL)
    store.write(row)
    store.write(row)
    assert store.has(CELL)
    assert load_rows(tmp_path / "rows") == [row]
    other = replace(CELL, stream=replace(STREAM, seed=5))
    save_rows([row, Row(other, {"error": 1.0})], tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert lines == sorted(lines)
    assert {json.loads(line)["cell"]["stream"]["seed"] for line in lines} == {1, 5}
    assert len(load_rows(tmp_path / "all.jsonl")) == 2
    assert not list(tmp_path.rglob(".writing-*"))
    with pytest.raises(FileNotFoundError, match="no rows at"):
        load_rows(tmp_path / "missing.jsonl")


def test_protocol_tells_everything_in_one_line() -> None:
    text = protocol_text([CELL])
    assert "\n" not in text
    for fact in ("digits", "100 samples", "batch 20", "reset per shift", "before the update"):
        assert fact in text


def test_table_forms() -> None:
    table = Table(
        "T",
        (Column("a|b"), Column("acc", best="highest"), Column("err", best="lowest", decimals=2)),
        (("one", 1.04, 0.5), ("t[wo]", 1.0, None)),
        "note",
    )
    markdown = table.to_markdown()
    assert "| one | **1.0** | **0.50** |" in markdown
    assert "| t[wo] | **1.0** | - |" in markdown  # ties as printed are both best
    assert "a\\|b" in markdown
    note, head, first, *_ = table.to_csv().splitlines()
    assert note.startswith("# ")
    assert head == "a|b,acc,err"
    assert first == "one,1.04,0.5"
    from rich.console import Console

    console = Console(width=60, record=True, file=io.StringIO())
    console.print(table.to_rich())
    assert "t[wo]" in console.export_text()
    with pytest.raises(ValueError, match="must have 1 cell,"):
        Table("T", (Column("a"),), (("x", 1.0),))
