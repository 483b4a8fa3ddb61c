"""Tables and plots of streams that change, from rows with chosen answers."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from made_rows import made_row, stream_row
from rich.console import Console

from driftnorm.bench.rows import Row
from driftnorm.cli._output import print_table
from driftnorm.errors import MixedRowsError
from driftnorm.streams import Domain, parse_stream
from driftnorm.views.render.matplotlib import draw
from driftnorm.views.stream_figures import stream_figure, timeline_figure
from driftnorm.views.stream_tables import (
    stream_domain_table,
    stream_table,
    stream_visit_table,
    with_window,
)

SOURCE = [1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0]
BETTER = [1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0]


def test_the_table_compares_position_by_position() -> None:
    table = stream_table([stream_row("source", SOURCE), stream_row("bn", BETTER)])
    titles = [column.title for column in table.columns]
    line = dict(zip(titles, table.rows[1], strict=True))
    assert (line["stream"], line["method"]) == ("continual:part=6", "bn")
    assert line["accuracy"] == pytest.approx(100 * 7 / 12)
    assert str(line["minus the source's, 95 %"]).startswith("+8.33 [")
    assert line["windows below it, %"] == 25  # of four: the third
    assert line["worst window"] == pytest.approx(-200 / 3)
    source = dict(zip(titles, table.rows[0], strict=True))
    assert source["windows below it, %"] is None


def test_seeds_are_averaged_and_the_worst_window_is_of_all() -> None:
    rows = [
        stream_row(method, correct, seed)
        for seed in (0, 1)
        for method, correct in (("source", SOURCE), ("bn", BETTER if seed else SOURCE))
    ]
    line = stream_table(rows).rows[1]
    assert line[2] == pytest.approx(100 * 6.5 / 12)
    assert line[4] == 12.5
    assert line[5] == pytest.approx(-200 / 3)


def test_a_narrow_terminal_shows_what_matters_most() -> None:
    rows = [stream_row("source", SOURCE), stream_row("bn", BETTER)]
    shown = {}
    for width in (70, 200):
        console = Console(width=width, force_terminal=True, file=StringIO(), color_system=None)
        print_table(console, stream_table(rows))
        shown[width] = console.file.getvalue()  # type: ignore[attr-defined]
    assert any("minus the source's, 95 %" in line for line in shown[70].splitlines())
    assert "Left out for lack of width: ECE" in " ".join(shown[70].split())
    assert "passes" in shown[200].partition("continual")[0]
    assert "Left out" not in shown[200]


def test_guarded_rows_are_told_apart_and_show_their_alarms() -> None:
    rows = [
        stream_row("source", SOURCE),
        stream_row("bn", SOURCE),
        stream_row("bn", BETTER, guard="reset", alarms=2),
    ]
    assert "alarms" not in [column.title for column in stream_table(rows[:2]).columns]
    table = stream_table(rows)
    titles = [column.title for column in table.columns]
    lines = [dict(zip(titles, line, strict=True)) for line in table.rows]
    found = [(line["guard"], line["method"], line["alarms"]) for line in lines]
    assert found == [("off", "source", 0), ("off", "bn", 0), ("reset", "bn", 2)]
    assert str(lines[2]["minus the source's, 95 %"]).startswith("+8.33 [")


def test_rows_of_several_windows_are_shown_in_the_smallest_or_in_another() -> None:
    source, better = stream_row("source", SOURCE), stream_row("bn", BETTER)
    wide = Row(source.cell, {**source.metrics, "window": 12})
    assert stream_table([wide, better]).rows == stream_table([source, better]).rows
    assert "Windows of 3 images" in stream_table([wide, better]).note
    whole = stream_table(with_window([source, better], 12))
    assert whole.rows[1][4:6] == (0, pytest.approx(100 / 12))
    assert len(stream_figure(with_window([source, better], 6)).series[0].x) == 2
    with pytest.raises(MixedRowsError, match="not of streams"):
        with_window([made_row()], 12)
    with pytest.raises(ValueError, match="`window`"):
        with_window([source], 0)


def test_resets_are_shown_where_there_were_any() -> None:
    rows = [stream_row("source", SOURCE), stream_row("rdumb", BETTER, resets=3)]
    table = stream_table(rows)
    assert table.columns[-1].title == "resets"
    assert [line[-1] for line in table.rows] == [0, 3]
    assert "Resets: how often the method went back to the source." in table.note
    assert "resets" not in [column.title for column in stream_table(rows[:1]).columns]


def test_accuracy_by_domain_and_by_visit_are_tables_of_their_own() -> None:
    rows = [stream_row("bn", BETTER, seed) for seed in (0, 1)] + [stream_row("source", SOURCE)]
    table = stream_domain_table(rows)
    assert [column.title for column in table.columns] == ["stream", "method", "fog 5", "snow 5"]
    assert table.rows[0][2:] == pytest.approx((500 / 6, 200 / 6))
    again = Row(rows[0].cell, {**rows[0].metrics, "error_per_visit": [0.5, 0.25]})
    table = stream_visit_table([again, stream_row("source", SOURCE, order="mixed")])
    assert [column.title for column in table.columns] == ["stream", "method", "visit 1", "visit 2"]
    assert [line[2:] for line in table.rows] == [(50, 75), (50, None)]
    with pytest.raises(MixedRowsError, match="not of streams"):
        stream_domain_table([made_row()])


def test_without_the_source_there_is_no_harm() -> None:
    (line,) = stream_table([stream_row("bn", BETTER)]).rows
    assert line[3:6] == (None, None, None)


def test_other_rows_are_refused() -> None:
    with pytest.raises(MixedRowsError, match="not of streams"):
        stream_table([made_row()])
    with pytest.raises(MixedRowsError, match="no rows"):
        stream_table([])


def test_the_figure_has_windows_and_what_came(tmp_path: Path) -> None:
    figure = stream_figure([stream_row("source", SOURCE), stream_row("bn", BETTER)])
    assert figure.series[0].x == (1.5, 4.5, 7.5, 10.5)
    assert figure.series[0].y == pytest.approx((200 / 3, 100 / 3, 100, 0))
    assert [(s.begin, s.end, s.text) for s in figure.spans] == [(0, 6, "fog 5"), (6, 12, "snow 5")]
    draw(figure, tmp_path / "stream.svg")
    assert "snow 5" in (tmp_path / "stream.svg").read_text()


@pytest.mark.parametrize("images", [600, 40_000])
def test_what_comes_when_can_be_seen_on_streams_of_any_length(images: int) -> None:
    positions = parse_stream(f"continual:part={images // 2}").positions(
        np.arange(images) % 3, [Domain("fog", 2), Domain("snow", 4)]
    )
    points = timeline_figure(positions).series[0].x
    assert len(points) >= 20
    assert points[1] - points[0] <= 1000


def test_a_picture_of_what_comes_when_has_no_window_of_two_parts() -> None:
    domains = [Domain("fog", severity) for severity in (1, 2, 3)]
    positions = parse_stream("gradual:part=70").positions(np.arange(210) % 3, domains)
    *shares, strength = timeline_figure(positions, 100).series
    assert strength.x == (35, 105, 175, 245, 315)
    assert strength.y == pytest.approx((100 / 3, 200 / 3, 100, 200 / 3, 100 / 3))
    assert all(share.band for share in shares)
    assert not strength.band


def test_sorted_labels_look_sorted() -> None:
    positions = parse_stream("continual+sorted:part=400").positions(
        np.arange(400) % 10, [Domain("fog", 1), Domain("snow", 1)]
    )
    *shares, _ = timeline_figure(positions).series
    assert max(shares[3].y) == 100  # a class fills whole windows


def test_many_parts_that_differ_in_severity_alone_have_one_name() -> None:
    domains = [Domain(name, severity) for name in ("fog", "snow") for severity in range(1, 6)]
    positions = parse_stream("gradual:part=10").positions(np.arange(100) % 3, domains)
    figure = timeline_figure(positions)
    assert [(s.begin, s.end, s.text) for s in figure.spans] == [(0, 90, "fog"), (90, 180, "snow")]
    assert "180 images in windows of 1. Domains: fog 1 to 5, snow 1 to 5. " in figure.note


def test_all_of_a_stream_is_drawn_however_few_points_there_are(tmp_path: Path) -> None:
    positions = parse_stream("continual:part=300").positions(
        np.arange(600) % 3, [Domain("fog", 2), Domain("snow", 4)]
    )
    figure = timeline_figure(positions, 600)
    draw(figure, tmp_path / "when.svg")
    drawn = (tmp_path / "when.svg").read_text()
    labels = [float(x) for x in re.findall(r"translate\(([-\d.]+) [-\d.]+\) rotate\(-90\)", drawn)]
    assert min(labels) >= 0


@pytest.mark.parametrize("classes", [3, 40])
def test_a_stream_is_drawn_as_what_comes_when(classes: int, tmp_path: Path) -> None:
    domains = [Domain("fog", 2), Domain("fog", 4)]
    stream = parse_stream("continual+sorted:part=40,seed=1")
    positions = stream.positions(np.arange(400) % classes, domains)
    figure = timeline_figure(positions, 20, ["cat", "dog"])
    *shares, strength = figure.series
    assert len(shares) == classes
    assert [each.method for each in shares[:3]] == ["cat", "dog", "class 2"]
    assert strength.y == (50, 50, 100, 100)
    assert strength.x == (10, 30, 50, 70)
    counted = positions.timeline(20).classes[:, 0] * 100
    assert shares[0].y == pytest.approx(tuple(counted))
    assert [(s.begin, s.end, s.text) for s in figure.spans] == [(0, 40, "fog 2"), (40, 80, "fog 4")]
    assert figure.note.startswith("continual+sorted:part=40,seed=1: 80 images")
    draw(figure, tmp_path / "when.svg")
    drawn = (tmp_path / "when.svg").read_text()
    assert ("cat" in drawn) == (classes == 3)  # more classes than colours are grey
    assert "strength (% of severity 4)" in drawn


def test_one_plot_is_of_one_stream() -> None:
    rows = [stream_row("source", SOURCE), stream_row("source", SOURCE, order="mixed")]
    with pytest.raises(MixedRowsError, match="--where order="):
        stream_figure(rows)
