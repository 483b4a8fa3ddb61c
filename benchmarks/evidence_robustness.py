"""The robustness evidence: real runs, and the page that is written from their rows.

    python benchmarks/evidence_robustness.py train --cifar10 DIR --weights DIR [--minutes 20]
    python benchmarks/evidence_robustness.py run --cifar10 DIR --cifar100 FILE --weights DIR \
        [--frost DIR] [--stages main ablation ...] [--workers 2]
    python benchmarks/evidence_robustness.py page

`train` runs every training recipe from the standard weights under a time budget, on one thread
each; `run` measures what is missing, stage by stage, in RUNS; both can be killed at any time.
`page` puts the rows into docs/rows/robustness-*.jsonl and writes docs/robustness.md with its plots.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from driftnorm._internal.launch import LAUNCHERS
from driftnorm.bench.rows import Row, RowStore, load_rows, save_rows
from driftnorm.bench.runner import run as measure
from driftnorm.bench.runner import summary
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.bench.studies.presets import find_preset
from driftnorm.errors import MixedRowsError
from driftnorm.images.labelled import load_clean
from driftnorm.methods.spec import parse_method
from driftnorm.models import open_checkpoint
from driftnorm.training import SHORT, RobustTraining, make_recipe
from driftnorm.training.augmentation.catalog import RECIPES
from driftnorm.views.compare import change_of_error, change_text, in_order, mean_error, note_of
from driftnorm.views.figure import Figure
from driftnorm.views.figures import PLOTS
from driftnorm.views.render.matplotlib import draw
from driftnorm.views.robustness import VIEWS
from driftnorm.views.table import Column, Table

RUNS = Path("runs/evidence/robustness")
TRAINED = Path("runs/evidence/robust-trained")
ROWS, PAGE, PICTURES = Path("docs/rows"), Path("docs/robustness.md"), Path("docs/pictures")
TRAINED_ROWS = ROWS / "trained-robustness.jsonl"
MAIN = VIEWS["summary"].methods
ABLATION = tuple(
    dict.fromkeys(m for name in ("ablation", "intro", "half-target") for m in VIEWS[name].methods)
)
LONGER = {"augmix": 2.0, "adversarial": 2.0}  # three, and eleven, passes per step
BATCH_SIZES = (8, 16, 32, 64, 128, 200, 500)
BATCH_METHODS = ("bn", "bn:running=True", "tent", "gprebn")
LOW_RATES = ("tent:lr=0.0001", "gprebn:lr=0.0001")
"""Is the usual rate of 0.001, chosen for batches of 200, too high for small ones?"""
CONTRAST_METHODS = (
    *("source", "bn", "bn:running=True", "tent", "tent:lr=0.0001", "gprebn", "gprebn:lr=0.0001"),
    *("gprebn:momentum=0.1", "tent@bn-window", "tent:cap=0.004,leash=0.1"),
)
"""Why does the step lose on contrast? Its size, its statistics, or what it minimises."""
BATCH_CORRUPTIONS = ("gaussian_noise", "fog", "jpeg_compression")


@dataclass(frozen=True)
class Stage:
    """Studies whose rows belong together; without weights: before `train`, and after it."""

    data: str
    weights: str | None
    methods: tuple[str, ...]
    severities: tuple[int, ...]
    corruptions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] = (200,)
    model: str = "resnet20"
    limit: int | None = None
    seeds: tuple[int, ...] = (0,)

    def networks(self, places: argparse.Namespace) -> list[tuple[str, str | None]]:
        """Model and weights, as a study takes them."""
        if self.weights is not None:
            return [(self.model, str(places.weights / self.weights))]
        trained = [(str(file), None) for file in sorted(TRAINED.glob("*/model.safetensors"))]
        return [(self.model, str(places.weights / C10)), *trained]

    def studies(self, places: argparse.Namespace) -> Iterator[CorruptionStudy]:
        """One a network and batch size."""
        optimising = find_preset("paper").optimising
        for model, weights in self.networks(places):
            for size in self.batch_sizes:
                study = CorruptionStudy(
                    data=str(getattr(places, self.data)),
                    model=model,
                    weights=weights,
                    methods=tuple(map(parse_method, self.methods)),
                    severities=self.severities,
                    limit=self.limit,
                    batch_size=size,
                    seeds=self.seeds,
                    optimising=optimising,
                    frost=None if places.frost is None else str(places.frost),
                )
                yield replace(study, corruptions=self.corruptions or study.corruptions)


C10, C100 = "cifar10-resnet20.safetensors", "cifar100-resnet20.safetensors"
SLICE = 2000
"""Images per stream where whole test sets would take too long."""
STAGES = {
    "main": Stage("cifar10", C10, MAIN, (5, 4, 3, 2, 1)),
    "ablation": Stage("cifar10", C10, ABLATION, (5,)),
    "cifar100": Stage("cifar100", C100, MAIN, (5,)),
    "cifar100-ablation": Stage("cifar100", C100, ABLATION, (5,)),
    "batch-sizes": Stage("cifar10", C10, BATCH_METHODS, (5,), BATCH_CORRUPTIONS, BATCH_SIZES),
    "low-rates": Stage("cifar10", C10, LOW_RATES, (5,), BATCH_CORRUPTIONS, BATCH_SIZES[:3]),
    "augmentation": Stage("cifar10", None, ("source", "gprebn"), (3, 0), limit=1000),
    "resnet56": Stage(
        "cifar10", "cifar10-resnet56.safetensors", MAIN, (5,), model="resnet56", limit=SLICE
    ),
    "cifar100-resnet56": Stage(
        "cifar100", "cifar100-resnet56.safetensors", MAIN, (5,), model="resnet56", limit=SLICE
    ),
    "orders": Stage("cifar10", C10, MAIN, (5,), limit=SLICE, seeds=(0, 1, 2)),
    "contrast": Stage("cifar10", C10, CONTRAST_METHODS, (5, 3, 1), ("contrast",), limit=SLICE),
}


class TrainingTask(NamedTuple):
    """A recipe, and for how long it is trained."""

    recipe: str
    data: Path
    init: Path
    minutes: float


def train_one(task: TrainingTask) -> str:
    """Run one recipe; returns what came of it."""
    torch.set_num_threads(1)
    job = RobustTraining(
        make_recipe(task.recipe), init=task.init, optimization=SHORT, minutes=task.minutes
    )
    training, test = (load_clean(task.data, split) for split in ("train", "test"))
    outcome = job.run(training, test, TRAINED / f"{task.recipe}-resnet20-s0")  # type: ignore[arg-type]
    return f"{outcome.stop}, {outcome.step} of {outcome.steps} steps, clean {outcome.accuracy}"


def train(places: argparse.Namespace) -> None:
    """Train every recipe, the long ones first."""
    tasks = [
        TrainingTask(name, places.cifar10, places.weights / C10, places.minutes * factor)
        for factor, name in sorted(((LONGER.get(n, 1.0), n) for n in RECIPES), reverse=True)
    ]
    for task, said in LAUNCHERS["processes"](train_one, tasks, places.workers):
        print(f"{task.recipe}: {said}", flush=True)


def trained_facts() -> list[dict[str, Any]]:
    """What the checkpoints of the recipes say about their training."""
    found = []
    for file in sorted(TRAINED.glob("*/model.safetensors")):
        facts = open_checkpoint(file).facts
        names = ("minutes", "steps_done", "seconds", "clean_accuracy", "tested_images", "init_file")
        own = {name: facts[name] for name in (*names, "stop", "threads")}
        batch = facts["run"]["optimization"]["batch_size"]
        found.append({"recipe": facts["run"]["recipe"], "images": batch * own["steps_done"], **own})
    return found


def training_table(facts: Sequence[dict[str, Any]]) -> Table:
    """How the recipes were trained, and what they reach on clean images."""
    lines = tuple(
        (f["recipe"], f["minutes"], f["steps_done"], f["images"], 100 - 100 * f["clean_accuracy"])
        for f in facts
    )
    columns = (
        Column("recipe"),
        Column("minutes"),
        Column("steps", decimals=0),
        Column("images seen", decimals=0),
        Column("clean error", best="lowest", decimals=2),
    )
    note = (
        f"`driftnorm train robust --short --weights {facts[0]['init_file']} --threads 1 "
        "--hours ...`: SGD with a learning rate from 0.02 to 0 along a cosine, batch 128, seed 0; "
        "an epoch is 50,000 training images. "
        f"Clean error in % on {facts[0]['tested_images']:,} images. "
        "A budget as short as this leaves the recipes with the most passes per step (augmix three, "
        "adversarial eleven) far from converged: these networks are weaker than published ones."
    )
    return Table("Training the augmentation baselines", columns, lines, note)


def run(places: argparse.Namespace) -> None:
    """Measure what neither this machine nor a committed row has."""
    for row in committed_rows():
        RowStore(RUNS).write(row)
    for name in places.stages:
        for study in STAGES[name].studies(places):
            cells, store = study.cells(), RowStore(RUNS)
            print(f"{name}: {sum(map(store.has, cells))} of {len(cells)} done", flush=True)
            for result in measure(study, store, LAUNCHERS["processes"], places.workers):
                print(summary(result), flush=True)


def committed_rows() -> list[Row]:
    """What was measured before, here or elsewhere."""
    return [row for path in sorted(ROWS.glob("robustness-*.jsonl")) for row in load_rows(path)]


REMARKS = {
    "calibration": (
        "\nECE in this figure is computed from bins pooled over all streams; the tables above show "
        "the mean over streams. The two differ where overconfident and underconfident streams "
        "cancel out.\n"
    )
}
HEAD = """# Robustness: what we measured

Written by `python benchmarks/evidence_robustness.py page` from `rows/robustness-*.jsonl`.
Corrupted images were generated here from the official test sets; they are not the released files.
Errors differ a little from published ones, but differences between methods can be compared. The
networks are ResNet-20s (ResNet-56s in two sections), much smaller than the paper's WideResNets, and
were not trained with AugMix. What this means for the paper's claims is on [its own
page](claims.md); how to measure one of these numbers again is under
[protocols](protocols.md#from-a-row-to-its-command).
"""


def by_batch_size(rows: Sequence[Row], methods: Sequence[str] = BATCH_METHODS) -> list[Row]:
    """At every batch size, on three corruptions."""
    return [
        row
        for row in rows
        if row.cell.stream.count == 10_000
        and row.cell.stream.data.name == "cifar-10"
        and row.severity == 5
        and row.shift in BATCH_CORRUPTIONS
        and row.cell.network.name == "resnet20"
        and row.method in methods
    ]


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """The plots of the page by name, as far as there are rows for them."""
    main = [
        row
        for row in rows
        if row.cell.stream.count == 10_000
        and row.cell.protocol.batch_size == 200
        and row.cell.stream.data.name == "cifar-10"
        and row.cell.network.name == "resnet20"
        and row.method in MAIN
    ]
    shown = dict.fromkeys(("corruptions", "severity", "online", "calibration"), main)
    made = {}
    for name, own in {**shown, "batch-size": by_batch_size(rows)}.items():
        try:
            made[name] = PLOTS[name].make(in_order(own, MAIN))
        except MixedRowsError as error:
            print(f"left out: plot {name}: {error}", file=sys.stderr)
    return made


def sections(rows: Sequence[Row]) -> Iterator[str]:
    """The tables, as far as there are rows for them."""
    whole = [row for row in rows if row.cell.stream.count == 10_000]
    usual = [row for row in whole if row.cell.protocol.batch_size == 200]
    ten = [row for row in usual if row.cell.stream.data.name == "cifar-10"]
    small = [row for row in ten if row.cell.network.name == "resnet20"]
    hundred = [row for row in usual if row.cell.stream.data.name == "cifar-100"]
    slices = [row for row in rows if row.cell.stream.count == SLICE]
    large = [row for row in slices if row.cell.network.name == "resnet56"]
    contrast = [
        row
        for row in slices
        if row.shift == "contrast" and row.seed == 0 and row.cell.network.name == "resnet20"
    ]
    orders = [row for row in slices if row.method in MAIN and row.cell.network.name == "resnet20"]
    if len({row.seed for row in orders}) < 2:  # the rows of contrast alone
        orders = []
    severest = [row for row in small if row.severity == 5]
    sizes = by_batch_size(rows)
    main = [row for row in small if row.method in MAIN]
    for title, view, own in (
        ("CIFAR-10-C, all severities", "summary", main),
        ("By corruption", "detailed", main),
        ("By severity", "severity", main),
        ("Tent on source and target statistics, severity 5", "intro", severest),
        ("Ablation, severity 5", "ablation", severest),
        ("Half of the layers, severity 5", "half-target", severest),
        ("CIFAR-100-C, severity 5", "summary", [row for row in hundred if row.method in MAIN]),
        ("CIFAR-100-C: ablation, severity 5", "ablation", hundred),
        *(
            (
                f"ResNet-56 on {name.upper()}-C, severity 5, {SLICE:,} images per stream",
                "summary",
                [row for row in large if row.cell.stream.data.name == name],
            )
            for name in ("cifar-10", "cifar-100")
        ),
        (
            f"CIFAR-10-C in three orders of the stream, severity 5, {SLICE:,} images per stream",
            "summary",
            [row for row in orders if row.severity == 5],
        ),
        ("Batch size, severity 5, three corruptions", "batch-size", sizes),
        (
            "Augmentation baselines, severity 3",
            "augmentation",
            [r for r in rows if r.cell.stream.count == 1000 and r.severity == 3],
        ),
    ):
        try:
            table = VIEWS[view].make(in_order(own, VIEWS[view].methods))
        except MixedRowsError as error:
            print(f"left out: {title}: {error}", file=sys.stderr)
            continue
        yield f"## {title}\n\n{table.to_markdown()}"
    sized = by_batch_size(rows, [*BATCH_METHODS, *map(_spelled, LOW_RATES)])
    if len(sized) > len(sizes):
        made = low_rates_table(sized)
        yield f"## Small batches at a lower rate\n\n{made.to_markdown()}"
    if contrast:
        made = contrast_table(contrast)
        yield f"## Contrast, {SLICE:,} images per stream\n\n{made.to_markdown()}"
    for name in figures(rows):
        yield f"![{name}](pictures/robustness-{name}.svg)\n{REMARKS.get(name, '')}"


def low_rates_table(rows: Sequence[Row]) -> Table:
    """A step at a tenth of the usual rate, against no step and against the usual rate."""
    low = [row for row in rows if row.method in map(_spelled, LOW_RATES)]
    sizes = sorted({row.cell.protocol.batch_size for row in low})
    lines: list[tuple[str | float | None, ...]] = []
    for size in sizes:
        own = [row for row in rows if row.cell.protocol.batch_size == size]
        for name in map(_spelled, LOW_RATES):
            usual = name.split(":")[0]
            changes = (change_text(change_of_error(own, name, other)) for other in ("bn", usual))
            errors = (mean_error(own, each) for each in ("bn", usual, name))
            lines.append((f"`{name}`, batch {size}", *errors, *changes))
    columns = (
        Column("method"),
        *(Column(name, decimals=2) for name in ("error of bn", "at the usual rate", "error")),
        *(Column(name) for name in ("minus bn's, 95 %", "minus that at the usual rate, 95 %")),
    )
    note = f"{note_of(low)} Intervals: paired bootstrap over images. The usual rate is 0.001."
    return Table("Small batches at a lower rate", columns, tuple(lines), note)


def _spelled(method: str) -> str:
    """As rows name it."""
    return str(parse_method(method))


def contrast_table(rows: Sequence[Row]) -> Table:
    """What a step gains and loses on `contrast`, by its rate and its statistics."""
    severities = sorted({row.severity for row in rows})
    names = [str(parse_method(name)) for name in CONTRAST_METHODS]
    lines: list[tuple[str | float | None, ...]] = []
    for name in names:
        line: list[str | float | None] = [f"`{name}`"]
        for severity in severities:
            own = [row for row in rows if row.severity == severity]
            line.append(mean_error(own, name))
            line.append("-" if name == "bn" else change_text(change_of_error(own, name, "bn")))
        lines.append(tuple(line))
    columns = [Column("method")]
    for severity in severities:
        columns += [
            Column(f"error, severity {severity}", best="lowest"),
            Column("minus bn's, 95 %"),
        ]
    note = f"{note_of(rows)} Intervals: paired bootstrap over images."
    return Table("Contrast: what a step gains and loses", tuple(columns), tuple(lines), note)


def commit_rows() -> None:
    """What was measured here, into the docs."""
    if RUNS.is_dir():
        found = load_rows(RUNS)
        for slug in sorted({slug_of(row) for row in found}):
            file = ROWS / f"robustness-{slug}.jsonl"
            every = [*(load_rows(file) if file.exists() else []), *found]
            own = {row.cell.key: row for row in every if slug_of(row) == slug}
            save_rows([*own.values()], file)
    if TRAINED.is_dir():
        lines = [json.dumps(facts, sort_keys=True) + "\n" for facts in trained_facts()]
        TRAINED_ROWS.write_text("".join(lines))


def page() -> str:
    """From the committed rows."""
    rows = committed_rows()
    facts = []
    if TRAINED_ROWS.exists():
        facts = [json.loads(line) for line in TRAINED_ROWS.read_text().splitlines()]
    title = "## How the baselines were trained\n\n"
    trained = [title + training_table(facts).to_markdown()] if facts else []
    return "\n".join([HEAD, *sections(rows), *trained])


def slug_of(row: Row) -> str:
    """Which file a row is kept in; all severities of CIFAR-10-C would make one of megabytes."""
    cell = row.cell
    data = cell.stream.data.name.replace("-", "")
    if cell.stream.count == SLICE:
        return f"{data}-{cell.network.name}-slice"
    if cell.stream.count != 10_000:
        return f"{data}-augmentation"
    if cell.protocol.batch_size != 200:
        return f"{data}-batch-sizes"
    return f"{data}-{cell.network.name}-severity{cell.stream.severity}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "run"):
        own = commands.add_parser(name)
        own.add_argument("--cifar10", type=Path)
        own.add_argument("--weights", type=Path, required=True)
        own.add_argument("--workers", type=int, default=2)
        if name == "train":
            own.add_argument("--minutes", type=float, default=20.0)
            continue
        own.add_argument("--cifar100", type=Path)
        own.add_argument("--frost", type=Path)
        own.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    commands.add_parser("page")
    arguments = parser.parse_args()
    if arguments.command == "page":
        commit_rows()
        PAGE.write_text(page())
        for name, figure in figures(committed_rows()).items():
            draw(figure, PICTURES / f"robustness-{name}.svg")
    else:
        {"train": train, "run": run}[arguments.command](arguments)


if __name__ == "__main__":
    main()
