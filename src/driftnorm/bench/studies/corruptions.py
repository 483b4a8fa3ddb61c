"""Corruption x severity x method x seed: every cell one row, each stream corrupted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from driftnorm._internal.launch import Launcher, serial
from driftnorm._internal.scratch import remove_leftovers
from driftnorm.adapter.guard import Policy
from driftnorm.bench.cell import (
    Cell,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
    Trainer,
    Training,
)
from driftnorm.bench.protocol import stream_order
from driftnorm.bench.rows import Failure, Row, RowStore
from driftnorm.bench.studies.corrupted_streams import Images, Streams, open_streams
from driftnorm.bench.studies.corruption_cells import Task, batches, give_up, measure
from driftnorm.bench.studies.corruption_checks import (
    check_class_count,
    check_corruptions,
    check_there,
    check_whole,
)
from driftnorm.bench.studies.measured_method import method_id, spec_of
from driftnorm.bench.studies.subject import open_subject, subject_name, training_of
from driftnorm.images.image_set import ImageSet
from driftnorm.methods.spec import MethodSpec
from driftnorm.models.opener import Model
from driftnorm.shifts import CORRUPTIONS

__all__ = ["Study", "batches"]


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
        limit: At most this many images of each stream.
        batch_size: Images per batch.
        seeds: Seed 0 streams arrays as they are stored; another one shuffles them, and draws
            other noise. Pictures in class folders are always shuffled.
        optimising: For methods that take gradient steps and do not say otherwise; see `presets`.
        frost: Where frost's overlay pictures are.
        subset: A list of ImageNet-C's pictures to take.
        classes: Of pictures: the folder names of all classes, in the order of the outputs.
        pretrained: Take the weights that timm or torchvision publish for the model.
        mean: Of the network's input, per channel of images in [0, 1]; None where it is known.
        std: Its deviation, likewise.
        size: Height and width that the images must have; None takes them as they are.
        guard: Off by default: the paper's methods have none.
        training: How the network was trained, if its file does not say so.
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
    classes: tuple[str, ...] | None = None
    pretrained: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    guard: Policy = "off"
    training: Training | None = None
    name: str = "robustness"

    def __post_init__(self) -> None:
        check_corruptions(self.corruptions)
        check_whole("severities", self.severities, 0, 5)
        check_whole("seeds", self.seeds, 0)
        check_whole("batch_size", (self.batch_size,), 1)
        if self.limit is not None:
            check_whole("limit", (self.limit,), 1)

    def cells(self) -> list[Cell]:
        """Every measurement, those of one stream next to each other.

        Raises:
            ValueError: The data lack some of the streams, or the network is not for them.
            FileNotFoundError: Data, or the pictures of frost, are not there.
        """
        streams = self._streams
        data = streams.data_id
        check_there(streams, self.data, self.corruptions, self.severities)
        example = streams.example(self.corruptions[0], max(self.severities))
        network = self._network(self._checked_model(data.label, example))
        variants = {c: streams.variant(c) for c in self.corruptions if any(self.severities)}
        return [
            Cell(
                self.name,
                network,
                StreamId(
                    data,
                    shifts,
                    count=len(example),
                    order="shuffled" if _shuffles(example, seed) else "as stored",
                    seed=seed,
                ),
                method,
                Protocol(
                    self.batch_size, predict=spec_of(method).recipe().predict, guard=self.guard
                ),
            )
            for seed in self.seeds
            for severity in self.severities
            for shifts in (
                [(Shift(name, severity, variant),) for name, variant in variants.items()]
                if severity
                else [()]
            )
            for method in map(self._method, self.methods)
        ]

    def _network(self, model: Model) -> NetworkId:
        training, recipe = self.training, training_of(model)
        if training is None and recipe is not None:
            training = Training(Trainer(recipe))
        return NetworkId(subject_name(self.model), model.digest[:8], training)

    def _method(self, method: MethodSpec) -> MethodId:
        """The method with the study's settings, if it takes gradient steps."""
        return method_id(method, self.optimising if method.recipe().needs_backward else ())

    def _checked_model(self, label: str, example: Images) -> Model:
        first = example.first(1)
        model = self.open_model(first if isinstance(first, ImageSet) else first.load())
        check_class_count(self.model, len(model.classes) or None, label, example.classes)
        return model

    def open_model(self, images: ImageSet) -> Model:
        """The network, which must be able to take such images."""
        height, width = images.images.shape[1:3]
        return open_subject(
            self.model,
            self.weights,
            self.pretrained,
            self.mean,
            self.std,
            self.size,
            (height, width),
        )

    def run(
        self, store: RowStore, launcher: Launcher = serial, workers: int = 1
    ) -> Iterator[Row | Failure]:
        """Measure what the store does not have; yields a row or a failure for each cell."""
        remove_leftovers(store.folder)
        missing = [cell for cell in self.cells() if not store.has(cell)]
        streams = groupby(missing, key=lambda cell: cell.stream)
        tasks = (Task(self, store.folder, tuple(cells)) for _, cells in streams)
        for _, results in launcher(measure, tasks, workers, give_up):
            yield from results

    @property
    def _streams(self) -> Streams:
        return open_streams(self.data, self.limit, self.frost, self.subset, self.classes)

    def images(self, cell: Cell) -> Images:
        """The stream's images, in their order."""
        stream = cell.stream
        corruption = stream.shifts[0].name if stream.shifts else ""
        chosen = self._streams.images(corruption, stream.severity, stream.seed)
        if stream.order == "as stored":
            return chosen
        return chosen.take(stream_order(len(chosen), stream.seed))


def _shuffles(images: Images, seed: int) -> bool:
    return seed != 0 or not isinstance(images, ImageSet)
