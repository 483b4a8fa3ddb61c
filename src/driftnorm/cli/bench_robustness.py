"""``driftnorm bench robustness``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.own_code import given_as
from driftnorm.bench.studies.corrupted_streams import stored_corruptions
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.bench.studies.presets import find_preset
from driftnorm.cli._bench import BenchFlags, FolderClasses, Methods, Pretrained, Subset, bench
from driftnorm.cli._corruption_names import Corruptions, settle_corruptions
from driftnorm.cli._flags import MANY, OUT, RARE, Frost
from driftnorm.cli._input_flags import Mean, Network, Std, announce_own_code, find_own_code
from driftnorm.methods.spec import parse_method
from driftnorm.models.opened_model import check_weights, read_class_names
from driftnorm.views.robustness import VIEWS, find_view


def bench_robustness(
    *,
    data: Path,
    model: Network,
    weights: Path | None = None,
    pretrained: Pretrained = False,
    methods: Methods = None,
    corruptions: Corruptions = None,
    table: str = "summary",
    preset: str = "paper",
    severities: Annotated[list[int] | None, MANY] = None,
    limit: int | None = None,
    batch_size: int | None = None,
    seeds: Annotated[list[int] | None, MANY] = None,
    frost: Frost = None,
    subset: Subset = None,
    classes: FolderClasses = None,
    mean: Mean = None,
    std: Std = None,
    size: Annotated[int | None, Parameter(group=RARE)] = None,
    out: Annotated[Path, OUT] = Path("runs/robustness"),
    flags: BenchFlags = BenchFlags(),  # noqa: B008 (cyclopts reads the default)
) -> None:
    """Measure methods on corrupted images; an interrupted run resumes.

    Parameters
    ----------
    data
        Clean images (a folder of CIFAR's official files, an .npz, a folder of images), corrupted
        on the fly, or a folder in the layout of CIFAR-10-C or of ImageNet-C.
    weights
        A file of weights; a driftnorm checkpoint has its own.
    table
        Which table to print at the end: summary, detailed, severity, intro, ablation, half-target,
        imagenet.
    preset
        Severities, batch size, optimiser and rate of paper, paper-imagenet, tent-cifar,
        tent-imagenet or tent-code-everywhere. The flags below, and a method's own options, override
        them.
    severities
        From 1 to 5; 0 is the clean data. Default: those of the preset.
    limit
        At most this many images of each stream.
    batch_size
        Images per batch; default: that of the preset.
    seeds
        Default: 0, which streams the images as stored; others shuffle them.
    size
        Height and width that the images must have, if the network requires it; they are never
        resized.
    out
        Folder for the rows.
    """
    given = dict(locals())
    file = None if weights is None else str(weights)
    check_weights(model, file, pretrained)
    setting, view = find_preset(preset), find_view(table, VIEWS)
    console = Console(stderr=True, quiet=flags.quiet)
    chosen = settle_corruptions(corruptions, frost, console, stored_corruptions(data))
    study = CorruptionStudy(
        data=str(data),
        model=model,
        weights=file,
        methods=tuple(map(parse_method, methods or view.methods)),
        corruptions=chosen,
        severities=tuple(severities or setting.severities),
        limit=limit,
        batch_size=setting.batch_size if batch_size is None else batch_size,
        seeds=tuple(seeds or (0,)),
        optimising=setting.optimising,
        frost=frost,
        subset=None if subset is None else str(subset),
        classes=None if classes is None else read_class_names(classes),
        pretrained=pretrained,
        mean=None if mean is None else tuple(mean),
        std=None if std is None else tuple(std),
        size=size,
        device=flags.device,
    )
    find_own_code()
    with given_as("--model"):
        study.cells()  # raises if anything is wrong with data or network
    announce_own_code(model, console)
    resolved = {
        name: getattr(study, name) for name in ("corruptions", "severities", "batch_size", "seeds")
    }
    resolved["methods"] = [str(method) for method in study.methods]
    bench(study, view.make, out, flags, "bench robustness", given | resolved)
