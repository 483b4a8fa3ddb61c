"""The one reader of tar archives: from beginning to end, in bounded memory and time."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from typing_extensions import Self

from driftnorm._internal.counts import counted
from driftnorm.errors import DataError

DAMAGE = (tarfile.TarError, EOFError)
"""What a damaged archive raises while it is read."""
# Drawings may be stored raw and compress very well; an archive that expands by more than this, to a
# size that matters, is an attack.
MOST_EXPANSION, HARMLESS = 100, 1 << 24

Opener: TypeAlias = type[gzip.GzipFile] | type[bz2.BZ2File] | type[lzma.LZMAFile]
_OPENERS: dict[bytes, Opener] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


def is_compressed(path: Path) -> bool:
    """Whether an archive can only be read from its beginning."""
    return _opener(path) is not None


@contextmanager
def opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive, compressed or not; for `tar_members`."""
    opener = _opener(path)
    if opener is None:
        with tarfile.open(path, "r:", tarinfo=_Member) as archive:
            yield archive
        return
    with opener(path) as stream:
        # Not tarfile's own decompression: it unpacks blocks whole, and 4 KB can become gigabytes.
        bounded: Any = _Bounded(stream, path.stat().st_size)
        with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_Member) as archive:
            yield archive


def tar_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in order; the content of each must be read before the next one."""
    source = getattr(archive.fileobj, "fileobj", None)
    while (member := archive.next()) is not None:
        # Otherwise tarfile remembers every member.
        archive.members = []  # type: ignore[attr-defined]
        if isinstance(source, _Bounded):
            source.check(member.offset_data + member.size)
        yield member


def damage_of(path: Path, reason: object) -> DataError:
    """The error for an archive that cannot be read."""
    with path.open("rb") as stream:
        opening = stream.read(16)
    return DataError(
        f"{path} is not a tar archive, or a truncated or damaged one: {reason} (it starts with "
        f"{opening!r} and has {counted(path.stat().st_size, 'byte')})."
    )


def _opener(path: Path) -> Opener | None:
    with path.open("rb") as stream:
        opening = stream.read(8)
    found = (opener for magic, opener in _OPENERS.items() if opening.startswith(magic))
    return next(found, None)


class _Bounded:
    """The output of a decompressor, up to a limit, with the errors of a tar archive."""

    def __init__(self, stream: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile, size: int) -> None:
        self._stream, self._done = stream, 0
        self._most = max(MOST_EXPANSION * size, HARMLESS)

    def check(self, length: int) -> None:
        """Refuse an archive that would expand beyond the limit."""
        if length > self._most:
            raise tarfile.ReadError(
                f"it grows to more than {MOST_EXPANSION} times its size, refused as a "
                "decompression bomb"
            )

    def read(self, size: int) -> bytes:
        try:
            data = self._stream.read1(size)  # `read` would lose intact bytes before the damage
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise tarfile.ReadError(str(error)) from error
        self._done += len(data)
        self.check(self._done)
        return data


class _Member(tarfile.TarInfo):
    """Unreadable headers are errors: tarfile takes all but the first for a clean end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the end, as it should be
            raise
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError("its end is missing") from error
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a damaged header ({error})") from error
