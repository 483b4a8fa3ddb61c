"""Generated data sets: layout, the same bytes however they came about, and what refuses to mix."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import random_images, tree, write_npz, write_pictures
from PIL import Image

from driftnorm._internal.files import exclusive
from driftnorm.errors import BusyError, DataError
from driftnorm.images.cifar_c import check_cifar_c, load_cifar_c
from driftnorm.images.corrupted_sets import generate
from driftnorm.images.corruption import corrupted
from driftnorm.images.imagenet_c import load_imagenet_c
from driftnorm.images.npz import load_npz
from driftnorm.images.pictures import load_pictures
from driftnorm.shifts import CORRUPTIONS

SOME = ("gaussian_noise", "fog")
COUNT = 30


@pytest.fixture
def small_chunks(monkeypatch) -> None:
    monkeypatch.setattr("driftnorm.images.corrupted_arrays._CHUNK", 7)


@pytest.fixture
def source(tmp_path) -> Path:
    return write_npz(tmp_path / "pets.npz", COUNT)


@pytest.mark.usefixtures("small_chunks")
def test_the_released_layout_with_the_same_pixels_as_on_the_fly(source, tmp_path) -> None:
    steps = []
    made = generate(
        source,
        tmp_path / "out",
        frost="procedural",
        workers=1,
        seed=3,
        progress=lambda *step: steps.append(step),
    )
    assert (made.source, made.count, made.frost) == ("pets", COUNT, "procedural")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"labels.npy", "driftnorm.json", *(f"{name}.npy" for name in CORRUPTIONS)}
    clean = load_npz(source)
    for name in CORRUPTIONS:
        array = np.load(tmp_path / "out" / f"{name}.npy")
        assert array.shape == (5 * COUNT, 32, 32, 3)
        assert array.dtype == np.uint8
        for severity in range(1, 6):
            expected = corrupted(clean, name, severity, seed=3, frost="procedural")
            loaded = load_cifar_c(tmp_path / "out", name, severity)
            np.testing.assert_array_equal(loaded.images, expected.images)
            np.testing.assert_array_equal(
                array[(severity - 1) * COUNT : severity * COUNT], expected.images
            )
            np.testing.assert_array_equal(loaded.labels, clean.labels)
            assert (loaded.name, loaded.note) == (expected.name, expected.note)
            assert loaded.classes == clean.classes
    assert check_cifar_c(tmp_path / "out", "pets-c") == []
    total = 75 * COUNT
    assert steps[0] == ("", 0, total)
    assert steps[-1] == ("jpeg_compression 5", total, total)


def test_driftnorm_json_says_how_it_was_made(source, tmp_path) -> None:
    generate(source, tmp_path / "out", corruptions=["frost"], frost="procedural", workers=1, seed=4)
    record = json.loads((tmp_path / "out" / "driftnorm.json").read_text())
    assert record["path"] == str(source)
    assert record["source"] == "pets"
    assert (record["layout"], record["count"], record["seed"]) == ("cifar-c", COUNT, 4)
    assert (record["scale"], record["frost"]) == ("cifar", "procedural")
    assert record["made_with"][0]["numpy"] == np.__version__
    assert load_cifar_c(tmp_path / "out", "frost", 5).note == "frost is procedural"


def test_limit_takes_the_first(source, tmp_path) -> None:
    generate(source, tmp_path / "out", corruptions=["contrast"], workers=1, limit=4)
    expected = corrupted(load_npz(source).first(4), "contrast", 2)
    np.testing.assert_array_equal(
        load_cifar_c(tmp_path / "out", "contrast", 2).images, expected.images
    )


def test_severities_come_one_by_one_and_join(source, tmp_path) -> None:
    out = tmp_path / "out"
    generate(source, out, corruptions=SOME, severities=[5], workers=1)
    assert {path.name for path in out.glob("fog*")} == {"fog-5.npy"}
    assert len(load_cifar_c(out, "fog", 5)) == COUNT
    assert check_cifar_c(out, "pets-c") == []
    with pytest.raises(FileNotFoundError, match=r"holds fog-5, gaussian_noise-5\. `driftnorm"):
        load_cifar_c(out, "fog", 4)
    steps = []
    generate(source, out, corruptions=SOME, workers=1, progress=lambda *step: steps.append(step))
    assert steps[0] == ("", 2 * COUNT, 10 * COUNT)
    generate(source, tmp_path / "at_once", corruptions=SOME, workers=1)
    assert tree(out) == tree(tmp_path / "at_once")


def test_processes_make_no_difference(source, tmp_path) -> None:
    for workers in (1, 2):
        generate(source, tmp_path / str(workers), corruptions=SOME, workers=workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


KILLED = """
import sys
from driftnorm.images import corrupted_arrays
from driftnorm.images.corrupted_sets import generate

corrupted_arrays._CHUNK = 5
data, out, workers, enough = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def stop(text, done, total):
    if done >= enough:
        print("enough", flush=True)
        sys.stdin.read()

generate(data, out, corruptions=("gaussian_noise", "fog"), workers=workers, progress=stop)
"""


def kill_a_run(source: Path, out: Path, workers: int, enough: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(source), str(out), str(workers), str(enough)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "enough\n"
        process.send_signal(signal.SIGKILL)
        # Workers hold the pipe's other end: it ends only when they do.
        process.communicate(timeout=30)


@pytest.mark.parametrize(("workers", "enough"), [(1, 12), (1, 47), (2, 155), (1, 290)])
def test_killed_and_restarted_gives_the_same_bytes(source, tmp_path, workers, enough) -> None:
    out, reference = tmp_path / "out", tmp_path / "reference"
    generate(source, reference, corruptions=SOME, workers=1)
    kill_a_run(source, out, workers, enough)
    finished = {path.name for path in out.glob("*.npy")}
    assert "incomplete" in check_cifar_c(out, "pets-c")[0]
    for name in SOME:
        for severity in range(1, 6):
            if f"{name}-{severity}.npy" in finished or f"{name}.npy" in finished:
                there = load_cifar_c(out, name, severity).images
                np.testing.assert_array_equal(there, load_cifar_c(reference, name, severity).images)
    steps = []
    generate(source, out, corruptions=SOME, workers=1, progress=lambda *step: steps.append(step))
    assert steps[0][1] >= enough // COUNT * COUNT - workers * COUNT, "finished parts are kept"
    assert tree(out) == tree(reference)


def test_pictures_in_the_layout_of_imagenet_c(tmp_path) -> None:
    names = ["n01/a.JPEG", "n01/b.png", "n02/c.JPEG"]
    write_pictures(tmp_path / "val", dict.fromkeys(names, (280, 256)))
    (tmp_path / "val" / "n02" / "note.txt").write_text("no picture")
    options = {"corruptions": ["shot_noise", "pixelate"], "severities": [1, 4], "seed": 2}
    for workers in (1, 2):
        generate(tmp_path / "val", tmp_path / str(workers), workers=workers, **options)
    files = tree(tmp_path / "1")
    assert files == tree(tmp_path / "2")
    inner = ["n01/a.JPEG", "n01/b.JPEG", "n02/c.JPEG"]
    assert files.keys() == {"driftnorm.json"} | {
        f"{corruption}/{severity}/{name}"
        for corruption in ("shot_noise", "pixelate")
        for severity in (1, 4)
        for name in inner
    }
    clean = load_pictures(tmp_path / "val")
    for severity in (1, 4):
        released = load_imagenet_c(tmp_path / "1", "shot_noise", severity)
        on_the_fly = corrupted(clean, "shot_noise", severity, seed=2)
        np.testing.assert_array_equal(released.load().images, on_the_fly.load().images)
        np.testing.assert_array_equal(released.labels, on_the_fly.labels)
        assert released.name == on_the_fly.name
    record = json.loads((tmp_path / "1" / "driftnorm.json").read_text())
    assert (record["layout"], record["scale"]) == ("imagenet-c", "imagenet")
    assert "JPEG of quality 85" in record["preparation"]


def test_pictures_go_on_where_they_were(tmp_path) -> None:
    write_pictures(tmp_path / "val", {f"a/{n}.png": (256, 256) for n in range(5)})
    options = {"corruptions": ["contrast"], "workers": 1, "limit": 3}
    generate(tmp_path / "val", tmp_path / "out", **options)
    reference = tree(tmp_path / "out")
    assert {name[-6:] for name in reference if "contrast/5" in name} == {
        "0.JPEG",
        "1.JPEG",
        "3.JPEG",
    }
    (tmp_path / "out" / "contrast" / "2" / "a" / "1.JPEG").unlink()
    (tmp_path / "out" / "contrast" / "2" / "a" / ".1.JPEG.part").write_bytes(b"half")
    steps = []
    generate(tmp_path / "val", tmp_path / "out", **options, progress=lambda *s: steps.append(s))
    assert tree(tmp_path / "out") == reference
    assert len(steps) == 3
    assert steps[-1] == ("", 15, 15)


def test_bad_pictures_are_all_named_before_anything_is_written(tmp_path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "clean" / name).mkdir(parents=True)
        Image.new("RGB", (240, 240)).save(tmp_path / "clean" / name / "1.png")
    for name in ("b", "c"):
        (tmp_path / "clean" / name / "2.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"2 of 5 pictures cannot be read.*b.2\.png.*c.2\.png"):
        generate(tmp_path / "clean", tmp_path / "out", corruptions=["contrast"], severities=[1])
    assert not (tmp_path / "out").exists()
    for name in ("b", "c"):
        (tmp_path / "clean" / name / "2.png").unlink()
    done = generate(tmp_path / "clean", tmp_path / "out", corruptions=["contrast"], severities=[1])
    assert done.count == 3


def test_pictures_that_would_collide_or_feed_on_themselves(tmp_path) -> None:
    write_pictures(tmp_path / "val", {"a/x.png": (256, 256), "a/x.jpg": (256, 256)})
    with pytest.raises(DataError, match=r"would both become a/x.JPEG"):
        generate(tmp_path / "val", tmp_path / "out", corruptions=["fog"], workers=1)
    with pytest.raises(DataError, match="is inside `data`"):
        generate(tmp_path / "val", tmp_path / "val" / "out", corruptions=["fog"], workers=1)


def test_refuses_to_mix(source, tmp_path) -> None:
    out = tmp_path / "out"
    options = {"corruptions": ["contrast"], "severities": [1], "workers": 1}
    generate(source, out, **options)
    before = tree(out)
    for changed, words in (
        ({"seed": 1}, "another `seed`: 0, not 1"),
        ({"limit": 5}, "another `count`: 30, not 5"),
    ):
        with pytest.raises(DataError, match=words):
            generate(source, out, **{**options, **changed})
    other = tmp_path / "other" / "pets.npz"
    other.parent.mkdir()
    np.savez(
        other,
        images=random_images(COUNT, seed=9),
        labels=load_npz(source).labels,
        classes=["cat", "dog"],
    )
    with pytest.raises(DataError, match="another `fingerprint`"):
        generate(other, out, **options)
    assert tree(out) == before
    # Frost may join later, but then it stays what it is.
    generate(source, out, **{**options, "corruptions": ["frost"]}, frost="procedural")
    generate(source, out, **options)
    assert json.loads((out / "driftnorm.json").read_text())["frost"] == "procedural"
    released = tmp_path / "CIFAR-10-C"
    released.mkdir()
    (released / "fog.npy").write_bytes(b"released")
    with pytest.raises(DataError, match=r"already holds fog.npy, and no driftnorm.json"):
        generate(source, released, **options)
    assert tree(released) == {"fog.npy": b"released"}


def test_two_runs_do_not_meet(source, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (
        exclusive(out / ".driftnorm.lock", "busy"),
        pytest.raises(BusyError, match="Another process is generating data"),
    ):
        generate(source, out, corruptions=["fog"], workers=1)


def test_mistakes_show_before_anything_is_written(source, tmp_path, monkeypatch) -> None:
    for options, words in (
        ({"corruptions": ["fogg"]}, "Did you mean 'fog'"),
        ({"corruptions": []}, "at least one"),
        ({"severities": [0]}, "from 1 to 5, got 0"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"limit": 31}, "has 30 images"),
        ({"seed": -1}, "`seed` must be"),
    ):
        with pytest.raises(ValueError, match=words):
            generate(source, tmp_path / "out", **{"frost": "procedural", **options})
    monkeypatch.delenv("DRIFTNORM_FROST", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="needs its overlay pictures"):
        generate(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_real_cifar10(tmp_path) -> None:
    folder = os.environ.get("DRIFTNORM_CIFAR10")
    if not folder:
        pytest.skip("DRIFTNORM_CIFAR10 does not name the folder of CIFAR-10's binary batches")
    generate(folder, tmp_path, corruptions=["snow"], severities=[3], workers=1, limit=300)
    loaded = load_cifar_c(tmp_path, "snow", 3)
    assert loaded.name == "cifar-10-c/snow/3"
    assert loaded.labels[:4].tolist() == [3, 8, 8, 0]
