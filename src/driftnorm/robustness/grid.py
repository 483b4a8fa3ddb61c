"""Corruption x severity x method x seed: every cell one row, each stream corrupted once."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from driftnorm.data.cifar_c import load_cifar_c
from driftnorm.data.corrupted import corrupted
from driftnorm.data.image_set import DataError, ImageSet
from driftnorm.data.opening import load_clean
from driftnorm.engine import RecipeAdapter
from driftnorm.evaluate import evaluate
from driftnorm.launch import Launcher, serial
from driftnorm.method_spec import MethodSpec
from driftnorm.models import load, weights_hash
from driftnorm.protocol import Protocol
from driftnorm.records import Cell, Row, RowStore, environment
from driftnorm.shifts import CORRUPTIONS

__all__ = ["Failure", "Study"]


@dataclass(frozen=True)
class Study:
    """What is measured on what.

    Attributes:
        data: Clean images (a folder of CIFAR's files, an ``.npz``), corrupted on the fly, or a
            folder in the layout of CIFAR-10-C.
        model: As `driftnorm.models.load` takes it.
        weights: Its weights, if the name alone does not bring them.
        methods: Each with its options.
        corruptions: Which of them, in this order.
        severities: 1 to 5; 0 is the clean data.
        limit: Only the first so many images.
        batch_size: Images a batch.
        seeds: Seed 0 streams the images as they are stored; another one shuffles them, and draws
            other noise.
        frost: Where frost's overlay pictures are.
        guard: Off by default: the paper's methods have none.
    """

    data: str
    model: str
    weights: str | None
    methods: tuple[MethodSpec, ...]
    corruptions: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    limit: int | None = None
    batch_size: int = 200
    seeds: tuple[int, ...] = (0,)
    frost: str | None = None
    guard: str = "off"

    def cells(self) -> list[Cell]:
        """Every measurement, those of one stream next to each other."""
        images = _clean(self.data, self.limit) if not _is_released(self.data) else None
        count = len(images) if images is not None else len(self._released(self.corruptions[0]))
        name = images.name if images is not None else self._released(self.corruptions[0]).name
        model = f"{Path(self.model).name}@{_model(self.model, self.weights)[1]}"
        return [
            Cell(
                study="robustness",
                model=model,
                shift=corruption if severity else "clean",
                severity=severity,
                method=str(method),
                protocol=Protocol(
                    name.split("/")[0],
                    count,
                    self.batch_size,
                    order="shuffled" if seed else "as stored",
                    predict=method.recipe().predict,
                ),
                seed=seed,
            )
            for seed in self.seeds
            for severity in self.severities
            for corruption in (self.corruptions if severity else ("clean",))
            for method in self.methods
        ]

    def run(
        self, store: RowStore, launcher: Launcher = serial, workers: int = 1
    ) -> Iterator[Row | Failure]:
        """Measure what the store does not have; yields a row or a failure for each cell."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        streams = groupby(missing, key=lambda cell: (cell.seed, cell.severity, cell.shift))
        tasks = (Task(self, store.folder, tuple(cells)) for _, cells in streams)
        for _, results in launcher(measure, tasks, workers):
            yield from results

    def images(self, cell: Cell) -> ImageSet:
        """The stream's images, in their order."""
        if _is_released(self.data):
            chosen = self._released(cell.shift, cell.severity)
        else:
            chosen = _clean(self.data, self.limit)
            if cell.severity:
                chosen = corrupted(chosen, cell.shift, cell.severity, cell.seed, self.frost)
        if not cell.seed:
            return chosen
        return chosen.take(np.random.default_rng(cell.seed).permutation(len(chosen)))

    def _released(self, corruption: str, severity: int = 1) -> ImageSet:
        return load_cifar_c(self.data, corruption, severity, self.limit)


class Task(NamedTuple):
    """One stream and the methods that meet it."""

    study: Study
    folder: Path
    cells: tuple[Cell, ...]


class Failure(NamedTuple):
    """A cell that could not be measured; the rest goes on."""

    cell: Cell
    error: str


def measure(task: Task) -> list[Row | Failure]:
    """Corrupt once, then run every method; each row is written as soon as it is there."""
    study, store = task.study, RowStore(task.folder)
    methods = {str(method): method for method in study.methods}
    results: list[Row | Failure] = []
    images: ImageSet | None = None
    for cell in task.cells:
        if store.has(cell):  # another run was faster
            continue
        try:
            images = study.images(cell) if images is None else images
            row = _measured(study, cell, methods[cell.method], images)
        except (RuntimeError, ValueError, OSError, TypeError) as error:
            results.append(Failure(cell, f"{type(error).__name__}: {error}"))
            continue
        store.write(row)
        results.append(row)
    return results


def _measured(study: Study, cell: Cell, method: MethodSpec, images: ImageSet) -> Row:
    network, _ = _model(study.model, study.weights)
    adapter = RecipeAdapter(
        network,
        method.recipe(),
        method=method.name,
        guard=study.guard,  # type: ignore[arg-type]
    )
    metrics = evaluate(adapter, batches(images, cell.protocol.batch_size))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {**metrics, "peak_megabytes": round(peak)}
    return Row(
        replace(cell), found if not images.note else {**found, "note": images.note}, environment()
    )


def batches(images: ImageSet, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1] as (N, 3, H, W), with labels, batch by batch."""
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        pixels = torch.from_numpy(np.ascontiguousarray(images.images[part]))
        labels = torch.from_numpy(np.ascontiguousarray(images.labels[part]))
        yield pixels.permute(0, 3, 1, 2).float().div(255), labels


def _is_released(data: str) -> bool:
    return (Path(data) / "labels.npy").exists()


@lru_cache(maxsize=2)
def _clean(data: str, limit: int | None) -> ImageSet:
    images = load_clean(data)
    if not isinstance(images, ImageSet):
        raise DataError(f"{data} is a folder of pictures; this study takes arrays of small images.")
    return images.first(limit)


@lru_cache(maxsize=2)
def _model(spec: str, weights: str | None) -> tuple[nn.Module, str]:
    """The network and the first letters of its weights' hash."""
    network = load(spec, weights)
    return network, weights_hash(network.state_dict())[:8]
