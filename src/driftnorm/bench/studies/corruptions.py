"""Corruption x severity x method x seed: every cell one row, each stream corrupted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.adapter.guard import Policy
from driftnorm.bench.cell import (
    Cell,
    MethodId,
    Protocol,
    Shift,
    StreamId,
    Training,
)
from driftnorm.bench.protocol import stream_order
from driftnorm.bench.runner import Opened, Study
from driftnorm.bench.samples import Look
from driftnorm.bench.studies.corrupted_streams import Streams, open_streams
from driftnorm.bench.studies.corruption_checks import (
    check_corruptions,
    check_there,
    check_whole,
)
from driftnorm.bench.studies.measured_method import check_fit, method_id, spec_of
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.images.image_set import Images, ImageSet
from driftnorm.images.tensors import tensors, unit
from driftnorm.methods.spec import MethodSpec
from driftnorm.shifts import CORRUPTIONS

__all__ = ["CorruptionStudy", "batches"]


@dataclass(frozen=True)
class CorruptionStudy(Study):
    """What is measured on what.

    Attributes:
        data: Clean images (a folder of CIFAR's files, an ``.npz``, a folder of pictures),
            corrupted on the fly, or a folder in the layout of CIFAR-10-C or of ImageNet-C.
        model: As `driftnorm.models.open_model` takes it.
        weights: Its weights, if the name does not include them.
        methods: Each with its options.
        corruptions: Which of them, in this order.
        severities: 1 to 5; 0 is the clean data.
        limit: At most this many images of each stream.
        batch_size: Images per batch.
        seeds: Seed 0 streams arrays as they are stored; another one shuffles them, and draws
            other noise. Pictures in class folders are always shuffled.
        optimising: For methods that take gradient steps and do not set their own; see `presets`.
        frost: Where frost's overlay pictures are.
        subset: A list of ImageNet-C's pictures to take.
        classes: Of pictures: the folder names of all classes, in the order of the outputs.
        pretrained: Use the weights that timm or torchvision publish for the model; without it
            nothing is downloaded.
        mean: Of the network's input, per channel of images in [0, 1]; None where it is known.
        std: Its deviation, likewise.
        size: Height and width that the images must have; None takes them as they are.
        guard: Off by default: the paper's methods have none.
        training: How the network was trained, if its file does not say so.
        device: Where the network runs.
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
    device: str = "cpu"
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
            FileNotFoundError: The data, or frost's overlay images, are missing.
        """
        return [*self._cells]

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        check_fit(self.methods, ", or use `bench streams --source-data`")
        streams = self._streams
        data = streams.data_id
        check_there(streams, self.data, self.corruptions, self.severities)
        example = streams.example(self.corruptions[0], max(self.severities))
        self._network.check_classes(data.label, example.classes)
        variants = {c: streams.variant(c) for c in self.corruptions if any(self.severities)}
        methods = [*map(self._method, self.methods)]
        predict = {method: spec_of(method).recipe.predict for method in methods}
        network = self._network.id
        return tuple(
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
                Protocol(self.batch_size, predict=predict[method], guard=self.guard),
            )
            for seed in self.seeds
            for severity in self.severities
            for shifts in (
                [(Shift(name, severity, variant),) for name, variant in variants.items()]
                if severity
                else [()]
            )
            for method in methods
        )

    def _method(self, method: MethodSpec) -> MethodId:
        """The method with the study's settings, if it takes gradient steps."""
        return method_id(method, self.optimising if method.recipe.needs_backward else ())

    @cached_property
    def _streams(self) -> Streams:
        return open_streams(self.data, self.limit, self.frost, self.subset, self.classes)

    @cached_property
    def _first(self) -> ImageSet:
        """One image as the streams have them."""
        return self._streams.example(self.corruptions[0], max(self.severities)).first(1).load()

    @cached_property
    def _network(self) -> MeasuredNetwork:
        height, width = self._first.images.shape[1:3]
        return MeasuredNetwork(
            self.model,
            self.weights,
            self.pretrained,
            self.mean,
            self.std,
            self.size,
            (height, width),
            self.training,
        )

    def open(self, cell: Cell, scratch: Path) -> Opened:
        """The network, and the stream's images in memory or in a file of `scratch`."""
        network = self._network.network(cell.network)
        images = self.images(cell).load(scratch / "pixels")

        def look(at: int) -> Look:
            return Look(f"image {images.indices[at]}", int(images.labels[at]), images.images[at])

        return Opened(
            network.to(self.device),
            lambda: batches(images, cell.protocol.batch_size, self.device),
            images.classes,
            look,
            {"note": images.note} if images.note else {},
        )

    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """The network and noise of the images' size."""
        height, width = self._first.images.shape[1:3]
        noise = torch.rand(cell.protocol.batch_size, 3, height, width)
        return self._network.opened.network.to(self.device), noise.to(self.device)

    def images(self, cell: Cell) -> Images:
        """The stream's images, in their order."""
        stream = cell.stream
        corruption = stream.shifts[0].name if stream.shifts else ""
        chosen = self._streams.images(corruption, stream.severity, stream.seed)
        if stream.order == "as stored":
            return chosen
        return chosen.take(stream_order(len(chosen), stream.seed))


def batches(images: ImageSet, size: int, device: str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1] as (N, 3, H, W), with labels, batch by batch."""
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        pixels, labels = tensors(images, part)
        yield unit(pixels.to(device)), labels


def _shuffles(images: Images, seed: int) -> bool:
    return seed != 0 or images.in_files
