"""Sources that would cost memory, time or the stack: one line each, before they do."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import shutil
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftnorm._internal.files import file_digest
from driftnorm.bench.rows import load_rows
from driftnorm.errors import DataError
from driftnorm.images import open_inputs, open_labels
from driftnorm.images.domains.folder import survey_domains
from driftnorm.images.download.data_sets import find_dataset
from driftnorm.images.download.fetch import fetch
from driftnorm.images.labelled import load_clean
from driftnorm.models import Preprocessing
from driftnorm.models._weight_files import read_any
from driftnorm.models.opened_model import read_class_names
from driftnorm.views.report.gather import gather

WANTED = Preprocessing((0.5,) * 3, (0.25,) * 3, 8)
HUGE = 700_000_000  # bytes; less than the largest member that is read


def png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 7, np.uint8)).save(stream, "png")
    return stream.getvalue()


def headed(kind: bytes, name: str, size: int) -> bytes:
    about = tarfile.TarInfo(name)
    about.size, about.type = size, kind
    return about.tobuf(tarfile.GNU_FORMAT)


def packed(compressor: bz2.BZ2Compressor | lzma.LZMACompressor, head: bytes) -> bytes:
    """A head and very many zeros."""
    parts, zeros = [compressor.compress(head)], bytes(10_000_000)
    parts += [compressor.compress(zeros) for _ in range(HUGE // len(zeros))]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_small_archive_that_grows_is_refused_at_once(kind: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bomb.tar.bz2"
    file.write_bytes(packed(bz2.BZ2Compressor(), headed(kind, "a.png", HUGE)))
    assert file.stat().st_size < 4_000
    tracemalloc.start()
    begun = time.perf_counter()
    try:
        inputs = open_inputs(file)
        (found,) = inputs.stream(WANTED)
        said = found.error
        assert found.and_more
    except DataError as error:
        said = str(error)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "grows to more than 100 times its size, refused as a decompression bomb" in said
    assert peak < 100_000_000
    assert time.perf_counter() - begun < 10


def test_pictures_before_the_bomb_are_read(tmp_path: Path) -> None:
    picture = png()
    head = headed(tarfile.REGTYPE, "a.png", len(picture)) + picture.ljust(512, b"\0")
    content = packed(lzma.LZMACompressor(preset=0), head + headed(tarfile.REGTYPE, "b.png", HUGE))
    (tmp_path / "x.tar.xz").write_bytes(content)
    first, last = open_inputs(tmp_path / "x.tar.xz").stream(WANTED)
    assert first.pixels is not None
    assert last.and_more
    if len(content) < HUGE / 100:
        assert "decompression bomb" in last.error


@pytest.mark.parametrize("suffix", [".tar.bz2", ".tar.xz", ".tar.gz"])
def test_damaged_compression_is_told_in_its_place(suffix: str, tmp_path: Path) -> None:
    file, mode = tmp_path / f"x{suffix}", {".bz2": "w:bz2", ".xz": "w:xz", ".gz": "w:gz"}
    with tarfile.open(file, mode[Path(suffix).suffix]) as archive:
        for number in range(20):
            data = np.random.default_rng(number).bytes(40_000)
            about = tarfile.TarInfo(f"{number}.png")
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    file.write_bytes(bytes(content))
    try:
        *_, last = open_inputs(file).stream(WANTED)
        said = last.error
    except DataError as error:  # one block of bz2 holds it all
        said = str(error)
    assert "the rest of the archive cannot be read" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("name", ["list.txt", "x.tar", "x.tar.gz", "x.npy", "x.npz", "classes"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    np.save(tmp_path / "images.npy", np.zeros((2, 8, 8, 3), np.uint8))
    calls: list[Callable[[], object]] = [
        lambda: open_inputs(tmp_path / name),
        lambda: read_class_names(tmp_path / name),
        lambda: open_labels(str(tmp_path / name), ["a"], open_inputs(tmp_path / "images.npy")),
        lambda: fetch(find_dataset("cifar-10"), tmp_path / "data", str(tmp_path / name)),
    ]
    for opened in calls:
        with pytest.raises(DataError, match="is a pipe, a socket or a device"):
            opened()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize(
    "opened", [read_any, load_rows, load_clean, lambda path: gather([path]), file_digest]
)
def test_a_pipe_of_weights_or_rows_is_not_waited_for(
    opened: Callable[[Path], object], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"^\S*pipe is a pipe, a socket or a device"):
        opened(tmp_path / "pipe")


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """1,500 folders in each other, taken away one by one: others would recurse."""
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        Path("a.png").write_bytes(png())
        yield tmp_path
    finally:
        os.chdir(before)
        while (tmp_path / "d").exists():
            if (tmp_path / "d" / "d").exists():
                os.rename(tmp_path / "d" / "d", tmp_path / "e")
            shutil.rmtree(tmp_path / "d")
            if (tmp_path / "e").exists():
                os.rename(tmp_path / "e", tmp_path / "d")


def test_no_domains_in_folders_nested_deeper_than_the_stack(deep: Path) -> None:
    assert [str(each) for each in survey_domains(deep).faults]  # at least two domains are needed


def test_folders_nested_deeper_than_the_stack(deep: Path) -> None:
    (deep / "b.png").write_bytes(png())
    found = [*open_inputs(deep).stream(WANTED)]
    assert [item.name for item in found] == ["b.png", "d/" * 1500 + "a.png"]
    assert [item.error for item in found] == ["", ""]
