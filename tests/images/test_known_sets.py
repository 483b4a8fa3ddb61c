"""Clean data: CIFAR's and MNIST's official files, npz files, picture folders."""

import os
from pathlib import Path

import numpy as np
import pytest
from data_files import idx_bytes, random_images, write_npz, write_pictures, write_records, zipped
from PIL import Image

from driftnorm.errors import DataError
from driftnorm.images import cifar
from driftnorm.images.cifar import load_cifar10, load_cifar100
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.image_set import ImageSet, spread_positions
from driftnorm.images.labelled import load_clean
from driftnorm.images.mnist import load_mnist
from driftnorm.images.npz import load_npz
from driftnorm.images.pictures import PictureSet, jpeg_bytes, load_pictures, read_cropped

ROWS = 12


@pytest.fixture
def short_batches(monkeypatch) -> None:
    monkeypatch.setattr(cifar, "_BATCH_RECORDS", ROWS)
    monkeypatch.setattr(cifar, "_CIFAR100_RECORDS", {"train": 3 * ROWS, "test": ROWS})


def write_cifar10(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(parents=True)
    images, labels = random_images(6 * ROWS), np.arange(6 * ROWS) * 7 % 10
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    for number, name in enumerate(names):
        part = slice(number * ROWS, (number + 1) * ROWS)
        write_records(folder / name, images[part], labels[part])
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n\n")
    return images, labels


@pytest.mark.usefixtures("short_batches")
def test_cifar10_from_its_folder_or_the_one_around_it(tmp_path) -> None:
    images, labels = write_cifar10(tmp_path / "cifar-10-batches-bin")
    for folder in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        train, test = load_cifar10(folder, "train"), load_cifar10(folder)
        np.testing.assert_array_equal(train.images, images[: 5 * ROWS])
        np.testing.assert_array_equal(train.labels, labels[: 5 * ROWS])
        np.testing.assert_array_equal(test.images, images[5 * ROWS :])
        np.testing.assert_array_equal(test.labels, labels[5 * ROWS :])
        np.testing.assert_array_equal(test.indices, np.arange(ROWS))
    assert test.name == "cifar-10"
    assert test.classes == CIFAR10_CLASSES
    assert isinstance(load_clean(tmp_path), ImageSet)
    assert not test.images.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        test.images[0, 0, 0, 0] = 1


@pytest.mark.usefixtures("short_batches")
def test_cifar10_says_what_is_wrong(tmp_path) -> None:
    folder = tmp_path / "cifar"
    write_cifar10(folder)
    batch = folder / "data_batch_3.bin"
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1000])
    with pytest.raises(DataError, match=r"data_batch_3.bin is truncated: expected 36,876 bytes"):
        load_cifar10(folder, "train")
    batch.write_bytes(whole + b"x")
    with pytest.raises(DataError, match=r"too long: expected 36,876 bytes, found 36,877"):
        load_cifar10(folder, "train")
    batch.write_bytes(b"\x0a" + whole[1:])
    with pytest.raises(DataError, match=r"a label of 10; expected 0 to 9"):
        load_cifar10(folder, "train")
    batch.unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3.bin does not exist; .*data get"):
        load_cifar10(folder, "train")
    (folder / "batches.meta.txt").write_text("apple\nbanana\n")
    with pytest.raises(DataError, match="it names apple, banana"):
        load_cifar10(folder)
    with pytest.raises(ValueError, match="`split` must be one of train, test; got 'val'"):
        load_cifar10(folder, "val")


@pytest.mark.usefixtures("short_batches")
def test_cifar100_takes_the_fine_labels(tmp_path) -> None:
    images = random_images(ROWS)
    coarse, fine = np.arange(ROWS) % 20, 99 - np.arange(ROWS)
    write_records(tmp_path / "test.bin", images, coarse, fine)
    for loaded in (load_cifar100(tmp_path), load_clean(tmp_path)):
        np.testing.assert_array_equal(loaded.images, images)
        np.testing.assert_array_equal(loaded.labels, fine)
        assert loaded.classes == CIFAR100_CLASSES
    with pytest.raises(FileNotFoundError, match=r"train.bin does not exist; .*cifar-100-binary"):
        load_cifar100(tmp_path, "train")


def test_npz_is_recognised_by_its_classes(tmp_path) -> None:
    hundred = load_cifar100(write_npz(tmp_path / "any.npz", 200, CIFAR100_CLASSES))
    assert (hundred.name, len(hundred)) == ("cifar-100", 200)
    np.testing.assert_array_equal(hundred.images, random_images(200))
    pets = write_npz(tmp_path / "pets.npz")
    assert load_npz(pets).name == load_clean(pets).name == "pets"
    assert load_clean(pets).labels.dtype == np.int64
    with pytest.raises(DataError, match=r"does not hold CIFAR-100: .*got 2 classes starting with"):
        load_cifar100(pets)


def test_npz_says_what_is_wrong(tmp_path) -> None:
    file = tmp_path / "bad.npz"
    np.savez(file, images=random_images(2))
    with pytest.raises(DataError, match="lacks labels, classes and holds images"):
        load_npz(file)
    np.savez(file, images=random_images(2), labels=np.array([0, 2]), classes=np.array(["a", "b"]))
    with pytest.raises(DataError, match="labels must be from 0 to 1, got 0 to 2"):
        load_npz(file)
    np.savez(file, images=random_images(2)[..., 0], labels=np.array([0, 1]), classes=["a", "b"])
    with pytest.raises(DataError, match=r"uint8 of shape \(N, H, W, 3\)"):
        load_npz(file)
    np.savez(file, images=random_images(2), labels=np.array([0.0, 1]), classes=["a", "b"])
    with pytest.raises(DataError, match="must be integers, got float64"):
        load_npz(file)
    whole = write_npz(file).read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"truncated, or not an .npz"):
        load_npz(file)


def test_npz_never_unpickles(tmp_path) -> None:
    file = tmp_path / "bad.npz"
    objects = np.array(["a", "b"], dtype=object)
    np.savez(file, images=random_images(2), labels=np.array([0, 1]), classes=objects)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_npz(file)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist_plain_or_zipped(tmp_path, ending) -> None:
    pictures = random_images(ROWS)[..., 0]
    labels = (np.arange(ROWS) * 3 % 10).astype(np.uint8)
    squeeze = zipped if ending else bytes
    (tmp_path / f"t10k-images-idx3-ubyte{ending}").write_bytes(squeeze(idx_bytes(pictures)))
    (tmp_path / f"t10k-labels-idx1-ubyte{ending}").write_bytes(squeeze(idx_bytes(labels)))
    for loaded in (load_mnist(tmp_path), load_clean(tmp_path)):
        assert loaded.images.shape == (ROWS, 32, 32, 3)
        for channel in range(3):
            np.testing.assert_array_equal(loaded.images[..., channel], pictures)
        np.testing.assert_array_equal(loaded.labels, labels)
        assert loaded.classes == tuple("0123456789")
    assert load_mnist(tmp_path, name="fashion").name == "fashion"


def test_mnist_says_what_is_wrong(tmp_path) -> None:
    images, labels = (tmp_path / f"t10k-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    whole = idx_bytes(random_images(3)[..., 0])
    with pytest.raises(FileNotFoundError, match=r"nor t10k-images-idx3-ubyte.gz exists"):
        load_mnist(tmp_path)
    labels.write_bytes(idx_bytes(np.zeros(4, dtype=np.uint8)))
    for content, words in (
        (whole[:-5], "truncated: expected 3,088 bytes, found 3,083"),
        (whole + b"x", "too long: expected 3,088 bytes, found 3,089"),
        (whole[:9], "header alone has 16 bytes, found 9"),
        (b"<!doctype html><html>", "expected the magic number 2051, found 1008821359"),
        (whole, "3 images, t10k-labels-idx1-ubyte 4 labels"),
    ):
        images.write_bytes(content)
        with pytest.raises(DataError, match=words):
            load_mnist(tmp_path)
    images.unlink()
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(zipped(whole)[:-20])
    with pytest.raises(DataError, match="truncated, or not a gzip"):
        load_mnist(tmp_path)


def test_parts_keep_their_indices(tmp_path) -> None:
    data = load_npz(write_npz(tmp_path / "pets.npz", 10))
    part = data.take(np.array([7, 2])).first(1)
    assert len(part) == 1
    assert part.indices.tolist() == [7]
    np.testing.assert_array_equal(part.images[0], data.images[7])
    with pytest.raises(ValueError, match=r"pets has 10 images: `count` .* got 11"):
        data.first(11)
    assert spread_positions("pets", 10, 4).tolist() == [0, 2, 5, 7]


def test_picture_folder(tmp_path) -> None:
    sizes = {
        "b/two.png": (300, 260),
        "a/one.jpg": (256, 256),
        "b/deep/three.bmp": (100, 400),
        "b/.hidden.png": (64, 64),
    }
    write_pictures(tmp_path / "pets", sizes)
    (tmp_path / "pets" / "a" / "readme.txt").write_text("no picture")
    loaded = load_clean(tmp_path / "pets")
    assert isinstance(loaded, PictureSet)
    names = [path.relative_to(tmp_path / "pets").as_posix() for path in loaded.paths]
    assert names == ["a/one.jpg", "b/deep/three.bmp", "b/two.png"]
    assert loaded.name == "pets"
    assert loaded.classes == ("a", "b")
    assert loaded.labels.tolist() == [0, 1, 1]
    batches = list(loaded.batches(2))
    assert [batch.images.shape for batch in batches] == [(2, 224, 224, 3), (1, 224, 224, 3)]
    np.testing.assert_array_equal(batches[1].images[0], read_cropped(loaded.paths[2], 2))
    assert loaded.take(np.array([2])).load().indices.tolist() == [2]
    (tmp_path / "pets" / "a" / "one.jpg").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"one.jpg cannot be read as a picture"):
        loaded.load()


@pytest.mark.parametrize("size", [(256, 256), (300, 260), (500, 333), (97, 403), (64, 48)])
def test_resize_and_crop_are_torchvisions(tmp_path, torchvision, size) -> None:
    from torchvision.transforms import CenterCrop, Compose, Resize

    write_pictures(tmp_path, {"one.png": size})
    with Image.open(tmp_path / "one.png") as picture:
        expected = np.asarray(Compose([Resize(256), CenterCrop(224)])(picture.convert("RGB")))
    np.testing.assert_array_equal(read_cropped(tmp_path / "one.png", 0), expected)


def test_load_clean_says_what_is_wrong(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected a folder or an .npz"):
        load_clean(tmp_path / "nowhere")
    (tmp_path / "cifar.tar.gz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"neither a folder nor an .npz.*driftnorm data get"):
        load_clean(tmp_path / "cifar.tar.gz")
    with pytest.raises(DataError, match="holds no pictures"):
        load_pictures(tmp_path)


def test_jpeg_has_the_released_quality() -> None:
    import io

    with Image.open(io.BytesIO(jpeg_bytes(random_images(1)[0]))) as picture:
        tables = picture.quantization
    reference = io.BytesIO()
    Image.new("RGB", (8, 8)).save(reference, "JPEG", quality=85)
    with Image.open(reference) as picture:
        assert tables == picture.quantization


def test_the_real_cifar10() -> None:
    folder = os.environ.get("DRIFTNORM_CIFAR10")
    if not folder:
        pytest.skip("DRIFTNORM_CIFAR10 does not name the folder of CIFAR-10's binary batches")
    test, train = load_cifar10(folder), load_cifar10(folder, "train")
    assert np.bincount(test.labels).tolist() == [1000] * 10
    assert np.bincount(train.labels).tolist() == [5000] * 10
    assert [test.classes[label] for label in test.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    # The published channel means of the training set.
    means = train.images.sum(axis=(0, 1, 2), dtype=np.int64) / (50_000 * 32 * 32 * 255)
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)


def test_the_shared_cifar100() -> None:
    folder = os.environ.get("DRIFTNORM_SHARED")
    if not folder:
        pytest.skip("DRIFTNORM_SHARED does not name the shared folder")
    test = load_cifar100(Path(folder) / "data" / "cifar100-test.npz")
    assert np.bincount(test.labels).tolist() == [100] * 100
