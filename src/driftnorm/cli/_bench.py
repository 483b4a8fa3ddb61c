"""The one driver of all benchmarks: progress, failures, estimate and final output."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import torch
from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import checked_workers
from driftnorm.bench.cell import Cell
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Failure, Row, RowStore, load_rows
from driftnorm.bench.runner import Outlook, Prepared, Result, Study, Unprepared, adapter_of, run
from driftnorm.cli._conclusion import conclude, open_console
from driftnorm.cli._config import keep_config
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import MANY, SPREAD, AsJson, Device, DryRun, Quiet, Workers
from driftnorm.methods.spec import MethodSpec
from driftnorm.views.table import Table

__all__ = ["BenchFlags", "Methods", "bench", "measure", "own_rows"]

# Not in a docstring: there, "methods" would be parsed as a heading.
Methods: TypeAlias = Annotated[
    list[str] | None,
    MANY,
    Parameter(help="Names, with options as in gprebn:theta=0.5; default: those of the table."),
]


@SPREAD
@dataclass(frozen=True)
class BenchFlags:
    """Flags of every benchmark."""

    workers: Workers = None
    device: Device = "cpu"
    dry_run: DryRun = False
    quiet: Quiet = False
    as_json: AsJson = False


def bench(
    study: Study,
    make: Callable[[Sequence[Row]], Table],
    out: Path,
    flags: BenchFlags,
    verb: str,
    given: Mapping[str, Any],
) -> None:
    """Measure what is missing and print the table; exits with 1 if anything failed.

    Args:
        study: What to measure.
        make: The table of its rows.
        out: Folder for the rows.
        flags: As the user gave them.
        verb: The command, for its config.yaml.
        given: Its arguments, likewise.
    """
    check_device(flags.device)
    workers, console = checked_workers(flags.workers), open_console(flags.quiet, flags.as_json)
    store, cells = RowStore(out), study.cells()
    outlook = study.outlook(store)
    done = sum(map(store.has, cells))
    at_most = "" if outlook.exact else "at most "
    total = done + len(outlook.cells)
    first = f"{at_most}{total} cells, {done} done already. {protocol_text(cells)}"
    console.print(first, markup=False)
    if flags.dry_run:
        estimate(console, study, outlook, workers)
        return
    keep_config(out, verb, given)
    failed = measure(study, store, console, workers, done)
    conclude(console, make, own_rows(study, store), out, failed, flags.as_json)


def measure(study: Study, store: RowStore, console: Console, workers: int, done: int = 0) -> int:
    """Run the study under a progress bar; returns how much failed."""
    outlook, failed = study.outlook(store), 0
    total = done + len(outlook.cells) + outlook.preparations
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=total, completed=done)
        for result in run(study, store, LAUNCHERS["processes"], workers):
            progress.update(task, advance=1, description=_text(result))
            if isinstance(result, Failure | Unprepared):
                failed += 1
                progress.console.print(f"failed: {_text(result)}: {result.error}", markup=False)
    return failed


def own_rows(study: Study, store: RowStore) -> list[Row]:
    """The study's own rows in a folder that may contain others, in the order of its cells."""
    place = {cell.key: index for index, cell in enumerate(study.cells())}
    rows = [row for row in load_rows(store.folder) if row.cell.key in place]
    return sorted(rows, key=lambda row: place[row.cell.key])


def _text(result: Result) -> str:
    if isinstance(result, Prepared | Unprepared):
        return result.what
    return f"{result.cell.stream.label} {result.cell.method.word}"


def estimate(console: Console, study: Study, outlook: Outlook, workers: int) -> None:
    """Extrapolate from one batch with and one without a gradient step, on one thread."""
    cells, at_most = outlook.cells, "" if outlook.exact else "at most "
    if not cells:
        console.print("Nothing is left to do.")
        return
    network, batch = study.sample(cells[0])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[bool, float] = {}  # per image, without and with a step
    for cell in sorted(cells, key=lambda cell: cell.method.steps):
        steps = _steps(cell)
        if (steps and True in seconds) or (not steps and False in seconds):
            continue
        with suppress(ValueError):  # most methods need batch norm
            plain = replace(cell, method=replace(cell.method, settings=()))
            adapter = adapter_of(plain, network)
            adapter(batch)
            begun = time.perf_counter()
            adapter(batch)
            each = (time.perf_counter() - begun) / len(batch)
            seconds[bool(steps)] = each / max(steps, 1)
    torch.set_num_threads(threads)
    whole = sum(
        seconds.get(bool(steps), 0.0) * max(steps, 1) * cell.stream.count
        for cell in cells
        for steps in (_steps(cell),)
    )
    images = sum(cell.stream.count for cell in cells)
    costs = [f"{1000 * seconds[False]:.1f} ms per image forward"] if False in seconds else []
    costs += [f"{1000 * seconds[True]:.1f} with a step"] if True in seconds else []
    others = f"{outlook.preparations} trainings and image sets to prepare, not in this estimate; "
    console.print(
        f"{at_most}{len(cells)} cells to run, {images:,} images; "
        f"{others if outlook.preparations else ''}{at_most}about {whole / workers / 3600:.2f} "
        f"hours with {workers} processes ({', '.join(costs)}, on one thread).",
        markup=False,
    )
    for method in dict.fromkeys(cell.method.word for cell in cells):
        own = [cell for cell in cells if cell.method.word == method]
        settings = len({cell.method.settings for cell in own})
        several = f", {settings} settings" if settings > 1 else ""
        console.print(f"  {method}: {len(own)} cells{several}", markup=False)


def _steps(cell: Cell) -> int:
    """Gradient steps per batch; 0 for methods that take none."""
    own = MethodSpec(cell.method.name, cell.method.options)
    return cell.method.steps if own.recipe.needs_backward else 0
