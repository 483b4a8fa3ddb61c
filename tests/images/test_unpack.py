"""Unpacking and checking data sets, and the locks and files beneath."""

import hashlib
import io
import os
import tarfile

import pytest
from data_files import (
    CONTENT,
    HOME,
    assert_fetched,
    tar_bytes,
    toy_archive,
    toy_dataset,
    tree,
    zipped,
)

from driftnorm._internal.files import exclusive, write_atomically
from driftnorm.errors import BusyError, DataError
from driftnorm.images.checksums import check_folder
from driftnorm.images.download.data_sets import find_dataset
from driftnorm.images.download.fetch import fetch

ARCHIVE = toy_archive()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_from_an_archive_of_ones_own(tmp_path, mode) -> None:
    archive = tmp_path / "mine"
    archive.write_bytes(tar_bytes({f"x/y/{name}": data for name, data in CONTENT.items()}, mode))
    fetch(toy_dataset(), tmp_path / "data" / "toy", str(archive))
    assert_fetched(tmp_path / "data" / "toy")
    assert archive.exists()


@pytest.mark.parametrize("home", ["", HOME])
def test_from_a_folder_plain_or_zipped(tmp_path, home) -> None:
    folder = tmp_path / "mine" / home
    folder.mkdir(parents=True)
    (folder / "first.bin.gz").write_bytes(zipped(CONTENT["first.bin"]))
    (folder / "second.bin").write_bytes(CONTENT["second.bin"])
    (folder / "private.key").write_text("must not be copied")
    fetch(toy_dataset(), tmp_path / "data" / "toy", str(tmp_path / "mine"))
    assert tree(tmp_path / "data" / "toy") == {
        name: data for name, data in CONTENT.items() if name != "notes.txt"
    }


def test_no_archive_writes_elsewhere(tmp_path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link in (
            ("second.bin", tarfile.SYMTYPE, "/etc/passwd"),
            ("notes.txt", tarfile.LNKTYPE, "../outside"),
            ("../../evil.txt", tarfile.REGTYPE, ""),
            ("/../../../first.bin", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            data = CONTENT["first.bin"] if kind == tarfile.REGTYPE else b""
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    evil = tmp_path / "inner" / "evil.tar"
    evil.parent.mkdir()
    evil.write_bytes(buffer.getvalue())
    target = tmp_path / "inner" / "data" / "toy"
    with pytest.raises(DataError, match=r"not hold a valid toy: missing: second.bin\."):
        fetch(toy_dataset(), target, str(evil))
    assert tree(tmp_path).keys() == {"inner/evil.tar"}


def test_an_endless_member_stops_at_its_size(tmp_path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "first.bin.gz").write_bytes(zipped(bytes(50_000_000)))
    largest = 0

    def watch(text: str, done: int, total: int | None) -> None:
        nonlocal largest
        largest = max(largest, done)

    with pytest.raises(
        DataError, match=r"wrong size: first.bin \(expected 768,000 bytes, found 76"
    ):
        fetch(toy_dataset(), tmp_path / "toy", str(folder), watch)
    assert largest <= toy_dataset().size


@pytest.mark.parametrize("content", [b"", b"not a tar", zipped(ARCHIVE)[:-2000], ARCHIVE[:400_000]])
def test_damaged_archives(tmp_path, content) -> None:
    archive = tmp_path / "mine.tgz"
    archive.write_bytes(content)
    with pytest.raises(
        DataError, match=r"not a tar archive, or a truncated|does not hold a valid toy"
    ):
        fetch(toy_dataset(), tmp_path / "toy", str(archive))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.tgz"]


def test_an_archive_of_something_else(tmp_path) -> None:
    archive = tmp_path / "other.tar"
    archive.write_bytes(tar_bytes({"readme.md": b"hello"}))
    with pytest.raises(DataError, match=r"none of the files of toy: first.bin, second.bin"):
        fetch(toy_dataset(), tmp_path / "toy", str(archive))


def test_a_folder_in_the_way(tmp_path) -> None:
    archive, target = tmp_path / "toy.tar", tmp_path / "data" / "toy"
    archive.write_bytes(ARCHIVE)
    target.mkdir(parents=True)
    fetch(toy_dataset(), target, str(archive))  # an empty one is not
    (target / "first.bin").write_bytes(b"spoiled")
    with pytest.raises(DataError, match=r"is not a valid toy: wrong size: first.bin .*--out"):
        fetch(toy_dataset(), target, str(archive))
    assert (target / "first.bin").read_bytes() == b"spoiled"


def test_check_says_exactly_what_is_wrong(tmp_path) -> None:
    folder = tmp_path / HOME
    folder.mkdir()
    (folder / "first.bin").write_bytes(CONTENT["first.bin"][:-1])
    (folder / "notes.txt").write_bytes(b"Classes\n")
    (folder / "zzz").mkdir()
    (folder / "a.tmp").write_bytes(b"")
    found = [str(problem) for problem in check_folder(toy_dataset(), tmp_path)]
    right, wrong = (hashlib.sha256(text).hexdigest() for text in (b"classes\n", b"Classes\n"))
    assert found == [
        "wrong size: first.bin (expected 768,000 bytes, found 767,999)",
        "missing: second.bin",
        f"wrong checksum: notes.txt (expected sha256 {right}, found {wrong})",
        "stray: a.tmp",
        "stray: zzz",
    ]
    (folder / "second.bin.gz").write_bytes(zipped(CONTENT["second.bin"])[:-9])
    kinds = {problem.name: problem.kind for problem in check_folder(toy_dataset(), folder)}
    assert kinds["second.bin.gz"] == "damaged"
    nowhere = check_folder(toy_dataset(), tmp_path / "nowhere")
    assert [problem.detail for problem in nowhere] == ["the folder does not exist"]


def test_unknown_data_sets(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"got 'cifar10'\. Did you mean 'cifar-10'"):
        find_dataset("cifar10")
    with pytest.raises(ValueError, match="`name` must be one of cifar-10, mnist"):
        find_dataset("pacs")


def test_a_lock_is_free_again_afterwards(tmp_path) -> None:
    lock = tmp_path / "lock"
    with (
        exclusive(lock, "Somebody is there."),
        pytest.raises(BusyError, match=r"Somebody is there\. Wait"),
        exclusive(lock, "Somebody is there."),
    ):
        pass
    assert not lock.exists()
    with exclusive(lock, "Somebody is there."):
        assert lock.exists()


def test_writing_fails_without_a_trace(tmp_path, monkeypatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")

    def fail(source: object, target: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file, b"new")
    assert tree(tmp_path) == {"file": b"old"}


def test_the_real_cifar10_folder() -> None:
    folder = os.environ.get("DRIFTNORM_CIFAR10")
    if not folder:
        pytest.skip("DRIFTNORM_CIFAR10 does not name the folder of CIFAR-10's binary batches")
    assert check_folder(find_dataset("cifar-10"), folder) == []
