"""``driftnorm adapt`` on real folders and arrays: killed, stopped, resumed, misused."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from own_network import CLASSES, FLAGS, MODEL, WANTED, command, drifting, rows, run
from PIL import Image
from torch import nn

import driftnorm
from driftnorm import cli
from driftnorm._internal.csv_cells import safe_cell, text_of_cell
from driftnorm.bench.stream_scores import scores_of
from driftnorm.errors import BusyError, DataError
from driftnorm.images import Shuffled, open_inputs, open_labels
from driftnorm.models import open_checkpoint
from driftnorm.predictions import adapted_stream as adapting
from driftnorm.predictions.adapted_stream import (
    Began,
    Event,
    Note,
    Outcome,
    Plan,
    Snapshot,
    adapt_stream,
)
from driftnorm.predictions.answers_file import (
    COLUMNS,
    MOST_POINTS,
    Answer,
    Course,
    PredictionsFile,
    read_answers,
)
from driftnorm.predictions.saved_run import read_state


@pytest.fixture
def messy(home: Path) -> Path:
    """300 files: three broken, others in odd modes or with odd names, and a loop of links."""
    root = home / "data"
    odd = {7: "L", 30: "CMYK", 60: "RGBA", 90: "P", 120: "1", 150: "I;16"}
    names = {20: "sp ace.png", 40: 'q"uote.png', 50: "line\nbreak.png", 70: "ü☃.png", 80: "a,b.png"}
    for i, image in enumerate(drifting(300)):
        folder = root / ("0123"[i % 4])
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image)
        if odd.get(i) == "I;16":
            picture = Image.fromarray(image[..., 0].astype(np.uint16) * 257)
        elif i in odd:
            picture = picture.convert(odd[i])
        suffix = "tif" if i in odd else "png"
        file = folder / names.get(i, f"{i:03}.{suffix}")
        picture.save(file)
        if i in (100, 101, 299):
            file.write_bytes(file.read_bytes()[:70])
    os.symlink(root, root / "0" / "loop")
    return root


def test_one_class_for_all_images_is_refused(home: Path) -> None:
    with pytest.raises(ValueError, match=r"one number per image.*two logits"):
        Plan(home / "a.csv", WANTED, ("0",), {})


def test_a_messy_folder(home: Path, messy: Path) -> None:
    content = run(home, messy, "a.csv", labels="folders", method="bn", guard="off")
    found = rows(content)
    inputs = open_inputs(messy)
    assert [row["name"] for row in found] == [item.name for item in inputs.stream(WANTED)]
    assert len(found) == 300
    broken = [row for row in found if row["error"]]
    assert len(broken) == 3
    assert {row["class_index"] + row["class_name"] + row["confidence"] for row in broken} == {""}
    for row in found:
        if not row["error"]:
            assert CLASSES[int(row["class_index"])] == row["class_name"]
            assert 0.25 <= float(row["confidence"]) <= 1
            assert 0 <= float(row["entropy"]) <= 1
    record = json.loads((home / "a.run" / "run.json").read_text())
    assert (record["images"], record["skipped"], record["predicted"]) == (300, 3, 297)
    assert record["skipped_first"] == [[row["name"], row["error"]] for row in broken]
    right = [row["name"][0] == row["class_index"] for row in found if not row["error"]]
    assert record["accuracy"] == pytest.approx(np.mean(right))
    assert sum(record["classes"].values()) == record["labelled"] == 297
    assert len(record["entropy"]) == len(record["online_error"]) == 19
    counted = {who: sum(c for c, _, _ in bins) for who, bins in record["reliability"].items()}
    assert counted == {"source": 297, "adapted": 297}
    assert record["compared"] == record["sample"] == 297  # all that have a label and could be read
    assert record["sample_accuracy_adapted"] == record["accuracy"]
    assert len(record["examples"]) == min(record["compared_changed"], 12)
    assert all(e["image"].startswith("data:image/jpeg;base64,") for e in record["examples"])


def test_the_predictions_are_those_of_a_plain_loop_and_broken_files_shift_nothing(
    home: Path, messy: Path
) -> None:
    """The obvious loop: batches of 16 positions, without the broken ones."""
    from driftnorm_test_network import build

    from driftnorm.models import Normalized

    network = Normalized(build(), WANTED.mean, WANTED.std).eval()
    adapter = driftnorm.adapt(network, seed=0)
    items = [*open_inputs(messy).stream(WANTED)]
    expected = []
    for start in range(0, 300, 16):
        batch = [item for item in items[start : start + 16] if item.pixels is not None]
        x = torch.stack([torch.tensor(item.pixels) for item in batch]).permute(0, 3, 1, 2) / 255
        p = adapter(x).softmax(dim=1)
        for item, row in zip(batch, p, strict=True):
            expected.append((item.name, int(row.argmax()), float(row.max())))
    found = [
        (row["name"], int(row["class_index"]), float(row["confidence"]))
        for row in rows(run(home, messy, "a.csv"))
        if not row["error"]
    ]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_allclose([r[2] for r in found], [r[2] for r in expected], atol=2e-5)


def test_every_kind_of_input_gives_the_same_predictions(home: Path, messy: Path) -> None:
    items = [*open_inputs(messy).stream(WANTED)]
    good = np.stack([item.pixels for item in items if item.pixels is not None])
    np.savez_compressed(home / "good.npz", images=good)
    np.save(home / "good.npy", good)
    plain = home / "plain"
    plain.mkdir()
    for i, image in enumerate(good):
        Image.fromarray(image).save(plain / f"{i:03}.png")
    (home / "list.txt").write_text("\n".join(f"plain/{i:03}.png" for i in range(len(good))))
    with tarfile.open(home / "good.tar", "w") as archive:
        for file in sorted(plain.iterdir()):
            archive.add(file, file.name)
    answers = {}
    for name in ("good.npz", "good.npy", "plain", "list.txt", "good.tar"):
        found = rows(run(home, home / name, f"{name}.csv"))
        key = [int(row["name"].rpartition("/")[2].split(".")[0]) for row in found]
        answers[name] = [[*row.values()][1:] for row in found]
        assert key == [*range(len(good))]
        assert answers[name] == answers["good.npz"]


# --------------------------------------------------------------------------- going on


def stream(
    home: Path, images: np.ndarray, out: str, stop_after: int | None = None, **options: object
) -> tuple[Began, Outcome | None]:
    """`adapt_stream` on an array, stopped after this many batches; how it began and ended."""
    from driftnorm_test_network import build

    if not (home / "images.npy").exists():  # data that are written anew are others
        np.save(home / "images.npy", images)
    method = str(options.pop("method", "gprebn"))
    every, seed = options.pop("every", 3), options.pop("seed", None)
    settings = {"method": method, **options}
    plan = Plan(home / out, WANTED, CLASSES, settings, batch_size=20, every=every)
    network = build()
    adapter = driftnorm.adapt(network, method, seed=0, guard="reset")
    inputs = open_inputs(home / "images.npy")
    if seed is not None:
        inputs = Shuffled(inputs, seed)
    with closing(adapt_stream(adapter, network, inputs, plan)) as events:
        seen = [next(events)]
        for event in events:
            seen.append(event)
            if sum(isinstance(each, Snapshot) for each in seen) == stop_after:
                break
    assert isinstance(seen[0], Began)
    return seen[0], seen[-1] if isinstance(seen[-1], Outcome) else None


def outcome_of(events: Iterable[Event]) -> Outcome:
    *_, last = events
    assert isinstance(last, Outcome)
    return last


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn+rt3a", "shot", "t3a"])
def test_a_stopped_run_goes_on_to_the_same_end(home: Path, method: str) -> None:
    images = drifting(250)
    _, whole = stream(home, images, "whole.csv", method=method)
    assert whole is not None
    for stop_after in (1, 2, 7, 2, 1, None):
        began, outcome = stream(home, images, "parts.csv", stop_after, method=method)
        assert (outcome is not None) == (stop_after is None)
        with (home / "parts.csv").open("ab") as file:
            file.write(b'"half a li')  # as a killed process leaves it
    assert began.position == 250
    assert outcome is not None
    final = (home / "parts.csv").read_bytes()
    assert final.removesuffix(b'"half a li') == (home / "whole.csv").read_bytes()
    for key in whole.record.keys() - {"seconds"}:
        assert outcome.record[key] == whole.record[key], key


@pytest.mark.parametrize(
    ("seconds", "share", "states"), [(0.0, 1e9, 14), (1e9, 1e9, 2), (0.0, 1e-9, 3)]
)
def test_states_are_saved_by_the_clock_and_less_often_where_it_takes_long(
    home: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, share: float, states: int
) -> None:
    saved = []
    monkeypatch.setattr(adapting, "SAVE_SECONDS", seconds)
    monkeypatch.setattr(adapting, "SAVE_SHARE", share)
    monkeypatch.setattr(adapting, "save_state", lambda *about: saved.append(about))
    # 13 batches: a state before the first, and one after each; or one at the end; or one after
    # the first and one at the end.
    stream(home, drifting(250), "clock.csv", every=None)
    assert len(saved) == states


def test_kill_9_in_the_middle_of_20000_images(home: Path) -> None:
    np.savez(home / "many.npz", images=drifting(20_000))
    # A method whose every answer depends on all batches before it.
    options = {"batch_size": 64, "every": 5, "method": "gprebn"}
    whole = run(home, home / "many.npz", "whole.csv", **options)
    more = ("--batch-size", "64", "--every", "5", "--method", "gprebn", "--quiet")
    killed = subprocess.Popen(command(home, home / "many.npz", "killed.csv", *more))
    out, deadline = home / "killed.csv", time.monotonic() + 120
    while time.monotonic() < deadline and killed.poll() is None:
        if out.exists() and out.stat().st_size > 0.3 * len(whole):
            break
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert 0.3 * len(whole) < out.stat().st_size < len(whole)
    assert not (home / "killed.run" / "run.json").exists()
    again = run(home, home / "many.npz", "killed.csv", **options)
    assert again == whole
    assert len(rows(whole)) == 20_000
    record = json.loads((home / "killed.run" / "run.json").read_text())
    assert record["images"] == 20_000


TOLD_AT_THE_END = """
import atexit
from driftnorm._internal.process_memory import peak_megabytes
atexit.register(lambda: print(peak_megabytes()))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory as Linux does")
def test_memory_does_not_grow_with_the_stream(home: Path) -> None:
    peaks = []
    for count in (1_000, 20_000):
        np.savez(home / "many.npz", images=drifting(count))
        words = command(home, home / "many.npz", f"{count}.csv", "--method", "bn", "--quiet")
        words[2] = TOLD_AT_THE_END + words[2]  # the code that Python runs
        peaks.append(int(subprocess.check_output(words)))
    few, many = peaks
    assert few > 50
    assert many - few < 40, f"{few} MB for 1,000 images, {many} MB for 20,000"


def test_ctrl_c_in_a_terminal_leaves_a_run_that_goes_on(home: Path) -> None:
    import pty

    np.save(home / "slow.npy", drifting(6_000))
    options = {"batch_size": 8, "every": 10_000, "method": "bn"}
    more = ("--batch-size", "8", "--every", "10000", "--method", "bn")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(home, home / "slow.npy", "stopped.csv", *more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen, asked = b"", False
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        seen += part
        if not part:  # how macOS does
            break
        if not asked and b"images/s, entropy 0." in seen and b"guard" in seen:
            asked = True
            process.send_signal(signal.SIGINT)
    os.close(ours)
    assert process.wait() == 130
    assert b"\x1b[" in seen  # it drew
    assert b"the same command resumes there" in b" ".join(seen.split())
    assert b"Traceback" not in seen
    stopped = (home / "stopped.csv").read_bytes()
    assert not (home / "stopped.run" / "run.json").exists()
    whole = run(home, home / "slow.npy", "whole.csv", **options)
    assert len(stopped) < len(whole)
    assert whole.startswith(stopped)
    assert run(home, home / "slow.npy", "stopped.csv", **options) == whole


# --------------------------------------------------------------------------- what stays behind


def test_output_in_a_pipe_and_as_json(
    home: Path, messy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (messy / "notes.txt").write_text("not a picture")
    run(home, messy, "a.csv", quiet=False)
    shown = capsys.readouterr()
    assert "297 images, 3 could not be read" in shown.out
    assert "1 other file." in shown.out
    assert "\x1b" not in shown.out + shown.err
    run(home, messy, "a.csv", quiet=False, as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads((home / "a.run" / "run.json").read_text())
    run(home, messy, "a.csv")
    assert capsys.readouterr().out == ""


def test_state_and_baked_network(home: Path) -> None:
    images = drifting(400)
    np.save(home / "first.npy", images[:200])
    np.save(home / "second.npy", images[200:])
    np.save(home / "both.npy", images)
    options = {"batch_size": 20, "method": "gprebn"}
    state, baked = home / "kept" / "state.safetensors", home / "kept" / "baked.safetensors"
    first = run(home, home / "first.npy", "1.csv", save_state=state, **options)
    second = run(home, home / "second.npy", "2.csv", load_state=state, bake=baked, **options)
    both = run(home, home / "both.npy", "both.csv", save_state=home / "all.safetensors", **options)
    answers = [[*row.values()][1:] for row in (*rows(first), *rows(second))]
    assert answers == [[*row.values()][1:] for row in rows(both)]
    opened = open_checkpoint(baked, trust=True)
    assert opened.classes == CLASSES
    assert opened.facts["method"] == "gprebn"
    from driftnorm_test_network import build

    from driftnorm.models import Normalized, load_weights
    from driftnorm.predictions.saved_run import load_adapter

    network = Normalized(build(), WANTED.mean, WANTED.std).eval()
    adapter = driftnorm.adapt(network, "gprebn", seed=0)
    load_adapter(home / "all.safetensors", adapter)
    x = torch.tensor(images[:30]).permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(opened.model(x), adapter.freeze()(x), rtol=1e-4, atol=1e-5)
    assert load_weights(baked)


def test_a_run_does_not_go_on_with_something_else(home: Path) -> None:
    images = drifting(100)
    stream(home, images, "a.csv", stop_after=2, method="bn")
    with pytest.raises(ValueError, match="method 'bn', this one has 'tent'"):
        stream(home, images, "a.csv", method="tent")
    with (home / "a.csv").open("r+b") as file:
        file.truncate(50)
    with pytest.raises(DataError, match="it was changed or removed"):
        stream(home, images, "a.csv", method="bn")
    (home / "b.csv").write_text("mine")
    with pytest.raises(ValueError, match="already exists and is not from a run"):
        stream(home, images, "b.csv")
    assert (home / "b.csv").read_text() == "mine"


def test_changed_data_are_noticed_and_fresh_starts_over(home: Path, messy: Path) -> None:
    whole = run(home, messy, "a.csv")
    (messy / "0" / "000a.png").write_bytes((messy / "0" / "000.png").read_bytes())
    with pytest.raises(DataError, match="has changed since"):
        run(home, messy, "a.csv")
    assert (home / "a.csv").read_bytes() == whole
    assert len(rows(run(home, messy, "a.csv", fresh=True))) == 301


def test_two_processes_cannot_write_the_same_file(home: Path) -> None:
    from driftnorm._internal.files import exclusive

    (home / "a.run").mkdir()
    with (
        exclusive(home / "a.run" / "lock", "busy"),
        pytest.raises(BusyError, match="Another process is writing"),
    ):
        stream(home, drifting(20), "a.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("resnet20", "nowhere"), "architecture without weights"),
        ((MODEL, "nowhere", *FLAGS), "`DATA` nowhere does not exist"),
        ((MODEL, "{data}"), "give `size` (`--size`) in pixels"),
        ((MODEL, "{data}", *FLAGS, "--method", "tnet"), "Did you mean 'tent'"),
        ((MODEL, "{data}", *FLAGS, "--out", "x.txt"), "must be a file that ends in .csv"),
        ((MODEL, "{data}", *FLAGS, "--batch-size", "0"), "`--batch-size` must be at least 1"),
        ((MODEL, "{data}", *FLAGS, "--labels", "none.csv"), "or the word folders"),
        ((MODEL, "{data}", *FLAGS, "--load-state", "none"), "none"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    home: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.save(home / "x.npy", drifting(4))
    monkeypatch.chdir(home)
    given = [word.format(data=home / "x.npy") for word in words]
    monkeypatch.setattr(cli, "app", functools.partial(cli.app, ["adapt", *given]))
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not [*home.glob("*.csv")]


# --------------------------------------------------------------------------- other data, same names


def test_other_images_under_the_same_name_are_not_taken_for_those_done(home: Path) -> None:
    np.save(home / "day.npy", drifting(64))
    before = run(home, home / "day.npy", "day.csv")
    assert run(home, home / "day.npy", "day.csv") == before  # nothing to do
    np.save(home / "day.npy", drifting(64)[::-1])
    with pytest.raises(DataError, match=r"day\.npy has changed since the run of .* began"):
        run(home, home / "day.npy", "day.csv")
    assert (home / "day.csv").read_bytes() == before
    assert run(home, home / "day.npy", "day.csv", fresh=True) != before


def test_a_picture_that_was_replaced_is_noticed(home: Path) -> None:
    folder = home / "pictures"
    folder.mkdir()
    for number, image in enumerate(drifting(40)):
        Image.fromarray(image).save(folder / f"{number:02}.png")
    listed = home / "list.txt"
    listed.write_text("\n".join(f"pictures/{number:02}.png" for number in range(40)))
    for data, out in ((folder, "a.csv"), (listed, "b.csv")):
        run(home, data, out)
    Image.fromarray(drifting(40)[-1]).save(folder / "07.png")
    for data, out in ((folder, "a.csv"), (listed, "b.csv")):
        with pytest.raises(DataError, match=r"07\.png has changed since"):
            run(home, data, out)


def test_other_weights_in_the_same_file_are_noticed(home: Path) -> None:
    from driftnorm_test_network import build

    network = build()
    np.save(home / "x.npy", drifting(64))
    torch.save(network.state_dict(), home / "w.pt")
    run(home, home / "x.npy", "w.csv", weights=home / "w.pt")
    with torch.no_grad():
        first = next(network.parameters())
        first.copy_(first.flip(0))  # sums over the weights stay what they were
    torch.save(network.state_dict(), home / "w.pt")
    with pytest.raises(ValueError, match="belongs to a run with network"):
        run(home, home / "x.npy", "w.csv", weights=home / "w.pt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_state": "a.csv"}, "`--out` and `--save-state` name the same file, a.csv"),
        ({"save_state": "x.npy"}, "`--save-state` would overwrite .*x.npy, which is `DATA`"),
        ({"save_state": "b.safetensors", "bake": "b.safetensors"}, "`--save-state` and `--bake`"),
        ({"bake": "w.safetensors", "weights": "w.safetensors"}, "overwrite .*which is `--weights`"),
        ({"save_state": "classes.json"}, "would overwrite .*which is `--classes`"),
    ],
)
def test_nothing_that_is_needed_is_written_over(
    home: Path, options: dict[str, str], message: str
) -> None:
    np.save(home / "x.npy", drifting(32))
    before = (home / "x.npy").read_bytes()
    with pytest.raises(ValueError, match=message):
        run(home, home / "x.npy", "a.csv", **{flag: home / name for flag, name in options.items()})
    assert (home / "x.npy").read_bytes() == before
    assert not (home / "a.csv").exists()


def test_data_that_end_too_soon_are_no_success(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(home / "whole.tar", "w") as archive:
        for number, image in enumerate(drifting(40)):
            Image.fromarray(image).save(home / "one.png")
            archive.add(home / "one.png", f"{number}.png")
    content = (home / "whole.tar").read_bytes()
    (home / "cut.tar").write_bytes(content[: len(content) // 2])
    run(home, home / "whole.tar", "whole.csv")
    with pytest.raises(SystemExit) as stop:
        run(home, home / "cut.tar", "cut.csv")
    assert stop.value.code == 1
    assert "only part of" in capsys.readouterr().err
    record = json.loads((home / "cut.run" / "run.json").read_text())
    assert record["cut_off"]
    assert 0 < record["predicted"] < 40


def test_a_few_images_at_the_end_go_with_the_batch_before_them(home: Path) -> None:
    images = drifting(65)
    np.save(home / "65.npy", images)
    np.save(home / "64.npy", images[:64])
    many, few = (run(home, home / f"{n}.npy", f"{n}.csv", batch_size=32) for n in (65, 64))
    entropy = [[float(row["entropy"]) for row in rows(content)] for content in (many, few)]
    assert entropy[0][:32] == entropy[1][:32]
    assert len(entropy[0]) == 65
    assert np.abs(np.subtract(entropy[0][32:64], entropy[1][32:])).max() < 0.1
    state, _ = read_state(home / "65.run" / "state.safetensors")
    assert [point[1] for point in state.tally.course.points] == [32, 33]


def test_a_handful_of_images_is_remarked_on(home: Path) -> None:
    np.save(home / "few.npy", drifting(3))
    for method, told in (("gprebn", True), ("source", False)):
        run(home, home / "few.npy", f"{method}.csv", method=method)
        notes = json.loads((home / f"{method}.run" / "run.json").read_text())["notes"]
        assert any("there were only 3 images" in note for note in notes) == told


# --------------------------------------------------------------------------- parts


def test_lines_say_to_the_csv_module_what_its_own_would(tmp_path: Path) -> None:
    odd = ["plain", 'quote"s', "a,b", "two\nlines", "\r\n", "", " ", "'", "ünï", "tab\t", "1.5"]
    answers = [Answer(i % 4, 1 / (i + 1), i / 7) for i in range(len(odd))]
    answers[3:5] = [Answer(None, error='no "picture", sorry'), Answer(0, 1.0, -0.0)]
    classes = ('a "class"', "b,c", "d", "e")
    file = PredictionsFile(tmp_path / "x.csv", 0, classes)
    file.append(odd, answers)
    file.close()
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, answer in zip(odd, answers, strict=True):
        cells: tuple[object, ...] = ("", "", "", "", answer.error)
        if answer.choice is not None:
            numbers = (round(answer.confidence, 6), abs(round(answer.entropy, 6)))
            cells = (answer.choice, classes[answer.choice], *numbers, "")
        writer.writerow((safe_cell(name), *cells))
    ours, theirs = (
        [*csv.reader(io.StringIO(lines, newline=""), quoting=csv.QUOTE_NONNUMERIC)]
        for lines in ((tmp_path / "x.csv").read_bytes().decode(), text.getvalue())
    )
    assert ours == theirs


def test_names_and_errors_survive_the_csv(tmp_path: Path) -> None:
    names = ["a\nb", "a\r\nb", "c\rd", 'q"q', "x,y", " s ", "=1+1", "☃", "", "'"]
    assert [name for name in names if safe_cell(name) != name] == ["=1+1"]
    file = PredictionsFile(tmp_path / "x.csv", 0, CLASSES)
    file.append(names[:5], [Answer(i % 4, 0.5, 0.25) for i in range(5)])
    length = file.length
    file.append(["lost"], [Answer(None, error="x")])
    file.close()
    file = PredictionsFile(tmp_path / "x.csv", length, CLASSES)
    file.append(names[5:], [Answer(None, error=name) for name in names[5:]])
    file.append(["bad-\udcff"], [Answer(0, 1.0, -0.0)])
    file.close()
    assert file.length == (tmp_path / "x.csv").stat().st_size
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as stream:
        found = [*csv.DictReader(stream)]
    assert [text_of_cell(row["name"]) for row in found] == [*names, "bad-\\udcff"]
    assert [row["class_name"] for row in found[:5]] == [CLASSES[i % 4] for i in range(5)]
    assert [text_of_cell(row["error"]) for row in found[5:10]] == names[5:]
    assert found[-1]["entropy"] == "0.000000"


FORMULAS = ['=HYPERLINK("x","y").png', "+1.png", "-2.png", "@SUM(A1).png", "\t=1.png"]
FORMULAS += ["\r=1.png", "\n=1.png", "＝1.png", "'=1.png", "''+1.png"]


def test_no_cell_is_a_formula_and_the_names_can_be_had_again(home: Path) -> None:
    folder = home / "pictures"
    folder.mkdir()
    for name, image in zip(FORMULAS, drifting(len(FORMULAS)), strict=True):
        Image.fromarray(image).save(folder / name)
    (home / "classes.json").write_text(json.dumps(["=A1", "+b", "-c", "@d"]))
    run(home, folder, "a.csv")
    with (home / "a.csv").open(newline="", encoding="utf-8") as stream:
        found = [*csv.DictReader(stream)]
    cells = [cell for row in found for cell in (row["name"], row["class_name"], row["error"])]
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\n＝"))]
    assert sorted(text_of_cell(row["name"]) for row in found) == sorted(FORMULAS)
    assert {text_of_cell(row["class_name"]) for row in found} <= {"=A1", "+b", "-c", "@d"}
    # Its names can be used for labels.
    lines = ["name,label", *(f'"{row["name"].replace(chr(34), chr(34) * 2)}",0' for row in found)]
    (home / "labels.csv").write_text("\n".join(lines), encoding="utf-8", newline="")
    inputs = open_inputs(folder)
    labels = open_labels(str(home / "labels.csv"), ["=A1", "+b", "-c", "@d"], inputs)
    assert [labels.of(raw.name, 0) for raw in inputs.raw()] == [0] * len(FORMULAS)


def test_answers() -> None:
    logits = torch.tensor([[0.0, 0.0], [1000.0, -1000.0], [float("nan"), 0.0], [-1.0, 0.0]])
    even, sure, lost, other = read_answers(scores_of(logits), 4, 2)
    assert (even.confidence, even.entropy) == (0.5, pytest.approx(1))
    assert (sure.choice, sure.confidence, sure.entropy) == (0, 1.0, 0.0)
    assert lost.choice is None
    assert "not finite" in lost.error
    p = 1 / (1 + np.exp(-1))
    expected = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    assert (other.choice, other.entropy) == (1, pytest.approx(expected))
    with pytest.raises(TypeError, match="one row of logits"):
        read_answers(scores_of(torch.zeros(2, 3, 4, 4)), 2, 3)


def test_the_course_of_a_run_stays_small_and_keeps_its_sums() -> None:
    course = Course()
    for number in range(10 * MOST_POINTS + 7):
        course.add(4, float(number), 2, 1)
        assert len(course.points) <= MOST_POINTS
    images, entropy = (sum(point[i] for point in course.points) for i in (1, 2))
    total = 10 * MOST_POINTS + 7
    assert (images, entropy) == (4 * total, total * (total - 1) / 2)
    assert course.width == 16
    assert course.error() == [0.5] * len(course.points)


def test_labels_are_never_shown_to_the_adapter(
    home: Path, network: Callable[..., nn.Module]
) -> None:
    images = drifting(60)
    np.save(home / "x.npy", images)
    outs = []
    for number, labels in enumerate((np.zeros(60, int), np.arange(60) % 4, None)):
        plan = Plan(home / f"{number}.csv", WANTED, CLASSES, {}, batch_size=20)
        truth = None
        if labels is not None:
            np.save(home / "labels.npy", labels)
            inputs = open_inputs(home / "x.npy")
            truth = open_labels(str(home / "labels.npy"), CLASSES, inputs)
        source = network("2d")
        adapter = driftnorm.adapt(source, "gprebn")
        record = outcome_of(
            adapt_stream(adapter, source, open_inputs(home / "x.npy"), plan, labels=truth)
        ).record
        assert ("accuracy" in record) == (labels is not None)
        outs.append((home / f"{number}.csv").read_bytes())
    assert outs[0] == outs[1] == outs[2]


def test_warnings_are_noted_once_each(home: Path, network: Callable[..., nn.Module]) -> None:
    np.save(home / "x.npy", drifting(20))
    plan = Plan(home / "a.csv", WANTED, CLASSES, {}, batch_size=4)
    source = network("2d")
    adapter, inputs = driftnorm.adapt(source, "bn"), open_inputs(home / "x.npy")
    events = [*adapt_stream(adapter, source, inputs, plan)]
    heard = [event.text for event in events if isinstance(event, Note)]
    seen = [event for event in events if isinstance(event, Snapshot)]
    outcome = outcome_of(events)
    assert [note.split(":")[0] for note in heard] == [
        "statistics of a batch of 4 are mostly noise",
        "the input looks un-normalised",
    ]
    assert outcome.record["notes"] == heard
    assert [(now.done, now.guard) for now in seen] == [(done, "ok") for done in range(4, 21, 4)]
    assert dataclasses.replace(plan, every=1).folder == home / "a.run"


# --------------------------------------------------------------------------- shuffled


def test_a_shuffled_stream_is_written_in_the_order_of_the_images(home: Path, messy: Path) -> None:
    """The obvious way: a list of the paths, shuffled by hand."""
    inputs = open_inputs(messy)
    plain, shuffled = [item.name for item in inputs.stream(WANTED)], Shuffled(inputs, 5)
    content = run(home, messy, "a.csv", shuffle=[5], labels="folders", method="gprebn")
    assert [row["name"] for row in rows(content)] == plain
    in_order = rows((home / "a.run" / "stream.csv").read_bytes())
    assert [row["name"] for row in in_order] == [plain[place] for place in shuffled.order]
    assert sorted(map(str, in_order)) == sorted(map(str, rows(content)))
    assert run(home, messy, "b.csv", method="gprebn") != content
    record = json.loads((home / "a.run" / "run.json").read_text())
    right = [row["name"][0] == row["class_index"] for row in rows(content) if not row["error"]]
    assert record["accuracy"] == pytest.approx(np.mean(right))
    assert record["config"]["order"] == shuffled.fingerprint()


def test_shuffling_is_shuffling_the_array(home: Path) -> None:
    images = drifting(250)
    np.save(home / "x.npy", images)
    order = Shuffled(open_inputs(home / "x.npy"), 0).order
    np.save(home / "y.npy", images[order])
    content = rows(run(home, home / "x.npy", "a.csv", shuffle=[]))
    expected = rows(run(home, home / "y.npy", "b.csv"))
    assert [row["name"] for row in content] == [str(i) for i in range(250)]
    for place, row in zip(order, expected, strict=True):
        assert {**content[place], "name": ""} == {**row, "name": ""}


def test_a_shuffled_run_that_was_stopped_comes_to_the_same_end(home: Path) -> None:
    images = drifting(250)
    stream(home, images, "whole.csv", seed=1)
    for stop_after in (1, 2, 7, None):
        _, outcome = stream(home, images, "parts.csv", stop_after, seed=1)
        assert (home / "parts.csv").exists() == (outcome is not None)
    assert (home / "parts.csv").read_bytes() == (home / "whole.csv").read_bytes()


def test_a_run_does_not_go_on_in_another_order(home: Path) -> None:
    np.save(home / "x.npy", drifting(40))
    run(home, home / "x.npy", "a.csv", shuffle=[1])
    with pytest.raises(ValueError, match=r"a run with order .*, this one has"):
        run(home, home / "x.npy", "a.csv", shuffle=[2])
    with pytest.raises(ValueError, match=r"a run with order .*, this one has None"):
        run(home, home / "x.npy", "a.csv")
    config = (home / "a.run" / "config.yaml").read_text()
    assert "shuffle:\n  - 1\n" in config
