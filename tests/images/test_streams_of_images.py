"""Images of the user's own: every kind of source, odd pictures, broken ones."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftnorm.errors import DataError
from driftnorm.images import Inputs, Item, Survey, open_inputs
from driftnorm.images.contents import Raw
from driftnorm.images.decoder import decoded
from driftnorm.images.stream import TOGETHER
from driftnorm.models import Preprocessing

WANTED = Preprocessing((0.5,) * 3, (0.2,) * 3, 8)
ODD_NAMES = ("a b.png", 'quo"te.png', "new\nline.png", "ünï☃.png", "com,ma.PNG", "=1+1.png")


def pictures(count: int, height: int = 8, width: int = 8) -> np.ndarray:
    random = np.random.default_rng(3)
    return random.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def items(path: Path, wanted: Preprocessing = WANTED, **options: int) -> list[Item]:
    return [*open_inputs(path).stream(wanted, **options)]


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


# --------------------------------------------------------------------------- kinds


@pytest.fixture
def kinds(tmp_path: Path) -> dict[str, Path]:
    """The same 30 images, of 11 x 9 pixels, in every kind of source."""
    images = pictures(30, 9, 11)
    names = [f"c{i % 3}/{i:03}.png" for i in range(30)]
    order = sorted(range(30), key=lambda i: names[i])
    images, names = images[order], [names[i] for i in order]
    for name, image in zip(names, images, strict=True):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(png(image))
    (tmp_path / "list.txt").write_text("\n\n".join(f"folder/{name}" for name in names) + "\r\n")
    members = {}
    for name, image in zip(names, images, strict=True):
        members |= {name: png(image), name.replace(".png", ".json"): b"{}"}
    write_tar(tmp_path / "plain.tar", members)
    write_tar(tmp_path / "packed.tar.gz", members, "w:gz")
    np.save(tmp_path / "array.npy", images)
    np.save(tmp_path / "first.npy", np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    np.savez(tmp_path / "stored.npz", images=images, labels=np.zeros(30))
    np.savez_compressed(tmp_path / "packed.npz", images)
    found = sorted(path for path in tmp_path.iterdir())
    return {path.name: path for path in found}


def test_every_kind_gives_the_same_images_in_the_same_order(kinds: dict[str, Path]) -> None:
    assert len(kinds) == 8
    expected = items(kinds["folder"])
    assert [item.name for item in expected] == sorted(item.name for item in expected)
    for name, path in kinds.items():
        found = items(path)
        assert len(found) == 30, name
        for one, other in zip(found, expected, strict=True):
            assert one.error == ""
            np.testing.assert_array_equal(one.pixels, other.pixels, err_msg=name)


@pytest.mark.parametrize("start", [0, 1, 17, 29, 30, 40])
def test_every_kind_starts_anywhere_and_again(kinds: dict[str, Path], start: int) -> None:
    for path in kinds.values():
        inputs = open_inputs(path)
        whole = [*inputs.stream(WANTED)]
        rest = [*inputs.stream(WANTED, starting_at=start, ahead=3)]
        assert [item.name for item in rest] == [item.name for item in whole[start:]]
        for one, other in zip(rest, whole[start:], strict=True):
            np.testing.assert_array_equal(one.pixels, other.pixels)
        assert inputs.name_at(start) == (whole[start].name if start < 30 else None)
        assert inputs.survey().images in (30, None)


def test_float_arrays_stay_floats(tmp_path: Path) -> None:
    exact = pictures(3).astype(np.float32) / 255
    np.save(tmp_path / "exact.npy", exact)
    for item, image in zip(items(tmp_path / "exact.npy"), exact, strict=True):
        np.testing.assert_array_equal(item.pixels, image)
    large = pictures(2, 12, 16)
    np.save(tmp_path / "large.npy", large / 255)
    np.save(tmp_path / "bytes.npy", large)
    for item, rounded in zip(
        items(tmp_path / "large.npy"), items(tmp_path / "bytes.npy"), strict=True
    ):
        np.testing.assert_allclose(item.pixels * 255, rounded.pixels, atol=1.01)


def test_grey_and_wide_arrays(tmp_path: Path) -> None:
    grey = pictures(2)[..., 0]
    variants = {
        "grey": grey,
        "channel": grey[..., None],
        "wide": grey.astype(np.uint16) * 257,
        "wide, of the other byte order": grey.astype(">u2") * 257,
        "long": grey.astype(np.int64),
    }
    for name, array in variants.items():
        np.save(tmp_path / f"{name}.npy", array)
        for item, image in zip(items(tmp_path / f"{name}.npy"), grey, strict=True):
            np.testing.assert_array_equal(item.pixels, np.stack([image] * 3, axis=2))


def test_decoding_ahead_is_bounded() -> None:
    class Endless(Inputs):
        kind = "test"
        taken = 0

        def raw(self, starting_at: int = 0) -> Iterator[Raw]:
            while True:
                self.taken += 1
                yield Raw(str(self.taken), pictures(1)[0])

        def survey(self) -> Survey:
            return Survey(None)

    for ahead, most in ((5, 10), (32, 32 + TOGETHER), (0, 1)):
        endless = Endless(Path())
        stream = endless.stream(WANTED, ahead=ahead)
        for number in range(1, 50):
            assert next(stream).name == str(number)
            assert endless.taken < number + most
        stream.close()


# --------------------------------------------------------------------------- folders


def test_a_folder_with_odd_names_links_and_hidden_files(tmp_path: Path) -> None:
    root = tmp_path / "data"
    plain = png(pictures(1)[0])
    for name in (*ODD_NAMES, "b/x.png", "b-c.png", "b.png", ".hidden.png", ".git/y.png", "no.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(plain)
    os.symlink(root, root / "b" / "loop")
    os.symlink(tmp_path, root / "b" / "above")
    os.symlink(root / "nowhere.png", root / "dangling.png")
    os.mkfifo(root / "pipe.png")
    (tmp_path / "outside.png").write_bytes(plain)
    raw = os.fsencode(root) + b"/not-utf8-\xff.png"
    Path(os.fsdecode(raw)).write_bytes(plain)
    found = items(root)
    names = [item.name for item in found]
    assert names == sorted(names)
    readable = {*ODD_NAMES, "b/x.png", "b-c.png", "b.png", "b/above/outside.png"}
    readable.add("not-utf8-\udcff.png")
    errors = {item.name: item.error for item in found if item.pixels is None}
    assert {item.name for item in found if item.pixels is not None} == readable
    assert errors == {
        "dangling.png": "No such file or directory",
        "pipe.png": "not a regular file",
    }
    assert open_inputs(root).survey() == Survey(len(found), 1)


def test_a_link_to_itself_is_one_unreadable_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(pictures(1)[0]))
    os.symlink("self.png", tmp_path / "self.png")
    os.symlink("pair-2", tmp_path / "pair-1")
    os.symlink("pair-1", tmp_path / "pair-2")
    whole, looped = items(tmp_path)
    assert (whole.name, whole.error) == ("a.png", "")
    assert looped.name == "self.png"
    assert "symbolic link" in looped.error
    assert open_inputs(tmp_path).survey() == Survey(2, 2)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may list any folder"
)
def test_a_folder_that_may_not_be_listed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "x.png").write_bytes(png(pictures(1)[0]))
    (tmp_path / "closed").chmod(0)
    try:
        assert items(tmp_path)[0].error.startswith("the folder cannot be listed")
    finally:
        (tmp_path / "closed").chmod(0o700)


# --------------------------------------------------------------------------- pictures


def one_file(path: Path, wanted: Preprocessing = WANTED) -> np.ndarray:
    return decoded(path, wanted)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "P", "PA", "CMYK", "YCbCr", "I;16", "F"])
def test_modes(mode: str, tmp_path: Path) -> None:
    """A picture with a bright and a dark half keeps them in every mode."""
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    if mode == "I;16":
        picture = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    else:
        picture = Image.fromarray(pixels)
        picture = picture.convert("L").convert(mode) if mode in ("LA", "PA", "F") else picture
        picture = picture.convert(mode)
    assert picture.mode == mode
    file = tmp_path / "x.tif"
    if mode == "PA":
        file = tmp_path / "x.png"
        picture = picture.convert("P")
        picture.info["transparency"] = bytes(range(256))
    picture.save(file)
    assert one_file(file).shape == (8, 8, 3)
    np.testing.assert_array_equal(one_file(file), pixels)


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(values).save(tmp_path / "x.png")
    expected = np.rint(values / 257).astype(np.uint8)
    np.testing.assert_array_equal(one_file(tmp_path / "x.png")[..., 1], expected)


def test_exif_rotation(tmp_path: Path) -> None:
    pixels = pictures(1, 8, 8)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    np.testing.assert_array_equal(one_file(tmp_path / "x.png"), np.rot90(pixels, -1))
    Image.fromarray(pixels).save(tmp_path / "y.png", exif=b"Exif\0\0garbage that is no TIFF")
    np.testing.assert_array_equal(one_file(tmp_path / "y.png"), pixels)


def header_only_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def test_broken_and_dangerous_pictures_are_reported_in_their_place(tmp_path: Path) -> None:
    good = png(pictures(1, 40, 40)[0])
    contents = {
        "0.png": good,
        "1.png": b"",
        "2.jpg": b"no picture at all",
        "3.png": good[: len(good) // 2],
        "4.png": header_only_png(10_000, 9_000),
        "5.png": header_only_png(100_000, 100_000),
        "6.png": png(np.zeros((1, 60_000, 3), np.uint8)),
        "7.png": good,
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    wanted = Preprocessing((0.5,) * 3, (0.2,) * 3, 48)
    found = items(tmp_path, wanted)
    assert [item.name for item in found] == [*contents]
    assert [item.pixels is None for item in found] == [False, *[True] * 6, False]
    reasons = [item.error for item in found]
    assert reasons[1] == "the file is empty"
    assert reasons[2] == "not a picture that Pillow can read"
    assert "truncated" in reasons[3]
    for reason in reasons[4:7]:
        assert "decompression bomb" in reason
    assert all("0x" not in reason and "\n" not in reason for reason in reasons)
    again = items(write_tar(tmp_path / "all.tar", contents), wanted)
    assert [item.error for item in again] == reasons


@pytest.mark.parametrize("shape", [(300, 400), (231, 500), (64, 48), (32, 32)])
@pytest.mark.parametrize("ratio", [0.875, 1.0, 32 / 37])
def test_resizing_is_torchvisions(
    shape: tuple[int, int], ratio: float, tmp_path: Path, torchvision: object
) -> None:
    from torchvision.transforms import functional

    wanted = Preprocessing((0.5,) * 3, (0.2,) * 3, 32, crop_ratio=ratio)
    pixels = pictures(1, *shape)[0]
    (tmp_path / "x.png").write_bytes(png(pixels))
    expected = Image.fromarray(pixels)
    if shape != (32, 32):  # one that fits is taken as it is
        expected = functional.resize(expected, {0.875: 36, 1.0: 32}.get(ratio, 37))
        expected = functional.center_crop(expected, 32)
    np.testing.assert_array_equal(one_file(tmp_path / "x.png", wanted), np.asarray(expected))


def test_an_archive_that_ends_too_soon_says_so_at_its_end(tmp_path: Path) -> None:
    members = {f"{i}.png": png(image) for i, image in enumerate(pictures(6, 30, 30))}
    plain = write_tar(tmp_path / "plain.tar", members).read_bytes()
    packed = write_tar(tmp_path / "packed.tar.gz", members, "w:gz").read_bytes()
    with tarfile.open(tmp_path / "plain.tar") as archive:
        third = archive.getmembers()[2]
    within, between = third.offset_data + 100, third.offset
    for suffix, cut in (
        (".tar", plain[:within]),
        (".tar", plain[:between]),
        (".tgz", packed[:6000]),
    ):
        file = tmp_path / f"cut{suffix}"
        file.write_bytes(cut)
        found = items(file)
        assert [item.name for item in found[:2]] == ["0.png", "1.png"]
        assert found[0].pixels is not None
        assert found[-1].name == str(file)
        assert "the archive" in found[-1].error
        assert len(found) < 6


@pytest.mark.parametrize("suffix", [".tar", ".tgz", ".tar.xz"])
def test_a_damaged_header_is_not_the_end(suffix: str, tmp_path: Path) -> None:
    """tarfile would take it for one, and what comes after it would be lost without a word."""
    members = {f"{i}.png": png(image) for i, image in enumerate(pictures(6, 30, 30))}
    members |= {f"{i}.cls": b"1" for i in range(6)}
    plain = bytearray(write_tar(tmp_path / "plain.tar", members).read_bytes())
    with tarfile.open(tmp_path / "plain.tar") as archive:
        plain[archive.getmembers()[4].offset + 100] ^= 1  # in its mode; the checksum says so
    file = tmp_path / f"damaged{suffix}"
    opener = {".tar": open, ".tgz": gzip.open, ".tar.xz": lzma.open}[suffix]
    with opener(file, "wb") as stream:
        stream.write(bytes(plain))
    found = items(file)
    assert [item.name for item in found] == ["0.png", "1.png", "2.png", "3.png", str(file)]
    assert "damaged header" in found[-1].error
    assert found[-1].and_more
    assert open_inputs(file).own_labels() == {}  # they come later in it


def test_own_labels_of_a_cut_archive_go_up_to_the_cut(tmp_path: Path) -> None:
    members = {}
    for i, image in enumerate(pictures(6, 30, 30)):
        members |= {f"{i}.png": png(image), f"{i}.cls": b"1"}
    whole = write_tar(tmp_path / "whole.tar", members)
    with tarfile.open(whole) as archive:
        cut = archive.getmembers()[6].offset_data + 10
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:cut])
    assert open_inputs(tmp_path / "cut.tar").own_labels() == {f"{i}.png": "1" for i in range(3)}


# --------------------------------------------------------------------------- what is wrong


def test_wrong_sources_are_explained(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.png").write_bytes(png(pictures(1)[0]))
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "web.tar").write_text("<html>")
    (tmp_path / "text.npy").write_text("none")
    np.save(tmp_path / "normal.npy", np.random.default_rng(0).normal(size=(2, 8, 8, 3)))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(pictures(2)))
    np.save(tmp_path / "flat.npy", np.zeros((3, 5)))
    np.savez(tmp_path / "two.npz", a=pictures(2), b=pictures(2))
    np.savez(tmp_path / "objects.npz", images=np.array([{}, {}]))
    np.save(tmp_path / "single.npy", pictures(1)[0])
    np.save(tmp_path / "bytes in 16 bits.npy", pictures(2).astype(np.uint16))
    for name, message in {
        "empty": "holds no pictures",
        "one.png": "is a single picture",
        "binary.txt": "not a list of paths",
        "blank.txt": "lists no pictures",
        "web.tar": "not a tar archive",
        "text.npy": "not an .npy file",
        "normal.npy": r"must lie in \[0, 1\]",
        "fortran.npy": "ascontiguousarray",
        "flat.npy": "shape",
        "two.npz": "it holds a, b",
        "objects.npz": "must hold numbers",
        "single.npy": r"holds a single picture .*`images\[None\]`",
        "bytes in 16 bits.npy": "save them as uint8",
    }.items():
        with pytest.raises(DataError, match=message):
            open_inputs(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_inputs(tmp_path / "nothing")
