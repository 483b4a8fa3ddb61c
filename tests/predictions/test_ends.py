"""How an adapt run begins and ends: refused before it, or told at its end."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from own_network import drifting, run
from safetensors.torch import load_file

from driftnorm._internal.files import exclusive
from driftnorm.errors import BusyError, DataError


@pytest.fixture
def images(home: Path) -> Path:
    np.savez(home / "x.npz", images=drifting(40), labels=np.arange(40) % 4)
    return home / "x.npz"


def test_places_for_the_end_are_made_or_refused_before_the_run(home: Path, images: Path) -> None:
    (home / "file").write_text("")
    for options, message in (
        ({"bake": home / "x.onnx"}, "driftnorm export"),
        ({"bake": home}, r"ends in \.safetensors"),
        ({"save_state": home / "code"}, "is a folder"),
        ({"save_state": home / "file" / "state"}, "file"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            run(home, images, "a.csv", **options)
        assert not (home / "a.csv").exists()
        assert not (home / "a.run").exists()
    run(home, images, "a.csv", save_state=home / "new" / "state")
    assert (home / "new" / "state").exists()


def test_only_the_last_folder_of_a_path_is_made(
    home: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in a path would otherwise make a tree of folders without a word."""
    for options in (
        {"out": "slip/deep/a.csv"},
        {"out": "a.csv", "save_state": home / "slip" / "deep" / "state"},
        {"out": "a.csv", "bake": home / "slip" / "deep" / "net.safetensors"},
    ):
        out = str(options.pop("out"))
        with pytest.raises(FileNotFoundError, match=r"slip does not exist\. Create it first"):
            run(home, images, out, **options)
        assert not (home / "slip").exists()
    run(home, images, "made/a.csv", quiet=False)
    assert (home / "made" / "a.run" / "run.json").exists()
    assert f"note: created the folder {home / 'made'}." in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told_before_the_run(
    home: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root every folder can be; a full or read-only disk says so in the same way."""

    def refuse(*about: object, **more: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(home))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    for options in ({"bake": home / "x.safetensors"}, {"save_state": home / "s.safetensors"}):
        with pytest.raises(OSError, match="Read-only"):
            run(home, images, "a.csv", **options)
        assert not (home / "a.csv").exists()


def test_a_full_disk_names_the_file(
    home: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        run(home, images, "a.csv")
    assert caught.value.filename == str(home / "a.run" / "state.safetensors")


def test_data_from_the_future_are_those_that_were(home: Path, images: Path) -> None:
    later = time.time() + 2 * 86400
    os.utime(images, (later, later))
    run(home, images, "a.csv")
    os.utime(images, (later, later))  # a change of status is a change
    with pytest.raises(DataError, match="has changed since"):
        run(home, images, "a.csv")
    run(home, images, "b.csv")
    run(home, images, "b.csv")


def test_fresh_is_not_repeated(home: Path, images: Path) -> None:
    run(home, images, "a.csv", fresh=True)
    assert "fresh:" not in (home / "a.run" / "config.yaml").read_text()


def kept(file: Path) -> dict[str, bytes]:
    """The tensors; the order of a header's keys is chance."""
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(file).items()}


def test_states_and_networks_of_other_runs_are_not_written_over(home: Path, images: Path) -> None:
    state, baked = home / "state.safetensors", home / "baked.safetensors"
    run(home, images, "a.csv", save_state=state, bake=baked)
    before = kept(state), kept(baked)
    for options, flag in (({"save_state": state}, "--save-state"), ({"bake": baked}, "--bake")):
        with pytest.raises(ValueError, match=f"`{flag}` .* already exists and is not from the run"):
            run(home, images, "b.csv", method="bn", **options)
    assert not (home / "b.run").exists()
    run(home, images, "a.csv", save_state=state, bake=baked)  # the same run once more
    assert (kept(state), kept(baked)) == before
    run(home, images, "c.csv", load_state=state, save_state=state)  # carried forward
    assert kept(state) != before[0]
    run(home, images, "d.csv", method="bn", bake=baked, fresh=True)
    assert kept(baked) != before[1]


def test_a_config_is_kept_by_runs_that_began(home: Path, images: Path) -> None:
    run(home, images, "a.csv", method="bn")
    with pytest.raises(ValueError, match="method"):
        run(home, images, "a.csv", method="tent")
    with (
        exclusive(home / "a.run" / "lock", "busy"),
        pytest.raises(BusyError, match="Another process"),
    ):
        run(home, images, "a.csv", method="bn", every=7)
    with pytest.raises(DataError, match="0 of 40 labels matched"):
        run(home, images, "b.csv", labels="folders")
    assert [path.name for path in (home / "a.run").glob("config*")] == ["config.yaml"]
    assert not (home / "b.run").exists()


def test_a_run_without_a_prediction_fails(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "broken").mkdir()
    for number in range(3):
        (home / "broken" / f"{number}.png").write_bytes(b"no picture")
    for options in ({}, {"quiet": False}, {"as_json": True}):
        with pytest.raises(SystemExit) as ended:
            run(home, home / "broken", "a.csv", bake=home / "x.safetensors", **options)
        assert ended.value.code == 1
        shown = capsys.readouterr()
        assert "none of the 3 images could be predicted" in shown.err
        assert "'0.png': not a picture" in shown.err
    assert json.loads(shown.out)["predicted"] == 0
    assert not (home / "x.safetensors").exists()


def test_labels_of_the_data_themselves(
    home: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(home, images, "a.csv", labels="own", quiet=False)
    record = json.loads((home / "a.run" / "run.json").read_text())
    assert record["labelled"] == 40
    assert "on 40 labelled images" in capsys.readouterr().out


def test_labels_of_unreadable_images_only(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    (home / "data" / "0").mkdir(parents=True)
    (home / "data" / "0" / "a.png").write_bytes(b"no picture")
    Image.fromarray(drifting(1)[0]).save(home / "data" / "b.png")
    run(home, home / "data", "a.csv", labels="folders", quiet=False, method="gprebn")
    assert "Accuracy is not available" in capsys.readouterr().out
    record = json.loads((home / "a.run" / "run.json").read_text())
    assert (record["labelled"], record["accuracy"]) == (0, None)
