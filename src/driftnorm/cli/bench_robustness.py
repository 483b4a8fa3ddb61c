"""``driftnorm bench robustness``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import checked_workers
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Failure, RowStore, load_rows
from driftnorm.bench.studies.corruptions import Study
from driftnorm.bench.studies.presets import find_preset
from driftnorm.cli._conclusion import AsJson, Quiet, conclude, open_console
from driftnorm.cli._config import keep_config
from driftnorm.cli._input_flags import Mean, Std, announce_own_code, find_own_code
from driftnorm.methods.spec import parse_method
from driftnorm.models.opener import check_weights, read_class_names
from driftnorm.shifts import CORRUPTIONS
from driftnorm.views.robustness import VIEWS, find_view

__all__ = ["bench_robustness"]

Many = Parameter(consume_multiple=True, negative="")
# Not in the docstring: there, "methods" would be taken for a heading.
Methods = Parameter(
    consume_multiple=True,
    negative="",
    help="Names, with options as in gprebn:theta=0.5; default: those of the table.",
)


def bench_robustness(
    *,
    data: Path,
    model: str,
    weights: Path | None = None,
    pretrained: Annotated[bool, Parameter(negative="")] = False,
    methods: Annotated[list[str] | None, Methods] = None,
    corruptions: Annotated[list[str] | None, Many] = None,
    table: str = "summary",
    preset: str = "paper",
    severities: Annotated[list[int] | None, Many] = None,
    limit: int | None = None,
    batch_size: int | None = None,
    seeds: Annotated[list[int] | None, Many] = None,
    frost: Path | None = None,
    subset: Path | None = None,
    classes: Path | None = None,
    mean: Mean = None,
    std: Std = None,
    size: int | None = None,
    workers: int | None = None,
    out: Path = Path("runs/robustness"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure methods on corrupted images; stopped and started again, it goes on where it was.

    Parameters
    ----------
    data
        Clean images (folder of CIFAR's official files, an .npz, a folder of pictures), corrupted
        on the fly, or a folder in the layout of CIFAR-10-C or of ImageNet-C.
    model
        A driftnorm checkpoint, a built-in name such as resnet20, timm:NAME, torchvision:NAME, or
        package.module:factory.
    weights
        A file of the model's weights; a driftnorm checkpoint has its own.
    pretrained
        Take the weights that timm or torchvision publish for the model, downloaded the first time;
        never done unasked.
    corruptions
        Default: the 15 common ones.
    table
        Which table to print at the end: summary, detailed, severity, intro, ablation, half-target,
        imagenet.
    preset
        Whose severities, batch size, optimiser and rate: paper, paper-imagenet, tent-cifar,
        tent-imagenet or tent-code-everywhere. The flags below, and a method's own options, win.
    severities
        1 to 5; 0 is the clean data.
    limit
        Only so many images of each stream.
    batch_size
        Images a batch.
    seeds
        Default: 0, which streams the images as stored; others shuffle them.
    frost
        Folder of frost's overlay pictures, or "procedural".
    subset
        A list of ImageNet-C's pictures to take, such as RobustBench's of 5,000.
    classes
        Of pictures: a file with the names of all class folders in the order of the network's
        outputs, one per line. Needed where some of the folders are missing.
    size
        Height and width that the images must have, if the network takes no others; they are never
        resized.
    workers
        Processes, one thread each; default: one a core.
    out
        Folder for the rows.
    """
    given = dict(locals())
    file = None if weights is None else str(weights)
    check_weights(model, file, pretrained)
    processes = checked_workers(workers)
    setting, view = find_preset(preset), find_view(table, VIEWS)
    study = Study(
        data=str(data),
        model=model,
        weights=file,
        methods=tuple(map(parse_method, methods or view.methods)),
        corruptions=tuple(corruptions or CORRUPTIONS),
        severities=tuple(severities or setting.severities),
        limit=limit,
        batch_size=setting.batch_size if batch_size is None else batch_size,
        seeds=tuple(seeds or (0,)),
        optimising=setting.optimising,
        frost=None if frost is None else str(frost),
        subset=None if subset is None else str(subset),
        classes=None if classes is None else read_class_names(classes),
        pretrained=pretrained,
        mean=None if mean is None else tuple(mean),
        std=None if std is None else tuple(std),
        size=size,
    )
    console, store = open_console(quiet, as_json), RowStore(out)
    find_own_code()
    cells = study.cells()
    announce_own_code(model, Console(stderr=True, quiet=quiet))
    resolved = {
        name: getattr(study, name) for name in ("corruptions", "severities", "batch_size", "seeds")
    }
    resolved["methods"] = [str(method) for method in study.methods]
    keep_config(out, "bench robustness", given | resolved)
    done = sum(map(store.has, cells))
    protocol = protocol_text(cells)
    console.print(f"{len(cells)} cells, {done} done already. {protocol}", markup=False)
    failures = []
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=len(cells), completed=done)
        for result in study.run(store, LAUNCHERS["processes"], processes):
            cell = result.cell
            text = f"{cell.stream.label} {cell.method.word}"
            progress.update(task, advance=1, description=text)
            if isinstance(result, Failure):
                failures.append(result)
                progress.console.print(f"failed: {text}: {result.error}", markup=False)
    wanted = {cell.key: index for index, cell in enumerate(cells)}
    rows = [row for row in load_rows(out) if row.cell.key in wanted]
    rows.sort(key=lambda row: wanted[row.cell.key])
    conclude(console, view.make, rows, out, len(failures), as_json)
