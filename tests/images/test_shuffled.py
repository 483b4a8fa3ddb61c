"""Images in a shuffled order: every kind that can be, the same order again, the right labels."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftnorm.errors import DataError
from driftnorm.images import Shuffled, open_inputs, open_labels
from driftnorm.models import Preprocessing

WANTED = Preprocessing((0.5,) * 3, (0.25,) * 3, 8)
COUNT = 23


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(params=["npy", "npz", "channels", "folder", "list", "tar"])
def data(request: pytest.FixtureRequest, images: np.ndarray, tmp_path: Path) -> Path:
    kind, home = request.param, tmp_path
    if kind == "npy":
        np.save(home / "x.npy", images)
        return home / "x.npy"
    if kind == "npz":
        np.savez(home / "x.npz", labels=np.arange(COUNT), images=images)
        return home / "x.npz"
    if kind == "channels":
        np.save(home / "x.npy", images.transpose(0, 3, 1, 2))
        return home / "x.npy"
    (home / "x").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(home / "x" / f"{number:02}.png")
    files = sorted((home / "x").iterdir())
    if kind == "folder":
        return home / "x"
    if kind == "list":
        (home / "list.txt").write_text("\n".join(f"x/{file.name}" for file in files))
        return home / "list.txt"
    with tarfile.open(home / "x.tar", "w") as archive:
        for file in files:
            archive.add(file, file.name)
    return home / "x.tar"


def test_the_images_are_the_same_in_another_order(data: Path, images: np.ndarray) -> None:
    plain = open_inputs(data)
    shuffled = Shuffled(plain, 3)
    assert sorted(shuffled.order) == [*range(COUNT)]
    assert shuffled.order != [*range(COUNT)]
    own = [*plain.stream(WANTED)]
    for start in (0, 7, COUNT):
        found = [*shuffled.stream(WANTED, starting_at=start)]
        assert [item.name for item in found] == [own[i].name for i in shuffled.order[start:]]
        for item, place in zip(found, shuffled.order[start:], strict=True):
            assert np.array_equal(item.pixels, images[place])
    assert shuffled.survey().images == COUNT
    assert Shuffled(open_inputs(data), 3).order == shuffled.order
    assert Shuffled(plain, 4).order != shuffled.order
    assert Shuffled(plain, 4).fingerprint() != shuffled.fingerprint()


def test_labels_by_position_go_with_their_images(data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.arange(COUNT))
    classes = [f"class {i}" for i in range(COUNT)]
    shuffled = Shuffled(open_inputs(data), 1)
    labels = open_labels(str(tmp_path / "y.npy"), classes, shuffled)
    found = [labels.of(raw.name, i) for i, raw in enumerate(shuffled.raw())]
    assert found == [*shuffled.order]


def test_files_that_are_added_or_renamed_change_the_fingerprint(tmp_path: Path) -> None:
    for number in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    before = Shuffled(open_inputs(tmp_path), 0).fingerprint()
    (tmp_path / "3.png").rename(tmp_path / "2b.png")
    assert Shuffled(open_inputs(tmp_path), 0).fingerprint() != before


def test_what_has_no_places_is_refused(images: np.ndarray, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", images=images)
    stream = io.BytesIO()
    Image.fromarray(images[0]).save(stream, "png")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        about = tarfile.TarInfo("a.png")
        about.size = len(stream.getvalue())
        archive.addfile(about, io.BytesIO(stream.getvalue()))
    for name in ("x.npz", "x.tar.gz"):
        with pytest.raises(DataError, match="so it cannot be shuffled: unpack it"):
            Shuffled(open_inputs(tmp_path / name), 0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        Shuffled(open_inputs(tmp_path / "x.tar.gz"), -1)
