"""``driftnorm demo``."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console

from driftnorm._internal.files import write_atomically
from driftnorm._internal.processes import available_cores
from driftnorm.bench.rows import RowStore, save_rows
from driftnorm.bench.samples import read_exhibits
from driftnorm.bench.studies.digits import DigitStudy
from driftnorm.cli._bench import measure, own_rows
from driftnorm.cli._config import keep_config
from driftnorm.cli._flags import OUT, Quiet
from driftnorm.views.demo import demo_figure, demo_table
from driftnorm.views.render.matplotlib import draw
from driftnorm.views.report.gather import Gathered
from driftnorm.views.report.page import page

__all__ = ["demo"]


def demo(
    *,
    seeds: int = 3,
    batch_size: int = 64,
    out: Annotated[Path, OUT] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Train, shift, adapt and measure on digits that come with the package.

    Stopped and started again, it resumes.

    Parameters
    ----------
    seeds
        How many times everything is repeated, with another split and another training.
    batch_size
        Images per batch.
    out
        Folder for rows, table, plot and report.
    """
    given = dict(locals())
    for flag, value in (("--seeds", seeds), ("--batch-size", batch_size)):
        if value < 1:
            raise ValueError(f"`{flag}` must be at least 1, got {value}.")
    begun = time.perf_counter()
    torch.set_num_threads(1)
    console = Console(quiet=quiet)
    plots = find_spec("matplotlib") is not None
    if not plots:
        console.print(
            'note: the plot is left out, it needs matplotlib: pip install "driftnorm[plots]"',
            markup=False,
            soft_wrap=True,
        )
    study = DigitStudy(out / "networks", seeds=seeds, batch_size=batch_size)
    cells, store = study.cells(), RowStore(out / "rows")
    done = sum(map(store.has, cells))
    keep_config(out, "demo", given)
    console.print(
        f"A small BatchNorm network is trained on clean digits, then {len(study.names)} methods "
        f"meet shifted ones without labels."
    )
    if done:
        console.print(f"{done} of {len(cells)} measurements are there already (in {out}).")
    failed = measure(study, store, console, available_cores(), done)
    if failed:
        raise RuntimeError(f"{failed} measurements failed; see {store.folder / 'failed'}.")
    rows = own_rows(study, store)
    table = demo_table(rows)
    save_rows(rows, out / "rows.jsonl")
    (out / "table.md").write_text(table.to_markdown())
    if plots:
        draw(demo_figure(rows), out / "accuracy.png")
    found = Gathered(tuple(rows), exhibits=read_exhibits(store.folder))
    write_atomically(out / "report.html", page(found))
    console.print(table.to_rich())
    console.print(
        f"Saved {'accuracy.png, ' * plots}table.md, rows.jsonl and report.html (open it) in {out} "
        f"({time.perf_counter() - begun:.0f} s)."
    )
