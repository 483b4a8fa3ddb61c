"""Pictures in a tar archive, as webdataset writes them: streamed, never unpacked."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from driftnorm._internal.counts import counted
from driftnorm.images.contents import (
    Content,
    Raw,
    Segment,
    Unreadable,
    is_picture_name,
    no_pictures,
)
from driftnorm.images.stream import Inputs, Survey
from driftnorm.images.tar_members import DAMAGE, damage_of, is_compressed, opened_tar, tar_members

LARGEST_MEMBER = 1 << 30  # bytes; no picture is that large, and it would have to fit into memory
LONGEST_LABEL = 1000  # bytes


class Archive(Inputs):
    """The pictures of a tar archive in its own order; other members are skipped."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._compressed = is_compressed(path)
        first = next(iter(self.raw()), None)
        if first is None:
            raise no_pictures(path)
        if first.name == str(path):
            assert isinstance(first.content, Unreadable)
            raise damage_of(path, first.content.reason)

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The pictures; an archive that ends too soon has an unreadable last one."""
        return islice(self._members(starting_at), starting_at, None)

    def by_position(self) -> Sequence[Raw]:
        """Where each picture is; a compressed archive has no fixed offsets."""
        return super().by_position() if self._compressed else [*self.raw()]

    def survey(self) -> Survey:
        """Unknown: only reading the whole archive would tell."""
        return Survey(None)

    def own_labels(self) -> dict[str, str]:
        """The ``.cls`` files: one next to each picture, with the same name up to the first dot."""
        labels: dict[str, str] = {}
        pictures: list[str] = []
        with suppress(*DAMAGE):  # keep what came before; the stream of pictures reports the damage
            for archive, member in self._entries():
                if is_picture_name(member.name):
                    pictures.append(member.name)
                elif member.name.endswith(".cls") and member.isreg():
                    stream = archive.extractfile(member)
                    assert stream is not None  # it is a regular file
                    text = stream.read(LONGEST_LABEL).decode("utf-8", "replace")
                    labels[_key(member.name)] = text.strip()
        return {name: labels[_key(name)] for name in pictures if _key(name) in labels}

    def _entries(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        with opened_tar(self.path) as archive:
            for member in tar_members(archive):
                yield archive, member

    def _members(self, needed_from: int) -> Iterator[Raw]:
        seen = 0
        try:
            for archive, member in self._entries():
                if not member.isdir() and is_picture_name(member.name):
                    skipped = seen < needed_from
                    seen += 1
                    yield Raw(member.name, b"" if skipped else self._content(archive, member))
        except DAMAGE as error:
            why = f"the rest of the archive cannot be read: {error}"
            yield Raw(str(self.path), Unreadable(why, and_more=True))

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Content:
        if not member.isreg() or member.issparse():
            return Unreadable("a link or special member of the archive, not a file")
        if member.size > LARGEST_MEMBER:
            return Unreadable(f"{counted(member.size, 'byte')} is too large for a picture")
        if not self._compressed:
            return Segment(self.path, member.offset_data, member.size)
        stream = archive.extractfile(member)
        assert stream is not None  # it is a regular file
        return stream.read()


def _key(name: str) -> str:
    """What the files of one sample share: the path up to the first dot of the file name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]
