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
from driftnorm.adapter import Adapter
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import Cell, DataId, NetworkId, Protocol, Shift, StreamId
from driftnorm.bench.rows import Row, RowStore, environment
from driftnorm.bench.samples import Look, keep_exhibits
from driftnorm.bench.scoring import evaluate
from driftnorm.bench.studies.digit_shifts import SEVERITIES, SHIFTS
from driftnorm.bench.studies.measured_method import method_id, spec_of
from driftnorm.errors import DriftnormWarning
from driftnorm.images.embedded_digits import Digits, split_digits
from driftnorm.methods.spec import parse_method

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
        streams = [(), *((Shift(name, s),) for name in SHIFTS for s in SEVERITIES)]
        return [
            Cell(
                "demo",
                NetworkId("digit-cnn"),
                StreamId(DataId("digits"), shifts, count=899, order="shuffled once", seed=seed),
                method_id(parse_method(name)),
                Protocol(self.batch_size, guard="warn"),
            )
            for seed in range(self.seeds)
            for shifts in streams
            for name in self.names
        ]

    def run(
        self, store: RowStore, workers: int = 1, tell: Callable[[str], None] = lambda text: None
    ) -> Iterator[Row]:
        """Measure what the store does not have yet; yields every new row."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        for task, rows in in_processes(_measure, self._tasks(missing, store.folder, tell), workers):
            stream = task.cells[0].stream
            tell(f"seed {stream.seed}: {stream.label}")
            for row in rows:
                store.write(row)
                yield row

    @staticmethod
    def _tasks(missing: list[Cell], folder: Path, tell: Callable[[str], None]) -> Iterator[_Task]:
        """One stream and all its methods each; a network is trained when it is first needed."""
        streams = groupby(missing, key=lambda cell: cell.stream)
        weights: dict[int, dict[str, Tensor]] = {}
        for stream, cells in streams:
            seed = stream.seed
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
    test, where = split_digits(first.stream.seed)[1], environment()
    images = _shifted(first, test)
    about = {"exhibits": _exhibit(task.folder, first, images, test.labels)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)  # alarms are counted in the rows
        rows = []
        for cell in task.cells:
            found = evaluate(_adapter(network, cell), _stream(cell, images, test))
            rows.append(Row(cell, found | about, where))
    return rows


def _adapter(network: nn.Module, cell: Cell) -> Adapter:
    spec = spec_of(cell.method)
    return RecipeAdapter(network, spec.recipe(), method=spec.name, guard="warn")


def _shifted(cell: Cell, test: Digits) -> Tensor:
    """The same images in the same order for every method."""
    generator = torch.Generator().manual_seed(1000 * cell.stream.seed + cell.stream.severity)
    images = test.images
    for shift in cell.stream.shifts:
        images = SHIFTS[shift.name](images, shift.severity, generator)
    return images


def _exhibit(folder: Path, cell: Cell, images: Tensor, labels: Tensor) -> str:
    def look(at: int) -> Look:
        return Look(f"digit {at}", int(labels[at]), images[at].clamp(0, 1).permute(1, 2, 0).numpy())

    return keep_exhibits(folder, cell, [str(digit) for digit in range(10)], look)


def _stream(cell: Cell, images: Tensor, test: Digits) -> Iterator[tuple[Tensor, Tensor]]:
    size = cell.protocol.batch_size
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        yield normalized(images[part]), test.labels[part]
