"""The robustness evidence: real runs, and the page that is written from their rows.

    python benchmarks/evidence_robustness.py run --cifar10 DIR --cifar100 FILE --weights DIR \
        [--frost DIR] [--stages main ablation ...] [--workers 2]
    python benchmarks/evidence_robustness.py page

`run` measures what is missing, stage by stage, in RUNS; it can be killed at any time. `page` puts
the rows into docs/rows/robustness-*.jsonl and writes docs/robustness.md with its plots.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from driftnorm.launch import LAUNCHERS
from driftnorm.method_spec import parse_method
from driftnorm.plots.drawing import draw
from driftnorm.plots.views import PLOTS
from driftnorm.records import Failure, Row, RowStore, load_rows, save_rows
from driftnorm.robustness.comparing import MixedRowsError, in_order
from driftnorm.robustness.grid import Study
from driftnorm.robustness.presets import find_preset
from driftnorm.robustness.views import VIEWS

RUNS = Path("runs/evidence/robustness")
ROWS, PAGE, PICTURES = Path("docs/rows"), Path("docs/robustness.md"), Path("docs/pictures")
MAIN = VIEWS["summary"].methods
ABLATION = tuple(
    dict.fromkeys(m for name in ("ablation", "intro", "half-target") for m in VIEWS[name].methods)
)
BATCH_SIZES = (8, 16, 32, 64, 128, 200, 500)
BATCH_CORRUPTIONS = ("gaussian_noise", "fog", "jpeg_compression")


@dataclass(frozen=True)
class Stage:
    """Studies whose rows belong together."""

    data: str
    weights: str
    methods: tuple[str, ...]
    severities: tuple[int, ...]
    corruptions: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] = (200,)
    model: str = "resnet20"

    def studies(self, places: argparse.Namespace) -> Iterator[Study]:
        """One a batch size."""
        optimising = find_preset("paper").optimising
        for size in self.batch_sizes:
            study = Study(
                data=str(getattr(places, self.data)),
                model=self.model,
                weights=str(places.weights / self.weights),
                methods=tuple(map(parse_method, self.methods)),
                severities=self.severities,
                batch_size=size,
                optimising=optimising,
                frost=None if places.frost is None else str(places.frost),
            )
            yield replace(study, corruptions=self.corruptions or study.corruptions)


C10, C100 = "cifar10-resnet20.safetensors", "cifar100-resnet20.safetensors"
STAGES = {
    "main": Stage("cifar10", C10, MAIN, (5, 4, 3, 2, 1)),
    "ablation": Stage("cifar10", C10, ABLATION, (5,)),
    "cifar100": Stage("cifar100", C100, MAIN, (5,)),
    "batch-sizes": Stage(
        "cifar10", C10, ("bn", "tent", "gprebn"), (5,), BATCH_CORRUPTIONS, BATCH_SIZES
    ),
    "resnet56": Stage("cifar10", "cifar10-resnet56.safetensors", MAIN, (5,), model="resnet56"),
}


def run(places: argparse.Namespace) -> None:
    """Measure what is missing."""
    for name in places.stages:
        for study in STAGES[name].studies(places):
            cells, store = study.cells(), RowStore(RUNS)
            print(f"{name}: {sum(map(store.has, cells))} of {len(cells)} done", flush=True)
            for result in study.run(store, LAUNCHERS["processes"], places.workers):
                cell = result.cell
                failed = f" FAILED {result.error}" if isinstance(result, Failure) else ""
                took = "" if failed else f" {result.metrics['error']:.4f}"  # type: ignore[union-attr]
                print(f"{cell.shift} {cell.severity} {cell.method}{took}{failed}", flush=True)


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows whose cell or protocol has these values."""
    return [
        row
        for row in rows
        if all(
            value == getattr(row.cell, name, None)
            or value == getattr(row.cell.protocol, name, None)
            for name, value in wanted.items()
        )
    ]


HEAD = """# Robustness: what we measured

Written by `python benchmarks/evidence_robustness.py page` from `rows/robustness-*.jsonl`. Corrupted
images are generated here from the official test sets, not the released ones: errors differ a
little from published ones, differences between methods can be compared. The networks are
ResNet-20s, much smaller than the paper's WideResNets, and were not trained with AugMix.
"""
NOT_TESTABLE = """## Not testable here

- ImageNet-C with AugMix ResNet-50 (mCE 48.3 for GpreBN against 48.7 for Tent): neither the images
  nor a machine for them are at hand. `driftnorm bench robustness --preset paper-imagenet` runs it.
- The paper's own networks (AugMix WRN-40-2, standard WRN-28-10) are not at hand;
  `driftnorm bench robustness --model wrn-40-2 --weights Hendrycks2020AugMix_WRN.pt` runs them.
"""


def sections(rows: Sequence[Row]) -> Iterator[str]:
    """The tables, as far as there are rows for them."""
    ten = chosen(rows, data="cifar-10-c (generated)", batch_size=200)
    small = [row for row in ten if row.cell.model.startswith("resnet20")]
    hundred = chosen(rows, data="cifar-100-c (generated)", batch_size=200)
    large = [row for row in ten if row.cell.model.startswith("resnet56")]
    severest = chosen(small, severity=5)
    sizes = [
        row
        for row in chosen(rows, data="cifar-10-c (generated)", severity=5)
        if row.cell.shift in BATCH_CORRUPTIONS
        and row.cell.method in ("bn", "tent", "gprebn")
        and row.cell.model.startswith("resnet20")
    ]
    main = [row for row in small if row.cell.method in MAIN]
    for title, view, own in (
        ("CIFAR-10-C: claims", "claims", small),
        ("CIFAR-10-C, all severities", "summary", main),
        ("By corruption", "detailed", main),
        ("By severity", "severity", main),
        ("Tent on source and target statistics, severity 5", "intro", severest),
        ("Ablation, severity 5", "ablation", severest),
        ("Half of the layers, severity 5", "half-target", severest),
        ("CIFAR-100-C, severity 5", "summary", hundred),
        ("CIFAR-100-C: claims", "claims", hundred),
        ("ResNet-56 on CIFAR-10-C, severity 5", "summary", large),
        ("Batch size, severity 5, three corruptions", "batch-size", sizes),
    ):
        try:
            table = VIEWS[view].make(in_order(own, VIEWS[view].methods))
        except MixedRowsError as error:
            print(f"left out: {title}: {error}", file=sys.stderr)
            continue
        yield f"## {title}\n\n{table.to_markdown()}"
    for name, own in (
        *((plot, main) for plot in ("corruptions", "severity", "online", "calibration")),
        ("batch-size", sizes),
    ):
        try:
            figure = PLOTS[name].make(in_order(own, MAIN))
        except MixedRowsError as error:
            print(f"left out: plot {name}: {error}", file=sys.stderr)
            continue
        draw(figure, PICTURES / f"robustness-{name}.svg")
        yield f"![{name}](pictures/robustness-{name}.svg)\n"


def page() -> None:
    """Rows into the docs, and the page from them."""
    if RUNS.is_dir():
        found = load_rows(RUNS)
        for data in sorted({row.cell.protocol.data for row in found}):
            slug = data.split("-c ")[0].replace("-", "")
            own = [row for row in found if row.cell.protocol.data == data]
            save_rows(own, ROWS / f"robustness-{slug}.jsonl")
    rows = [row for path in sorted(ROWS.glob("robustness-*.jsonl")) for row in load_rows(path)]
    PAGE.write_text("\n".join([HEAD, *sections(rows), NOT_TESTABLE]))
    print(f"{len(rows)} rows, {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--cifar10", type=Path)
    runner.add_argument("--cifar100", type=Path)
    runner.add_argument("--weights", type=Path, required=True)
    runner.add_argument("--frost", type=Path)
    runner.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    runner.add_argument("--workers", type=int, default=2)
    commands.add_parser("page")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments)
    else:
        page()


if __name__ == "__main__":
    main()
