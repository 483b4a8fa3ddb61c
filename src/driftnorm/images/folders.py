"""Pictures in files: folders, and lists of paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from driftnorm.errors import DataError
from driftnorm.images.contents import Raw, Unreadable, no_pictures
from driftnorm.images.folder_walk import files_below
from driftnorm.images.stream import Inputs, Survey, last_change


class Folder(Inputs):
    """Every picture below a folder, sorted by path, except hidden ones.

    Links to folders are followed, except back into a folder that contains them.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if next(iter(self.raw()), None) is None:
            raise no_pictures(path)

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The pictures, named by their path within the folder."""
        found = (Raw(name, content) for name, content, wanted in self._walk() if wanted)
        return islice(found, starting_at, None)

    def by_position(self) -> Sequence[Raw]:
        """The names of all pictures."""
        return [*self.raw()]

    def changed_since(self, moment: float, count: int) -> str | None:
        """The first of this many pictures that was changed after this time."""
        return changed_file(self.raw(), moment, count)

    def survey(self) -> Survey:
        """Count the files by their names."""
        wanted = left_out = 0
        for _, _, is_wanted in self._walk():
            wanted += is_wanted
            left_out += not is_wanted
        return Survey(wanted, left_out)

    def _walk(self) -> Iterator[tuple[str, Path | Unreadable, bool]]:
        return files_below(self.path)


class Listing(Inputs):
    """A text file with one path per line; relative paths start at the list's folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as stream:
            if b"\0" in stream.read(4096):
                raise DataError(
                    f"{path} is not a list of paths: it holds binary data. `DATA` may be a folder, "
                    "a text file with one path per line, an .npy or .npz array, or a .tar archive."
                )
        if self.survey().images == 0:
            raise DataError(f"{path} lists no pictures: expected one path per line.")

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The listed pictures, named as in the list."""
        home = self.path.parent
        listed = (Raw(line, _place(home, line)) for line in self._lines())
        return islice(listed, starting_at, None)

    def by_position(self) -> Sequence[Raw]:
        """All lines."""
        return [*self.raw()]

    def changed_since(self, moment: float, count: int) -> str | None:
        """The list, or the first of this many pictures, if changed after this time."""
        return super().changed_since(moment, count) or changed_file(self.raw(), moment, count)

    def survey(self) -> Survey:
        """Count the non-blank lines."""
        return Survey(sum(1 for _ in self._lines()))

    def _lines(self) -> Iterator[str]:
        with self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as stream:
            for line in stream:
                entry = line.rstrip("\r\n")
                if entry.strip():
                    yield entry


def changed_file(pictures: Iterator[Raw], moment: float, count: int) -> str | None:
    """The name of the first of this many pictures that was changed after this time."""
    for name, content in islice(pictures, count):
        if isinstance(content, Path) and last_change(content) > moment:
            return name
    return None


def _place(home: Path, line: str) -> Path | Unreadable:
    if "\0" in line:
        return Unreadable("not a path")
    return home / line
