"""Downloads over HTTP that can be stopped and resumed."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from driftnorm._internal.counts import counted
from driftnorm._internal.progress import Report
from driftnorm._version import __version__
from driftnorm.errors import DataError

_TIMEOUT_SECONDS = 30
_BLOCK = 1 << 17
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416


class Unreachable(DataError):
    """A source that does not answer; another one might."""


def download(url: str, target: Path, md5: str | None, progress: Report) -> None:
    """Download a file; under its final name it is always complete.

    Received bytes stay in ``<target>.part`` until the file is complete and its checksum right; the
    next call resumes there.

    Args:
        url: An http or https address.
        target: Where the file goes; its folder exists.
        md5: The file's checksum, if known.
        progress: Called with the current activity, bytes done, and bytes in total or None.

    Raises:
        Unreachable: The server cannot be reached or refuses.
        DataError: The connection broke, or the content is not what it should be.
    """
    part = target.with_name(target.name + ".part")
    resumed = _transfer(url, part, progress)
    if resumed and not _is_right(part, md5):
        part.unlink()  # its beginning may be of another file, or an error page
        _transfer(url, part, progress)
    if not _is_right(part, md5):
        opening = part.read_bytes()[:32]
        part.unlink()
        raise DataError(
            f"{url} returned an unexpected file: its md5 checksum is not {md5}, and it starts "
            f"with {opening!r}. It was removed."
        )
    os.replace(part, target)


def _transfer(url: str, part: Path, progress: Report) -> bool:
    """Download the missing bytes; return whether the part already had some."""
    offset = part.stat().st_size if part.exists() else 0
    try:
        response = _request(url, offset)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != _RANGE_NOT_SATISFIABLE or not offset:
                raise Unreachable(f"{url} answered {error.code} {error.reason}.") from error
            whole = error.headers.get("Content-Range", "") == f"bytes */{offset}"
        if whole:
            return True
        part.unlink()  # it is longer than the file
        return _transfer(url, part, progress)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unreachable(
            f"{_host(url)} cannot be reached ({reason}): is this machine online?"
        ) from error
    with response:
        if response.status != _PARTIAL_CONTENT or not _starts_at(response, offset):
            offset = 0  # the server sends the whole file
        _receive(url, response, part, offset, progress)
    return offset > 0


def _request(url: str, offset: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"driftnorm/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    request = urllib.request.Request(url, headers=headers)
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    return response


def _host(url: str) -> str | None:
    return urllib.parse.urlsplit(url).hostname


def _starts_at(response: http.client.HTTPResponse, offset: int) -> bool:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == offset


def _receive(
    url: str, response: http.client.HTTPResponse, part: Path, offset: int, progress: Report
) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else offset + int(length)
    done = offset
    with part.open("ab" if offset else "wb") as file:
        while True:
            try:
                block = response.read(_BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _broken(url, done, total) from error
            if not block:
                break
            file.write(block)
            done += len(block)
            progress("downloading", done, total)
    if total is not None and done != total:
        raise _broken(url, done, total)


def _broken(url: str, done: int, total: int | None) -> DataError:
    size = "an unknown number of bytes" if total is None else counted(total, "byte")
    return DataError(
        f"The connection to {_host(url)} broke after {done:,} of {size}. What was "
        "received is kept: run the same command to resume."
    )


def _is_right(file: Path, md5: str | None) -> bool:
    if md5 is None:
        return True
    digest = hashlib.md5(usedforsecurity=False)  # as published; the files have sha256 sums too
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest() == md5
