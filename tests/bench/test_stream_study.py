"""Streams on the one runner: rows, resuming, and the same from every launcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_study import rows_of, write_data

from driftnorm import models
from driftnorm._internal.launch import LAUNCHERS
from driftnorm.bench.cell import read_cell
from driftnorm.bench.metrics import unpack_bits
from driftnorm.bench.rows import RowStore
from driftnorm.bench.runner import run
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.corrupted_data import CorruptedData
from driftnorm.bench.studies.stream_data.digit_data import DigitData
from driftnorm.bench.studies.stream_data.opener import holds_domains, open_stream_data
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.images.domains.named import open_arrays
from driftnorm.methods.spec import parse_method
from driftnorm.models import Preprocessing, save_checkpoint
from driftnorm.streams import Domain, parse_stream

NETWORK = (MeasuredNetwork("resnet20"),)


def small(tmp_path: Path, *streams: str, methods: str = "source bn", **changes: object):  # type: ignore[no-untyped-def]
    data = CorruptedData(
        write_data(tmp_path / "small.npz"), NETWORK, ("contrast", "brightness"), severity=2
    )
    return StreamStudy(
        replace(data, **changes),  # type: ignore[arg-type]
        tuple(map(parse_stream, streams or ("continual:part=20",))),
        tuple(map(parse_method, methods.split())),
        batch_size=10,
        window=20,
    )


def test_a_row_says_how_it_went_and_what_came(tmp_path: Path) -> None:
    study = small(tmp_path, "probes:part=20")
    rows = rows_of(run(study, RowStore(tmp_path / "rows")))
    assert [row.method for row in rows] == ["source", "bn"]
    cell, metrics = rows[1].cell, rows[1].metrics
    assert read_cell(cell.record()) == cell
    assert (cell.stream.order, cell.stream.count, cell.protocol.reset) == ("probes", 80, "never")
    assert [shift.name for shift in cell.stream.shifts] == ["contrast", "brightness", "clean"]
    assert metrics["domains"] == [["contrast", 2], ["brightness", 2], ["clean", 0]]
    assert metrics["segments"] == [[0, [0]], [20, [2]], [40, [1]], [60, [2]]]
    assert metrics["passes"] == [1, 0]
    correct = unpack_bits(metrics["correct"], 80)
    shares = [1 - correct[start : start + 20].mean() for start in (0, 20, 40, 60)]
    assert np.allclose(metrics["error_per_window"], shares)
    assert np.allclose(metrics["error_per_domain"][2], np.mean([shares[1], shares[3]]))


def test_a_row_says_where_the_method_began_again_and_how_ordered_labels_were(
    tmp_path: Path,
) -> None:
    study = small(tmp_path, "continual+sorted:part=30", methods="source rdumb:every=2")
    rows = rows_of(run(study, RowStore(tmp_path / "rows")))
    metrics = rows[1].metrics  # 60 images in batches of 10, windows of 20
    assert metrics["resets"] == 2
    assert [*metrics["events_per_window"]["resets"]] == [0, 1, 1]
    assert [*metrics["events_per_window"]["alarms"]] == [0, 0, 0]
    assert rows[0].metrics["resets"] == 0
    labels = study.positions(rows[0].cell.stream).label
    runs = 1 + np.count_nonzero(np.diff(labels))
    assert metrics["mean_run"] == pytest.approx(60 / runs, abs=1e-4)
    assert metrics["mean_run"] > 2


def test_a_guarded_row_says_when_it_raised_alarms_and_what_that_cost(tmp_path: Path) -> None:
    off = small(tmp_path, "continual:part=60,seed=0", methods="source tent:lr=0.1")
    guarded = replace(off, guard="reset")
    (_, free), (source, met) = (
        rows_of(run(study, RowStore(tmp_path / study.guard))) for study in (off, guarded)
    )
    assert (free.cell.protocol.guard, met.cell.protocol.guard) == ("off", "reset")
    assert "alarms_at" not in free.metrics
    assert "asked" not in free.metrics
    assert len(met.metrics["alarms_at"]) == met.metrics["alarms"] > 0
    assert sum(met.metrics["events_per_window"]["alarms"]) == met.metrics["alarms"]
    assert met.metrics["resets"] == met.metrics["alarms"]
    assert 48 <= met.metrics["asked"] <= met.metrics["count"]
    assert source.metrics["alarms"] == 0


def test_every_image_is_the_one_that_the_stream_says(tmp_path: Path) -> None:
    study = small(tmp_path, "mixed:part=20", skip=30)
    (cell, *_) = study.cells()
    assert cell.stream.data.subset == "images 30 to 59"
    (tmp_path / "scratch").mkdir()
    opened = study.open(cell, tmp_path / "scratch")
    positions = study.positions(cell.stream)
    shown = np.concatenate([images.permute(0, 2, 3, 1).numpy() for images, _ in opened.batches()])
    labels = np.concatenate([labels.numpy() for _, labels in opened.batches()])
    assert np.array_equal(labels, positions.label)
    whole = {d: study.data.images(d, 0, np.arange(30)) for d in positions.domains}
    for at in range(len(positions)):
        expected = whole[positions.domains[positions.domain[at]]][positions.image[at]]
        assert np.array_equal(np.rint(shown[at] * 255), expected)


def test_steady_makes_a_stream_of_every_domain_and_starts_anew(tmp_path: Path) -> None:
    cells = small(tmp_path, "steady+sorted:part=30", methods="source").cells()
    assert [cell.stream.shift for cell in cells] == ["contrast", "brightness"]
    assert {cell.protocol.reset for cell in cells} == {"per shift"}
    (clean,) = small(tmp_path, "steady", methods="source", corruptions=("clean",)).cells()
    assert clean.stream.shifts == ()


def test_gradual_meets_every_severity(tmp_path: Path) -> None:
    (cell,) = small(tmp_path, "gradual:part=5", methods="source").cells()
    assert [shift.severity for shift in cell.stream.shifts] == [1, 2, 1, 2]
    assert cell.stream.count == 2 * 3 * 5


def test_both_launchers_give_the_same_rows_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    study = small(tmp_path, "continual:part=20", "mixed:part=10", methods="source tent steady")
    one, two = RowStore(tmp_path / "serial"), RowStore(tmp_path / "processes")
    first = rows_of(run(study, one))
    again = rows_of(run(study, two, LAUNCHERS["processes"], 1))

    def numbers(rows: list) -> list:  # type: ignore[type-arg]
        said = ("correct", "error_per_window", "nll", "jumps")
        return sorted((row.cell.key, *(str(row.metrics[name]) for name in said)) for row in rows)

    assert numbers(first) == numbers(again)
    assert len(first) == 6
    kept = sorted((tmp_path / "serial").glob("*.json"))
    kept[0].unlink()
    times = {path: path.stat().st_mtime_ns for path in kept[1:]}
    assert len(rows_of(run(study, one))) == 1  # what was lost, and nothing else
    assert {path: path.stat().st_mtime_ns for path in kept[1:]} == times


def test_a_run_that_is_broken_off_keeps_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store = small(tmp_path, methods="source bn tent"), RowStore(tmp_path / "rows")
    write, written = RowStore.write, []

    def killed(self: RowStore, row: object) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(row)
        write(self, row)  # type: ignore[arg-type]

    monkeypatch.setattr(RowStore, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        list(run(study, store))
    monkeypatch.undo()
    assert len(list(store.rows())) == 2
    assert [row.method for row in rows_of(run(study, store))] == ["tent"]


def test_methods_that_must_see_the_source_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'eata' must first see .* and `--source-data`"):
        small(tmp_path, methods="eata").cells()
    source = write_data(tmp_path / "source.npz", 20)
    assert rows_of(run(small(tmp_path, methods="eata", source=source), RowStore(tmp_path / "rows")))


def test_digits_bring_their_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftnorm.bench.studies import digits

    train = digits.train_digits
    monkeypatch.setattr(digits, "train_digits", lambda data, seed: train(data, seed, epochs=1))
    data = open_stream_data("digits", [], domains=["clean", "fog"], networks=tmp_path / "n")
    assert isinstance(data, DigitData)
    streams = (parse_stream("continual:part=30"),)
    study = StreamStudy(data, streams, (parse_method("source"), parse_method("eata")), 30)
    assert study.outlook(RowStore(tmp_path / "rows")).preparations == 1
    rows = rows_of(run(study, RowStore(tmp_path / "rows")))
    assert [row.cell.stream.count for row in rows] == [60, 60]


def test_wrong_words_are_named_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`corruptions` must be one of clean, noise.*got 'snow'"):
        open_stream_data("digits", [], domains=["snow"], networks=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"'nowhere' does not exist.*also be of `digits`"):
        holds_domains("nowhere")
    with pytest.raises(ValueError, match="another domain the probe, as in `probes:probe=fog`"):
        parse_stream("probes").positions(np.arange(9) % 3, [Domain("fog", 5), Domain("snow", 5)])


def write_pictures(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        grey = 20 * number + len(str(folder)) % 7
        Image.new("RGB", (32, 32), (grey, 90, 10)).save(folder / f"{number}.png")


def test_folders_of_domains_are_told_from_folders_of_classes(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        for label in ("cat", "dog"):
            write_pictures(tmp_path / "domains" / domain / label, 4)
    assert holds_domains(str(tmp_path / "domains"))
    assert not holds_domains(str(tmp_path / "domains" / "photo"))
    network = MeasuredNetwork("own_network:two_classes", size=32)
    data = open_stream_data(
        str(tmp_path / "domains"), [MeasuredNetwork("resnet20", size=32)], domains=["sketch"]
    )
    assert [domain.name for domain in data.domains] == ["sketch"]
    assert data.labels(data.domains[0], 0).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="severity"):
        open_stream_data(str(tmp_path / "domains"), [network], severity=3)


def test_images_that_a_network_was_trained_on_are_not_shown(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        for label in ("cat", "dog"):
            write_pictures(tmp_path / "domains" / domain / label, 10)
    arrays = open_arrays(str(tmp_path / "domains"), 32)
    training = {
        "algorithm": "erm",
        "batch_norm": "trained",
        "trial_seed": 1,
        "backbone": "resnet20",
    }
    network = models.load("resnet20", num_classes=2).network
    save_checkpoint(
        tmp_path / "net.safetensors",
        network,
        architecture="resnet20",
        classes=arrays.classes,
        preprocessing=Preprocessing((0.5,) * 3, (0.5,) * 3, 32),
        trained_on=["sketch"],
        test_domains=["photo"],
        training=training,
        content=arrays.content,
    )
    data = open_stream_data(
        str(tmp_path / "domains"), [MeasuredNetwork(str(tmp_path / "net.safetensors"))]
    )
    photo, sketch = data.domains
    assert data.data_id.subset == "held out of training"
    assert len(data.labels(photo, 0)) == 20
    held_out = np.sort(arrays.splits(1)[1].out)
    assert len(held_out) == 4
    assert data.labels(sketch, 0).tolist() == arrays.domains[1].labels[held_out].tolist()
    shown = data.images(sketch, 0, np.array([0, 3]))
    assert np.array_equal(shown, arrays.domains[1].images[held_out[[0, 3]]])
    (known,) = data.networks
    assert known.label.startswith("erm -> photo, trial 1, resnet20 at 32 px, trained BN@")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip": 60}, "`skip` must leave some"),
        ({"corruptions": ("contrst",)}, "Did you mean 'contrast'"),
        ({"severity": 6}, "`severity` must be from 1 to 5"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **changes).cells()


def test_a_part_larger_than_the_data_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`part` must not be larger"):
        small(tmp_path, "continual:part=61").cells()
