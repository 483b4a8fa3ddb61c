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
from driftnorm.images.corrupted_sets import generate

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


def test_classes_without_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("cat/1.png")
    with pytest.raises(DataError, match="does not name its classes: give `--classes`"):
        open_labels("folders", ("0", "1"), open_inputs(tmp_path / "list.txt"))


def test_a_folder_in_place_of_labels(tmp_path: Path, listed: Inputs) -> None:
    with pytest.raises(FileNotFoundError, match="is a folder: give a CSV file"):
        open_labels(str(tmp_path), CLASSES, listed)


def test_the_folder_that_an_image_lies_in(tmp_path: Path) -> None:
    """What torchvision and timm go by; with prefixes before it, as lists have them."""
    names = [
        "./val/cat/1.png",
        "../photos/dog, big/2.png",
        "/data/x/0/3.png",
        "4.png",
        "cat/5/6.png",
    ]
    (tmp_path / "list.txt").write_text("\n".join(names))
    inputs = open_inputs(tmp_path / "list.txt")
    labels = open_labels("parents", CLASSES, inputs)
    assert [labels.of(name, 0) for name in names] == [0, 1, 0, None, None]
    (tmp_path / "list.txt").write_text("\n".join(names[:3]))
    with pytest.raises(
        DataError, match=r"no first folder is a class .*`--labels parents` would fit"
    ):
        open_labels("folders", CLASSES, open_inputs(tmp_path / "list.txt"))
    (tmp_path / "list.txt").write_text("./cat/5/6.png")
    inputs = open_inputs(tmp_path / "list.txt")
    assert open_labels("folders", CLASSES, inputs).of("./cat/5/6.png", 0) == 0
    with pytest.raises(DataError, match=r"no parent folder is .*`--labels folders` would fit"):
        open_labels("parents", CLASSES, inputs)


def test_folders_named_by_wordnet(
    timm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list.txt").write_text("n01440764/a.JPEG\nn15075141/b.JPEG\nn00000000/c.JPEG")
    inputs = open_inputs(tmp_path / "list.txt")
    classes = [f"what class {i} is called" for i in range(1000)]
    labels = open_labels("folders", classes, inputs)
    assert [labels.of(raw.name, 0) for raw in inputs.raw()] == [0, 999, None]
    table = write_csv(tmp_path / "l.csv", ("n01443537", "n01440764/a.JPEG"))
    assert open_labels(table, classes, inputs).of("n01440764/a.JPEG", 0) == 1
    with pytest.raises(DataError, match="no first folder is a class"):
        open_labels("folders", classes[:10], inputs)  # not ImageNet's

    def missing() -> None:
        raise ImportError("no timm")

    monkeypatch.setattr("driftnorm.images.labels.import_timm", missing)
    with pytest.raises(DataError, match="install timm, which knows the classes of such folders"):
        open_labels("folders", classes, inputs)


def test_prefixes_of_names_need_not_agree(tmp_path: Path) -> None:
    names = ["../photos/a/1.png", "../photos/b/1.png", "./c.png"]
    (tmp_path / "list.txt").write_text("\n".join(names))
    inputs = open_inputs(tmp_path / "list.txt")

    def found(*rows: tuple[str, str]) -> list[int | None]:
        labels = open_labels(write_csv(tmp_path / "l.csv", *rows), CLASSES, inputs)
        return [labels.of(name, 0) for name in names]

    assert found(("0", "../photos/a/1.png"), ("1", "c.png")) == [0, None, 1]
    assert found(("0", "a/1.png"), ("1", "b/1.png")) == [0, 1, None]
    assert found(("0", "/home/me/../photos/a/1.png"), ("1", "photos/b/1.png")) == [None, 1, None]
    assert found(("0", "data/c.png"), ("1", "data/d.png")) == [None, None, 0]
    with pytest.raises(DataError, match="0 of 3 labels matched"):
        found(("0", "1.png"), ("1", "2.png"))  # of which folder?


def test_labels_that_corrupt_writes_fit_a_file_of_one_severity(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
    labels = np.array([0, 1, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "x.npz", images=images, labels=labels, classes=np.array(CLASSES))
    generate(tmp_path / "x.npz", tmp_path / "c", corruptions=["contrast"], severities=[3], limit=5)
    inputs = open_inputs(tmp_path / "c" / "contrast-3.npy")
    found = open_labels(str(tmp_path / "c" / "labels.npy"), CLASSES, inputs)
    assert [found.of(str(i), i) for i in range(5)] == [0, 1, 1, 0, 1]
    np.save(tmp_path / "other.npy", np.arange(25) % 2)
    with pytest.raises(DataError, match="for each of the 5 images"):
        open_labels(str(tmp_path / "other.npy"), CLASSES, inputs)


def test_a_table(tmp_path: Path, listed: Inputs) -> None:
    given = write_csv(tmp_path / "l.csv", ("cat", "a\nb.png"), ("dog, big", "c"), ("1", "d"))
    labels = open_labels(given, CLASSES, listed)
    assert [labels.of(name, 0) for name in ("a\nb.png", "c", "d", "e")] == [0, 1, 1, None]
    for label in ("horse", "2", "-1"):
        wrong = write_csv(tmp_path / "wrong.csv", ("cat", "c"), (label, "d"))
        expected = f"line 3: the label {label!r} is neither the unambiguous name"
        with pytest.raises(DataError, match=expected):
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
    with pytest.raises(DataError, match="line 3: 'c' has a different label in an earlier line"):
        open_labels(other, CLASSES, listed)
    (tmp_path / "latin.csv").write_bytes("name,label\nc,\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv is not UTF-8"):
        open_labels(str(tmp_path / "latin.csv"), CLASSES, listed)


def test_a_name_of_two_classes_is_none(tmp_path: Path, listed: Inputs) -> None:
    """ImageNet has two cranes; who means one of them gives its number."""
    named = write_csv(tmp_path / "named.csv", ("crane", "c"))
    with pytest.raises(DataError, match=r"'crane' is neither the unambiguous name of a class"):
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
    with pytest.raises(DataError, match="one class number per image"):
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
        with pytest.raises(DataError, match="has no labels"):
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
