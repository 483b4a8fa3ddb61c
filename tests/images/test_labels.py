"""True classes from folders, files and the data themselves; what fits nothing is told at once."""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftnorm.errors import DataError
from driftnorm.images import Inputs, open_inputs, open_labels

CLASSES = ("cat", "dog, big")


@pytest.fixture
def listed(tmp_path: Path) -> Inputs:
    """Names of images; the files themselves are never opened."""
    names = ("dog, big/x.png", "1/deep/x.png", "x.png", "horse/x.png", "7/x.png", "c", "d")
    (tmp_path / "list.txt").write_text("\n".join(names))
    return open_inputs(tmp_path / "list.txt")


def write_csv(path: Path, *rows: tuple[str, str]) -> str:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("label", "name"), *rows])
    return str(path)


def test_folders(listed: Inputs) -> None:
    labels = open_labels("folders", CLASSES, listed)
    found = [labels.of(raw.name, 0) for raw in listed.raw()]
    assert found == [1, 1, None, None, None, None, None]
    with pytest.raises(DataError, match=r"0 of 7 labels matched: no first folder is a class such"):
        open_labels("folders", ("zebra",), listed)


def test_a_table(tmp_path: Path, listed: Inputs) -> None:
    given = write_csv(tmp_path / "l.csv", ("cat", "a\nb.png"), ("dog, big", "c"), ("1", "d"))
    labels = open_labels(given, CLASSES, listed)
    assert [labels.of(name, 0) for name in ("a\nb.png", "c", "d", "e")] == [0, 1, 1, None]
    for label in ("horse", "2", "-1"):
        wrong = write_csv(tmp_path / "wrong.csv", ("cat", "c"), (label, "d"))
        with pytest.raises(DataError, match=f"line 3: the label {label!r} is neither the name"):
            open_labels(wrong, CLASSES, listed)
    other = write_csv(tmp_path / "other.csv", ("cat", "elsewhere.png"))
    with pytest.raises(DataError, match=r"0 of 7 labels matched: .* such as 'elsewhere.png'"):
        open_labels(other, CLASSES, listed)
    (tmp_path / "bare.csv").write_text("x,1\n")
    with pytest.raises(DataError, match="columns name and label"):
        open_labels(str(tmp_path / "bare.csv"), CLASSES, listed)
    with pytest.raises(FileNotFoundError, match="or the word folders"):
        open_labels("folder", CLASSES, listed)


def test_tables_that_say_two_things_or_none(tmp_path: Path, listed: Inputs) -> None:
    empty = write_csv(tmp_path / "empty.csv", ("cat", "c"), ("", "d"))
    labels = open_labels(empty, CLASSES, listed)
    assert [labels.of(name, 0) for name in ("c", "d")] == [0, None]
    same = write_csv(tmp_path / "same.csv", ("cat", "c"), ("0", "c"))
    assert open_labels(same, CLASSES, listed).of("c", 0) == 0
    other = write_csv(tmp_path / "other.csv", ("cat", "c"), ("1", "c"))
    with pytest.raises(DataError, match="line 3: 'c' has another label in an earlier line"):
        open_labels(other, CLASSES, listed)
    (tmp_path / "latin.csv").write_bytes("name,label\nc,\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv is not UTF-8"):
        open_labels(str(tmp_path / "latin.csv"), CLASSES, listed)


def test_a_name_of_two_classes_is_none(tmp_path: Path, listed: Inputs) -> None:
    """ImageNet has two cranes; who means one of them gives its number."""
    named = write_csv(tmp_path / "named.csv", ("crane", "c"))
    with pytest.raises(DataError, match=r"'crane' is neither the name of a class \(of one alone\)"):
        open_labels(named, ("crane", "dog", "crane"), listed)
    numbered = write_csv(tmp_path / "numbered.csv", ("2", "c"))
    assert open_labels(numbered, ("crane", "dog", "crane"), listed).of("c", 0) == 2


def test_an_array(tmp_path: Path, listed: Inputs) -> None:
    given = str(tmp_path / "l.npy")
    np.save(given, np.array([1, 0, -1, 1, 0, 0, 1]))
    labels = open_labels(given, CLASSES, listed)
    assert [labels.of("x", position) for position in range(8)] == [1, 0, None, 1, 0, 0, 1, None]
    for wrong in (6, 8):
        np.save(given, np.zeros(wrong, dtype=int))
        with pytest.raises(DataError, match=rf"each of the 7 images, .*; it holds {wrong}\."):
            open_labels(given, CLASSES, listed)
    for number in (2, -2):
        np.save(given, np.array([0, number]))
        with pytest.raises(DataError, match=f"from 0 to 1, or -1 .* got {number}"):
            open_labels(given, CLASSES, listed)
    np.save(given, np.full(7, -1))
    with pytest.raises(DataError, match="0 of 7 labels matched"):
        open_labels(given, CLASSES, listed)
    np.save(given, np.array([[0.5]]))
    with pytest.raises(DataError, match="one class number an image"):
        open_labels(given, CLASSES, listed)


def test_labels_in_an_npz(tmp_path: Path) -> None:
    images = np.zeros((3, 8, 8, 3), np.uint8)
    for labels in (np.array([1, 0, 1]), np.array(["dog, big", "cat", "1"])):
        np.savez(tmp_path / "x.npz", images=images, labels=labels)
        inputs = open_inputs(tmp_path / "x.npz")
        found = open_labels("own", CLASSES, inputs)
        assert [found.of(raw.name, 99) for raw in inputs.raw()] == [1, 0, 1]
    for labels, message in (
        (np.array([1, 0]), "for each of the 3 images"),
        (np.array([0.0, 1.0, 1.0]), "for each of the 3 images"),
        (np.array([0, 1, 2]), "image 2: the label '2' is neither"),
    ):
        np.savez(tmp_path / "x.npz", images=images, labels=labels)
        with pytest.raises(DataError, match=message):
            open_labels("own", CLASSES, open_inputs(tmp_path / "x.npz"))
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "bare.npz", images=images)
    for name in ("x.npy", "bare.npz"):
        with pytest.raises(DataError, match="brings no labels"):
            open_labels("own", CLASSES, open_inputs(tmp_path / name))


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_labels_in_an_archive(suffix: str, tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture, "PNG")
    members = {
        "a.b/0.cls": b"1\n",
        "a.b/0.png": picture.getvalue(),
        "a.b/1.rgb.png": picture.getvalue(),
        "a.b/1.cls": b"cat",
        "2.png": picture.getvalue(),
        "2.json": b"{}",
        "3.cls": b"0",
    }
    file = tmp_path / f"x{suffix}"
    with tarfile.open(file, "w:gz" if suffix.endswith("gz") else "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    inputs = open_inputs(file)
    labels = open_labels("own", CLASSES, inputs)
    found = {raw.name: labels.of(raw.name, 0) for raw in inputs.raw()}
    assert found == {"a.b/0.png": 1, "a.b/1.rgb.png": 0, "2.png": None}
