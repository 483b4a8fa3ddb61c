"""``driftnorm bench streams``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.own_code import given_as
from driftnorm.adapter.guard import Policy
from driftnorm.bench.rows import Row
from driftnorm.bench.studies.corrupted_streams import stored_corruptions
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.opener import DIGITS, holds_domains, open_stream_data
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.bench.windows import WINDOW
from driftnorm.cli._bench import BenchFlags, FolderClasses, Methods, Pretrained, Subset, bench
from driftnorm.cli._corruption_names import settle_corruptions
from driftnorm.cli._flags import MANY, OUT, RARE, Frost
from driftnorm.cli._input_flags import Mean, Networks, Std, announce_own_code, find_own_code
from driftnorm.cli._output import say
from driftnorm.methods.spec import parse_method
from driftnorm.models.opened_model import check_weights, read_class_names
from driftnorm.streams import parse_stream
from driftnorm.views.render.matplotlib import draw
from driftnorm.views.stream_figures import timeline_figure
from driftnorm.views.stream_tables import STREAM_METHODS, stream_table, with_window
from driftnorm.views.table import Table

_FEW_WINDOWS = 4  # of which the share that is worse than the source says little


def bench_streams(
    *,
    data: str,
    models: Networks = None,
    weights: Annotated[list[Path] | None, MANY] = None,
    pretrained: Pretrained = False,
    streams: Annotated[list[str] | None, MANY] = None,
    methods: Methods = None,
    corruptions: Annotated[list[str] | None, MANY] = None,
    severity: int | None = None,
    part: int | None = None,
    skip: Annotated[int, Parameter(group=RARE)] = 0,
    limit: int | None = None,
    batch_size: int = 64,
    seeds: Annotated[list[int] | None, MANY] = None,
    window: Annotated[int, Parameter(group=RARE)] = WINDOW,
    guard: Annotated[Policy, Parameter(group=RARE)] = "off",
    source_data: Annotated[Path | None, Parameter(group=RARE)] = None,
    frost: Frost = None,
    subset: Subset = None,
    classes: FolderClasses = None,
    mean: Mean = None,
    std: Std = None,
    size: Annotated[int | None, Parameter(group=RARE)] = None,
    preview: Annotated[Path | None, Parameter(group=RARE)] = None,
    out: Annotated[Path, OUT] = Path("runs/streams"),
    flags: BenchFlags = BenchFlags(),  # noqa: B008 (cyclopts reads the default)
) -> None:
    """Measure methods on streams that change; an interrupted run resumes.

    Parameters
    ----------
    data
        Clean images to corrupt (CIFAR's official files, an .npz, a folder), a folder in the layout
        of CIFAR-10-C or ImageNet-C, one of domains (domain/class/image), or digits, which provides
        images and a network.
    weights
        A file for each model; a driftnorm checkpoint has its own.
    streams
        Such as continual (the default), probes, gradual, mixed, recurring:rounds=5, steady,
        continual+sorted, continual+dirichlet-slots.
    corruptions
        In this order; clean means the images as they are. Default: all domains, or the 15 common
        corruptions.
    severity
        Default: the strongest; a gradual stream rises to it.
    part
        Images per visit to a domain; default: all.
    skip
        Leave out this many images at the beginning.
    limit
        At most this many of the remaining images.
    batch_size
        Images per batch.
    seeds
        Seeds of the streams; default: 0.
    window
        Images per window, for the harm rate and the worst window.
    guard
        What to do when adapting does harm; off, as in the papers.
    source_data
        Clean source images, for methods that need some (eata).
    size
        Height and width that the images must have; images of domains are resized to it.
    preview
        Measure nothing: print each stream, and save its positions (.npz) and a plot of them (.png)
        in this folder.
    out
        Folder for the rows.
    """
    given = dict(locals())
    networks = _networks(models or [], weights or [], pretrained, mean, std, size)
    find_own_code()
    console = Console(stderr=True, quiet=flags.quiet)
    chosen: Sequence[str] | None = corruptions
    if data != DIGITS and not holds_domains(data) and corruptions is None:
        stored = stored_corruptions(data)
        chosen = settle_corruptions(None, frost, console, stored)
        if stored is not None and (missing := [name for name in chosen if name not in stored]):
            say(console, f"note: {data} does not hold {', '.join(missing)}: left out.")
            chosen = [name for name in chosen if name in stored] or stored
    found = open_stream_data(
        data,
        networks,
        domains=chosen,
        severity=severity,
        skip=skip,
        limit=limit,
        frost=frost,
        subset=None if subset is None else str(subset),
        source=None if source_data is None else str(source_data),
        classes=None if classes is None else read_class_names(classes),
        networks=out / "networks",
    )
    usual: tuple[str, ...] = STREAM_METHODS
    if methods is None and data != DIGITS and source_data is None:
        usual = tuple(name for name in usual if not parse_method(name).recipe.needs_fit)
        left = ", ".join(name for name in STREAM_METHODS if name not in usual)
        say(console, f"note: {left} is left out: it needs source-domain images (--source-data).")
    suffix = "" if part is None else f",part={part}"
    study = StreamStudy(
        found,
        tuple(parse_stream(_with_part(text, suffix)) for text in streams or ["continual"]),
        tuple(map(parse_method, methods or usual)),
        batch_size,
        tuple(seeds or (0,)),
        window,
        guard,
        flags.device,
    )
    with given_as("--models"):
        cells = study.cells()  # raises if anything is wrong with data, streams or networks
    if preview is not None:
        _preview(study, preview, Console(quiet=flags.quiet))
        return
    shortest = min(cell.stream.count for cell in cells)
    if shortest < _FEW_WINDOWS * window:
        say(
            console,
            f"note: the harm rate and the plot over time are by windows of {window:,} images, and "
            f"the shortest stream has {shortest:,}: take smaller ones, such as --window "
            f"{max(shortest // 10, 1)}.",
        )
    for each in networks:
        announce_own_code(each.model, console)
    resolved = {
        "streams": [str(stream).removesuffix(",seed=0") for stream in study.streams],
        "methods": [str(method) for method in study.methods],
        "seeds": study.seeds,
        "part": None,  # which the streams have
    }

    def made(rows: Sequence[Row]) -> Table:  # of rows that may have had other windows
        return stream_table(with_window(rows, window))

    bench(study, made, out, flags, "bench streams", given | resolved)


def _preview(study: StreamStudy, folder: Path, console: Console) -> None:
    """What the study's streams show, in words, as positions and as plots."""
    for number, stream in enumerate(dict.fromkeys(cell.stream for cell in study.cells()), start=1):
        positions = study.positions(stream)
        chosen = None if study.window == WINDOW else study.window  # WINDOW is long for a picture
        figure = timeline_figure(positions, chosen, study.data.classes)
        say(console, figure.note)
        file = folder / f"{number:02}-{stream.order}-seed{stream.seed}.npz"
        positions.save(file)
        with suppress(ImportError):  # of matplotlib, which is optional
            draw(figure, file.with_suffix(".png"))
        say(console, f"Saved {file}.")


def _with_part(text: str, suffix: str) -> str:
    """A stream with the part of `--part`, unless it has its own."""
    if not suffix or "part=" in text:
        return text
    return text + (suffix if ":" in text.rpartition("+")[2] else f":{suffix[1:]}")


def _networks(
    models: list[str],
    weights: list[Path],
    pretrained: bool,
    mean: list[float] | None,
    std: list[float] | None,
    size: int | None,
) -> list[MeasuredNetwork]:
    if weights and len(weights) != len(models):
        raise ValueError(
            f"`--weights` must have one file for each of `--models`, {len(models)} here; got "
            f"{len(weights)}."
        )
    files: list[str | None] = [str(file) for file in weights] if weights else [None] * len(models)
    for name, file in zip(models, files, strict=True):
        check_weights(name, file, pretrained)
    return [
        MeasuredNetwork(
            name,
            file,
            pretrained,
            None if mean is None else tuple(mean),
            None if std is None else tuple(std),
            size,
        )
        for name, file in zip(models, files, strict=True)
    ]
