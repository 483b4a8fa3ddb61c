"""Measure what small batches do to each kind of statistics: rows for docs/choosing.md.

    python docs/tools/small_batches.py                                 # on the digits
    python docs/tools/small_batches.py --cifar FOLDER --weights FILE   # on corrupted photographs

About three minutes of one core, and half an hour for the photographs (CIFAR-10's official binary
files and weights of ResNet-20; stopped and started again, it resumes).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from concept_run import SEVERITY, shifted_batches
from torch import nn

from driftnorm._internal.counts import counted
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import Cell, DataId, NetworkId, Protocol, Shift, StreamId
from driftnorm.bench.rows import Row, environment, load_rows, save_rows
from driftnorm.bench.stream_scores import evaluate
from driftnorm.bench.studies.digits import train_digits
from driftnorm.bench.studies.measured_method import method_id, spec_of
from driftnorm.cli import app
from driftnorm.errors import DriftnormWarning
from driftnorm.images.embedded_digits import split_digits
from driftnorm.methods.spec import parse_method

ROWS = Path(__file__).resolve().parent.parent / "rows"
OUT, OUT_CIFAR = ROWS / "small-batches.jsonl", ROWS / "small-batches-cifar10.jsonl"
METHODS = ("source", "bn", "bn:running=True", "bn-prior", "tent", "gprebn", "gprebn:theta=0.5")
BATCH_SIZES = (1, 2, 4, 8, 16, 64)
CHOSEN_SHIFTS = ("noise", "blur", "fog")
IMAGES, SEEDS = 300, 2

CIFAR_METHODS = (
    *("source", "bn:running=True", "bn:average=total,running=True"),
    *("bn-prior", "bn-window", "steady", "gprebn"),
)
CIFAR_BATCH_SIZES = (1, 2, 4, 8, 16)
CIFAR_CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
CIFAR_IMAGES, CIFAR_SEVERITY = 1000, 5


def cells() -> list[Cell]:
    """Every measurement; the source answers each image alone, so one batch size stands for all."""
    return [
        Cell(
            "small-batches",
            NetworkId("digit-cnn"),
            StreamId(
                DataId("digits"), (Shift(shift, SEVERITY),), IMAGES, "", "shuffled once", seed
            ),
            method_id(parse_method(method)),
            Protocol(size, guard="warn"),
        )
        for seed in range(SEEDS)
        for shift in CHOSEN_SHIFTS
        for method in METHODS
        for size in (BATCH_SIZES if method != "source" else BATCH_SIZES[-1:])
    ]


def measure() -> Iterator[Row]:
    """The rows, one by one."""
    networks = [train_digits(split_digits(seed)[0], seed) for seed in range(SEEDS)]
    where = environment()
    for cell in cells():
        yield Row(cell, _metrics(cell, networks[cell.stream.seed]), where)


def _metrics(cell: Cell, network: nn.Module) -> dict[str, object]:
    stream = shifted_batches(cell.stream.seed, cell.stream.shift, cell.protocol.batch_size, IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)
        return evaluate(RecipeAdapter(network, spec_of(cell.method).recipe), stream)


def measure_cifar(data: Path, weights: Path, folder: Path) -> list[Row]:
    """The rows on corrupted photographs, by the benchmark that everybody can run."""
    for size in CIFAR_BATCH_SIZES:
        # The source answers each image alone, so one batch size stands for all.
        methods = CIFAR_METHODS if size == CIFAR_BATCH_SIZES[-1] else CIFAR_METHODS[1:]
        words = {
            "data": [data],
            "model": ["resnet20"],
            "weights": [weights],
            "methods": methods,
            "corruptions": CIFAR_CORRUPTIONS,
            "severities": [CIFAR_SEVERITY],
            "limit": [CIFAR_IMAGES],
            "batch-size": [size],
            "workers": [1],
            "out": [folder],
        }
        flags = [word for flag, given in words.items() for word in (f"--{flag}", *map(str, given))]
        app(["bench", "robustness", *flags, "--quiet"], result_action="return_value")
    return load_rows(folder)


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-10's official binary files")
    parser.add_argument("--weights", type=Path, help="of ResNet-20 on CIFAR-10")
    parser.add_argument("--runs", type=Path, default=Path("runs/small-batches"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.cifar is None:
        rows, out = list(measure()), OUT
    else:
        rows, out = measure_cifar(given.cifar, given.weights, given.runs), OUT_CIFAR
    save_rows(rows, out)
    print(f"{counted(len(rows), 'row')} in {out}")


if __name__ == "__main__":
    main()
