"""Measure what small batches do to each kind of statistics: rows for docs/choosing.md.

    python docs/tools/small_batches.py

About three minutes of one core.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from concept_run import SEVERITY, shifted_batches
from torch import nn

from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import Cell, DataId, NetworkId, Protocol, Shift, StreamId
from driftnorm.bench.rows import Row, environment, save_rows
from driftnorm.bench.scoring import evaluate
from driftnorm.bench.studies.digits import train
from driftnorm.bench.studies.measured_method import method_id, spec_of
from driftnorm.errors import DriftnormWarning
from driftnorm.images.embedded_digits import split_digits
from driftnorm.methods.spec import parse_method

OUT = Path(__file__).resolve().parent.parent / "rows" / "small-batches.jsonl"
METHODS = ("source", "bn", "bn:running=True", "bn-prior", "tent", "gprebn", "gprebn:theta=0.5")
BATCH_SIZES = (1, 2, 4, 8, 16, 64)
CHOSEN_SHIFTS = ("noise", "blur", "fog")
IMAGES, SEEDS = 300, 2


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
    networks = [train(split_digits(seed)[0], seed) for seed in range(SEEDS)]
    where = environment()
    for cell in cells():
        yield Row(cell, _metrics(cell, networks[cell.stream.seed]), where)


def _metrics(cell: Cell, network: nn.Module) -> dict[str, object]:
    stream = shifted_batches(cell.stream.seed, cell.stream.shift, cell.protocol.batch_size, IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)
        return evaluate(RecipeAdapter(network, spec_of(cell.method).recipe()), stream)


def main() -> None:
    """Measure and keep."""
    torch.set_num_threads(1)
    rows = list(measure())
    save_rows(rows, OUT)
    print(f"{len(rows)} rows in {OUT}")


if __name__ == "__main__":
    main()
