"""The corruptions' interface: determinism, shapes, severities, errors."""

import hashlib
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from driftnorm.shifts import (
    CONSTANTS,
    CORRUPTIONS,
    EXTRA_CORRUPTIONS,
    GROUPS,
    SHIFTS,
    contact_sheet,
    corrupt,
    default_scale,
)
from driftnorm.shifts._common import Draws

ALL = CORRUPTIONS + EXTRA_CORRUPTIONS
PROCEDURAL = "procedural"


@lru_cache
def photographs(height: int, width: int, count: int) -> np.ndarray:
    """Crops of two real photographs, shrunk to the size asked for."""
    crops = []
    for number in range(count):
        photograph = Image.fromarray(load_sample_images().images[number % 2])
        left, top = 37 * number % 200, 23 * number % 100
        crop = photograph.crop((left, top, left + 320, top + 320))
        crops.append(np.asarray(crop.resize((width, height), Image.Resampling.BICUBIC)))
    return np.stack(crops)


@pytest.fixture(scope="module")
def small() -> np.ndarray:
    return photographs(32, 32, 12)


def test_registry_holds_every_corruption_with_its_constants() -> None:
    assert len(CORRUPTIONS) == 15
    assert tuple(SHIFTS) == ALL
    assert sum(GROUPS.values(), ()) == CORRUPTIONS
    assert set(CONSTANTS) == set(ALL)
    for name, shift in SHIFTS.items():
        assert shift.name == name
        assert name in GROUPS[shift.group] or name in EXTRA_CORRUPTIONS
        assert [len(five) for five in shift.constants.values()] == [5, 5]
    assert [SHIFTS[name].group for name in EXTRA_CORRUPTIONS] == list(GROUPS)


@pytest.mark.parametrize(
    ("name", "scale", "severity", "expected"),
    [
        ("gaussian_noise", "cifar", 4, (0.09,)),
        ("gaussian_noise", "imagenet", 5, (0.38,)),
        ("shot_noise", "cifar", 3, (100,)),
        ("impulse_noise", "imagenet", 4, (0.17,)),
        ("defocus_blur", "cifar", 5, (1.5, 0.1)),
        ("glass_blur", "imagenet", 3, (1, 2, 3)),
        ("motion_blur", "cifar", 2, (6, 1.5)),
        ("snow", "cifar", 5, (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
        ("snow", "imagenet", 4, (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65)),
        ("frost", "cifar", 3, (0.9, 0.4)),
        ("fog", "imagenet", 5, (3, 1.4)),
        ("brightness", "cifar", 1, (0.05,)),
        ("contrast", "imagenet", 5, (0.05,)),
        ("elastic_transform", "cifar", 1, (0, 0, 0.08)),
        ("elastic_transform", "imagenet", 2, (2, 0.08, 0.2)),
        ("pixelate", "cifar", 4, (0.75,)),
        ("jpeg_compression", "imagenet", 1, (25,)),
        ("speckle_noise", "cifar", 5, (0.2,)),
        ("gaussian_blur", "imagenet", 5, (6,)),
        ("spatter", "imagenet", 5, (0.67, 0.4, 1, 0.65, 1.5, 1)),
        ("saturate", "cifar", 3, (1.5, 0)),
    ],
)
def test_constants_are_the_published_ones(name, scale, severity, expected) -> None:
    assert SHIFTS[name].constants[scale][severity - 1] == expected


def test_zoom_factors_have_the_published_counts_and_ends() -> None:
    expected = {
        "cifar": [(7, 1.06), (12, 1.11), (16, 1.15), (21, 1.20), (26, 1.25)],
        "imagenet": [(12, 1.11), (16, 1.15), (11, 1.20), (13, 1.24), (11, 1.30)],
    }
    for scale, pairs in expected.items():
        for (stop, step), (count, last) in zip(CONSTANTS["zoom_blur"][scale], pairs, strict=True):
            factors = np.arange(1, stop, step)
            assert len(factors) == count
            assert factors[-1] == pytest.approx(last)


@pytest.mark.parametrize("name", ALL)
def test_pixels_do_not_depend_on_subset_order_or_batch(name, small, monkeypatch) -> None:
    before = small.copy()
    for severity in (1, 3, 5):
        whole = corrupt(small, name, severity, seed=5, frost=PROCEDURAL)
        order = np.array([7, 0, 11, 3])
        some = corrupt(small[order], name, severity, indices=order, seed=5, frost=PROCEDURAL)
        np.testing.assert_array_equal(some, whole[order])
        with monkeypatch.context() as patch:
            patch.setattr("driftnorm.shifts._corruption._CHUNK_PIXELS", 5 * 32 * 32)
            chunked = corrupt(small, name, severity, seed=5, frost=PROCEDURAL)
        np.testing.assert_array_equal(chunked, whole)
        assert not np.array_equal(whole, small)
    np.testing.assert_array_equal(small, before)


def digest() -> str:
    """A hash of all corruptions, at a size where products of matrices use several threads too."""
    parts = [
        corrupt(images, name, 4, frost=PROCEDURAL).tobytes()
        for name in ALL
        for images in (photographs(32, 32, 4), photographs(160, 200, 1))
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_pixels_do_not_depend_on_the_process_or_its_threads(threads) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, "-c", "import test_shifts; print(test_shifts.digest())"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest()


DETERMINISTIC = {
    "defocus_blur",
    "zoom_blur",
    "gaussian_blur",
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
    "jpeg_compression",
}


@pytest.mark.parametrize("name", ALL)
def test_seed_and_index_matter_exactly_for_the_random_corruptions(name, small) -> None:
    image = np.concatenate([small[:1]] * 2)
    # Severity 3: at 32 px, spatter of severity 1 may leave a picture without a drop.
    first, second = corrupt(image, name, 3, frost=PROCEDURAL)
    other_seed = corrupt(image[:1], name, 3, seed=1, frost=PROCEDURAL)[0]
    assert np.array_equal(first, second) == (name in DETERMINISTIC)
    assert np.array_equal(first, other_seed) == (name in DETERMINISTIC)


def test_streams_differ_by_each_part_of_the_key_and_stay_the_same_for_ever() -> None:
    keys = [
        (0, 0, "fog", 1),
        (1, 0, "fog", 1),
        (0, 1, "fog", 1),
        (0, 0, "fog", 2),
        (0, 0, "snow", 1),
    ]
    firsts = set()
    for seed, index, name, severity in keys:
        draws = Draws(seed, [index], name, severity)
        firsts |= {float(draws.uniform(0, 1)[0]), float(draws.uniform(0, 1)[0])}
    assert len(firsts) == 2 * len(keys)
    # Philox is fixed by numpy's promise; a change here would change every generated data set.
    drawn = Draws(7, [3, 2**40], "snow", 2).uniform(0, 1, 2)
    pinned = [[0.5488548278808594, 0.3490951657295227], [0.2970935106277466, 0.281364381313324]]
    np.testing.assert_array_equal(drawn, np.array(pinned, dtype=np.float32))


@pytest.mark.parametrize("size", [(8, 8), (8, 33), (47, 20), (96, 64), (70, 99)])
def test_any_size_works_at_both_scales(size) -> None:
    images = photographs(*size, 2)
    for name in ALL:
        for scale in ("cifar", "imagenet"):
            for severity in (1, 5):
                result = corrupt(images, name, severity, scale=scale, frost=PROCEDURAL)
                assert result.shape == images.shape
                assert result.dtype == np.uint8


def test_scale_follows_the_short_side(small) -> None:
    assert default_scale(64, 500) == "cifar"
    assert default_scale(65, 65) == "imagenet"
    wide = photographs(65, 80, 1)
    np.testing.assert_array_equal(
        corrupt(wide, "contrast", 2), corrupt(wide, "contrast", 2, scale="imagenet")
    )
    np.testing.assert_array_equal(
        corrupt(small, "contrast", 2), corrupt(small, "contrast", 2, scale="cifar")
    )


def test_no_images_and_read_only_or_strided_images_are_fine(small) -> None:
    assert corrupt(small[:0], "fog", 1).shape == (0, 32, 32, 3)
    strided = np.repeat(small, 2, axis=2)[:, :, ::2]
    strided.flags.writeable = False
    np.testing.assert_array_equal(corrupt(strided, "fog", 1), corrupt(small, "fog", 1))


# The published constants are not all meant to grow: elastic trades affine jitter for displacement,
# saturate turns from grey to gaudy, spatter from water to mud, frost darkens the image as it adds
# ice, glass trades its sigma for its displacement. The others named differ too little between
# two neighbouring severities for so few images.
UNORDERED = {
    "cifar": {"elastic_transform", "saturate", "spatter", "frost", "glass_blur", "motion_blur"},
    "imagenet": {"elastic_transform", "saturate", "frost", "glass_blur", "snow", "fog"},
}


@pytest.mark.parametrize("scale", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", ALL)
def test_severity_takes_images_farther_from_the_clean_ones(name, scale) -> None:
    images = photographs(32, 32, 32) if scale == "cifar" else photographs(112, 112, 6)
    distances = [
        np.abs(corrupt(images, name, severity, frost=PROCEDURAL) - images.astype(float)).mean()
        for severity in range(1, 6)
    ]
    assert min(distances) > 0.5
    if name not in UNORDERED[scale]:
        assert np.diff(distances).min() > 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"images": np.zeros((1, 32, 32, 3), np.float32)}, TypeError, "dtype uint8.*got float32"),
        ({"images": [[1]]}, TypeError, "numpy array, got list"),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, ValueError, r"\(N, H, W, 3\), got \(32, 32"),
        ({"images": np.zeros((1, 3, 32, 32), np.uint8)}, ValueError, "np.moveaxis"),
        ({"images": np.zeros((1, 7, 32, 3), np.uint8)}, ValueError, "at least 8 x 8.*got 7 x 32"),
        ({"severity": 0}, ValueError, "`severity` must be an integer from 1 to 5, got 0"),
        ({"severity": 6}, ValueError, "got 6"),
        ({"severity": True}, ValueError, "got True"),
        ({"severity": 2.0}, TypeError, r"got 2\.0"),
        ({"name": "gausian_noise"}, ValueError, "Did you mean 'gaussian_noise'"),
        ({"name": "xyz"}, ValueError, "`name` must be one of gaussian_noise"),
        ({"indices": [1, 2]}, ValueError, r"one entry per image, here 1, got shape \(2,\)"),
        ({"indices": [0.5]}, TypeError, "integers, got dtype float64"),
        ({"indices": [-3]}, ValueError, "negative, got -3"),
        ({"seed": -1}, ValueError, "`seed` must be an integer from 0"),
        ({"scale": "mnist"}, ValueError, "`scale` must be one of cifar, imagenet; got 'mnist'"),
    ],
)
def test_wrong_arguments_are_named(change, error, message) -> None:
    arguments = {"images": np.zeros((1, 32, 32, 3), np.uint8), "name": "fog", "severity": 1}
    with pytest.raises(error, match=message):
        corrupt(**(arguments | change))


def test_contact_sheet_shows_every_corruption(small) -> None:
    sheet = contact_sheet(small[0], frost=PROCEDURAL)
    tile = 64 + 3
    assert sheet.height >= 19 * tile
    assert sheet.width >= 6 * tile
    left = sheet.width - 6 * tile
    top = sheet.height - 19 * tile
    clean = np.asarray(sheet)[top : top + 64 : 2, left : left + 64 : 2]
    np.testing.assert_array_equal(clean, small[0])
