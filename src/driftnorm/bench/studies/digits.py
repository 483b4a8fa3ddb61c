"""A small honest experiment: several seeds, every method at its defaults, nothing tuned.

For each seed the digits are split in halves; a small network is trained on the clean first half;
the second half is shifted and streamed, unlabelled, to every method, which starts from the same
trained network for each shift and severity.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.processes import in_processes
from driftnorm.adapter._adapt import adapt
from driftnorm.bench.protocol import Protocol
from driftnorm.bench.rows import Cell, Row, RowStore, environment
from driftnorm.bench.samples import Look, keep_exhibits
from driftnorm.bench.scoring import evaluate
from driftnorm.bench.studies.digit_shifts import SEVERITIES, SHIFTS
from driftnorm.errors import DriftnormWarning
from driftnorm.images.embedded_digits import Digits, split_digits

__all__ = ["Demo", "digit_network", "train"]

_MEAN, _STD = 0.305, 0.376  # of the digits' pixels


def digit_network() -> nn.Module:
    """Four convolutions with batch norm, 17 thousand parameters."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 16),
        *block(16, 16),
        nn.MaxPool2d(2),
        *block(16, 32),
        *block(32, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def normalized(images: Tensor) -> Tensor:
    """What the network takes."""
    return (images - _MEAN) / _STD


def train(data: Digits, seed: int, epochs: int = 25) -> nn.Module:
    """Fit the network to clean digits."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = digit_network()
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        batches = len(data.labels) // 64
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 3e-3, total_steps=epochs * batches
        )
        for _ in range(epochs):
            order = torch.randperm(len(data.labels))
            for batch in order[: batches * 64].view(batches, 64):
                loss = F.cross_entropy(network(normalized(data.images[batch])), data.labels[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    return network.eval()


COMPARED = (
    *("source", "bn", "bn-prior", "alpha-bn", "tent", "gprebn", "t3a", "rt3a", "pl", "pl-c"),
    *("shot", "shot-im", "gprebn+rt3a"),
)
"""The paper's comparison; evidence is asked for these, not for every registered method."""


@dataclass(frozen=True)
class Demo:
    """What the demo measures.

    Attributes:
        seeds: How many times everything is repeated, with another split and another training.
        batch_size: Images a batch.
        names: The methods.
    """

    seeds: int = 3
    batch_size: int = 64
    names: tuple[str, ...] = COMPARED

    def cells(self) -> list[Cell]:
        """Every measurement, clean data first."""
        shifts = [("clean", 0), *((shift, s) for shift in SHIFTS for s in SEVERITIES)]
        return [
            Cell("demo", "digit-cnn", shift, severity, name, self._protocol(severity, seed), seed)
            for seed in range(self.seeds)
            for shift, severity in shifts
            for name in self.names
        ]

    def _protocol(self, severity: int, seed: int) -> Protocol:
        return Protocol(
            "digits",
            count=899,
            batch_size=self.batch_size,
            severities=(severity,) if severity else (),
            order="shuffled once",
            seeds=(seed,),
        )

    def run(
        self, store: RowStore, workers: int = 1, tell: Callable[[str], None] = lambda text: None
    ) -> Iterator[Row]:
        """Measure what the store does not have yet; yields every new row."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        for task, rows in in_processes(_measure, self._tasks(missing, store.folder, tell), workers):
            tell(f"seed {task.cells[0].seed}: {task.cells[0].shift} {task.cells[0].severity or ''}")
            for row in rows:
                store.write(row)
                yield row

    @staticmethod
    def _tasks(missing: list[Cell], folder: Path, tell: Callable[[str], None]) -> Iterator[_Task]:
        """One stream and all its methods each; a network is trained when it is first needed."""
        streams = groupby(missing, key=lambda cell: (cell.seed, cell.shift, cell.severity))
        weights: dict[int, dict[str, Tensor]] = {}
        for (seed, _, _), cells in streams:
            if seed not in weights:
                tell(f"training, seed {seed}")
                weights[seed] = train(split_digits(seed)[0], seed).state_dict()
            yield _Task(tuple(cells), folder, weights[seed])


class _Task(NamedTuple):
    cells: tuple[Cell, ...]
    folder: Path
    weights: dict[str, Tensor]


def _measure(task: _Task) -> list[Row]:
    torch.set_num_threads(1)  # the network is so small that threads only get in each other's way
    network = digit_network()
    network.load_state_dict(task.weights)
    network.eval()
    first = task.cells[0]
    test, where = split_digits(first.seed)[1], environment()
    images = _shifted(first, test)
    about = {"exhibits": _exhibit(task.folder, first, images, test.labels)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)  # alarms are counted in the rows
        rows = []
        for cell in task.cells:
            found = evaluate(adapt(network, cell.method), _stream(cell, images, test))
            rows.append(Row(cell, found | about, where))
    return rows


def _shifted(cell: Cell, test: Digits) -> Tensor:
    """The same images in the same order for every method."""
    generator = torch.Generator().manual_seed(1000 * cell.seed + cell.severity)
    if cell.shift not in SHIFTS:
        return test.images
    return SHIFTS[cell.shift](test.images, cell.severity, generator)


def _exhibit(folder: Path, cell: Cell, images: Tensor, labels: Tensor) -> str:
    def look(at: int) -> Look:
        return Look(f"digit {at}", int(labels[at]), images[at].clamp(0, 1).permute(1, 2, 0).numpy())

    return keep_exhibits(folder, cell, [str(digit) for digit in range(10)], look)


def _stream(cell: Cell, images: Tensor, test: Digits) -> Iterator[tuple[Tensor, Tensor]]:
    size = cell.protocol.batch_size
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        yield normalized(images[part]), test.labels[part]
