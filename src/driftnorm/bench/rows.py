"""Rows: what was measured. The folder of rows is the only record.

A row is one file named by the hash of its cell, written atomically. "Done" is the file's existence,
so killing, resuming, running twice and running on several machines are all the same case. A cell
that failed leaves its error in the folder `failed` until it succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from driftnorm._internal.files import check_regular, write_atomically
from driftnorm.bench.cell import Cell, read_cell
from driftnorm.errors import OldRowsError

FORMAT = 2
"""Format of a row's JSON. Format 1 had no number; `docs/tools/convert_rows.py` converts it."""


@dataclass(frozen=True)
class Row:
    """The result of a cell: numbers, and the environment they came from."""

    cell: Cell
    metrics: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method's word."""
        return self.cell.method.word

    @property
    def network(self) -> str:
        """The network's label."""
        return self.cell.network.label

    @property
    def shift(self) -> str:
        """The stream's shift, by name."""
        return self.cell.stream.shift

    @property
    def severity(self) -> int:
        """The stream's severity."""
        return self.cell.stream.severity

    @property
    def seed(self) -> int:
        """The stream's seed."""
        return self.cell.stream.seed

    def to_json(self) -> str:
        """One line, keys sorted."""
        record = {
            "format": FORMAT,
            "key": self.cell.key,
            "cell": self.cell.record(),
            "metrics": self.metrics,
            "environment": self.environment,
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """The inverse of :meth:`to_json`."""
        record = json.loads(line)
        _check_format(record)
        return cls(read_cell(record["cell"]), record["metrics"], record["environment"])


class Failure(NamedTuple):
    """A cell that could not be measured."""

    cell: Cell
    error: str


def _check_format(record: Mapping[str, Any]) -> None:
    """Raise for rows that another version of driftnorm wrote."""
    if record.get("format") == FORMAT:
        return
    if "format" not in record and "model" in record["cell"]:
        raise OldRowsError(
            "it has the format of an older driftnorm: convert it with "
            "`python docs/tools/convert_rows.py` FILE_OR_FOLDER"
        )
    raise ValueError(f"its format is {record.get('format')!r}, and this driftnorm reads {FORMAT}")


class RowStore:
    """A folder with one file per row."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def has(self, cell: Cell) -> bool:
        """Whether the cell is done."""
        return self._path(cell).exists()

    def get(self, cell: Cell) -> Row | None:
        """The cell's row, or None if it is not done."""
        path = self._path(cell)
        return _read_row(_text_of(path), str(path)) if path.exists() else None

    def write(self, row: Row) -> None:
        """Add a row atomically: a half-written file never has its name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(row.cell), row.to_json() + "\n")
        self._failed_path(row.cell).unlink(missing_ok=True)

    def fail(self, failure: Failure) -> None:
        """Remember why a cell has no row; the next run tries it again."""
        path = self._failed_path(failure.cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"format": FORMAT, "cell": failure.cell.record(), "error": failure.error}
        write_atomically(path, json.dumps(record) + "\n")

    def failures(self) -> Iterator[Failure]:
        """The cells that failed and have not succeeded since."""
        for path in sorted((self.folder / "failed").glob("*.json")):
            record = json.loads(path.read_text())
            if record.get("format") == FORMAT:  # others will be tried again anyway
                yield Failure(read_cell(record["cell"]), record["error"])

    def rows(self) -> Iterator[Row]:
        """All rows, in a fixed order."""
        for path in sorted(self.folder.glob("*.json")):
            yield _read_row(_text_of(path), str(path))

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.json"

    def _failed_path(self, cell: Cell) -> Path:
        return self.folder / "failed" / f"{cell.key}.json"


def save_rows(rows: Iterable[Row], path: str | Path) -> None:
    """Write rows as sorted JSON lines into one file, as they are committed."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), "".join(sorted(row.to_json() + "\n" for row in rows)))


def load_rows(path: str | Path) -> list[Row]:
    """Rows from a JSON-lines file or from a folder of row files."""
    path = Path(path)
    check_regular(path)
    if path.is_dir():
        return list(RowStore(path).rows())
    if not path.exists():
        raise FileNotFoundError(f"no rows at {path}: expected a .jsonl file or a folder of rows.")
    lines = enumerate(_text_of(path).splitlines(), start=1)
    return [_read_row(line, f"{path}, line {number}") for number, line in lines if line]


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} holds no driftnorm rows, but binary data.") from error


def _read_row(text: str, place: str) -> Row:
    """A row, or an error that says where the text is."""
    try:
        return Row.from_json(text)
    except OldRowsError as error:
        raise OldRowsError(f"{place}: {error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        advice = (
            "it was truncated, or is from another program. Remove it, and measure again if it was "
            "a row."
            if isinstance(error, ValueError)
            else "it is from another program or command; `driftnorm report` shows runs of "
            "`driftnorm adapt`."
        )
        raise ValueError(
            f"{place} is not a driftnorm row ({type(error).__name__}: {error}): {advice}"
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
