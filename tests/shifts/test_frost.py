"""Where frost's pictures come from."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftnorm.shifts import corrupt, frost_source


@pytest.fixture(scope="module")
def small() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)


def picture_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, ending in enumerate(["png", "png", "png", "jpg", "jpg"], start=1):
        grey = Image.new("RGB", (400, 300), (number * 40,) * 3)
        grey.save(folder / f"frost{number}.{ending}")
    return folder


def test_reads_a_folder_given_by_argument_or_variable(small, tmp_path, monkeypatch) -> None:
    folder = picture_folder(tmp_path / "pictures")
    dark = small // 2
    given = corrupt(dark, "frost", 1, frost=folder)
    # The image's weight is 1 and the pictures are flat greys: 0.2 of one of them is added.
    added = (given - dark).reshape(len(dark), -1)
    np.testing.assert_array_equal(added.min(axis=1), added.max(axis=1))
    assert set(added[:, 0]) <= {8, 16, 24, 32, 40}
    assert len(set(added[:, 0])) > 1
    monkeypatch.setenv("DRIFTNORM_FROST", str(folder))
    np.testing.assert_array_equal(corrupt(dark, "frost", 1), given)
    assert frost_source() == frost_source(str(folder)) == "overlays"


def test_finds_an_installed_package_without_importing_it(small, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("DRIFTNORM_FROST", raising=False)
    package = tmp_path / "imagecorruptions"
    picture_folder(package / "frost")
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert frost_source() == "overlays"
    assert corrupt(small, "frost", 5).shape == small.shape
    assert "imagecorruptions" not in sys.modules


def test_says_what_to_do_without_pictures(small, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("DRIFTNORM_FROST", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"DRIFTNORM_FROST.*imagecorruptions-imaug"):
        corrupt(small, "frost", 1)
    with pytest.raises(FileNotFoundError, match=r"`frost`.*lacks frost1\.png"):
        frost_source(tmp_path)


def test_stand_in_is_named(small) -> None:
    assert frost_source("procedural") == "procedural"
    assert corrupt(small, "frost", 3, frost="procedural").shape == small.shape
