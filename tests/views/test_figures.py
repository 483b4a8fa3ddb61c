"""Plots: their numbers against slow computations, their files, what they refuse."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_rows import made_row, made_rows

from driftnorm.bench.metrics import expected_calibration_error, filled_bins
from driftnorm.bench.rows import Row, save_rows
from driftnorm.bench.vocabulary import FINE_TUNED, TENT_ON_SOURCE
from driftnorm.cli.plot import plot
from driftnorm.errors import MixedRowsError
from driftnorm.views.batch_sizes import batch_size_table
from driftnorm.views.figure import Figure, Series
from driftnorm.views.figures import PLOTS, find_plot
from driftnorm.views.palette import colours_of
from driftnorm.views.render.matplotlib import draw

STREAMS = (("pixelate", 1), ("pixelate", 5), ("fog", 1), ("fog", 5))
MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def some_rows() -> list[Row]:
    generator = np.random.default_rng(0)
    return [
        made_row(method, *stream, float(generator.integers(5, 45) / 50))
        for stream in STREAMS
        for method in ("source", "bn", "tent")
    ]


def several_sizes() -> list[Row]:
    return [
        row
        for batch, error in ((8, 0.5), (32, 0.4), (200, 0.3))
        for row in made_rows({"bn": error, "tent": error / 2}, STREAMS, count=400, batch=batch)
    ]


def domain_rows(trials: int = 2) -> list[Row]:
    """Two trainings, two targets of different lengths, a finished run."""
    return [
        made_row(
            method,
            shift,
            0,
            error + 0.04 * trial,
            data="mine",
            count=50 + 10 * place,
            study="domains",
            model=f"{algorithm} -> {target}, trial {trial}@{target}{trial}",
        )
        for place, (target, other) in enumerate((("art", "photo"), ("photo", "art")))
        for algorithm in ("erm", "coral")
        for trial in range(trials)
        for method, error in (("source", 0.4), ("bn", 0.3), ("tent", 0.2))
        for shift in (f"{other}/out", f"{target}/in")
    ]


def fine_tuned_rows() -> list[Row]:
    tuned = "resnet20-without-{}-1000-images-2-epochs-lr-0.01-seed-0-ab12.safetensors@0"
    return [
        made_row(method, shift, 5, error / part, study=study, model=model.format(shift))
        for shift in ("fog", "snow")
        for method, error in {"source": 0.4, TENT_ON_SOURCE: 0.5, "bn": 0.3, "tent": 0.2}.items()
        for study, model, part in ((FINE_TUNED, tuned, 4), ("robustness", "net@1", 1))
    ]


def series(figure: Figure) -> dict[str, Series]:
    return {each.method: each for each in figure.series}


def mean(rows: list[Row], method: str, **wanted: object) -> float:
    values = [
        100 * row.metrics["error"]
        for row in rows
        if row.method == method
        and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    return sum(values) / len(values)


def test_errors_by_corruption_stand_in_canonical_order() -> None:
    rows = some_rows()
    figure = find_plot("corruptions").make(rows)
    assert figure.ticks == ((0, "fog"), (1, "pixelate"), (2, "mean"))
    for method, found in series(figure).items():
        wanted = [mean(rows, method, shift=shift) for shift in ("fog", "pixelate")]
        assert found.y == pytest.approx([*wanted, mean(rows, method)])
    assert "batch 20" in figure.note


def test_errors_by_severity_begin_with_clean_images() -> None:
    rows = [*some_rows(), *made_rows({"source": 0.1, "bn": 0.12, "tent": 0.14}, [("clean", 0)])]
    figure = find_plot("severity").make(rows)
    assert figure.ticks == ((0, "clean"), (1, "1"), (5, "5"))
    for method, found in series(figure).items():
        assert found.x == (0, 1, 5)
        assert found.y == pytest.approx([mean(rows, method, severity=s) for s in (0, 1, 5)])


def test_the_running_error_counts_samples_not_batches() -> None:
    rows = [
        made_row("bn", "fog", 5, online_error=[0.5, 0.25, 0.0]),  # 20, 20 and 10 samples
        made_row("bn", "snow", 5, online_error=[0.0, 0.0, 1.0]),
        made_row("bn", "clean", 0, online_error=[1.0, 1.0, 1.0]),  # does not count
    ]
    (found,) = find_plot("online").make(rows).series
    assert found.x == (20, 40, 50)
    first, second = (10 / 20, 15 / 40, 15 / 50), (0, 0, 10 / 50)
    assert found.y == pytest.approx([50 * (a + b) for a, b in zip(first, second, strict=True)])


def test_calibration_pools_bins_as_if_the_streams_were_one() -> None:
    generator = np.random.default_rng(1)
    streams = [(generator.uniform(0.1, 1, n), generator.random(n) < 0.6) for n in (500, 200)]
    rows = [
        made_row("bn", shift, reliability=filled_bins(confidence, correct))
        for shift, (confidence, correct) in zip(("fog", "snow"), streams, strict=True)
    ]
    (found,) = find_plot("calibration").make(rows).series
    confidence, correct = (np.concatenate(parts) for parts in zip(*streams, strict=True))
    points = []
    for index in range(15):
        inside = (confidence > index / 15) & (confidence <= (index + 1) / 15)
        if inside.any():
            points.append((confidence[inside].mean(), correct[inside].mean()))
    assert np.transpose([found.x, found.y]) == pytest.approx(np.array(points), abs=1e-4)
    gap = expected_calibration_error(confidence, correct)
    assert float(found.remark.removeprefix("ECE ")) == pytest.approx(gap, abs=1e-3)  # 3 decimals


def test_a_confidence_rounded_over_the_edge_of_its_bin_stays_in_it() -> None:
    # 0.66666 lies in the bin that ends at 2/3, and is kept as 0.6667
    rows = [made_row("bn", reliability=[[10, 0.65, 0.5], [10, 0.6667, 0.7]])]
    (found,) = find_plot("calibration").make(rows).series
    assert found.y == pytest.approx([0.6])


def test_bins_of_hardly_any_samples_are_not_drawn_but_counted() -> None:
    rows = [made_row("bn", reliability=[[1, 0.15, 1.0], [1999, 0.9, 0.8]])]
    (found,) = find_plot("calibration").make(rows).series
    assert found.x == pytest.approx([0.9])
    gap = (1 * 0.85 + 1999 * 0.1) / 2000
    assert found.remark == f"ECE {gap:.3f}"


def test_old_rows_without_bins_are_refused() -> None:
    row = made_row("bn")
    bare = {k: v for k, v in row.metrics.items() if k != "reliability"}
    with pytest.raises(MixedRowsError, match="`reliability`"):
        find_plot("calibration").make([replace(row, metrics=bare)])


def test_batch_sizes_may_differ_and_nothing_else() -> None:
    rows = several_sizes()
    figure = find_plot("batch-size").make(rows)
    assert series(figure)["bn"].x == (8, 32, 200)
    assert series(figure)["tent"].y == pytest.approx((25, 20, 15))
    assert "batch 8 32 200" in figure.note
    table = batch_size_table([*rows, *made_rows({"source": 0.9}, STREAMS, count=400, batch=200)])
    assert [line[0] for line in table.rows] == ["bn", "tent", "source"]
    assert table.rows[0][1:] == pytest.approx((50, 40, 30))
    assert table.rows[2] == ("source", None, None, pytest.approx(90))
    assert [table.is_best(1, column) for column in (1, 2, 3)] == [True] * 3
    with pytest.raises(MixedRowsError, match="'tent at 200' lacks 1 of 4"):
        batch_size_table(rows[:-1])
    other = made_rows({"bn": 0.5}, STREAMS, count=300, batch=8)
    with pytest.raises(MixedRowsError, match="protocols cannot be mixed"):
        batch_size_table([*rows, *other])


@pytest.mark.parametrize("name", ["corruptions", "severity", "online", "calibration"])
def test_other_plots_refuse_several_batch_sizes(name: str) -> None:
    with pytest.raises(MixedRowsError, match="protocols cannot be mixed"):
        find_plot(name).make(several_sizes())
    with pytest.raises(MixedRowsError, match="no rows"):
        find_plot(name).make([])


@pytest.mark.parametrize("suffix", MAGIC)
@pytest.mark.parametrize("name", [name for name in PLOTS if name != "streams"])  # its own tests
def test_every_plot_becomes_a_file(name: str, suffix: str, tmp_path: Path) -> None:
    made = {"batch-size": several_sizes, "domains": domain_rows, "fine-tuned": fine_tuned_rows}
    rows = made.get(name, some_rows)()
    figure, path = find_plot(name).make(rows), tmp_path / "new" / f"figure{suffix}"
    draw(figure, path)
    content = path.read_bytes()
    assert content.startswith(MAGIC[suffix])
    draw(figure, path)
    assert path.read_bytes() == content  # a figure in a repository changes only with its rows
    if suffix == ".svg":
        text = content.decode()
        # the note is broken into lines, and an apostrophe is none in XML
        assert all(w in text for w in (figure.title, "tent", *figure.note.split()) if "'" not in w)


def test_accuracy_by_target_domain_with_a_panel_per_training() -> None:
    figure = find_plot("domains").make(domain_rows())
    assert figure.ticks == ((0, "art"), (1, "photo"), (2, "average"))
    assert [*figure.panels] == ["coral", "erm"] or [*figure.panels] == ["erm", "coral"]
    tent = next(each for each in figure.panels["erm"] if each.method == "tent")
    assert tent.y == pytest.approx([78, 78, 78])  # 80 and 76 in two trials
    assert tent.spread == pytest.approx([2 / np.sqrt(2), 2 / np.sqrt(2), 0])
    assert all(not each.spread for each in find_plot("domains").make(domain_rows(1)).series)
    with pytest.raises(MixedRowsError, match="driftnorm plot domains"):
        find_plot("corruptions").make(domain_rows())


def test_fine_tuned_networks_beside_the_pre_trained_one() -> None:
    figure = find_plot("fine-tuned").make(fine_tuned_rows())
    assert [name for _, name in figure.ticks] == ["fine-tuned", "pre-trained"]
    found = {method: each.y for method, each in series(figure).items()}
    assert found["source"] == pytest.approx([10, 40])
    assert found["tent"] == pytest.approx([5, 20])


def test_every_method_keeps_its_colour_in_a_figure_with_panels(tmp_path: Path) -> None:
    draw(find_plot("domains").make(domain_rows()), tmp_path / "panels.svg")
    text = (tmp_path / "panels.svg").read_text()
    assert text.count(">tent<") == 1  # a name in the legend is there once
    assert text.count(colours_of(["tent"])["tent"]) >= 2 * 3


def test_colours_belong_to_methods() -> None:
    alone, among = colours_of(["tent"]), colours_of(["source", "tent:steps=2", "bn", "tent"])
    assert alone["tent"] == among["tent"]
    assert len(set(among.values())) == 4
    most = colours_of([f"tent:steps={n}" for n in range(1, 12)])
    assert len(set(most.values())) == 11
    with pytest.raises(ValueError, match="colours for 11 methods, got 12"):
        colours_of([f"tent:steps={n}" for n in range(1, 13)])


def test_wrong_endings_and_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png, \.svg, \.pdf"):
        draw(find_plot("severity").make(some_rows()), tmp_path / "figure.jpg")
    with pytest.raises(ValueError, match="Did you mean 'severity'"):
        find_plot("severty")


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"driftnorm\[plots\]"):
        draw(find_plot("severity").make(some_rows()), tmp_path / "figure.png")


def test_the_command_puts_files_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = some_rows()
    save_rows(rows[:5], tmp_path / "one.jsonl")
    save_rows(rows[3:], tmp_path / "two.jsonl")  # they overlap
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    target = tmp_path / "severity.svg"
    plot("severity", files, out=target, methods=["tent", "bn"])
    text = target.read_text()
    assert ">source<" not in text
    assert text.index(">tent<") < text.index(">bn<")
    capsys.readouterr()
    plot("list")
    listed = capsys.readouterr().out
    plot()
    assert capsys.readouterr().out == listed
    assert re.findall(r"^ ([a-z0-9-]+)  ", listed, re.MULTILINE) == ["name", *PLOTS]
    plot("severity", files, out=tmp_path / "other.pdf", form="pdf", quiet=True)
    with pytest.raises(ValueError, match=r"must end in \.pdf as `--format` says"):
        plot("severity", files, out=tmp_path / "other.svg", form="pdf")
    with pytest.raises(ValueError, match="`rows`"):
        plot("severity")
