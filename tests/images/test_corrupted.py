"""The released layouts of CIFAR-10-C and ImageNet-C, and corruption on the fly."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from data_files import random_images, write_cifar_c, write_npz, write_pictures
from PIL import Image

from driftnorm.errors import DataError
from driftnorm.images.cifar_c import check_cifar_c, load_cifar_c
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.corrupted_sets import generate
from driftnorm.images.corruption import corrupted
from driftnorm.images.imagenet_c import is_imagenet, load_imagenet_c
from driftnorm.images.layout_check import check_imagenet_c
from driftnorm.images.npz import load_npz
from driftnorm.images.pictures import jpeg_bytes, load_pictures, read_cropped
from driftnorm.shifts import CORRUPTIONS, corrupt

ROWS = 10


def test_cifar_c_severities_are_blocks_of_rows(tmp_path) -> None:
    labels = write_cifar_c(tmp_path, ("fog", "snow"), ROWS)
    for severity in range(1, 6):
        loaded = load_cifar_c(tmp_path, "snow", severity)
        assert loaded.name == f"cifar-10-c/snow/{severity}"
        assert loaded.images[:, 0, 0, 0].tolist() == [50 + 10 * severity + r for r in range(ROWS)]
        np.testing.assert_array_equal(loaded.labels, labels)
    assert isinstance(loaded.images, np.memmap)
    assert loaded.classes == CIFAR10_CLASSES
    assert loaded.note == ""
    part = load_cifar_c(tmp_path, "fog", 2, count=3)
    assert len(part) == 3
    assert part.images[:, 5, 5, 1].tolist() == [20, 21, 22]


def test_cifar_100_c_is_told_by_its_labels(tmp_path) -> None:
    write_cifar_c(tmp_path, ("fog",), ROWS)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(90, 90 + ROWS), 5))
    loaded = load_cifar_c(tmp_path, "fog", 1)
    assert loaded.name == "cifar-100-c/fog/1"
    assert loaded.classes == CIFAR100_CLASSES


def wrong_arrays() -> dict[str, tuple[np.ndarray, str]]:
    good = np.zeros((5 * ROWS, 32, 32, 3), dtype=np.uint8)
    return {
        "short": (good[:-1], r"fog.npy must be uint8 of shape \(50, 32, 32, 3\).*\(49, 32"),
        "float": (good.astype(np.float32), "fog.npy must be uint8 .* got float32"),
        "planes": (good.transpose(0, 3, 1, 2), r"got uint8 of shape \(50, 3, 32, 32\)"),
        "large": (good.repeat(2, axis=1), r"got uint8 of shape \(50, 64, 32, 3\)"),
    }


@pytest.mark.parametrize("kind", ["short", "float", "planes", "large"])
def test_cifar_c_names_wrong_arrays(tmp_path, kind) -> None:
    write_cifar_c(tmp_path, CORRUPTIONS, ROWS)
    array, words = wrong_arrays()[kind]
    np.save(tmp_path / "fog.npy", array)
    with pytest.raises(DataError, match=words):
        load_cifar_c(tmp_path, "fog", 1)
    assert load_cifar_c(tmp_path, "snow", 1).images.shape == (ROWS, 32, 32, 3)
    assert sum("fog.npy" in problem for problem in check_cifar_c(tmp_path)) == 1


def test_cifar_c_names_wrong_files(tmp_path) -> None:
    write_cifar_c(tmp_path, ("fog", "snow"), ROWS)
    fog = tmp_path / "fog.npy"
    whole = fog.read_bytes()
    fog.write_bytes(whole[:-100])
    with pytest.raises(
        DataError, match=r"truncated: its header announces 153,728 bytes, found 153,"
    ):
        load_cifar_c(tmp_path, "fog", 5)
    fog.write_bytes(b"<!doctype html>")
    with pytest.raises(DataError, match=r"fog.npy is not an .npy file"):
        load_cifar_c(tmp_path, "fog", 5)
    fog.write_bytes(whole[:40])
    with pytest.raises(DataError, match=r"fog.npy is not an .npy file, or a damaged one"):
        load_cifar_c(tmp_path, "fog", 5)
    np.save(fog, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="pickled Python objects"):
        load_cifar_c(tmp_path, "fog", 5)
    with pytest.raises(FileNotFoundError, match=r"frost.npy does not exist; .* holds fog, snow\."):
        load_cifar_c(tmp_path, "frost", 5)
    with pytest.raises(ValueError, match="from 1 to 5, got 6"):
        load_cifar_c(tmp_path, "snow", 6)
    with pytest.raises(ValueError, match="has 10 images: `count` must be"):
        load_cifar_c(tmp_path, "snow", 5, count=11)


def test_cifar_c_names_wrong_labels(tmp_path) -> None:
    write_cifar_c(tmp_path, ("fog",), ROWS)
    file = tmp_path / "labels.npy"
    labels = np.load(file)
    for wrong, words in (
        (labels[:-1], "five equal runs of integers, got uint8 of shape"),
        (labels.astype(np.float64), "got float64"),
        (np.where(np.arange(50) == 33, 9, labels), "those of severity 4 differ"),
        (labels + 95, "labels must be from 0 to 99, got 95 to 104"),
    ):
        np.save(file, wrong)
        with pytest.raises(DataError, match=words):
            load_cifar_c(tmp_path, "fog", 1)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"labels.npy does not exist"):
        load_cifar_c(tmp_path, "fog", 1)
    assert check_cifar_c(tmp_path) == [f"{file} does not exist."]


def test_check_wants_all_fifteen_at_full_length(tmp_path) -> None:
    write_cifar_c(tmp_path, CORRUPTIONS[1:], ROWS)
    problems = check_cifar_c(tmp_path)
    assert len(problems) == 2
    assert "must have 50,000 labels, found 50" in problems[0]
    assert "gaussian_noise.npy does not exist" in problems[1]
    assert check_cifar_c(tmp_path, "cifar-100-c")[0].endswith("holds cifar-10-c, not cifar-100-c.")


def test_on_the_fly_from_any_part(tmp_path) -> None:
    clean = load_npz(write_npz(tmp_path / "pets.npz", 20))
    whole = corrupted(clean, "gaussian_noise", 3, seed=5)
    assert whole.name == "pets-c/gaussian_noise/3"
    np.testing.assert_array_equal(
        whole.images, corrupt(random_images(20), "gaussian_noise", 3, seed=5)
    )
    part = corrupted(clean.take(np.array([13, 4])), "gaussian_noise", 3, seed=5)
    np.testing.assert_array_equal(part.images, whole.images[[13, 4]])
    assert part.labels.tolist() == [1, 0]
    assert corrupted(clean, "frost", 1, frost="procedural").note == "frost is procedural"
    assert corrupted(clean, "fog", 1, frost="procedural").note == ""


def test_on_the_fly_pictures_go_through_the_jpeg(tmp_path) -> None:
    write_pictures(tmp_path, {f"a/{n}.png": (250 + n, 240) for n in range(3)})
    clean = load_pictures(tmp_path)
    shifted = corrupted(clean, "impulse_noise", 2, seed=1).take(np.array([2])).load()
    pixels = corrupt(
        read_cropped(clean.paths[2], 2)[None], "impulse_noise", 2, indices=[2], seed=1
    )[0]
    (tmp_path / "file.jpg").write_bytes(jpeg_bytes(pixels))
    with Image.open(tmp_path / "file.jpg") as picture:
        np.testing.assert_array_equal(shifted.images[0], np.asarray(picture))
    assert shifted.name.endswith("-c/impulse_noise/2")


def write_imagenet_c(folder: Path) -> None:
    names = [f"n0{c}/ILSVRC2012_val_0000000{f}.JPEG" for c in range(4) for f in range(3)]
    for severity in (1, 5):
        write_pictures(folder / "fog" / str(severity), dict.fromkeys(names, (224, 224)))


@pytest.mark.parametrize("group", ["", "weather"])
def test_imagenet_c_all_of_it(tmp_path, group) -> None:
    write_imagenet_c(tmp_path / group)
    loaded = load_imagenet_c(tmp_path, "fog", 5)
    assert len(loaded) == 12
    assert loaded.name == f"own {tmp_path.name}-c/fog/5"  # other classes than ImageNet's
    assert loaded.classes == ("n00", "n01", "n02", "n03")
    assert loaded.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    first = next(loaded.batches(5))
    assert first.images.shape == (5, 224, 224, 3)
    with Image.open(tmp_path / group / "fog" / "5" / "n01" / "ILSVRC2012_val_00000001.JPEG") as one:
        np.testing.assert_array_equal(first.images[4], np.asarray(one))
    # Sorted by class, so fewer of them are taken at even distances.
    assert load_imagenet_c(tmp_path, "fog", 5, count=4).labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("form", ["text", "json"])
def test_imagenet_c_of_a_list(tmp_path, form) -> None:
    write_imagenet_c(tmp_path)
    wanted = [f"n0{c}/ILSVRC2012_val_0000000{f}.JPEG" for c, f in ((3, 0), (0, 2), (3, 1))]
    listing = tmp_path / "ids"
    listing.write_text(json.dumps(wanted) if form == "json" else "\r\n".join(wanted) + "\r\n")
    loaded = load_imagenet_c(tmp_path, "fog", 1, subset=listing)
    assert len(loaded) == 3
    assert loaded.labels.tolist() == [3, 0, 3]
    assert [path.relative_to(tmp_path / "fog" / "1").as_posix() for path in loaded.paths] == wanted
    assert load_imagenet_c(tmp_path, "fog", 1, subset=listing, count=2).labels.tolist() == [3, 0]
    classes = ["n03", "n02", "n01", "n00"]
    renumbered = load_imagenet_c(tmp_path, "fog", 1, subset=listing, classes=classes)
    assert renumbered.labels.tolist() == [0, 3, 0]


def test_imagenet_c_says_what_is_wrong(tmp_path) -> None:
    write_imagenet_c(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"neither snow/5 nor GROUP/snow/5"):
        load_imagenet_c(tmp_path, "snow", 5)
    with pytest.raises(ValueError, match="from 1 to 5, got 0"):
        load_imagenet_c(tmp_path, "fog", 0)
    listing = tmp_path / "ids"
    listing.write_text("n00/ILSVRC2012_val_00000000.JPEG\nn00/gone.JPEG\n")
    with pytest.raises(FileNotFoundError, match=r"1 of the 2 pictures .* 'n00/gone.JPEG'"):
        load_imagenet_c(tmp_path, "fog", 5, subset=listing)
    listing.write_text("../../secret.JPEG\n")
    with pytest.raises(DataError, match=r"of the form CLASS/FILE, got '\.\./"):
        load_imagenet_c(tmp_path, "fog", 5, subset=listing)
    listing.write_text("[1, 2]")
    with pytest.raises(DataError, match="JSON list of paths"):
        load_imagenet_c(tmp_path, "fog", 5, subset=listing)
    with pytest.raises(DataError, match="'n01' is not one of the 1 class"):
        load_imagenet_c(tmp_path, "fog", 5, classes=["n00"])
    write_imagenet_c(tmp_path / "weather")
    with pytest.raises(DataError, match="both exist"):
        load_imagenet_c(tmp_path, "fog", 5)
    (tmp_path / "empty" / "fog" / "1").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no pictures"):
        load_imagenet_c(tmp_path / "empty", "fog", 1)


WNIDS = tuple(f"n{number:08d}" for number in range(1000))


def test_imagenet_c_with_some_of_its_classes_needs_them_all_named(tmp_path) -> None:
    names = [f"{wnid}/{number}.JPEG" for wnid in WNIDS[5:7] for number in range(2)]
    write_pictures(tmp_path / "fog" / "1", dict.fromkeys(names, (16, 16)))
    with pytest.raises(DataError, match=r"has 2 of ImageNet's 1,000 class folders.*`--classes`"):
        load_imagenet_c(tmp_path, "fog", 1)
    loaded = load_imagenet_c(tmp_path, "fog", 1, classes=WNIDS)
    assert loaded.name == "imagenet-c/fog/1"
    assert loaded.labels.tolist() == [5, 5, 6, 6]
    assert is_imagenet(WNIDS)
    assert not is_imagenet(WNIDS[:-1])
    assert not is_imagenet((*WNIDS[:-1], "cat"))


def test_generated_pictures_keep_the_numbers_of_all_classes(tmp_path) -> None:
    write_pictures(tmp_path / "pets", {f"{c}/{i}.png": (30, 30) for c in "abc" for i in range(2)})
    made = generate(
        tmp_path / "pets", tmp_path / "c", corruptions=["contrast"], severities=[1], workers=1
    )
    assert made.count == 6
    shutil.rmtree(tmp_path / "c" / "contrast" / "1" / "b")
    loaded = load_imagenet_c(tmp_path / "c", "contrast", 1)
    assert loaded.classes == ("a", "b", "c")
    assert loaded.labels.tolist() == [0, 0, 2, 2]


def test_check_imagenet_c(tmp_path) -> None:
    assert "is not a folder" in check_imagenet_c(tmp_path / "nowhere")[0]
    assert "holds no corruption such as fog/5" in check_imagenet_c(tmp_path)[-1]
    pictures = {f"a/{number}.JPEG": (16, 16) for number in range(2)}
    write_pictures(tmp_path / "weather" / "fog" / "5", pictures)
    problems = check_imagenet_c(tmp_path)
    assert len(problems) == 16
    assert "fog is missing at 1, 2, 3, 4." in problems
    assert "snow is missing at every severity." in problems
    assert any("not named like ImageNet's 1,000 classes" in problem for problem in problems)
    source = tmp_path / "pets"
    write_pictures(source, {f"a/{number}.png": (30, 30) for number in range(3)})
    generate(source, tmp_path / "c", corruptions=["contrast"], severities=[1, 5], workers=1)
    assert check_imagenet_c(tmp_path / "c") == []
    (tmp_path / "c" / "contrast" / "5" / "a" / "1.JPEG").unlink()
    assert check_imagenet_c(tmp_path / "c") == ["contrast/5 must have 3 pictures, found 2."]
