"""``driftnorm bench domains``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import checked_workers
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import Cell
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Failure, RowStore, load_rows
from driftnorm.bench.studies.domains import DomainStudy, Targets, open_trained
from driftnorm.bench.vocabulary import GridSize
from driftnorm.cli._conclusion import AsJson, Quiet, conclude, open_console
from driftnorm.cli._config import keep_config
from driftnorm.cli.bench_robustness import Many, Methods
from driftnorm.methods.spec import parse_method
from driftnorm.views.compare import in_order
from driftnorm.views.domains import DOMAIN_VIEWS
from driftnorm.views.robustness import find_view
from driftnorm.views.trainings import selected_networks

__all__ = ["bench_domains"]


def bench_domains(
    *,
    data: str,
    models: Annotated[list[Path], Many],
    methods: Annotated[list[str] | None, Methods] = None,
    table: str = "domains",
    grid: GridSize = "full",
    batch_size: int = 32,
    seeds: Annotated[list[int] | None, Many] = None,
    limit: int | None = None,
    validation_limit: int | None = None,
    targets: Targets = "all",
    dry_run: bool = False,
    workers: int | None = None,
    cache: str | None = None,
    out: Path = Path("runs/domains/rows"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Adapt trained networks to the domains they never saw; settings are selected on the others.

    Parameters
    ----------
    data
        As in `driftnorm train domains`; must be the data that the networks were trained on.
    models
        Files that `driftnorm train domains` wrote (best.safetensors, swad.safetensors), or folders
        of finished trainings; of several in one trial, as in a sweep, the best by validation.
    table
        Which table to print at the end, and so which methods by default: domains,
        domains-ablation, domains-fine-tuned or domains-claims.
    grid
        full (T3A's values and theta), short, or single (no selection).
    batch_size
        Images a batch.
    seeds
        Of the streams' order; default 0.
    limit
        At most this many images of each stream.
    validation_limit
        At most this many images of each validation split; the targets stay whole.
    targets
        Which settings meet the target: all, or selected (only those that a table shows: the
        tables are the same, and most of the time is saved).
    dry_run
        Print the cells and an estimate of the hours, and stop.
    workers
        Processes, one thread each; default: one a core.
    cache
        Folder for decoded images.
    out
        Folder for the rows.
    """
    given = dict(locals())
    view, processes = find_view(table, DOMAIN_VIEWS), checked_workers(workers)
    study = DomainStudy(
        data=data,
        models=tuple(
            str(path)
            for given in models
            for path in ([given] if given.is_file() else selected_networks(given))
        ),
        methods=tuple(methods or view.methods),
        grid=grid,
        batch_size=batch_size,
        seeds=tuple(seeds or (0,)),
        limit=limit,
        validation_limit=validation_limit,
        cache=cache,
        targets=targets,
    )
    console, store = open_console(quiet, as_json), RowStore(out)
    cells = study.cells()
    missing, done = study.missing(store), sum(store.has(cell) for cell in cells)
    at_most = "" if study.is_exact(store) else "at most "
    console.print(
        f"{at_most}{done + len(missing)} cells, {done} done already. {protocol_text(cells)}",
        markup=False,
    )
    if dry_run:
        _estimate(console, study, missing, at_most, processes)
        return
    resolved = {"methods": study.methods, "seeds": study.seeds}
    keep_config(out, "bench domains", given | resolved)
    failures = _run(console, study, store, done, len(missing), processes)
    wanted = {cell.key for cell in cells}
    rows = [row for row in load_rows(out) if row.cell.key in wanted]
    rows = in_order(rows, [str(parse_method(word)) for word in study.methods])
    conclude(console, view.make, rows, out, failures, as_json)


def _run(
    console: Console, study: DomainStudy, store: RowStore, done: int, missing: int, workers: int
) -> int:
    failures = 0
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=done + missing, completed=done)
        for result in study.run(store, LAUNCHERS["processes"], workers):
            text = f"{result.cell.stream.shift} {result.cell.method.word}"
            progress.update(task, advance=1, description=text)
            if isinstance(result, Failure):
                failures += 1
                progress.console.print(f"failed: {text}: {result.error}", markup=False)
    return failures


def _estimate(
    console: Console, study: DomainStudy, cells: list[Cell], at_most: str, workers: int
) -> None:
    """Time one batch with and one without a gradient step, on one thread, and multiply."""
    if not cells:
        console.print("Nothing is left to do.")
        return
    trained = open_trained(study.models[0])
    channels = study.arrays(trained).image_shape[0]
    batch = torch.rand(study.batch_size, channels, trained.side, trained.side)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cost = {}
    stepping = (m for m in study.methods if parse_method(m).recipe().needs_backward)
    for kind, names in (("forward", ("source",)), ("step", (*stepping, "source"))):
        adapter = _first_possible(trained.network, names)
        adapter(batch)
        begun = time.perf_counter()
        adapter(batch)
        cost[kind] = (time.perf_counter() - begun) / study.batch_size
    torch.set_num_threads(threads)
    seconds = 0.0
    for cell in cells:
        trains = parse_method(cell.method.word).recipe().needs_backward
        each = cost["step"] * cell.method.steps if trains else cost["forward"]
        seconds += each * cell.stream.count
    images = sum(cell.stream.count for cell in cells)
    console.print(
        f"{at_most}{len(cells)} cells to run, {images:,} images; {at_most}about "
        f"{seconds / workers / 3600:.1f} hours with {workers} processes "
        f"({1000 * cost['forward']:.0f} ms an image forward, {1000 * cost['step']:.0f} with a "
        "step, on one thread)."
    )
    for method in dict.fromkeys(cell.method.word for cell in cells):
        own = [cell for cell in cells if cell.method.word == method]
        settings = len({cell.method.settings for cell in own})
        console.print(f"  {method}: {len(own)} cells, {settings} setting(s)", markup=False)


def _first_possible(network: nn.Module, methods: Sequence[str]) -> RecipeAdapter:
    """Of the first method that the network can have: most need its batch norm."""
    for name in methods[:-1]:
        with suppress(ValueError):
            return RecipeAdapter(network, parse_method(name).recipe(), guard="off")
    return RecipeAdapter(network, parse_method(methods[-1]).recipe(), guard="off")
