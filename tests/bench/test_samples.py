"""Images that are kept beside rows, and what a report shows of them."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_rows import made_row
from numpy.typing import NDArray
from PIL import Image
from report_rows import HOSTILE, PIXEL
from small_study import rows_of, study, write_data, write_weights
from tinted import SIDE, make_domains, plan

from driftnorm._internal.training_files import BEST
from driftnorm.bench.cell import Cell, DataId, MethodId, NetworkId, Shift
from driftnorm.bench.protocol import sampled_positions, stream_order
from driftnorm.bench.rows import Row, RowStore
from driftnorm.bench.runner import run
from driftnorm.bench.samples import Exhibits, Look, keep_exhibits, read_exhibits, thumbnail
from driftnorm.bench.studies.corruptions import batches
from driftnorm.bench.studies.domains import DomainStudy
from driftnorm.errors import MixedRowsError
from driftnorm.images.domains.named import open_arrays
from driftnorm.models import load
from driftnorm.views.compare import in_order
from driftnorm.views.report.examples import group_examples
from driftnorm.views.report.gather import Gathered
from driftnorm.views.report.groups import group_rows
from driftnorm.views.report.page import make_report, page

CELL = made_row(count=100).cell


def grey(level: int, side: int = 8) -> NDArray[np.uint8]:
    return np.full((side, side, 3), level, dtype=np.uint8)


def decoded(address: str) -> NDArray[np.uint8]:
    data = base64.b64decode(address.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)))


# ------------------------------------------------------------------ keeping


@pytest.mark.parametrize(("count", "few"), [(1, 1), (48, 48), (49, 48), (10_000, 48)])
def test_positions_are_spread_over_the_stream(count: int, few: int) -> None:
    positions = sampled_positions(count)
    assert len(positions) == len(set(positions.tolist())) == few
    assert positions[0] == 0
    assert positions[-1] == (few - 1) * count // few < count


def test_what_is_kept_comes_back_and_is_made_once(tmp_path: Path) -> None:
    asked = []

    def look(at: int) -> Look:
        asked.append(at)
        return Look(f"image {at}", at % 2, grey(at))

    key = keep_exhibits(tmp_path, CELL, ["cat", "dog"], look)
    assert (
        keep_exhibits(tmp_path, replace(CELL, method=MethodId("tent")), ["cat", "dog"], look) == key
    )
    assert asked == sampled_positions(100).tolist()
    found = read_exhibits(tmp_path)[key]
    assert found.names == tuple(f"image {at}" for at in asked)
    assert found.labels == tuple(at % 2 for at in asked)
    assert abs(int(decoded(found.images[5]).mean()) - asked[5]) <= 2
    assert [found.class_name(n) for n in (0, 1, 2, -1)] == ["cat", "dog", "class 2", "class -1"]
    assert read_exhibits(tmp_path / "elsewhere") == {}


def test_the_key_is_that_of_the_stream(tmp_path: Path) -> None:
    def key(cell: Cell = CELL) -> str:
        return keep_exhibits(tmp_path, cell, ["cat"], lambda at: Look("", 0, grey(0)))

    stream = CELL.stream
    same = [
        replace(CELL, method=MethodId("gprebn")),
        replace(CELL, method=replace(CELL.method, settings=(("lr", 0.1), ("steps", 3)))),
        replace(CELL, protocol=replace(CELL.protocol, batch_size=7)),
    ]
    streams = [
        replace(stream, shifts=(Shift("snow", 5),)),
        replace(stream, shifts=(Shift("fog", 1),)),
        *(replace(stream, seed=1), replace(stream, count=99), replace(stream, data=DataId("x"))),
        replace(stream, order="shuffled"),
    ]
    others = [
        replace(CELL, network=NetworkId("other")),
        *(replace(CELL, stream=other) for other in streams),
    ]
    assert {key(cell) for cell in same} == {key()}
    assert len({key(), *(key(cell) for cell in others)}) == len(others) + 1


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_thumbnails_of_any_image(channels: int, kind: type) -> None:
    pixels = np.zeros((8, 4, channels), dtype=kind)
    pixels[:, :, 0] = 255 if kind is np.uint8 else 1.0
    shown = decoded(thumbnail(pixels))
    assert shown.shape == (96, 48, 3)  # enlarged
    wanted = [255, 255, 255] if channels == 1 else [255, 0, 0]
    assert np.abs(shown.reshape(-1, 3).mean(axis=0) - wanted).max() < 3
    assert decoded(thumbnail(np.zeros((300, 200, 3), np.uint8))).shape == (96, 64, 3)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"classes": [], "names": ["a"], "labels": [], "images": []}']
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "exhibits").mkdir()
    (tmp_path / "exhibits" / "0123.json").write_text(text)
    with pytest.raises(ValueError, match=r"0123\.json does not hold images"):
        read_exhibits(tmp_path)


# ------------------------------------------------------------------ in benchmarks


def test_answers_of_the_robustness_grid_are_the_networks(tmp_path: Path) -> None:
    """Checked by a plain loop over the images."""
    data, weights = write_data(tmp_path / "small.npz"), write_weights(tmp_path / "net.safetensors")
    one = study(data, "source", "bn", weights=str(weights), severities=(5,), seeds=(0, 1))
    store = RowStore(tmp_path / "rows")
    rows = rows_of(run(one, store))
    exhibits = read_exhibits(store.folder)
    assert len(exhibits) == 4  # two corruptions, two seeds
    network = load("resnet20", weights=weights).eval()
    for row in (row for row in rows if row.method == "source"):
        images = one.images(row.cell)
        with torch.no_grad():
            logits = torch.cat([network(x) for x, _ in batches(images, 20)])
        positions = sampled_positions(60)
        assert row.metrics["answers"] == logits.argmax(1)[positions].tolist()
        shown = exhibits[row.metrics["exhibits"]]
        assert shown.labels == tuple(images.labels[positions].tolist())
        assert shown.names == tuple(f"image {i}" for i in images.indices[positions])
        assert shown.classes == images.classes
        small = decoded(shown.images[7])[1::3, 1::3].astype(int)  # enlarged threefold
        assert np.abs(small - images.load().images[positions[7]]).mean() < 12


def test_the_report_of_a_grid_shows_images(tmp_path: Path) -> None:
    data = write_data(tmp_path / "small.npz")
    weights = write_weights(tmp_path / "net.safetensors")
    for _ in run(study(data, "source", "bn", weights=str(weights)), RowStore(tmp_path / "rows")):
        pass
    text = make_report([tmp_path / "rows"])
    assert "Where predictions differ" in text
    assert 0 < text.count("<img") <= 12
    assert re.search(r"contrast 5, image \d+", text)


def test_target_domains_show_images_and_validation_none(tmp_path: Path) -> None:
    data, cache = make_domains(tmp_path / "data"), str(tmp_path / "cache")
    arrays = open_arrays(str(data), SIDE, cache)
    plan(test_domains=("red",), steps=2, evaluate_every=2).run(arrays, tmp_path / "run")
    models = (str(tmp_path / "run" / BEST),)
    one = DomainStudy(str(data), models, ("source", "bn"), "single", batch_size=8, cache=cache)
    store = RowStore(tmp_path / "rows")
    rows = [row for row in run(one, store) if isinstance(row, Row)]
    target = [row for row in rows if row.cell.stream.label == "red/in"]
    assert len(target) == 2
    assert all("exhibits" not in row.metrics for row in rows if row not in target)
    (shown,) = read_exhibits(store.folder).values()
    positions = arrays.splits(0)[arrays.index("red")].inner
    positions = positions[stream_order(len(positions), 0)][sampled_positions(len(positions))]
    assert shown.labels == tuple(arrays.domains[arrays.index("red")].labels[positions].tolist())
    assert shown.names == tuple(f"image {place}" for place in positions)
    assert "Where predictions differ" in make_report([tmp_path / "rows"])


# ------------------------------------------------------------------ in the report


SHOWN = Exhibits(("cat", HOSTILE), ("one", "two", "three", "four"), (0, 1, 1, 0), (PIXEL,) * 4)


def rows(source: list[int], adapted: list[int], **streams: str) -> list[Row]:
    """A row of the source and a better one of bn, on one stream each."""
    return [
        made_row(method, shift, error=error, answers=answers, exhibits=key)
        for shift, key in (streams or {"fog": "key"}).items()
        for method, error, answers in (("source", 0.4, source), ("bn", 0.2, adapted))
    ]


def shown_page(found: list[Row], exhibits: dict[str, Exhibits]) -> str:
    return page(Gathered(tuple(found), exhibits=exhibits))


def test_changed_answers_are_counted_and_shown() -> None:
    made = rows([0, 0, 1, 5], [0, 1, 0, 1])  # same, becomes right, becomes wrong, wrong twice
    (group,) = group_rows(made)
    remark, examples = group_examples(group, {"key": SHOWN})
    assert remark.startswith("Of 4 images")
    assert "bn gives 3 another class than source: 1 of them become right, 1 become wrong, 1" in (
        remark
    )
    assert {example.name for example in examples} == {f"fog 5, {n}" for n in SHOWN.names[1:]}
    text = shown_page(made, {"key": SHOWN})
    assert text.count("<img") == 3
    assert text.count(" (right)") == 2
    assert HOSTILE not in text  # escaped
    assert "source: <b>class 5</b>" in text


def test_shifts_take_turns() -> None:
    streams = {shift: shift for shift in ("fog", "snow", "frost")}
    made = rows([1, 1, 1, 1], [0, 0, 0, 0], **streams)
    (group,) = group_rows(made)
    _, examples = group_examples(group, dict.fromkeys(streams, SHOWN))
    assert [each.name.split()[0] for each in examples] == ["snow", "frost", "fog"] * 4


def test_where_nothing_differs_the_report_says_so() -> None:
    text = shown_page(rows([0] * 4, [0] * 4), {"key": SHOWN})
    assert "bn gives each of the 4 images" in text
    assert "<img" not in text


@pytest.mark.parametrize(
    "exhibits",
    [
        {},
        {"other": SHOWN},
        {"key": replace(SHOWN, names=("a",), labels=(0,), images=(PIXEL,))},
    ],
    ids=["none", "of another stream", "of another number"],
)
def test_no_images_no_section(exhibits: dict[str, Exhibits]) -> None:
    assert "Where predictions differ" not in shown_page(rows([0] * 4, [1] * 4), exhibits)


def test_a_picture_on_the_network_is_not_shown() -> None:
    outside = replace(SHOWN, images=("https://example.org/x.png",) * 4)
    text = shown_page(rows([0] * 4, [1] * 4), {"key": outside})
    assert "no picture" in text
    assert "example.org" not in text


def test_rows_of_older_code_agree_with_new_ones_as_far_as_they_go() -> None:
    new = made_row(answers=[1, 2], exhibits="key")
    old = replace(new, metrics={k: v for k, v in new.metrics.items() if k != "answers"})
    assert in_order([old, new]) == [old]
    other = replace(new, metrics=json.loads(json.dumps({**old.metrics, "error": 0.21})))
    with pytest.raises(MixedRowsError, match="two rows of one measurement differ"):
        in_order([new, other])
