"""The report without a browser: what is read, what is said, that data stay text."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_cells import with_method, with_settings, with_stream
from made_rows import made_row, stream_row
from report_rows import HOSTILE, PIXEL, STREAMS, make_rows

from driftnorm import adapt
from driftnorm.bench.cell import DataId, Shift
from driftnorm.bench.metrics import pooled_bins, reliability
from driftnorm.bench.rows import Failure, Row, RowStore, load_rows, save_rows
from driftnorm.cli.report import report
from driftnorm.views.compare import change_of_error, mean_error
from driftnorm.views.figure import Figure, HeatMap, Series
from driftnorm.views.palette import COLOURS, palette_css, slots_of
from driftnorm.views.render.svg import charts, heat_chart, nice_ticks, shorten
from driftnorm.views.report.gather import Gathered, gather
from driftnorm.views.report.group_section import mean_by_share
from driftnorm.views.report.groups import Group, group_rows
from driftnorm.views.report.page import TEMPLATES, make_report, page
from driftnorm.views.report.run_record import LayerDrift, Run
from driftnorm.views.report.section import Example, mean_along
from driftnorm.views.report.tables import shift_table, summary_table
from driftnorm.views.report.targets import compared_rows
from driftnorm.views.report.verdicts import USUAL, group_verdict, overall_verdict, run_verdict
from driftnorm.views.table import Column, Table

DEMO = Path(__file__).parents[2] / "docs" / "rows" / "demo.jsonl"
VOID = {"meta", "link", "img", "wbr"}


class Reader(HTMLParser):
    """Checks that elements nest, and collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)


def read(rows: list[Row] = (), **more: object) -> Reader:  # type: ignore[assignment]
    return Reader(page(Gathered(tuple(rows), **{"failures": (), "runs": (), **more})))  # type: ignore[arg-type]


def write_run(folder: Path, **record: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record))
    return folder


# ------------------------------------------------------------------ markup


@given(st.text())
@example("a\udcffb")  # half of a surrogate pair, as in names of files
def test_any_text_comes_back_from_elements_attributes_and_drawings(text: str) -> None:
    shown = Example(text, PIXEL, {"source": "a", "adapted": "b"})
    record = {"verdict": text, "examples": [shown], "drift": [LayerDrift(text, 1.0, 2.0, ())]}
    written = page(Gathered((), runs=(Run(text, record),)))
    written.encode()
    found = Reader(written)
    sound = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", "\ufffd", text)
    sound = sound.encode("utf-8", "backslashreplace").decode()
    (picture,) = (attributes for tag, attributes in found.tags if tag == "img")
    assert picture["alt"] == f"Image {sound}"
    assert f"Skip to the verdict\nRun {sound}Theme" in found.text
    assert f"{sound}: mean 1" in found.text  # in the drawing
    assert found.count("script") == found.count("style") == 1


# ------------------------------------------------------------------ reading


def test_every_way_to_name_rows_gives_the_same(tmp_path: Path) -> None:
    rows = make_rows()
    store = RowStore(tmp_path / "run" / "rows")
    for row in rows:
        store.write(row)
    save_rows(rows, tmp_path / "run" / "rows.jsonl")
    save_rows(rows, tmp_path / "alone" / "rows.jsonl")
    keys = {row.cell.key for row in rows}
    for paths in (
        [store.folder],
        [tmp_path / "run"],
        [tmp_path / "run" / "rows.jsonl"],
        [tmp_path / "alone"],
        [tmp_path / "run", tmp_path / "alone"],
    ):
        found = gather(paths)
        assert {row.cell.key for row in found.rows} == keys
        assert len(found.rows) == len(keys)


def test_failures_are_told_until_a_row_is_there(tmp_path: Path) -> None:
    rows = make_rows()
    store = RowStore(tmp_path / "rows")
    for row in rows[1:]:
        store.write(row)
    store.fail(Failure(rows[0].cell, "RuntimeError: too hot"))
    assert [f.error for f in gather([tmp_path]).failures] == ["RuntimeError: too hot"]
    save_rows(rows, tmp_path / "all.jsonl")
    assert gather([tmp_path, tmp_path / "all.jsonl"]).failures == ()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none", None, "nothing is at"),
        ("empty.jsonl", "", "nothing to report"),
        ("bad.jsonl", "{}\n", "bad.jsonl, line 1 is not a driftnorm row"),
        ("bad.jsonl", "nonsense\n", "bad.jsonl, line 1 is not a driftnorm row"),
        ("run.json", "[1]", "must hold one object, got list"),
        ("run.json", "{", "not valid JSON"),
    ],
)
def test_what_is_no_row_is_named(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        gather([tmp_path / name])


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds neither rows nor a run\.json"):
        gather([tmp_path])


# ------------------------------------------------------------------ grouping and numbers


def test_numbers_are_those_of_the_robustness_tables() -> None:
    rows = make_rows()
    (group,) = group_rows(rows)
    shifted = [row for row in rows if row.severity]
    for method in ("bn", "tent"):
        assert group.error(method) == pytest.approx(mean_error(shifted, method))
        assert group.change(method) == pytest.approx(change_of_error(shifted, method, "source"))


def test_what_cannot_be_compared_gets_its_own_group() -> None:
    rows = make_rows()
    assert len(group_rows(rows + make_rows(model="net@87654321"))) == 2
    assert len(group_rows(rows + make_rows(study="demo"))) == 2
    assert len(group_rows(rows + make_rows(reset="never"))) == 2


SOURCE = [1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0]
BETTER = [1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0]


def changing(order: str, **correct: list[int]) -> list[Row]:
    return [stream_row(method, right, order=order) for method, right in correct.items()]


def test_each_stream_that_changes_is_a_comparison_of_its_own() -> None:
    rows = changing("continual", source=SOURCE, bn=BETTER)
    rows += changing("continual+sorted", source=SOURCE, bn=SOURCE[::-1])
    groups = {group.title.rpartition(", ")[2]: group for group in group_rows(rows)}
    errors = {course: group.error("bn") for course, group in groups.items()}
    assert errors == pytest.approx({"continual:part=6": 500 / 12, "continual+sorted:part=6": 50})
    assert [group.replaced for group in groups.values()] == [0, 0]


def test_a_stream_that_changes_is_shown_over_time_by_domain_and_by_window() -> None:
    (group,) = group_rows(changing("continual", source=SOURCE, bn=BETTER))
    table = summary_table(group)
    titles = [column.title for column in table.columns]
    line = dict(zip(titles, table.rows[1], strict=True))
    assert line["windows worse than source, %"] == 25  # of four: the third
    assert line["worst window, minus source's accuracy, points"] == pytest.approx(-200 / 3)
    text = page(Gathered(group.rows))
    for word in ("Over time", "Error by domain", ">fog 5<", ">snow 5<"):
        assert word in text
    assert "error, % 33.3 at images so far 1.5" in text  # the source's first window: 2 of 3 right
    assert text.count('class="span"') == 1  # every second domain
    assert "Error by visit" not in text  # nothing comes back


def test_many_severities_of_a_domain_have_one_chart() -> None:
    rows = changing("gradual", source=SOURCE, bn=BETTER)
    many = {
        "domains": [[name, level] for name in ("fog", "snow", "rain") for level in range(1, 9)],
        "error_per_domain": [level / 10 for _ in range(3) for level in range(1, 9)],
    }
    text = page(Gathered(tuple(Row(row.cell, {**row.metrics, **many}) for row in rows)))
    assert "bn on fog: 45.0 % error" in text
    assert "Mean over severities." in text
    assert ">fog 5<" not in text


def test_a_stream_that_comes_back_is_shown_visit_by_visit() -> None:
    rows = changing("recurring", source=SOURCE, bn=BETTER)
    rows = [Row(row.cell, {**row.metrics, "error_per_visit": [0.25, 0.5]}) for row in rows]
    text = page(Gathered(tuple(rows)))
    assert "Error by visit" in text
    assert "bn: error, % 50.0 at visit 2" in text


def test_of_two_rows_of_one_stream_the_later_counts_and_that_is_told() -> None:
    rows = make_rows()
    again = [Row(with_stream(r, order="other").cell, {"error": 0.5}) for r in rows]
    (group,) = group_rows([*rows, *again])
    assert group.replaced == len(rows) == len(group.rows)
    assert group.error("bn") == 50
    assert f"{len(rows)} others of the same streams are left out" in read([*rows, *again]).text


def test_a_network_for_each_domain_is_one_comparison() -> None:
    rows = []
    for number, domain in enumerate(("art", "photo")):
        own = make_rows(streams=[(domain, 0)], model=f"erm@{number}", study="own")
        rows += [with_stream(row, count=100 + number) for row in own]
    (group,) = group_rows(rows)
    assert group.shifts == ["art", "photo"]
    assert len(group.protocol_lines()) == 2
    assert group.error("bn") is not None
    assert "Accuracy by domain" in read(rows).text


def test_the_domain_study_shows_the_selected_setting_of_each_target() -> None:
    def measured(target: str, shift: str, method: str, rho: float) -> Row:
        label = f"ERM -> {target}, trial 1@{target}"
        (row,) = make_rows((method,), [(shift, 0)], model=label, study="domains")
        options = () if method == "source" else (("rho", rho),)
        wrong = {**row.metrics, "error": rho if method == "tent" else 0.5}
        return Row(with_settings(row, options).cell, wrong)

    rows = [
        measured(target, shift, method, rho)
        for target, other in (("art", "photo"), ("photo", "art"))
        for shift in (f"{other}/out", f"{target}/in")
        for method, rhos in (("source", (1,)), ("tent", (0.2, 0.1, 0.3)))
        for rho in rhos
    ]
    (group,) = group_rows(compared_rows(rows))
    assert group.shifts == ["art", "photo"]
    assert group.error("tent") == pytest.approx(10)  # the setting that validation prefers
    found = read(rows)
    assert "Domain generalization" in found.text
    assert "Accuracy by domain" in found.text
    assert not re.search("Error by|error, %|% error|mean error", found.text)
    assert "selected on the training domains" in found.text
    validation = [row for row in rows if row.cell.stream.split == "out"]
    with pytest.raises(ValueError, match="no row of a target domain yet"):
        read(validation)


def test_each_way_to_optimise_is_compared_with_the_methods_that_take_no_step() -> None:
    def tuned(rate: float) -> list[Row]:
        rows = make_rows(("tent",))
        return [with_settings(row, (("lr", rate),)) for row in rows]

    plain = make_rows(("source", "bn"))
    groups = group_rows([*plain, *tuned(1e-3), *tuned(1e-4)])
    assert [group.methods for group in groups] == [["source", "bn", "tent"]] * 2
    assert len({group.error("tent") for group in groups}) == 1


def test_an_unfinished_grid_is_averaged_over_shared_streams_and_says_what_lacks() -> None:
    rows = [r for r in make_rows() if (r.method, r.shift) != ("tent", "fog")]
    failed = Failure(
        with_method(with_stream(rows[0], shifts=(Shift("fog", 1),)), "tent").cell, "ValueError: <b>"
    )
    (group,) = group_rows(rows, [failed])
    assert {row.shift for row in group.measured} == {"blur"}
    assert group.missing() == {"tent": ["fog 1 (seed 0)", "fog 3 (seed 0)"]}
    text = read(rows, failures=(failed,)).text
    assert "This grid is not finished." in text
    assert "tent lacks 2 streams: fog 1 (seed 0), fog 3 (seed 0)." in text
    assert "tent failed on fog 1: ValueError: <b>" in text
    assert "the 2 of 4 shifted streams that every method ran on" in text
    assert "no row" in text  # tent's bar for fog


def test_methods_that_share_no_stream_are_shown_without_means() -> None:
    rows = make_rows(("source",), [("fog", 1)]) + make_rows(("bn",), [("fog", 3)])
    (group,) = group_rows(rows)
    assert group.error("bn") is None
    assert "no stream has rows of every method yet" in group_verdict(group)
    assert "no verdict" in read(rows).text


def test_rows_without_optional_metrics_still_make_a_page() -> None:
    bare = [
        replace(row, metrics={"error": row.metrics["error"]}, environment={}) for row in make_rows()
    ]
    found = read(bare)
    assert "Error by shift" in found.text
    assert "Reliability" not in found.text
    assert "Along the stream" not in found.text


# ------------------------------------------------------------------ verdicts


def test_verdicts_follow_the_interval() -> None:
    rows = make_rows(("source", "tent"))
    (better,) = group_rows(rows)
    assert group_verdict(better).startswith("tent helps on some-c, net@12345678: 35.0 % → ")
    names = {"source": "tent", "tent": "source"}
    swapped = [with_method(r, names[r.method]) for r in rows]
    (worse,) = group_rows(swapped)
    assert group_verdict(worse).startswith("tent does clear harm on some-c")
    same = [r for r in rows if r.method == "source"]
    same += [with_method(r, "bn") for r in same]
    (equal,) = group_rows(same)
    assert group_verdict(equal).startswith("bn makes no clear difference on some-c")
    (alone,) = group_rows(make_rows(("tent",)))
    assert re.search(r"tent has the lowest mean error, \d", group_verdict(alone))
    text = overall_verdict([better, worse, equal, alone], [])
    assert text == (
        "Adapting does clear harm in 1, helps in 1, makes no clear difference in 1, cannot be "
        "judged in 1 of 4 comparisons; tent is the best method in 3."
    )


def test_a_run_speaks_for_itself_or_is_summed_up(tmp_path: Path) -> None:
    (own,) = gather([write_run(tmp_path / "a", verdict="All is well.")]).runs
    assert run_verdict(own) == "All is well."
    (summed,) = gather([write_run(tmp_path / "b", method="bn", images=2000, changed=50)]).runs
    assert run_verdict(summed) == "b: bn changed 50 of 2,000 predictions (2.5 %)."
    assert overall_verdict([], [own, summed]).startswith("2 runs")


# ------------------------------------------------------------------ the page


def test_the_committed_demo_makes_a_whole_page() -> None:
    text = make_report([DEMO])
    assert text == make_report([DEMO])  # the same input gives the same page
    found = Reader(text)
    rows = [row for row in load_rows(DEMO) if row.severity]
    errors = {row.method: mean_error(rows, row.method) for row in rows}
    best = min(errors, key=lambda method: errors[method])
    said = f"steady helps on digits, digit-cnn: {errors['source']:.1f} % → {errors['steady']:.1f} %"
    assert f"Clear harm by pl. {said}" in text  # pl-c loses 0.03 points: certain, and too little
    worst = "the best of {} methods by these labels is {}, {:.1f} %"
    assert worst.format(len(errors) - 1, best, errors[best]) in text
    assert "severities 1 to 3" in text
    assert "seeds 0 to 2" in text
    assert found.count("img") == 12  # of the streams in docs/rows/exhibits
    # Bars, severities, stream, reliability of every method, drift, images
    assert found.count("figure") == 6 + 6 + 1 + len(errors) + 1 + 12
    for name, attributes in found.tags:
        for key in ("src", "href"):
            assert str(attributes.get(key, "#")).startswith(("#", "data:")), (name, attributes)
        assert not any(key.startswith("on") or key == "style" for key in attributes)
    assert not re.search(r"https?://|url\(|@import", text)


def test_tables_have_captions_scopes_and_buttons() -> None:
    table = Table(
        "Some",
        (Column("x"), Column("y", best="lowest"), Column("z")),
        (("a", 2.0, "-1.5 [-2, -1]"), ("b", 1.0, None), ("mean", 1.5, "text")),
        "A <note>.",
    )
    parts = TEMPLATES.get_template("parts.html").module
    text = parts.table_of(table, {})  # type: ignore[attr-defined]
    found = Reader(text)
    assert found.count("caption") == 1
    assert found.count("button") == 3
    values = [a.get("data-value") for name, a in found.tags if name in ("td", "th") and len(a) > 0]
    assert [v for v in values if v is not None] == [
        *("a", "2.0", "-1.5"),
        *("b", "1.0", ""),
        *("mean", "1.5", "text"),
    ]
    assert "<strong>1.0</strong>" in text
    assert text.index("<tfoot>") < text.index(">mean<")
    assert "A &lt;note&gt;." in text


def test_hostile_names_stay_text_everywhere(tmp_path: Path) -> None:
    rows = make_rows(
        ("source", f"tent:x={HOSTILE}"), [(HOSTILE, 1), ("fog", 2)], model=HOSTILE, order=HOSTILE
    )
    run = write_run(
        tmp_path / "<b>run",
        verdict=HOSTILE,
        note=HOSTILE,
        config={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        skipped_first=[[HOSTILE, HOSTILE]],
        entropy={HOSTILE: [1.0, 2.0]},
        classes={HOSTILE: 3},
        drift=[{"layer": HOSTILE, "mean": 1, "max": 2}],
        drift_measure=HOSTILE,
        examples=[{"name": HOSTILE, "source": HOSTILE, "adapted": '"><i>', "image": PIXEL}],
    )
    save_rows(rows, tmp_path / "rows.jsonl")
    text = make_report([tmp_path / "rows.jsonl", run])
    found = Reader(text)
    assert found.count("script") == 1
    assert found.count("b") == 2  # the two predictions of the example
    assert found.count("i") == 0
    assert text.count("<script>") == 1
    assert HOSTILE in found.text


# ------------------------------------------------------------------ runs


def test_a_run_shows_all_that_it_has(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "mine",
        method="gprebn",
        images=5000,
        frozen=False,
        absent_value=None,
        config={"batch_size": 64, "preprocessing": {"size": 32, "mean": [0.5, 0.25]}},
        environment={"torch": "2"},
        batches_a_point=2,
        entropy={"source": [1.0, float("nan"), 1.2], "adapted": [1.0, 0.8, 0.7]},
        online_error=[0.5, 0.25],
        reliability=[[10, 0.55, 0.5], [30, 0.95, 0.9]],
        classes={"cat": 7, "dog": 0},
        drift=[{"layer": "bn1", "mean": 0.5, "max": None}],
        examples=[
            {"name": "a.png", "source": "cat", "adapted": "dog", "image": PIXEL},
            {"name": "b.png", "source": "cat", "adapted": "dog", "image": "http://x/b.png"},
            {"name": "c.png", "source": "cat", "adapted": "dog", "image": "data:image/svg+xml,x"},
        ],
    )
    found = Reader(make_report([run]))
    for expected in (
        *("5,000", "size 32, mean 0.5 0.25", "frozenno", "torch 2"),
        *(
            "adapted: entropy, share of its maximum 0.700 at batch 6",
            "adapted: accuracy, % 75.0 at batch 4",
        ),
        "adapted: confidence 95.0 %, accuracy 90.0 %, 30 samples",
        *("1 of 2 classes were predicted", "bn1: mean 0.5", "bn1: largest nan", "source: cat"),
    ):
        assert expected in found.text, expected
    assert "absent value" not in found.text
    assert found.count("img") == 1  # no picture from the network, none that may hold a script
    assert found.text.count("no picture") == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("drift", [{"layer": "bn1"}]),
        ("drift", {"bn1": 1.0}),
        ("examples", [{"name": "a"}]),
        ("entropy", "low"),
        ("online_error", [None]),
        ("reliability", [[1, 2]]),
        ("classes", {"cat": "many"}),
        ("config", "x.yaml"),
    ],
)
def test_wrong_keys_of_a_run_are_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"`{key}` in bad/run\.json must be"):
        make_report([write_run(tmp_path / "bad", **{key: value})])


# ------------------------------------------------------------------ charts


@given(st.floats(-1e6, 1e6, allow_nan=False), st.floats(0, 1e6, allow_nan=False), st.integers(2, 8))
def test_ticks_cover_the_range_evenly(low: float, span: float, wanted: int) -> None:
    high = low + span
    ticks = nice_ticks(low, high, wanted)
    slack = 1e-6 * max(abs(low), abs(high), 1e-6)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert len(ticks) >= 2
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6, atol=slack)


def test_bars_are_as_long_as_their_values() -> None:
    several = tuple(Series(m, (0,), (y,)) for m, y in (("a", 20.0), ("b", 50.0), ("c", np.nan)))
    figure = Figure("", "", "%", several, ticks=((0, "some"),), bars=True, reference="a")
    (chart,) = charts(figure, {"a": 0, "b": 1, "c": 2})
    found = Reader(chart)
    assert "no row" in found.text
    widths = [float(str(a["width"])) for name, a in found.tags if name == "rect"]
    assert widths[1] / widths[0] == pytest.approx(2.5, abs=0.01)
    assert len(widths) == 2


def test_charts_survive_what_data_may_hold() -> None:
    assert charts(Figure("none", "x", "y", ()), {}) == []
    nothing = Series("a", (0, 1), (np.nan, np.inf))
    assert charts(Figure("none", "x", "y", (nothing,)), {"a": 0}) == []
    for by_column in (True, False):
        rows = [("layer", [0.0]), ("other", [float("inf")])]
        assert heat_chart(HeatMap("flat", ("a",), rows, by_column))
    zero = Figure("zero", "", "", (Series("a", (0,), (0.0,)),), ticks=((0, "a"),), bars=True)
    assert len(charts(zero, {"a": 0})) == 1
    assert shorten("tent:gradient=detached", 10) == "tent:…ched"


def test_long_streams_are_averaged_in_blocks() -> None:
    stream = np.random.default_rng(0).random(1000)
    points = mean_along([stream.tolist()])
    assert len(points) <= 60
    size = 17  # the smallest block that leaves 60 points or fewer
    assert points[0] == (9.0, pytest.approx(stream[:size].mean()))
    assert points[-1][1] == pytest.approx(stream[1000 // size * size :].mean())


def test_merged_bins_are_those_of_all_samples_together() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random((3, 200))
    correct = generator.random((3, 200)) < confidence

    def bins(trust: np.ndarray, right: np.ndarray) -> list[list[float]]:
        sums = zip(*reliability(trust, right), strict=True)
        return [[n, t / n, h / n] for n, t, h in sums if n]

    merged = pooled_bins([bins(c, r) for c, r in zip(confidence, correct, strict=True)])
    np.testing.assert_allclose(merged, bins(confidence.ravel(), correct.ravel()))


# ------------------------------------------------------------------ looks


def test_each_method_has_one_look() -> None:
    many = [f"method {number}" for number in range(20)]
    slots = slots_of(["tent", *many, "source", "tent"])
    assert len(set(slots.values())) == len(slots) == 22
    assert slots["source"] == slots_of(["source"])["source"] == 0
    assert slots_of(["a", "b"]) == {"a": 1, "b": 2}  # grey is the source's


CSS = (files("driftnorm.views.report") / "assets" / "report.css").read_text() + palette_css()
PAIRS = {k: (a, b) for k, a, b in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", CSS)}
# How colours look without one kind of cone (Machado and others 2009), in linear RGB
SIGHT = {
    "all cones": np.eye(3),
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour: str) -> np.ndarray:
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(matrix) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out(theme: int) -> None:
    for ground in ("paper", "panel", "alert"):
        for text in ("ink", "quiet", "link"):
            assert contrast(PAIRS[text][theme], PAIRS[ground][theme]) >= 4.5, (text, ground)
    for colour in ("heat", *(f"c{i}" for i in range(8))):
        for ground in ("paper", "panel"):
            assert contrast(PAIRS[colour][theme], PAIRS[ground][theme]) >= 2.9, (colour, ground)


@pytest.mark.parametrize("colour", COLOURS[1:])
def test_a_method_has_one_hue_in_both_themes(colour: tuple[str, str]) -> None:
    light, dark = (lab(linear(each)) for each in colour)
    turn = np.degrees(np.arctan2(light[2], light[1]) - np.arctan2(dark[2], dark[1]))
    assert abs((turn + 180) % 360 - 180) < 25
    assert min(np.hypot(*light[1:]), np.hypot(*dark[1:])) > 25  # no grey


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_can_be_told_apart(theme: int, sight: str) -> None:
    seen = [lab(np.array(SIGHT[sight]) @ linear(PAIRS[f"c{i}"][theme])) for i in range(8)]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 20


# ------------------------------------------------------------------ the command


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_rows(make_rows(), tmp_path / "rows.jsonl")
    out = tmp_path / "new" / "report.html"
    report([tmp_path / "rows.jsonl"], out=out)
    assert out.read_text(encoding="utf-8") == make_report([tmp_path / "rows.jsonl"])
    assert f"Saved {out}" in capsys.readouterr().out


def test_benchmark_tables_beside_the_paper_are_shown() -> None:
    rows = make_rows(("source", "bn", "tent"), [("fog", s) for s in range(1, 6)])
    named = [with_stream(r, data=DataId("cifar-10", "released")) for r in rows]
    assert "tent, paper" in read(named).text
    assert "tent, paper" not in read(rows).text  # the paper has no such data


def test_tables_of_the_demo_agree_with_its_rows() -> None:
    rows = load_rows(DEMO)
    group = Group(tuple(rows))
    summary, by_shift = summary_table(group), shift_table(group)
    own = [r.metrics["error"] for r in rows if r.method == "bn" and r.shift == "fog"]
    line = next(row for row in by_shift.rows if row[0] == "bn")
    heads = [column.title for column in by_shift.columns]
    assert line[heads.index("fog")] == pytest.approx(100 * np.mean(own))
    alarmed = {row[0]: row[[c.title for c in summary.columns].index("streams with alarm")]
               for row in summary.rows}  # fmt: skip
    for method in ("pl", "alpha-bn", "bn", "steady"):
        counted = sum(r.metrics["alarms"] > 0 for r in rows if r.method == method)
        assert alarmed[method] == counted
    assert alarmed["alpha-bn"] > 0


def test_methods_that_met_more_severities_are_compared_on_them_too() -> None:
    rows = make_rows(("source", "bn")) + make_rows(("tent",), [STREAMS[0], ("fog", 3), ("blur", 3)])
    groups = group_rows(rows)
    assert [group.methods for group in groups] == [["source", "bn"], ["source", "bn", "tent"]]
    assert [group.apart for group in groups] == ["severities 1 to 3", "severity 3"]
    assert [len(group.measured) for group in groups] == [8, 6]
    assert "This grid is not finished." not in read(rows).text


def test_a_verdict_names_clear_harm_first() -> None:
    rows = make_rows(("bn", "source", "tent"))  # the first is the worst of them
    (group,) = group_rows(rows)
    said = group_verdict(group)
    assert said.startswith("Clear harm by bn. tent, the best of 2 methods by these labels, helps")


def test_several_comparisons_name_clear_harm_first() -> None:
    (group,) = group_rows(make_rows(("bn", "source", "tent")))
    said = overall_verdict([group, group], [])
    assert said.startswith("Clear harm by bn in 2. Adapting helps in 2 of 2 comparisons")


def test_a_verdict_speaks_of_the_method_that_one_would_run() -> None:
    (default,) = [
        parameter.default
        for name, parameter in inspect.signature(adapt).parameters.items()
        if name == "method"
    ]
    assert default == USUAL == "steady"
    names = {"bn": "steady", "source": "source", "tent": "t3a"}  # the worst is what one would run
    rows = [with_method(r, names[r.method]) for r in make_rows(("bn", "source", "tent"))]
    (group,) = group_rows(rows)
    said = group_verdict(group)
    assert said.startswith("steady does clear harm on some-c, net@12345678: ")
    assert "; the best of 2 methods by these labels is t3a, " in said
    many = [with_method(r, f"pl:steps={n}") for n in range(2, 7) for r in group.of("steady")]
    (harm,) = group_rows([*group.of("source"), *group.of("t3a"), *many])
    assert "Clear harm by pl:steps=2, pl:steps=3, pl:steps=4 and 2 more. t3a" in group_verdict(harm)


def test_a_network_near_chance_is_told() -> None:
    rows = [
        replace(row, metrics={**row.metrics, "error": 0.9 if row.method == "source" else 0.4})
        for row in make_rows(("source", "gprebn"))
    ]
    (group,) = group_rows(rows)
    said = group_verdict(group)
    assert said.startswith("Your network, unadapted, is near chance here, so little can be ")
    assert "the network itself is near chance in 2" in overall_verdict([group, group], [])
    (sound,) = group_rows(make_rows(("source", "gprebn")))
    assert "chance" not in group_verdict(sound)


LABELLED = {
    "method": "gprebn",
    "sample": 1000,
    "sample_accuracy_source": 0.27,
    "sample_accuracy_adapted": 0.79,
    "sample_gain": [0.52, 0.48, 0.56],
    "classes": {str(n): 100 for n in range(10)},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "27 % → 79 % right on 1,000 labelled images, with gprebn."),
        (
            {"sample_accuracy_adapted": 0.2, "sample_gain": [-0.07, -0.1, -0.04]},
            "Clear harm: 27 % → 20 % right on 1,000 labelled images, with gprebn.",
        ),
        (
            {"sample_accuracy_adapted": 0.281, "sample_gain": [0.011, -0.02, 0.04]},
            "No clear difference: 27.0 % → 28.1 % right on 1,000 labelled images, with gprebn.",
        ),
        (
            {"sample_accuracy_source": 0.11},
            "11 % → 79 % right on 1,000 labelled images, with gprebn. Your network, unadapted, is "
            "near chance here.",
        ),
        (
            {"sample": 12, "compared": 200, "compared_changed": 50},
            "25 % of the predictions differ from those of your network, unadapted, with gprebn (50 "
            "of 200 images that both predicted); without enough labels, it is unknown which are "
            "right.",
        ),
    ],
)
def test_a_run_is_summed_up_in_one_breath(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    run = write_run(tmp_path / "mine", **{**LABELLED, "verdict": "More words.", **changes})
    assert run_verdict(gather([run]).runs[0]) == said
    found = Reader(make_report([run]))
    words = found.text.split("Theme: as the system")[1].lstrip()
    assert words.startswith(said)
    # The chart comes first, the words after it, the raw keys last.
    order = ["What adapting changed", "More words.", "All settings and numbers"]
    assert [words.index(each) for each in order] == sorted(words.index(each) for each in order)


def test_the_adapted_network_has_the_colour_of_its_method(tmp_path: Path) -> None:
    text = make_report([write_run(tmp_path / "mine", **LABELLED, entropy=[0.5, 0.4])])
    slot = slots_of(["gprebn"])["gprebn"]
    assert '<polyline points="' in text
    assert f'class="line s{slot} v0"' in text


def test_a_page_speaks_of_errors_or_of_accuracies(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mine", **LABELLED, online_error=[0.3, 0.2])
    alone = make_report([run])
    assert "online accuracy" in alone
    assert "online error" not in alone
    save_rows(make_rows(), tmp_path / "rows.jsonl")
    both = make_report([tmp_path / "rows.jsonl", run])
    assert "73 % → 21 % wrong on 1,000 labelled images" in both
    assert "online accuracy" not in both


def test_claims_are_shown_for_published_sets_alone() -> None:
    def domain_rows(data: str) -> list[Row]:
        return [
            made_row(
                *(method, shift, 0, error),
                data=data,
                study="domains",
                model=f"erm -> {target}, trial 0@{target}",
            )
            for target, other in (("art", "photo"), ("photo", "art"))
            for method, error in (("source", 0.4), ("tent", 0.3))
            for shift in (f"{other}/out", f"{target}/in")
        ]

    own, published = read(domain_rows("mine")), read(domain_rows("PACS"))
    assert "What the paper claims" not in own.text
    assert "paper" not in own.text.split("Skip to the verdict")[1]
    assert "What the paper claims" in published.text
    assert published.text.index("Accuracy by domain") < published.text.index("What the paper")


def test_streams_of_different_lengths_are_averaged_by_their_share() -> None:
    rising = [mean for _, mean in mean_by_share([[0, 1] * 30, [0.0] * 100])]
    assert len(rising) == 20
    assert np.allclose(rising, np.mean(rising), atol=0.1)
    assert mean_by_share([[1.0, 0.0]]) == [(25.0, 1.0), (75.0, 0.0)]
    assert mean_by_share([]) == []


def test_benchmarks_show_the_drift_of_every_layer() -> None:
    rows = [
        replace(row, metrics={**row.metrics, "drift": [["net.bn2", rank / 10], ["net.bn1", 0.2]]})
        for rank, row in enumerate(make_rows(("bn",)))
    ]
    found = read([*make_rows(("source",)), *rows])
    assert "Drift of the statistics" in found.text
    assert "Distance of the statistics that bn tracked" in found.text
    tips = re.findall(r"net\.bn2, \w+: [\d.]+", found.text)
    assert tips == ["net.bn2, clean: 0", "net.bn2, blur: 0.35", "net.bn2, fog: 0.15"]
    assert found.text.index("net.bn2, clean") < found.text.index("net.bn1, clean")  # as they came
    assert "Drift of the statistics" not in read(make_rows()).text
