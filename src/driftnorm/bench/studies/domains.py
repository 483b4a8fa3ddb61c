"""Test-time methods on trained networks: T3A's protocol, every cell one row.

For every network, method and setting of its hyper-parameters, the adapter runs on the held-out
split of each training domain (validation) and on the 80 % split of the target (the result), each
time from the source. `selection` chooses settings by validation. On the target, all of them are
measured, or only those that a table will show, which costs a fraction and changes no number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import filterfalse
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from driftnorm._internal.options import Options
from driftnorm._internal.types import Integers
from driftnorm.bench.cell import (
    Cell,
    DataId,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
)
from driftnorm.bench.protocol import stream_order
from driftnorm.bench.rows import RowStore
from driftnorm.bench.runner import Opened, Outlook, Study, Task
from driftnorm.bench.samples import Look
from driftnorm.bench.selection import most_settings, shown_cells
from driftnorm.bench.studies.domain_grids import settings_of
from driftnorm.bench.studies.measured_method import check_fit, method_id
from driftnorm.bench.studies.measured_network import domain_network_id
from driftnorm.bench.vocabulary import TARGET, VALIDATION, GridSize
from driftnorm.images.domains.domain_arrays import DomainArrays, evaluation_batches
from driftnorm.images.domains.named import open_arrays
from driftnorm.methods.spec import MethodSpec, parse_method
from driftnorm.models import open_checkpoint

__all__ = ["DomainStudy", "Targets", "TrainedNetwork", "read_trained"]

Targets: TypeAlias = Literal["all", "selected"]


@dataclass(frozen=True)
class TrainedNetwork:
    """What a study needs to know about a file of `DomainTraining`.

    Attributes:
        path: The file.
        algorithm: What it was trained with.
        trained_on: Names of the training domains.
        test_domains: Names of the others.
        content: Hash of the data set.
        side: Of its images.
        lr: Learning rate of its training.
        weight_decay: Weight decay of its training.
        trial_seed: Seed of the splits.
        id: Its identity in rows.
    """

    path: str
    algorithm: str
    trained_on: tuple[str, ...]
    test_domains: tuple[str, ...]
    content: str
    side: int
    lr: float
    weight_decay: float
    trial_seed: int
    id: NetworkId

    @property
    def label(self) -> str:
        """Algorithm, target, trial, network, weights."""
        return self.id.label

    def network(self) -> nn.Module:
        """Opened; takes images in [0, 1]."""
        return open_checkpoint(self.path).model


def read_trained(path: str) -> TrainedNetwork:
    """The metadata of a file that `driftnorm train domains` wrote."""
    checkpoint = open_checkpoint(path)
    facts = checkpoint.facts
    if "trained_on" not in facts:
        raise ValueError(
            f"{path} does not say which domains it was trained on; `driftnorm train domains` "
            f"writes files that do."
        )
    training, size = facts["training"], checkpoint.preprocessing.size
    return TrainedNetwork(
        path,
        training["algorithm"],
        tuple(facts["trained_on"]),
        tuple(facts["test_domains"]),
        facts["content"],
        size,
        training["lr"],
        training["weight_decay"],
        training["trial_seed"],
        domain_network_id(facts, checkpoint.weights_hash, size),
    )


@dataclass(frozen=True)
class DomainStudy(Study):
    """What is measured.

    Attributes:
        data: As `open_arrays` takes it.
        models: Files of trained networks.
        methods: Words such as ``tent`` or ``gprebn:statistics=source``.
        grid: How many settings are tried; see `domain_grids`.
        batch_size: Images per batch.
        seeds: Of the streams' order.
        limit: At most this many images of each stream, the target's too.
        validation_limit: At most this many images of each validation split; targets stay whole.
        cache: Folder of decoded images.
        targets: Which settings are run on the target: all, or those that a table shows; these are
            known once validation is measured.
        device: Where the networks run.
    """

    data: str
    models: tuple[str, ...]
    methods: tuple[str, ...]
    grid: GridSize = "full"
    batch_size: int = 32
    seeds: tuple[int, ...] = (0,)
    limit: int | None = None
    validation_limit: int | None = None
    cache: str | None = None
    targets: Targets = "all"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("batch_size", "limit", "validation_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        if self.targets not in get_args(Targets):
            raise ValueError(f"`targets` must be one of {get_args(Targets)}, got {self.targets!r}.")

    @cached_property
    def networks(self) -> tuple[TrainedNetwork, ...]:
        """The metadata of the files."""
        return tuple(map(read_trained, self.models))

    def cells(self) -> list[Cell]:
        """Every possible measurement, grouped by network and stream."""
        return [cell for trained in self.networks for cell in self._known_cells[trained]]

    def outlook(self, store: RowStore) -> Outlook:
        """An upper bound until validation has selected what runs on the target."""
        cells = self.cells()
        decided = all(store.has(cell) for cell in filter(_is_validation, cells))
        if self.targets == "all" or decided:
            wanted = cells if self.targets == "all" else [*self._shown(store)]
            return Outlook([cell for cell in wanted if not store.has(cell)])
        validation = [c for c in filter(_is_validation, cells) if not store.has(c)]
        most = (c for trained in self.networks for c in self._most(trained, store))
        return Outlook([*validation, *most], exact=False)

    def phases(self, store: RowStore) -> Iterator[Iterable[Task]]:
        """All at once, or validation first and then what it selects."""
        cells = self.cells()
        if self.targets == "all":
            yield self.measurements(cells, store)
            return
        yield self.measurements(filter(_is_validation, cells), store)
        yield self.measurements(self._shown(store), store)

    def measurements(self, cells: Iterable[Cell], store: RowStore) -> Iterator[Task]:
        """Every task has only the file of its own network."""
        own: dict[NetworkId, list[Cell]] = defaultdict(list)
        for cell in cells:
            own[cell.network].append(cell)
        paths = {trained.id: trained.path for trained in self.networks}
        for network, several in own.items():
            alone = replace(self, models=(paths[network],))
            yield from Study.measurements(alone, several, store)

    def _shown(self, store: RowStore) -> Iterator[Cell]:
        """The target's cells that a table shows, given the validation rows."""
        for trained in self.networks:
            cells = self._known_cells[trained]
            rows = [row for cell in filter(_is_validation, cells) if (row := store.get(cell))]
            yield from shown_cells([*filterfalse(_is_validation, cells)], rows)

    def _most(self, trained: TrainedNetwork, store: RowStore) -> Iterator[Cell]:
        """Upper bound: of the target's open cells, as many as can be shown, the slowest ones."""
        known = {str(spec): settings for spec, settings in self._tried}
        places: dict[tuple[str, str, int], list[Cell]] = defaultdict(list)
        for cell in filterfalse(_is_validation, self._known_cells[trained]):
            if not store.has(cell):
                places[cell.method.word, cell.stream.shift, cell.stream.seed].append(cell)
        for (method, _, _), own in places.items():
            most = most_settings(method, known[method], known.get("tent", ()))
            yield from sorted(own, key=lambda cell: -cell.method.steps)[:most]

    @cached_property
    def _tried(self) -> list[tuple[MethodSpec, tuple[Options, ...]]]:
        """Every method with its settings."""
        specs = [*map(parse_method, self.methods)]
        check_fit(specs)
        return [(spec, settings_of(spec, self.grid)) for spec in specs]

    @cached_property
    def _known_cells(self) -> dict[TrainedNetwork, list[Cell]]:
        methods = [method_id(spec, each) for spec, several in self._tried for each in several]
        return {trained: self._cells_of(trained, methods) for trained in self.networks}

    def _cells_of(self, trained: TrainedNetwork, methods: Sequence[MethodId]) -> list[Cell]:
        arrays = self.arrays(trained)
        streams = [
            StreamId(
                DataId(arrays.name),
                (Shift(domain),),
                count=len(self.positions(arrays, trained, domain, part)),
                split=part,
                order="shuffled",
                seed=seed,
            )
            for seed in self.seeds
            for domain, part in _streams(trained)
        ]
        protocol = Protocol(self.batch_size)
        return [
            Cell("domains", trained.id, stream, method, protocol)
            for stream in streams
            for method in methods
        ]

    def arrays(self, trained: TrainedNetwork) -> DomainArrays:
        """The data at the network's input size; checked to be those it was trained on."""
        arrays = open_arrays(self.data, trained.side, self.cache)
        if arrays.content != trained.content:
            raise ValueError(
                f"{trained.path} was trained on other data than {self.data} holds (content "
                f"{trained.content[:8]} against {arrays.content[:8]})."
            )
        return arrays

    def positions(
        self, arrays: DomainArrays, trained: TrainedNetwork, domain: str, part: str
    ) -> Integers:
        """Which images of a domain are in a stream."""
        split = arrays.split(arrays.index(domain), trained.trial_seed)
        if part == TARGET:
            return split.inner[: self.limit]
        return split.out[: self.limit][: self.validation_limit]

    def open(self, cell: Cell, scratch: Path) -> Opened:
        """The network, and the images of its domain in their order."""
        trained = self._trained(cell)
        arrays, (shift,) = self.arrays(trained), cell.stream.shifts
        array = arrays.domains[arrays.index(shift.name)]
        positions = self.positions(arrays, trained, shift.name, cell.stream.split)
        positions = positions[stream_order(len(positions), cell.stream.seed)]

        def look(at: int) -> Look:
            place = int(positions[at])
            return Look(f"image {place}", int(array.labels[place]), array.images[place])

        return Opened(
            trained.network().to(self.device),
            lambda: (
                (images.to(self.device), labels)
                for images, labels in evaluation_batches(array, positions, self.batch_size)
            ),
            arrays.classes,
            None if _is_validation(cell) else look,
            {"content": arrays.content, **({"note": arrays.note} if arrays.note else {})},
            # rho is a multiple of the rate that the network was trained with.
            (("source_lr", trained.lr), ("weight_decay", trained.weight_decay)),
        )

    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """The network and noise of the images' shape."""
        trained = self._trained(cell)
        noise = torch.rand(self.batch_size, *self.arrays(trained).image_shape)
        return trained.network().to(self.device), noise.to(self.device)

    def _trained(self, cell: Cell) -> TrainedNetwork:
        return next(trained for trained in self.networks if trained.id == cell.network)


def _is_validation(cell: Cell) -> bool:
    return cell.stream.split == VALIDATION


def _streams(trained: TrainedNetwork) -> list[tuple[str, str]]:
    validation = [(domain, VALIDATION) for domain in trained.trained_on]
    return [*validation, *((domain, TARGET) for domain in trained.test_domains)]
