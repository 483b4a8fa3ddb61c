"""The one driver of all benchmarks: progress, failures, estimate and final output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import torch
from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import checked_workers
from driftnorm.bench.cell import Cell
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Failure, Row, RowStore, load_rows
from driftnorm.bench.runner import Outlook, Prepared, Result, Study, Unprepared, adapter_of, run
from driftnorm.cli._config import keep_config
from driftnorm.cli._devices import check_device
from driftnorm.cli._flags import MANY, RARE, SPREAD, SWITCH, AsJson, Device, DryRun, Quiet, Workers
from driftnorm.cli._output import print_table, say, table_record
from driftnorm.cli._progress import Bar
from driftnorm.errors import MixedRowsError
from driftnorm.methods.spec import MethodSpec
from driftnorm.views.table import Table

# Not in a docstring: there, "methods" would be parsed as a heading.
Methods: TypeAlias = Annotated[
    list[str] | None,
    MANY,
    Parameter(help="Such as gprebn:theta=0.5; default: those of the table."),
]

Pretrained: TypeAlias = Annotated[
    bool,
    SWITCH,
    Parameter(help="Download the weights that timm or torchvision publish."),
]
Subset: TypeAlias = Annotated[
    Path | None,
    Parameter(group=RARE, help="A list of the ImageNet-C images to use (RobustBench's 5,000)."),
]
FolderClasses: TypeAlias = Annotated[
    Path | None,
    Parameter(
        group=RARE,
        help="If some class folders are missing: a file of all their names in the order of the "
        "network's outputs, one per line.",
    ),
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
    # On stderr if stdout is read by a program.
    console = Console(quiet=flags.quiet, stderr=flags.as_json)
    workers = checked_workers(flags.workers)
    store, cells = RowStore(out), study.cells()
    outlook = study.outlook(store)
    done = sum(map(store.has, cells))
    at_most = "" if outlook.exact else "at most "
    total = done + len(outlook.cells)
    say(console, f"{at_most}{counted(total, 'cell')}, {done} done already. {protocol_text(cells)}")
    if flags.dry_run:
        estimate(console, study, outlook, workers)
        return
    keep_config(out, verb, given)
    failed = measure(study, store, console, workers, done)
    _conclude(console, make, own_rows(study, store), out, failed, flags.as_json)


def measure(study: Study, store: RowStore, console: Console, workers: int, done: int = 0) -> int:
    """Run the study under a progress bar; returns how much failed."""
    outlook, failed = study.outlook(store), 0
    total = done + len(outlook.cells) + outlook.preparations
    with Bar(console) as bar:
        bar("starting", done, total)
        results = run(study, store, LAUNCHERS["processes"], workers)
        for finished, result in enumerate(results, start=done + 1):
            bar(_text(result), finished, total)
            if isinstance(result, Failure | Unprepared):
                failed += 1
                say(console, f"failed: {_text(result)}: {result.error}")
    return failed


def _conclude(
    console: Console,
    make: Callable[[Sequence[Row]], Table],
    rows: Sequence[Row],
    folder: Path,
    failed: int,
    as_json: bool,
) -> None:
    """Print the result of a benchmark; exits with 1 if anything failed."""
    table, why = None, ""
    try:
        table = make(rows)
    except MixedRowsError as error:
        why = str(error)
    if as_json:
        shown = None if table is None else table_record(table)
        counts = {"rows": len(rows), "failed": failed, "folder": str(folder)}
        print(json.dumps({"table": shown, "why_no_table": why or None, **counts}))
    elif table is not None:
        print_table(console, table)
    if why:
        say(console, why)
    say(console, f"{counted(len(rows), 'row')} in {folder}; {failed} failed.")
    if failed:
        if console.quiet:
            print(f"driftnorm: {failed} failed; see {folder / 'failed'}.", file=sys.stderr)
        raise SystemExit(1)


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
    others = f"networks and image sets to prepare, not in this estimate: {outlook.preparations}; "
    say(
        console,
        f"{at_most}{counted(len(cells), 'cell')} to run, {counted(images, 'image')}; "
        f"{others if outlook.preparations else ''}{at_most}about {whole / workers / 3600:.2f} "
        f"hours with {counted(workers, 'process')} ({', '.join(costs)}, on one thread).",
    )
    for method in dict.fromkeys(cell.method.word for cell in cells):
        own = [cell for cell in cells if cell.method.word == method]
        settings = len({cell.method.settings for cell in own})
        several = f", {counted(settings, 'setting')}" if settings > 1 else ""
        say(console, f"  {method}: {counted(len(own), 'cell')}{several}")


def _steps(cell: Cell) -> int:
    """Gradient steps per batch; 0 for methods that take none."""
    own = MethodSpec(cell.method.name, cell.method.options)
    return cell.method.steps if own.recipe.needs_backward else 0
