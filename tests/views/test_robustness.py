"""The paper's tables from rows with known numbers: values, the paper's beside them, refusals."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from made_cells import with_model
from made_rows import ADAM, ALL_STREAMS, made_row, made_rows
from rich.console import Console

from driftnorm.bench.metrics import Interval
from driftnorm.bench.rows import Row, load_rows, save_rows
from driftnorm.bench.vocabulary import FINE_TUNED, TENT_ON_SOURCE
from driftnorm.cli import app
from driftnorm.cli._output import print_table
from driftnorm.errors import MixedRowsError
from driftnorm.shifts import CORRUPTIONS
from driftnorm.views.ablations import ABLATION, HALF_TARGET, INTRO, Setting
from driftnorm.views.claims import Claim, verdict
from driftnorm.views.compare import in_order, methods_of, shifts_of
from driftnorm.views.networks import tuning_of
from driftnorm.views.paper import ALEXNET_ERRORS, IMAGENET
from driftnorm.views.robustness import VIEWS, detailed_table, find_view, summary_table
from driftnorm.views.table import Table

STREAMS = (("fog", 5), ("snow", 5))
FOUR = {"source": 0.4, TENT_ON_SOURCE: 0.5, "bn": 0.3, "tent": 0.2}
TUNED = "resnet20-without-{}-1000-images-2-epochs-lr-0.01-seed-0-{}.safetensors@0"


def make(name: str, rows: Sequence[Row]) -> Table:
    return find_view(name, VIEWS).make(rows)


SETTINGS: dict[str, tuple[tuple[Setting, ...], str]] = {
    "intro": (INTRO, "tent"),
    "ablation": (ABLATION, "tent"),
    "half-target": (HALF_TARGET, "bn"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_tables_of_settings(name: str) -> None:
    settings, reference = SETTINGS[name]
    errors = {setting.method: (10 + place) / 50 for place, setting in enumerate(settings)}
    rows = [*made_rows(errors, STREAMS), *made_rows({"t3a": 0.1}, STREAMS[:1])]  # of no concern
    table = make(name, rows)
    names = len(settings[0].names)
    for setting, line in zip(settings, table.rows, strict=True):
        assert line[:names] == setting.names
        assert line[names] == pytest.approx(100 * errors[setting.method])
        assert len(line) == names + 2  # the paper's means are over all 15 corruptions
        if setting.method == reference:
            assert line[names + 1] == "-"
        else:
            change = 100 * (errors[setting.method] - errors[reference])
            assert str(line[names + 1]).startswith(f"{change:+.2f} [")
    assert "batch 20" in table.note


SEVEREST = tuple((corruption, 5) for corruption in CORRUPTIONS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_settings_stand_beside_all_corruptions_of_cifar_10(name: str) -> None:
    settings, _ = SETTINGS[name]
    errors = {setting.method: 0.2 for setting in settings}
    names = len(settings[0].names)
    for streams, said in ((ALL_STREAMS, False), (SEVEREST, True)):
        table = make(name, made_rows(errors, streams))
        for setting, line in zip(settings, table.rows, strict=True):
            assert line[names + 2 :: 2] == setting.paper
            for printed, off in zip(setting.paper, line[names + 3 :: 2], strict=True):
                assert off is None if printed is None else off == pytest.approx(20 - printed)
        words = "Paper: mean over 5 severities; ours: severity 5, 15 corruptions."
        assert (words in table.note) == said
    for hidden in (
        made_rows(errors, SEVEREST, data="cifar-100-c"),
        made_rows(errors, SEVEREST[1:]),
        made_rows(errors, [*SEVEREST, ("spatter", 5)]),
        made_rows(errors, [*SEVEREST, ("fog", 4)]),
        made_rows(errors, [*(s for s in SEVEREST if s[0] != "frost"), ("frost (procedural)", 5)]),
    ):
        assert not any("paper" in column.title for column in make(name, hidden).columns)


@pytest.mark.parametrize("name", SETTINGS)
def test_tables_of_settings_refuse_what_does_not_belong_together(name: str) -> None:
    settings, _ = SETTINGS[name]
    rows = made_rows({setting.method: 0.2 for setting in settings}, STREAMS)
    for changes, match in (
        ({"batch": 10}, "protocols cannot be mixed"),
        ({"model": "other@0"}, "several models"),
        ({"study": "other"}, "several studies"),
        ({"seed": 1}, "lacks"),
    ):
        with pytest.raises(MixedRowsError, match=match):
            make(name, [*rows, made_row(settings[0].method, **changes)])
    lacking = settings[-1].method
    with pytest.raises(MixedRowsError, match="also needs the method"):
        make(name, [row for row in rows if row.method != lacking])
    with pytest.raises(MixedRowsError, match="2 times; give each measurement once"):
        make(name, [*rows, rows[0]])


def test_methods_optimised_differently_are_refused() -> None:
    rows = made_rows({"tent": 0.2}, STREAMS, options=ADAM)
    rows += made_rows({"gprebn": 0.2}, STREAMS, options=(("lr", 0.1), *ADAM[1:]))
    with pytest.raises(MixedRowsError, match="optimised differently"):
        summary_table(rows)


def test_clean_rows_do_not_enter_the_means() -> None:
    rows = made_rows({"bn": 0.4, "tent": 0.2}, STREAMS)
    clean = made_rows({"bn": 0.1, "tent": 0.1}, [("clean", 0)])
    both, alone = summary_table([*rows, *clean]), summary_table(rows)
    assert [column.title for column in both.columns][:3] == ["method", "clean", "error"]
    assert [line[1] for line in both.rows] == pytest.approx([10, 10])
    assert [(line[0], *line[2:]) for line in both.rows] == [*alone.rows]
    detailed = detailed_table([*rows, *clean])
    assert detailed.rows[0] == ("clean", pytest.approx(10), pytest.approx(10))
    assert detailed.rows[1:] == detailed_table(rows).rows
    augmented = make("augmentation", [*rows, *clean])
    assert augmented.rows[0][2:4] == (pytest.approx(10), pytest.approx(40))


def test_clean_rows_alone_make_a_table(recwarn: pytest.WarningsRecorder) -> None:
    clean = made_rows({"bn": 0.1, "tent": 0.2}, [("clean", 0)])
    summary = summary_table(clean)
    assert summary.title == "Error on clean images"
    assert [line[1] for line in summary.rows] == pytest.approx([10, 20])
    assert summary.rows[0][2] != "-"  # a paired difference, as on corrupted images
    assert "severity 0" in summary.note
    assert detailed_table(clean).rows == (("mean", pytest.approx(10), pytest.approx(20)),)
    assert len(make("severity", clean).rows) == 2
    assert not recwarn.list


def test_the_papers_means_stand_only_beside_means_over_the_same_streams() -> None:
    errors = {"source": 0.4, "tent": 0.2}
    whole = summary_table(made_rows(errors, ALL_STREAMS))
    assert whole.rows[0][-2:] == (11.2, pytest.approx(40 - 11.2))
    fifth = made_rows(errors, [(c, 5) for c in CORRUPTIONS])
    assert len(summary_table(fifth).columns) == 5
    assert "Paper" not in summary_table(fifth).note
    assert len(detailed_table(fifth).columns) == 3
    few = detailed_table(
        made_rows(errors, [stream for stream in ALL_STREAMS if stream[0] == "fog"])
    )
    assert few.rows[0][-2:] == ("8.5 (+31.5)", "7.7 (+12.3)")
    assert few.rows[1][-2:] == (None, None)  # the paper's mean is over all corruptions


def test_the_best_of_each_corruption_is_in_bold() -> None:
    rows = made_rows({"bn": 0.4, "tent": 0.2}, [("fog", 5)])
    rows += made_rows({"bn": 0.1, "tent": 0.3}, [("snow", 5)])
    table = detailed_table(rows)
    assert [line[0] for line in table.rows] == ["snow", "fog", "mean"]
    best = [[table.is_best(row, column) for column in (1, 2)] for row in range(3)]
    assert best == [[True, False], [False, True], [True, True]]  # 25.0 both
    assert "| fog | 40.0 | **20.0** |" in table.to_markdown()


def test_notes_say_which_corruptions_and_how_many_steps() -> None:
    rows = made_rows({"tent": 0.2}, STREAMS)
    assert "Over 2 corruptions: snow, fog." in summary_table(rows).note
    assert "Over 15 corruptions." in summary_table(made_rows({"tent": 0.2}, ALL_STREAMS)).note
    assert ", 1 step, " in summary_table(rows).note
    longer = made_rows({"tent:steps=3": 0.2}, STREAMS)
    assert ", 1 or 3 steps, " in summary_table([*rows, *longer]).note
    assert ", 3 steps, " in summary_table(longer).note
    stepless = made_rows({"tent": 0.2}, [("rain", 5)], options=(*ADAM[:2], ("steps", 3)))
    with pytest.raises(MixedRowsError, match="'tent' was optimised differently"):
        summary_table([*rows, *stepless])


def test_order_does_not_come_from_file_names() -> None:
    rows = made_rows({"tent": 0.1, "zz": 0.1, "bn": 0.2}, [("snow", 5), ("fog", 1), ("clean", 0)])
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    found = in_order([*mixed, *rows], ["bn", "source"])
    assert len(found) == len(rows)
    assert methods_of(found) == ["bn", "tent", "zz"]
    assert [row.shift for row in found[:3]] == ["clean", "snow", "fog"]
    assert shifts_of(mixed) == ["snow", "fog"]


def test_augmentation_compares_each_network_with_its_own_source() -> None:
    pair = {"source": 0.3, "gprebn": 0.2}
    rows = made_rows(pair, SEVEREST, model="runs/model.safetensors@1", recipe="augmix")
    pair = {"source": 0.5, "gprebn": 0.46}
    rows += made_rows(pair, SEVEREST, model="augmix-b/model.safetensors@2", recipe="cutout")
    table = make("augmentation", rows)
    lines = {line[:2]: line for line in table.rows}
    assert lines["augmix", "source"][2:] == (
        *(pytest.approx(30), "-", 11.2),
        pytest.approx(30 - 11.2),
    )
    assert lines["augmix", "gprebn"][4] == 8.9
    assert str(lines["augmix", "gprebn"][3]).startswith("-10.00 [")
    assert str(lines["cutout", "gprebn"][3]).startswith("-4.00 [")
    assert lines["cutout", "gprebn"][4:] == (None, None)
    assert "ours: severity 5, 15 corruptions" in table.note
    with pytest.raises(MixedRowsError, match="lacks 1 of 15"):
        make("augmentation", rows[:-1])
    with pytest.raises(MixedRowsError, match="protocols"):
        make("augmentation", [*rows, made_row(model="mixup.safetensors@3", data="cifar-100-c")])


def test_augmentation_does_not_guess_a_recipe() -> None:
    for facts, name, columns in (
        ({}, "augmix-b/model", 6),  # its file says nothing
        ({"recipe": "augmix"}, "augmix", 6),
    ):
        rows = made_rows({"source": 0.3}, SEVEREST, model="augmix-b/model.safetensors@2", **facts)
        table = make("augmentation", rows)
        assert table.rows[0][0] == name
        assert len(table.columns) == columns
        assert table.rows[0][4] == (11.2 if name == "augmix" else None)
    few = made_rows({"source": 0.3}, STREAMS, model="a@1", recipe="augmix")
    assert len(make("augmentation", few).columns) == 4


def imagenet_rows(error: Callable[[str, int], float], method: str = "source") -> list[Row]:
    return [
        made_row(method, c, s, error(c, s), data="imagenet-c", model="resnet50@0")
        for c, s in ALL_STREAMS
    ]


def test_imagenet_table_against_a_slow_computation() -> None:
    generator = np.random.default_rng(0)
    errors = {stream: float(generator.uniform(0.2, 0.9)) for stream in ALL_STREAMS}
    table = make("imagenet", imagenet_rows(lambda c, s: errors[c, s]))
    ces = []
    for corruption in CORRUPTIONS:
        total = sum(errors[corruption, severity] for severity in (1, 2, 3, 4, 5))
        ces.append(100 * total / (5 * ALEXNET_ERRORS[corruption]))
    noise, blur, weather, digital = ces[0:3], ces[3:7], ces[7:11], ces[11:15]
    wanted = [sum(group) / len(group) for group in (noise, blur, weather, digital, ces)]
    assert table.rows[0] == ("resnet50, source", *(pytest.approx(value) for value in wanted))
    assert [column.title for column in table.columns[1:]] == [
        *("noise", "blur", "weather", "digital", "mCE")
    ]
    assert ("paper: AM", *map(str, IMAGENET["AM"])) in table.rows
    assert all(table.is_best(0, column) for column in range(1, 6))


def test_imagenet_table_is_for_imagenet_c_only() -> None:
    with pytest.raises(MixedRowsError, match=r"on ImageNet-C, but these rows are of cifar-10-c"):
        make("imagenet", made_rows({"source": 0.4}, ALL_STREAMS))
    rows = [made_row("source", c, s, data="imagenet-c (5000)") for c, s in ALL_STREAMS]
    assert make("imagenet", rows).rows


def test_imagenet_table_gives_the_known_mce_of_augmix() -> None:
    # RobustBench's errors on 5,000 pictures over AlexNet's
    printed = (62.3, 60.8, 61.0, 63.4, 78.5, 59.0, 63.2, 69.8)
    printed += (69.6, 64.5, 54.6, 57.1, 74.2, 59.1, 65.5)
    ce = dict(zip(CORRUPTIONS, printed, strict=True))
    # severities of unequal error, whose mean is what counts
    spread = {1: 0.5, 2: 0.8, 3: 1.0, 4: 1.2, 5: 1.5}
    rows = imagenet_rows(lambda c, s: spread[s] * ce[c] / 100 * ALEXNET_ERRORS[c])
    line = make("imagenet", rows).rows[0]
    assert line[1:5] == pytest.approx((61.4, 66.0, 64.6, 64.0), abs=0.051)
    assert line[5] == pytest.approx(64.17, abs=0.01)


def test_imagenet_table_wants_every_corruption_at_every_severity() -> None:
    rows = imagenet_rows(lambda c, s: 0.5)
    with pytest.raises(MixedRowsError, match=r"lack 1 of the 75 streams, such as \('snow', 3\)"):
        make(
            "imagenet",
            [r for r in rows if (r.shift, r.severity) != ("snow", 3)],
        )


def fine_tuned_rows() -> list[Row]:
    tuned = [
        made_row(
            method, *stream, error / 4, study=FINE_TUNED, model=TUNED.format(stream[0], "ab12")
        )
        for stream in STREAMS
        for method, error in FOUR.items()
    ]
    return [*tuned, *made_rows(FOUR, STREAMS)]


def test_fine_tuned_table() -> None:
    rows = [*fine_tuned_rows(), *made_rows({"gprebn": 0.1}, STREAMS[:1])]  # of no concern
    table = make("fine-tuned", rows)
    values = {line[:2]: line[2:4] for line in table.rows}
    assert values["pre-trained", "source"] == pytest.approx((40, 50))
    assert values["pre-trained", "target"] == pytest.approx((30, 20))
    assert values["fine-tuned", "source"] == pytest.approx((10, 12.5))
    assert values["fine-tuned", "target"] == pytest.approx((7.5, 5))
    assert len(table.columns) == 5  # the paper's are means over all 15 corruptions
    assert "1000 images 2 epochs lr 0.01 seed 0" in table.note


def test_how_networks_were_fine_tuned_is_read_off_with_the_stand_in_of_frost_too() -> None:
    row = made_row(shift="frost (procedural)", model=TUNED.format("frost", "ab12"))
    assert tuning_of(row) == "1000 images 2 epochs lr 0.01 seed 0"


def test_fine_tuned_table_refuses_what_does_not_belong_together() -> None:
    rows = fine_tuned_rows()
    first, others = rows[0], rows[1:]
    with pytest.raises(MixedRowsError, match="fine-tuned networks lack"):
        make("fine-tuned", [row for row in rows if row.cell.study != FINE_TUNED])
    with pytest.raises(MixedRowsError, match="lacks 1 of 2 streams"):
        make("fine-tuned", others)
    longer = TUNED.replace("2-epochs", "9-epochs").format("fog", "cd34")
    with pytest.raises(MixedRowsError, match="fine-tuned differently"):
        make("fine-tuned", [with_model(first, longer), *others])
    with pytest.raises(MixedRowsError, match="2 times"):  # a second network without fog
        make("fine-tuned", [with_model(first, longer), *rows])
    with pytest.raises(MixedRowsError, match=r"only one of them ran on \('rain', 5, 0\)"):
        make("fine-tuned", [*rows, *made_rows(FOUR, [("rain", 5)])])


CLAIMED = {"bn": 0.3, "source": 0.4, "tent": 0.2}


def test_claims_are_judged_at_the_batch_size_of_the_rows() -> None:
    table = make("claims", made_rows(CLAIMED, STREAMS, batch=25))
    verdicts = {line[0]: line[1] for line in table.rows}
    assert table.columns[1].title == "verdict"  # where it is seen on a narrow page
    assert verdicts["target statistics beat source statistics"] == "confirmed"
    assert verdicts["an entropy step improves on target statistics"] == "confirmed"
    assert verdicts["T3A helps a little"] == "not measured"
    assert "batch 25" in table.note
    with pytest.raises(MixedRowsError, match=r"one batch size, but these rows have \[20, 25\]"):
        make("claims", [*made_rows(CLAIMED, STREAMS), *made_rows(CLAIMED, STREAMS, batch=25)])


def test_claims_need_a_source_that_is_not_near_chance() -> None:
    rows = made_rows({"source": 0.9, "bn": 0.6, "tent": 0.5}, STREAMS)
    verdicts = {line[0]: line[1] for line in make("claims", rows).rows}
    near = "not testable here: the source is near chance"
    assert verdicts["target statistics beat source statistics"] == near
    assert verdicts["an entropy step improves on target statistics"] == near
    assert verdicts["T3A helps a little"] == "not measured"
    papers = [line[5] for line in make("claims", made_rows(CLAIMED, STREAMS)).rows]
    assert papers == [
        *("10.8 / 11.2", "9.2 / 10.8", "8.9 / 9.2", "8.9 / 11.2", "10.7 / 11.2", "10.7 / 9.2"),
        *("10.3 / 9.2", "17.7 / 11.2", "10.2 / 17.7", "not printed for CIFAR"),
        *("8.9 / 8.9", "14.6 / 14.4"),
    ]


def test_one_line_says_why_methods_are_equal_where_one_batch_makes_a_stream() -> None:
    errors = {"source": 0.4, "bn": 0.3, "tent": 0.3, "gprebn": 0.3}
    note = summary_table(made_rows(errors, STREAMS, count=50, batch=50)).note
    assert "The whole stream is one batch, and a batch is scored before its step: " in note
    assert "bn, tent and gprebn, which differ in what they carry over" in note
    same_right = made_row("t3a", *STREAMS[0], 0.4, count=50, batch=50, nll=0.1)
    for rows in (
        made_rows(errors, STREAMS, count=50, batch=49),
        made_rows({"source": 0.4, "bn": 0.3}, STREAMS, count=50, batch=50),
        [*made_rows({"source": 0.4}, STREAMS[:1], count=50, batch=50), same_right],
    ):
        assert "stream is one batch" not in summary_table(rows).note


def test_rows_of_domains_are_sent_to_their_own_tables() -> None:
    rows = [
        made_row("source", f"{name}/in", 0, study="domains", count=count, model=f"erm@{name}")
        for name, count in (("art", 40), ("photo", 60))
    ]
    with pytest.raises(MixedRowsError, match="driftnorm table domains"):
        summary_table(rows)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "cifar-10-c"}, "protocols cannot be mixed"),
        ({"count": 40}, "protocols cannot be mixed"),
        ({"options": (("lr", 0.1), *ADAM[1:])}, "optimised differently"),
    ],
)
def test_claims_refuse_pairs_that_were_not_measured_alike(
    changes: dict[str, object], words: str
) -> None:
    rows = made_rows({"tent": 0.2}, STREAMS, options=ADAM)
    rows += made_rows({"gprebn": 0.1}, STREAMS, **{"options": ADAM, **changes})
    with pytest.raises(MixedRowsError, match=f"GpreBN with running .* cannot be judged: .*{words}"):
        make("claims", rows)


def test_every_view_names_methods_that_can_be_built() -> None:
    from driftnorm.methods.spec import parse_method

    for name, view in VIEWS.items():
        assert [str(parse_method(method)) for method in view.methods] == [*view.methods], name


def test_the_command_puts_files_together(tmp_path: Path) -> None:
    save_rows(made_rows({"bn": 0.4, "source": 0.6}, STREAMS), tmp_path / "one.jsonl")
    save_rows(made_rows({"tent": 0.2}, STREAMS), tmp_path / "two.jsonl")
    command = [sys.executable, "-c", "from driftnorm.cli import main; main()", "table", "summary"]
    files = [str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")]
    chosen = [*command, *files, "--format", "csv", "--methods", "tent", "bn"]
    found = subprocess.run(chosen, capture_output=True, text=True, check=True)
    note, content = found.stdout.split("\n", 1)
    assert note.startswith("# Error in %. Model net@12345678; cifar-10-c (generated), ")
    lines = [*csv.reader(io.StringIO(content.strip()))]
    assert [(line[0], float(line[1])) for line in lines[1:]] == [
        ("tent", pytest.approx(20)),
        ("bn", pytest.approx(40)),
    ]


def mixed_folder(folder: Path) -> Path:
    """A summary over all severities beside an ablation at one, as a run of both leaves them."""
    main = made_rows(dict.fromkeys(VIEWS["summary"].methods, 0.2), ALL_STREAMS)
    ablation = {s.method for s in ABLATION} - {row.method for row in main}
    save_rows([*main, *made_rows(dict.fromkeys(ablation, 0.3), SEVEREST)], folder / "rows.jsonl")
    return folder / "rows.jsonl"


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    app(["table", *map(str, words)], result_action="return_value")
    return capsys.readouterr().out


def test_a_table_takes_what_it_is_about_and_says_what_it_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = mixed_folder(tmp_path)
    summary = shown(capsys, "summary", rows, "--format", "csv")
    assert "severities 1 to 5" in summary
    assert "Left out, because they ran on other streams: bn:running=True," in summary
    ablation = shown(capsys, "ablation", rows, "--format", "csv")
    assert "Only severity 5, which all methods ran on; left out: severity 1 2 3 4." in ablation
    assert "The paper's 17.7 and 42.1 seem to be for severity 5." in ablation
    app(
        ["plot", "severity", str(rows), "-o", str(tmp_path / "p.svg")], result_action="return_value"
    )
    assert "Left out, because they ran on other" in " ".join(
        re.sub("<[^>]*>", " ", (tmp_path / "p.svg").read_text()).split()
    )
    unfinished = [row for row in load_rows(rows) if row.method != "tent"]
    unfinished += made_rows({"tent": 0.2}, [s for s in ALL_STREAMS if s != ("fog", 5)])
    save_rows(unfinished, rows)
    for name in ("summary", "ablation"):
        with pytest.raises(MixedRowsError, match=r"lacks .* of 75 streams, such as .* at"):
            app(["table", name, str(rows)], result_action="return_value")


def test_tables_are_listed_and_written_to_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = shown(capsys, "list")
    assert shown(capsys) == listed
    names = re.findall(r"^ ([a-z0-9-]+)  ", listed, re.MULTILINE)
    assert names[:3] == ["name", "summary", "detailed"]
    save_rows(made_rows({"tent": 0.2, "bn": 0.3}, STREAMS), tmp_path / "rows.jsonl")
    rows, made = tmp_path / "rows.jsonl", VIEWS["summary"]
    table = made.make(in_order(load_rows(rows), made.methods))
    for name, text in (
        ("a.md", table.to_markdown()),
        ("a.csv", table.to_csv()),
        ("a.tex", table.to_latex()),
    ):
        assert shown(capsys, "summary", rows, "--out", tmp_path / "new" / name) == ""
        assert (tmp_path / "new" / name).read_bytes().decode() == text
    shown(capsys, "summary", rows, "-o", tmp_path / "a.txt")
    assert "Mean error over corruptions" in (tmp_path / "a.txt").read_text()
    asked = shown(capsys, "summary", rows, "--format", "json")
    assert asked == shown(capsys, "summary", rows, "--json")
    with pytest.raises(IsADirectoryError, match="`--out` must be a file"):
        shown(capsys, "summary", rows, "--out", tmp_path)


def test_no_number_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = mixed_folder(tmp_path)
    piped = shown(capsys, "ablation", rows)
    assert "…" not in piped
    assert "error minus tent's, 95 %" in " ".join(piped.split())
    narrow = Console(file=io.StringIO(), force_terminal=True, width=60)
    print_table(narrow, VIEWS["ablation"].make([r for r in load_rows(rows) if r.severity == 5]))
    assert "…" not in narrow.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Interval(0.1, -0.4, 0.4), "confirmed"),
        (Interval(0.4, 0.1, 0.8), "not confirmed"),
        (Interval(2.5, 2.2, 2.7), "contradicted"),
        (Interval(-2.5, -2.7, -2.2), "contradicted"),
    ],
)
def test_a_claim_of_likeness_can_be_contradicted(change: Interval, said: str) -> None:
    claim = Claim("alike", "a", "b", "alike", margin=0.5)
    assert verdict(claim, change) == said
