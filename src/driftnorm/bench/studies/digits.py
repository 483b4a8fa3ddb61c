"""A small experiment: several seeds, every method at its defaults, nothing tuned.

For each seed the digits are split in halves; a small network is trained on the clean first half;
the second half is shifted and streamed, unlabelled, to every method, which starts from the same
trained network for each shift and severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn

from driftnorm._internal.files import write_atomically
from driftnorm.bench.cell import Cell, DataId, NetworkId, Protocol, Shift, StreamId
from driftnorm.bench.runner import Opened, Preparation, Study, Task
from driftnorm.bench.samples import Look
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS, SEVERITIES
from driftnorm.bench.studies.measured_method import method_id
from driftnorm.images.embedded_digits import Digits, split_digits
from driftnorm.methods.spec import parse_method

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


def normalized_digits(images: Tensor) -> Tensor:
    """The network's input."""
    return (images - _MEAN) / _STD


def train_digits(data: Digits, seed: int, epochs: int = 25) -> nn.Module:
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
                loss = F.cross_entropy(
                    network(normalized_digits(data.images[batch])), data.labels[batch]
                )
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    return network.eval()


COMPARED = (
    *("source", "bn", "bn-prior", "alpha-bn", "tent", "gprebn", "t3a", "rt3a", "pl", "pl-c"),
    *("shot", "shot-im", "gprebn+rt3a", "steady"),
)
"""The paper's comparison and the default; the demo's committed rows cover only these."""


@dataclass(frozen=True)
class DigitStudy(Study):
    """What the demo measures.

    Attributes:
        folder: Where the trained networks are stored.
        seeds: How often everything is repeated, each time with another split and training.
        batch_size: Images per batch.
        names: The methods.
    """

    folder: Path = Path("runs/demo/networks")
    seeds: int = 3
    batch_size: int = 64
    names: tuple[str, ...] = COMPARED

    def cells(self) -> list[Cell]:
        """Every measurement, clean data first."""
        streams = [(), *((Shift(name, s),) for name in DIGIT_SHIFTS for s in SEVERITIES)]
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

    def preparations(self, missing: Sequence[Cell]) -> list[Task]:
        """One network per seed."""
        return trainings(self.folder, sorted({cell.stream.seed for cell in missing}))

    def open(self, cell: Cell, scratch: Path) -> Opened:
        """The network of the cell's seed, and the same images in the same order for all methods."""
        test = split_digits(cell.stream.seed)[1]
        images = shifted(test, cell.stream.shifts, cell.stream.seed)

        def look(at: int) -> Look:
            pixels = images[at].clamp(0, 1).permute(1, 2, 0).numpy()
            return Look(f"digit {at}", int(test.labels[at]), pixels)

        return Opened(
            load_network(network_file(self.folder, cell.stream.seed)),
            lambda: zip(
                torch.split(normalized_digits(images), self.batch_size),
                torch.split(test.labels, self.batch_size),
                strict=True,
            ),
            [str(digit) for digit in range(10)],
            look,
        )

    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """An untrained network costs as much as a trained one."""
        return digit_network().eval(), torch.rand(self.batch_size, 1, 8, 8)


def train_into(file: Path, seed: int) -> None:
    """Train the network of a seed and save its weights."""
    file.parent.mkdir(parents=True, exist_ok=True)
    weights = save(train_digits(split_digits(seed)[0], seed).state_dict())
    write_atomically(file, weights)


def network_file(folder: Path, seed: int) -> Path:
    """File of a seed's network."""
    return folder / f"network-{seed}.safetensors"


def load_network(file: Path) -> nn.Module:
    """What `train_into` saved."""
    network = digit_network()
    network.load_state_dict(load_file(file))
    return network.eval()


def trainings(folder: Path, seeds: Sequence[int]) -> list[Task]:
    """The missing networks of these seeds."""
    return [
        Preparation(f"training, seed {seed}", train_into, (network_file(folder, seed), seed))
        for seed in seeds
        if not network_file(folder, seed).exists()
    ]


def shifted(test: Digits, shifts: Sequence[Shift], seed: int) -> Tensor:
    """The images with these shifts applied in turn; severity 0 changes nothing."""
    strongest = max((shift.severity for shift in shifts), default=0)
    generator = torch.Generator().manual_seed(1000 * seed + strongest)
    images = test.images
    for shift in shifts:
        if shift.severity:
            images = DIGIT_SHIFTS[shift.name](images, shift.severity, generator)
    return images
