"""``driftnorm demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import torch
from rich.console import Console

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import counted
from driftnorm._internal.files import write_atomically
from driftnorm._internal.processes import available_cores
from driftnorm.bench.rows import Row, RowStore, save_rows
from driftnorm.bench.samples import read_exhibits
from driftnorm.bench.studies.digits import DigitStudy
from driftnorm.bench.studies.stream_data.digit_data import DigitData
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.cli._bench import measure, own_rows
from driftnorm.cli._config import keep_config
from driftnorm.cli._flags import OUT, Quiet
from driftnorm.cli._output import print_table, say
from driftnorm.methods.spec import parse_method
from driftnorm.streams import parse_stream
from driftnorm.views.demo_rows import demo_figure, demo_table
from driftnorm.views.render.matplotlib import draw, open_pyplot
from driftnorm.views.report.gather import Gathered
from driftnorm.views.report.page import page
from driftnorm.views.stream_figures import stream_figure
from driftnorm.views.stream_tables import stream_table

# Shifts that change, clean images in between, and labels in order: what users meet.
_STREAM = "probes:part=250+sorted"
_SHIFTS = ("noise", "contrast", "fog")
_WINDOW = 50  # two classes
_MET = ("source", "bn", "tent", "gprebn", "bn-prior", "steady")


def demo(
    *,
    trials: int = 3,
    batch_size: int = 64,
    out: Annotated[Path, OUT] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Train, shift, adapt and measure on digits that come with the package.

    Its last table, stream.png and a section of the report follow one stream that changes. An
    interrupted run resumes.

    Parameters
    ----------
    trials
        Number of repetitions, each with another split and training.
    batch_size
        Images per batch.
    out
        Folder for rows, table, plots and report.
    """
    given = dict(locals())
    for flag, value in (("--trials", trials), ("--batch-size", batch_size)):
        check_whole(flag, value)
    begun = time.perf_counter()
    torch.set_num_threads(1)
    console = Console(quiet=quiet)
    plots = _can_plot(console)
    study = DigitStudy(out / "networks", seeds=trials, batch_size=batch_size)
    cells, store = study.cells(), RowStore(out / "rows")
    done = sum(map(store.has, cells))
    keep_config(out, "demo", given)
    console.print(
        "A small BatchNorm network is trained on clean digits, then "
        f"{counted(len(study.names), 'method')} adapt it to shifted ones, without labels."
    )
    if done:
        console.print(f"{out} already holds {done} of {counted(len(cells), 'measurement')}.")
    failed = measure(study, store, console, available_cores(), done)
    if failed:
        raise RuntimeError(
            f"{counted(failed, 'measurement')} failed; see {store.folder / 'failed'}."
        )
    rows = own_rows(study, store)
    table = demo_table(rows)
    save_rows(rows, out / "rows.jsonl")
    (out / "table.md").write_text(table.to_markdown())
    if plots:
        draw(demo_figure(rows), out / "accuracy.png")
    print_table(console, table)
    rows += _stream(out, console, plots)
    exhibits = {**read_exhibits(store.folder), **read_exhibits(out / "stream")}
    write_atomically(out / "report.html", page(Gathered(tuple(rows), exhibits=exhibits)))
    console.print(
        f"Saved {'accuracy.png, stream.png, ' * plots}table.md, rows.jsonl, stream.jsonl and "
        f"report.html (open it) in {out} "
        f"({time.perf_counter() - begun:.0f} s)."
    )


def _can_plot(console: Console) -> bool:
    """Whether matplotlib works: found out before the work, and said in one line if not."""
    try:
        open_pyplot()
    except ImportError as error:
        say(console, f"note: the plots are left out: {error}")
        return False
    return True


def _stream(out: Path, console: Console, plots: bool) -> list[Row]:
    """One stream that changes, as a table and as a plot over time."""
    study = StreamStudy(
        DigitData(out / "networks", _SHIFTS),
        (parse_stream(_STREAM),),
        tuple(map(parse_method, _MET)),
        batch_size=16,
        window=_WINDOW,
    )
    store = RowStore(out / "stream")
    done = sum(map(store.has, study.cells()))
    if failed := measure(study, store, console, available_cores(), done):
        raise RuntimeError(
            f"{counted(failed, 'measurement')} failed; see {store.folder / 'failed'}."
        )
    rows = own_rows(study, store)
    save_rows(rows, out / "stream.jsonl")
    if plots:
        draw(stream_figure(rows), out / "stream.png")
    print_table(console, stream_table(rows))
    return rows
