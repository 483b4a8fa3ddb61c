"""``driftnorm bench fine-tuned``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import checked_workers
from driftnorm.bench.rows import Failure, RowStore, load_rows
from driftnorm.bench.studies.corruptions import Study
from driftnorm.bench.studies.fine_tuned import METHODS, FineTunedStudy
from driftnorm.bench.studies.presets import find_preset
from driftnorm.cli._conclusion import AsJson, Quiet, conclude, open_console
from driftnorm.cli._config import keep_config
from driftnorm.shifts import CORRUPTIONS
from driftnorm.training import Optimization
from driftnorm.training.fine_tuning import FineTuning
from driftnorm.views.networks import fine_tuned_table

__all__ = ["bench_fine_tuned"]

Many = Parameter(consume_multiple=True, negative="")


def bench_fine_tuned(
    *,
    data: Path,
    train: Path,
    model: str,
    weights: Path,
    corruptions: Annotated[list[str] | None, Many] = None,
    severities: Annotated[list[int] | None, Many] = None,
    images: int = 1000,
    epochs: float = 2.0,
    learning_rate: Annotated[float, Parameter(name=["--learning-rate", "--lr"])] = 0.001,
    limit: int | None = None,
    seed: int = 0,
    frost: Path | None = None,
    workers: int | None = None,
    out: Path = Path("runs/fine-tuned"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on 14 corruptions, test on the 15th; stopped and started again, it goes on.

    Batch size, optimiser and rate of the test are those of Tent's CIFAR example.

    Parameters
    ----------
    data
        Clean test images, corrupted on the fly, or a folder in the layout of CIFAR-10-C.
    train
        Clean training images: a folder of CIFAR's official files, or an .npz.
    model
        A built-in name such as resnet20.
    weights
        Its pre-trained weights.
    corruptions
        Which to leave out in turn; default: each of the 15. Training is on the other 14 anyway.
    severities
        To test at; default: 5.
    images
        Training images a corruption, a fifth of them at each severity.
    epochs
        Passes over the 14 times so many images.
    learning_rate
        Of SGD with momentum 0.9 and batch 128 at the start; it falls to 0 along a cosine. With
        frozen statistics ResNet-20 diverges at 0.003 and above.
    limit
        Only so many test images of each stream.
    seed
        Of the training.
    frost
        Folder of frost's overlay pictures, or "procedural".
    workers
        Processes, one thread each; default: one a core.
    out
        Folder for rows, networks and corrupted training images.
    """
    given = dict(locals())
    processes = checked_workers(workers)
    setting = find_preset("tent-cifar")
    overlays = None if frost is None else str(frost)
    study = FineTunedStudy(
        FineTuning(
            train=str(train),
            model=model,
            weights=str(weights),
            folder=out,
            images=images,
            optimization=Optimization(learning_rate=learning_rate, final_rate=0.0, epochs=epochs),
            seed=seed,
            frost=overlays,
        ),
        Study(
            data=str(data),
            model=model,
            weights=str(weights),
            methods=METHODS,
            corruptions=tuple(corruptions or CORRUPTIONS),
            severities=tuple(severities or setting.severities),
            limit=limit,
            batch_size=setting.batch_size,
            optimising=setting.optimising,
            frost=overlays,
        ),
    )
    study.pretrained.cells()  # what is wrong with data or network shows before hours of training
    console, store = open_console(quiet, as_json), RowStore(out)
    resolved = {name: getattr(study.pretrained, name) for name in ("corruptions", "severities")}
    keep_config(out, "bench fine-tuned", given | resolved)
    problems = _run(study, store, console, processes)
    wanted = {cell.key: index for index, cell in enumerate(study.cells())}
    rows = [row for row in load_rows(out) if row.cell.key in wanted]
    rows.sort(key=lambda row: wanted[row.cell.key])
    conclude(console, fine_tuned_table, rows, out, len(problems), as_json)


def _run(study: FineTunedStudy, store: RowStore, console: Console, workers: int) -> list[str]:
    """Every stage with its progress; returns what failed."""
    launcher, problems = LAUNCHERS["processes"], []
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:

        def tell(problem: str) -> None:
            problems.append(problem)
            progress.console.print(f"failed: {problem}", markup=False)

        task = progress.add_task("corrupting training images", total=len(study.pools()))
        for _ in study.make_pools(launcher, workers):
            progress.advance(task)
        lacking = sum(not store.has(cell) for cell in study.pretrained.cells())
        task = progress.add_task("measuring the pre-trained network", total=lacking)
        for result in study.pretrained.run(store, launcher, workers):
            progress.advance(task)
            if isinstance(result, Failure):
                tell(f"pre-trained, {result.cell.label}: {result.error}")
        task = progress.add_task("fine-tuning and measuring", total=len(study.missing(store)))
        for outcome in study.run(store, launcher, workers):
            progress.advance(task)
            failed = [result for result in outcome.results if isinstance(result, Failure)]
            for error in (outcome.error, *(f"{f.cell.method.word}: {f.error}" for f in failed)):
                if error is not None:
                    tell(f"without {outcome.left_out}, {error}")
    return problems
