"""``driftnorm bench robustness``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftnorm.data.processes import available_cores
from driftnorm.launch import LAUNCHERS
from driftnorm.method_spec import parse_method
from driftnorm.models import MODELS
from driftnorm.records import RowStore, load_rows
from driftnorm.robustness.grid import Failure, Study
from driftnorm.robustness.views import MixedRowsError, summary_table
from driftnorm.shifts import CORRUPTIONS

__all__ = ["bench_robustness"]

Many = Parameter(consume_multiple=True, negative="")


def bench_robustness(
    *,
    data: Path,
    model: str,
    weights: Path | None = None,
    methods: Annotated[list[str] | None, Many] = None,
    corruptions: Annotated[list[str] | None, Many] = None,
    severities: Annotated[list[int] | None, Many] = None,
    limit: int | None = None,
    batch_size: int = 200,
    seeds: Annotated[list[int] | None, Many] = None,
    frost: Path | None = None,
    workers: int | None = None,
    out: Path = Path("runs/robustness"),
) -> None:
    """Measure methods on corrupted images; stopped and started again, it goes on where it was.

    Parameters
    ----------
    data
        Clean CIFAR images (folder of the official files, or .npz), corrupted on the fly, or a
        folder in the layout of CIFAR-10-C.
    model
        A built-in name such as resnet20, timm:NAME, or a driftnorm checkpoint.
    weights
        The model's weights.

    Methods:
        Names, with options as in gprebn:theta=0.5; default: source bn t3a tent gprebn.
    corruptions
        Default: the 15 common ones.
    severities
        Default: 1 2 3 4 5; 0 is the clean data.
    limit
        Only the first so many images.
    batch_size
        Images a batch.
    seeds
        Default: 0, which streams the images as stored; others shuffle them.
    frost
        Folder of frost's overlay pictures, or "procedural".
    workers
        Processes, one thread each; default: one a core.
    out
        Folder for the rows.
    """
    if weights is None and model in MODELS:
        raise ValueError(f"`{model}` is an architecture without weights: give `--weights` FILE.")
    names = methods or ["source", "bn", "t3a", "tent", "gprebn"]
    study = Study(
        data=str(data),
        model=model,
        weights=None if weights is None else str(weights),
        methods=tuple(map(parse_method, names)),
        corruptions=tuple(corruptions or CORRUPTIONS),
        severities=tuple(severities or (1, 2, 3, 4, 5)),
        limit=limit,
        batch_size=batch_size,
        seeds=tuple(seeds or (0,)),
        frost=None if frost is None else str(frost),
    )
    console, store = Console(), RowStore(out)
    cells = study.cells()
    done = sum(map(store.has, cells))
    console.print(f"{len(cells)} cells, {done} done already. {cells[0].protocol.text()}")
    failures = []
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=len(cells), completed=done)
        for result in study.run(store, LAUNCHERS["processes"], workers or available_cores()):
            cell = result.cell
            text = f"{cell.shift} {cell.severity} {cell.method}"
            progress.update(task, advance=1, description=text)
            if isinstance(result, Failure):
                failures.append(result)
                progress.console.print(f"failed: {text}: {result.error}", markup=False)
    wanted = {cell.key for cell in cells}
    rows = [row for row in load_rows(out) if row.cell.key in wanted]
    try:
        console.print(summary_table(rows).to_rich())
    except MixedRowsError as error:
        console.print(str(error), markup=False)
    console.print(f"{len(rows)} rows in {out}; {len(failures)} failed.", markup=False)
    if failures:
        raise SystemExit(1)
