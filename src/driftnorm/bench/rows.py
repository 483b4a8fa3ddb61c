"""Cells and rows: what is to be measured, and what was. The folder of rows is the truth.

A row is one file named by the hash of its cell, written atomically. "Done" is the file's existence,
so killing, resuming, running twice and running on several machines are all the same case. A cell
that failed leaves its error in the folder `failed` until it succeeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from driftnorm._internal.files import write_atomically
from driftnorm.bench.protocol import Protocol

__all__ = ["Cell", "Failure", "Row", "RowStore", "environment", "load_rows", "save_rows"]


@dataclass(frozen=True)
class Cell:
    """One measurement to make: a model, a shift of its data, a method, a protocol and a seed."""

    study: str
    model: str
    shift: str
    severity: int
    method: str
    protocol: Protocol
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """Hash of the whole description; names the row's file."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Row:
    """The result of a cell: numbers, and the environment they came from."""

    cell: Cell
    metrics: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line, keys sorted."""
        record = {"key": self.cell.key, **asdict(self)}
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """The inverse of :meth:`to_json`."""
        record = json.loads(line)
        return cls(_read_cell(record["cell"]), record["metrics"], record["environment"])


class Failure(NamedTuple):
    """A cell that could not be measured; the rest goes on."""

    cell: Cell
    error: str


def _read_cell(record: dict[str, Any]) -> Cell:
    protocol: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record["protocol"].items()
    }
    options = tuple((name, value) for name, value in record["options"])
    return Cell(**{**record, "protocol": Protocol(**protocol), "options": options})


class RowStore:
    """A folder with one file a row."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def has(self, cell: Cell) -> bool:
        """Whether the cell is done."""
        return self._path(cell).exists()

    def get(self, cell: Cell) -> Row | None:
        """The cell's row, or None if it is not done."""
        path = self._path(cell)
        return _read_row(path.read_text(), str(path)) if path.exists() else None

    def write(self, row: Row) -> None:
        """Add a row; a half-written one is never seen under its name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(row.cell), row.to_json() + "\n")
        self._failed_path(row.cell).unlink(missing_ok=True)

    def fail(self, failure: Failure) -> None:
        """Remember why a cell has no row; the next run tries it again."""
        path = self._failed_path(failure.cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(failure._asdict(), default=asdict) + "\n")

    def failures(self) -> Iterator[Failure]:
        """The cells that failed and have not succeeded since."""
        for path in sorted((self.folder / "failed").glob("*.json")):
            record = json.loads(path.read_text())
            yield Failure(_read_cell(record["cell"]), record["error"])

    def rows(self) -> Iterator[Row]:
        """All rows, in a fixed order."""
        for path in sorted(self.folder.glob("*.json")):
            yield _read_row(path.read_text(), str(path))

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.json"

    def _failed_path(self, cell: Cell) -> Path:
        return self.folder / "failed" / f"{cell.key}.json"


def save_rows(rows: Iterable[Row], path: str | Path) -> None:
    """Rows as sorted JSON lines in one file, the form in which they are committed."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), "".join(sorted(row.to_json() + "\n" for row in rows)))


def load_rows(path: str | Path) -> list[Row]:
    """Rows from a JSON-lines file or from a folder of row files."""
    path = Path(path)
    if path.is_dir():
        return list(RowStore(path).rows())
    if not path.exists():
        raise FileNotFoundError(f"no rows at {path}: expected a .jsonl file or a folder of rows.")
    lines = enumerate(path.read_text().splitlines(), start=1)
    return [_read_row(line, f"{path}, line {number}") for number, line in lines if line]


def _read_row(text: str, place: str) -> Row:
    """A row, or an error that says where something else stands."""
    try:
        return Row.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{place} is no row that a driftnorm benchmark wrote "
            f"({type(error).__name__}: {error}): it is of another origin, or was cut "
            "off. Remove it, and measure again if it was a row."
        ) from error


def environment() -> dict[str, str]:
    """What a result may depend on besides its cell."""
    import platform

    import numpy
    import torch

    from driftnorm._version import __version__

    return {
        "driftnorm": __version__,
        "machine": platform.machine(),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }
