"""Small data sets in the layouts of the real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from driftnorm.images.download.data_sets import Address, Dataset, File

RNG_SEED = 7


def random_images(count: int, side: int = 32, seed: int = RNG_SEED) -> np.ndarray:
    """Coarse blocks with noise: no flat areas, no pure noise."""
    random = np.random.default_rng(seed)
    coarse = random.integers(30, 220, (count, side // 8, side // 8, 3))
    images = coarse.repeat(8, axis=1).repeat(8, axis=2) + random.integers(-30, 31, (side, side, 1))
    return images.astype(np.uint8)


def write_npz(path: Path, count: int = 40, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    labels = np.arange(count, dtype=np.uint8) % len(classes)
    np.savez(path, images=random_images(count), labels=labels, classes=np.array(classes))
    return path


def write_records(path: Path, images: np.ndarray, *label_columns: np.ndarray) -> None:
    """CIFAR's binary format, written the slow way."""
    with path.open("wb") as file:
        for number, image in enumerate(images):
            file.write(bytes(int(column[number]) for column in label_columns))
            for channel in range(3):
                file.write(image[:, :, channel].tobytes())


def idx_bytes(array: np.ndarray) -> bytes:
    header = [0x0800 + array.ndim, *array.shape]
    return b"".join(number.to_bytes(4, "big") for number in header) + array.tobytes()


def write_cifar_c(folder: Path, names: tuple[str, ...], rows: int = 10) -> np.ndarray:
    """The released layout; row r of severity s of corruption c is filled with 50 c + 10 s + r."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(rows, dtype=np.uint8) % 10
    np.save(folder / "labels.npy", np.tile(labels, 5))
    for number, name in enumerate(names):
        array = np.empty((5 * rows, 32, 32, 3), dtype=np.uint8)
        for row in range(5 * rows):
            array[row] = (50 * number + 10 * (row // rows + 1) + row % rows) % 256
        np.save(folder / f"{name}.npy", array)
    return labels.astype(np.int64)


def write_pictures(folder: Path, sizes: dict[str, tuple[int, int]]) -> None:
    """Pictures of width and height under their relative paths."""
    for number, (name, size) in enumerate(sizes.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random_images(1, 32, seed=number)[0]
        Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(path)


CONTENT = {
    "first.bin": bytes(range(256)) * 3000,
    "second.bin": b"second" * 50_000,
    "notes.txt": b"classes\n",
}
HOME = "toy-files"


def toy_dataset(url: str | None = None, md5: str | None = None, npm: str | None = None) -> Dataset:
    files = tuple(
        File(name, len(data), hashlib.sha256(data).hexdigest(), required=name != "notes.txt")
        for name, data in CONTENT.items()
    )
    official = None if url is None else Address(url, md5)
    return Dataset("toy", "A toy", files, ("", HOME, f"package/{HOME}"), official, npm)


def tar_bytes(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def toy_archive(home: str = HOME) -> bytes:
    # Uncompressed, so that a part of the bytes is a part of the files.
    members = {f"{home}/{name}": data for name, data in CONTENT.items()}
    return tar_bytes({"package.json": json.dumps({"name": "toy"}).encode(), **members}, "w")


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def assert_fetched(folder: Path) -> None:
    """The toy is there, whole, and nothing else is beside it."""
    assert tree(folder) == CONTENT
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "no leftovers"
