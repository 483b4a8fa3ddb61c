"""What a report is made of: rows, failures and runs from the given paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driftnorm._internal.files import check_regular
from driftnorm.bench.rows import Failure, Row, RowStore, load_rows
from driftnorm.bench.samples import Exhibits, read_exhibits
from driftnorm.views.report.run_record import RUN_FILE, Run, read_run

_STORES = ("rows", "stream")  # in a benchmark's folder; a demo has both, as folders and as files


@dataclass(frozen=True)
class Gathered:
    """Everything in the given paths, each row once, and images of the rows' streams by key."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()
    runs: tuple[Run, ...] = ()
    exhibits: Mapping[str, Exhibits] = field(default_factory=dict)


def gather(paths: Iterable[str | Path]) -> Gathered:
    """Read rows and runs; the same row from two places counts once.

    Args:
        paths: Folders of rows, ``.jsonl`` files, folders of a demo or a benchmark with rows in
            them, folders of a run, or ``run.json`` files.
    """
    rows: dict[str, Row] = {}
    failures: dict[str, Failure] = {}
    runs: list[Run] = []
    exhibits: dict[str, Exhibits] = {}
    for path in map(Path, paths):
        found = _read(path)
        rows |= {row.cell.key: row for row in found.rows}
        failures |= {failure.cell.key: failure for failure in found.failures}
        runs += found.runs
        exhibits |= found.exhibits
    if not rows and not runs:
        raise ValueError("`rows` must hold at least one row or run; there is nothing to report.")
    lasting = [failure for key, failure in failures.items() if key not in rows]
    return Gathered(tuple(rows.values()), tuple(lasting), tuple(runs), exhibits)


def _read(path: Path) -> Gathered:
    if not path.exists():
        raise FileNotFoundError(
            f"`rows`: nothing is at {path}; expected a folder of rows or of a run, a .jsonl file "
            f"or a {RUN_FILE}."
        )
    check_regular(path)
    if path.is_file():
        run = path.with_suffix(".run")
        if path.suffix == ".csv" and run.is_dir():
            raise ValueError(f"`rows`: {path} holds predictions; the run that made them is {run}.")
        if path.suffix == ".json":
            return Gathered((), runs=(read_run(path),))
        return Gathered(tuple(load_rows(path)), exhibits=read_exhibits(path.parent))
    runs = (read_run(path / RUN_FILE),) if (path / RUN_FILE).exists() else ()
    stores = [path / name for name in _STORES if (path / name).is_dir()]
    if runs and not stores:
        return Gathered((), runs=runs)
    stores = stores or [path]
    rows = [row for store in stores for row in load_rows(store)]
    if not rows and not runs:
        files = [path / f"{name}.jsonl" for name in _STORES]
        rows = [row for file in files if file.exists() for row in load_rows(file)]
    if not rows and not runs:
        raise ValueError(f"`rows`: {path} holds neither rows nor a {RUN_FILE}.")
    failures = [failure for store in stores for failure in RowStore(store).failures()]
    exhibits = {key: each for store in stores for key, each in read_exhibits(store).items()}
    return Gathered(tuple(rows), tuple(failures), runs, exhibits)
