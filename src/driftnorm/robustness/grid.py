"""Corruption x severity x method x seed: every cell one row, each stream corrupted once."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from driftnorm.data.image_set import ImageSet
from driftnorm.engine import RecipeAdapter
from driftnorm.evaluate import evaluate
from driftnorm.guard import Policy
from driftnorm.launch import Launcher, serial
from driftnorm.method_spec import MethodSpec
from driftnorm.models import load, weights_hash
from driftnorm.protocol import Protocol, stream_order
from driftnorm.records import Cell, Failure, Row, RowStore, environment
from driftnorm.robustness.streams import Images, Streams, open_streams
from driftnorm.shifts import CORRUPTIONS

__all__ = ["Study"]


@dataclass(frozen=True)
class Study:
    """What is measured on what.

    Attributes:
        data: Clean images (a folder of CIFAR's files, an ``.npz``, a folder of pictures),
            corrupted on the fly, or a folder in the layout of CIFAR-10-C or of ImageNet-C.
        model: As `driftnorm.models.load` takes it.
        weights: Its weights, if the name alone does not bring them.
        methods: Each with its options.
        corruptions: Which of them, in this order.
        severities: 1 to 5; 0 is the clean data.
        limit: Only so many images of each stream.
        batch_size: Images a batch.
        seeds: Seed 0 streams arrays as they are stored; another one shuffles them, and draws
            other noise. Pictures in class folders are always shuffled.
        optimising: For methods that take gradient steps and do not say otherwise; see `presets`.
        frost: Where frost's overlay pictures are.
        subset: A list of ImageNet-C's pictures to take.
        guard: Off by default: the paper's methods have none.
        name: Of the study, for the rows.
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
    optimising: tuple[tuple[str, Any], ...] = ()
    frost: str | None = None
    subset: str | None = None
    guard: Policy = "off"
    name: str = "robustness"

    def cells(self) -> list[Cell]:
        """Every measurement, those of one stream next to each other."""
        model = f"{_name(self.model)}@{_model(self.model, self.weights)[1]}"
        label = self._streams.label
        example = self._streams.example(self.corruptions[0], max(self.severities))
        return [
            Cell(
                study=self.name,
                model=model,
                shift=corruption if severity else "clean",
                severity=severity,
                method=str(method),
                protocol=self._protocol(label, example, severity, seed, method),
                seed=seed,
                options=self._options(method),
            )
            for seed in self.seeds
            for severity in self.severities
            for corruption in (self.corruptions if severity else ("clean",))
            for method in self.methods
        ]

    def _protocol(
        self, label: str, images: Images, severity: int, seed: int, method: MethodSpec
    ) -> Protocol:
        recipe = self.complete(method).recipe()
        return Protocol(
            data=label,
            count=len(images),
            batch_size=self.batch_size,
            severities=(severity,),
            order="shuffled" if _shuffles(images, seed) else "as stored",
            steps=recipe.steps,
            predict=recipe.predict,
            seeds=(seed,),
        )

    def _options(self, method: MethodSpec) -> tuple[tuple[str, Any], ...]:
        guarded = () if self.guard == "off" else (("guard", self.guard),)
        return guarded + (self.optimising if method.recipe().needs_backward else ())

    def complete(self, method: MethodSpec) -> MethodSpec:
        """The method with the study's options for those that take gradient steps."""
        own = tuple((name, value) for name, value in self._options(method) if name != "guard")
        return method.with_defaults(own)

    def run(
        self, store: RowStore, launcher: Launcher = serial, workers: int = 1
    ) -> Iterator[Row | Failure]:
        """Measure what the store does not have; yields a row or a failure for each cell."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        streams = groupby(missing, key=lambda cell: (cell.seed, cell.severity, cell.shift))
        tasks = (Task(self, store.folder, tuple(cells)) for _, cells in streams)
        for _, results in launcher(measure, tasks, workers):
            yield from results

    @property
    def _streams(self) -> Streams:
        return open_streams(self.data, self.limit, self.frost, self.subset)

    def images(self, cell: Cell) -> Images:
        """The stream's images, in their order."""
        chosen = self._streams.images(cell.shift, cell.severity, cell.seed)
        if not _shuffles(chosen, cell.seed):
            return chosen
        return chosen.take(stream_order(len(chosen), cell.seed))


def _shuffles(images: Images, seed: int) -> bool:
    return seed != 0 or not isinstance(images, ImageSet)


class Task(NamedTuple):
    """One stream and the methods that meet it."""

    study: Study
    folder: Path
    cells: tuple[Cell, ...]


def measure(task: Task) -> list[Row | Failure]:
    """Corrupt once, then run every method; each row is written as soon as it is there."""
    with tempfile.TemporaryDirectory(prefix="driftnorm-") as scratch:
        return [*_results(task, Path(scratch))]


def _results(task: Task, scratch: Path) -> Iterator[Row | Failure]:
    study, store = task.study, RowStore(task.folder)
    methods = {str(method): study.complete(method) for method in study.methods}
    images: ImageSet | None = None
    for cell in task.cells:
        if store.has(cell):  # another run was faster
            continue
        try:
            if images is None:
                found = study.images(cell)
                images = found if isinstance(found, ImageSet) else found.spool(scratch / "pixels")
            row = _measured(study, cell, methods[cell.method], images)
        except Exception as error:  # whatever a network of the user's raises
            failure = Failure(cell, f"{type(error).__name__}: {error}")
            store.fail(failure)
            yield failure
        else:
            store.write(row)
            yield row


def _measured(study: Study, cell: Cell, method: MethodSpec, images: ImageSet) -> Row:
    network, _ = _model(study.model, study.weights)
    adapter = RecipeAdapter(network, method.recipe(), method=method.name, guard=study.guard)
    metrics = evaluate(adapter, batches(images, cell.protocol.batch_size))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {**metrics, "peak_megabytes": round(peak)}
    return Row(cell, found if not images.note else {**found, "note": images.note}, environment())


def batches(images: ImageSet, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1] as (N, 3, H, W), with labels, batch by batch."""
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        pixels = torch.from_numpy(np.array(images.images[part]))
        labels = torch.from_numpy(np.array(images.labels[part]))
        yield pixels.permute(0, 3, 1, 2).float().div(255), labels


def _name(model: str) -> str:
    """An architecture, or a file with the folder of its run, which says what it is."""
    path = Path(model)
    return f"{path.parent.name}/{path.name}" if path.is_file() else path.name


@lru_cache(maxsize=2)
def _model(spec: str, weights: str | None) -> tuple[nn.Module, str]:
    """The network and the first letters of its weights' hash."""
    network = load(spec, weights)
    return network, weights_hash(network.state_dict())[:8]
