"""What an adapt run says about itself: drift by layer, the source beside it, the report."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_network import CLASSES, WANTED, drifting, run

import driftnorm
from driftnorm.adapter.drift import channel_distance, layer_distances
from driftnorm.functional import Moments
from driftnorm.images import Item, open_inputs
from driftnorm.models import Normalized
from driftnorm.predictions.adapted_stream import Outcome, Plan, adapt_stream
from driftnorm.predictions.answers_file import Answer
from driftnorm.predictions.comparison import COMPARED_IMAGES, ENOUGH, SHARE, Comparison
from driftnorm.predictions.drift_log import MOST_POINTS, DriftCourse
from driftnorm.views.figure import HeatMap
from driftnorm.views.render.svg import heat_chart
from driftnorm.views.report.page import make_report


def record_of(home: Path, images: np.ndarray, **options: object) -> dict[str, Any]:
    np.save(home / "x.npy", images)
    run(home, home / "x.npy", "a.csv", fresh=True, **options)
    found: dict[str, Any] = json.loads((home / "a.run" / "run.json").read_text())
    return found


# --------------------------------------------------------------------------- drift


def test_drift_is_the_distance_of_the_tracked_statistics(home: Path) -> None:
    from driftnorm_test_network import build

    images = drifting(160)
    record = record_of(home, images, method="bn:running=True")
    network = Normalized(build(), WANTED.mean, WANTED.std).eval()
    adapter = driftnorm.adapt(network, "bn", running=True, seed=0)
    for batch in torch.tensor(images).permute(0, 3, 1, 2).div(255).split(16):
        adapter(batch)
    source, tracked = (
        network.network[1],
        Moments(**{name: adapter.state["layers"]["network.1"][name] for name in ("mean", "var")}),
    )
    expected = channel_distance(
        Moments(source.running_mean, source.running_var),
        Moments(tracked.mean, tracked.var),
        source.eps,
    )
    layer = record["drift"][0]
    assert [each["layer"] for each in record["drift"]] == ["network.1", "network.4"]
    assert layer["mean"] == pytest.approx(float(expected.mean()), rel=1e-4)
    assert layer["max"] == pytest.approx(float(expected.max()), rel=1e-4)
    assert layer["along"][-1] == layer["mean"]
    assert record["drift_points"] == [str(seen) for seen in range(16, 161, 16)]


def test_the_source_has_no_drift_to_show(home: Path) -> None:
    assert "drift" not in record_of(home, drifting(40), method="source")


def test_the_course_of_the_drift_stays_small(home: Path) -> None:
    from driftnorm_test_network import build

    adapter = driftnorm.adapt(build(), "bn")
    assert set(layer_distances(adapter).values()) == {None}
    course = DriftCourse()
    for number in range(1, 1001):
        course.add(number, adapter)
        assert len(course.points) <= MOST_POINTS
        assert course.points[-1][0] > number - course.width
    seen = [images for images, _ in course.points]
    assert seen == [*range(course.width, 1001, course.width)]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (["clean", "impulse", "contrast", "fog"], ["clean", "impulse", "contrast", "fog"]),
        ([f"{64 * n:,}" for n in range(1, 21)], [f"{64 * n:,}" for n in range(1, 21)]),
        ([str(n) for n in range(100, 130)], [str(n) for n in range(100, 130, 2)]),
        (["640"], ["640"]),
    ],
)
def test_columns_of_a_heat_map_are_named_where_there_is_room(
    columns: list[str], named: list[str]
) -> None:
    values = [0.5, math.nan, *[1.0] * 28][: len(columns)]
    page = heat_chart(HeatMap("drift", columns, [("bn1", values)]))
    ticks = re.findall(r'class="tick"[^>]*>([^<]+)<', page)
    assert set(ticks) == {"strongest: 1" if len(columns) > 2 else "strongest: 0.5", *named}
    assert page.count("<rect") == len(columns) - (len(columns) > 1)


# --------------------------------------------------------------------------- the source beside it


def test_short_runs_are_compared_more_and_long_ones_cost_little() -> None:
    comparison, asked_at, end = Comparison(), [], 64 * 8000
    for seen in range(0, end, 64):
        if comparison.wants(seen):
            comparison.images += COMPARED_IMAGES
            asked_at.append(seen)
    assert SHARE * end <= len(asked_at) * COMPARED_IMAGES < 1.02 * SHARE * end
    assert asked_at[:4] == [0, 64, 128, 19_264]
    gaps = {b - a for a, b in pairwise(asked_at[5:])}
    assert len(gaps) <= 2, "not spread evenly over the stream"
    assert Comparison(images=ENOUGH - 1).wants(64)
    assert not Comparison(images=ENOUGH).wants(64)


def test_what_changed_is_said_in_one_honest_sentence() -> None:
    comparison = Comparison()
    item = Item("x", np.zeros((8, 8, 3), np.uint8))
    before = [Answer(0, 0.5, 0.9), Answer(1, 0.6, 0.7), Answer(None, error="not finite")]
    after = [Answer(1, 0.9, 0.3), Answer(1, 0.8, 0.5), Answer(1, 0.8, 0.5)]
    comparison.add([(item, answer, None) for answer in after], before, ("cat", "dog"))
    assert (comparison.images, comparison.changed, comparison.judged) == (2, 1, [0, 0, 0])
    assert [(e["source"], e["adapted"]) for e in comparison.examples] == [("cat", "dog")]
    said = comparison.verdict()
    assert "50.0 % of the answers differ, so accuracy on them differs by at most as many" in said
    assert "mean entropy goes from 0.800 to 0.400 and class spread from 1.000 to 0.000" in said
    assert "from 55.0 to 85.0 %" in said
    assert said.endswith("the predictions are less informative, which speaks against adapting.")
    assert said.count(". ") == 0


@pytest.mark.parametrize(
    ("entropy", "predicted", "ending"),
    [
        ((0.18, 0.23), ({"3": 90, "1": 10}, {"0": 25, "1": 25, "2": 25, "3": 25}), "is not proof."),
        ((0.5, 0.2), ({"0": 50, "1": 50}, {"0": 50, "1": 50}), "is not proof."),
        ((0.2, 0.21), ({"0": 50, "1": 50}, {"2": 50, "1": 50}), "no sign that adapting helps."),
        ((0.2, 0.1), ({"0": 50, "1": 50}, {"1": 100}), "which speaks against adapting."),
    ],
    ids=["more varied", "surer", "alike", "collapsed"],
)
def test_without_labels_it_says_what_diagnose_would(
    entropy: tuple[float, float], predicted: tuple[dict[str, int], ...], ending: str
) -> None:
    sums = [100 * each for each in entropy]
    said = Comparison(100, entropy=sums, predicted=[*predicted], classes=4).verdict()
    assert said.endswith(ending)


def test_a_few_labels_prove_nothing() -> None:
    comparison, item = Comparison(), Item("x", np.zeros((8, 8, 3), np.uint8))
    comparison.add([(item, Answer(1, 0.6, 0.5), 1)], [Answer(0, 0.5, 0.4)], ("cat", "dog"))
    assert comparison.verdict().startswith("Too few labels to judge: of 1 labelled")


@pytest.mark.parametrize(
    ("source", "adapted", "finding"),
    [
        ([0] * 60 + [1] * 40, [1] * 80 + [0] * 20, "Adapting helps: "),
        ([1] * 80 + [0] * 20, [0] * 60 + [1] * 40, "Adapting hurts: "),
        (
            [1] * 50 + [0] * 50,
            [1] * 48 + [0] * 49 + [1] * 3,
            "Adapting makes no clear difference: ",
        ),
    ],
)
def test_with_labels_the_verdict_is_what_they_prove(
    source: list[int], adapted: list[int], finding: str
) -> None:
    comparison, item = Comparison(), Item("x", np.zeros((8, 8, 3), np.uint8))
    shown = [(item, Answer(choice, 0.6, 0.5), 1) for choice in adapted]
    comparison.add(shown, [Answer(choice, 0.5, 0.4) for choice in source], ("cat", "dog"))
    said = comparison.verdict()
    assert said.startswith(finding)
    assert (
        f"the source has {sum(source):.1f} % right, the adapted network {sum(adapted):.1f}" in said
    )
    assert "nothing here says" not in said
    assert ("The source is near chance here" in said) == (sum(source) <= 50)
    difference = np.subtract(adapted, source)
    margin = 1.96 * difference.std() / 10  # of the mean of 100
    low, high = (100 * (difference.mean() + sign * margin) for sign in (-1, 1))
    assert f"95 % interval {low:+.1f} to {high:+.1f}" in said
    assert {each["label"] for each in comparison.examples} == {"dog"}


def test_examples_are_drawn_from_the_whole_stream() -> None:
    def drawn(parts: list[int]) -> list[str]:
        comparison, number = Comparison(), 0
        for size in parts:
            items = [Item(str(number + i), np.zeros((8, 8, 3), np.uint8)) for i in range(size)]
            shown = [(item, Answer(1, 0.6, 0.5), None) for item in items]
            comparison.add(shown, [Answer(0, 0.5, 0.4)] * size, ("cat", "dog"))
            number += size
        return [example["name"] for example in comparison.examples]

    names = drawn([1200])
    assert len(set(names)) == 12
    assert max(map(int, names)) > 600
    assert drawn([7, 500, 693]) == names  # however the stream is cut


@pytest.mark.parametrize("guard", ["warn", "off"])
def test_with_labels_there_is_one_accuracy(
    home: Path, guard: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headline, table, verdict and record are of the same images: all that have a label."""
    from driftnorm_test_network import build

    network, images = Normalized(build(), WANTED.mean, WANTED.std).eval(), drifting(400)
    np.save(home / "x.npy", images)
    labels = np.arange(400) % len(CLASSES)
    labels[90:200] = -1  # some are unknown, over whole batches
    np.save(home / "y.npy", labels)
    run(home, home / "x.npy", "a.csv", labels=str(home / "y.npy"), guard=guard, quiet=False)
    said = capsys.readouterr().out
    record = json.loads((home / "a.run" / "run.json").read_text())
    with torch.no_grad():
        answers = network(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).argmax(dim=1).numpy()
    known = labels >= 0
    source = (answers == labels)[known].mean()
    assert record["labelled"] == record["sample"] == known.sum() == 290
    assert record["sample_accuracy_source"] == pytest.approx(source)
    assert record["sample_accuracy_adapted"] == pytest.approx(record["accuracy"])
    counted = {who: sum(c for c, _, _ in bins) for who, bins in record["reliability"].items()}
    assert counted == {"source": 290, "adapted": 290}
    assert f"of 290 labelled images that both answered, the source has {100 * source:.1f} %" in said
    assert f"the adapted network {100 * record['accuracy']:.1f} %" in said
    assert f"Accuracy {100 * record['accuracy']:.2f} % on 290 labelled images." in said


def test_every_alarm_is_in_the_record_with_its_numbers(home: Path) -> None:
    record = record_of(home, drifting(200), method="tent:lr=3", guard="warn")
    assert record["alarms"] == len(record["alarms_raised"]) > 0
    for alarm in record["alarms_raised"]:
        assert alarm["kind"] in ("collapse", "information", "distance")
        assert alarm["disagreement"] is None or 0 <= alarm["disagreement"] <= 1
        told = f"in batch {alarm['batch'] + 1}: {alarm['reason']}."
        assert any(told in note for note in record["notes"])
    assert make_report([home / "a.run"])


def test_what_the_guard_asked_the_source_is_not_asked_again(home: Path) -> None:
    from driftnorm_test_network import build

    network, alone = build(), build()
    alone.register_forward_pre_hook(lambda *_: pytest.fail("the source was asked once more"))
    np.save(home / "x.npy", drifting(96))
    plan = Plan(home / "a.csv", WANTED, CLASSES, {"method": "bn"}, batch_size=32)
    asking = driftnorm.Guard(share=1.0)
    adapter = driftnorm.adapt(network, "bn", seed=0, guard=asking)
    *_, outcome = adapt_stream(adapter, alone, open_inputs(home / "x.npy"), plan)
    assert isinstance(outcome, Outcome)
    assert outcome.record["compared"] == 96


def test_the_report_of_a_real_run_shows_it_all(home: Path) -> None:
    record = record_of(home, drifting(400), method="gprebn", labels=None, guard="off")
    assert ENOUGH <= record["compared"] < ENOUGH + COMPARED_IMAGES
    page = make_report([home / "a.run"])
    assert "Drift of the statistics" in page
    assert "mean drift, images seen" in page
    tips = re.findall(r"<title>network\.4, ([\d,]+): ", page)
    assert tips == record["drift_points"]
    assert "entropy, share of its maximum" in page
    assert "nats" not in page
    assert "Beside the source" in page
    assert f"{record['compared']} images that both predicted" in page
    assert "the predictions are" in page
