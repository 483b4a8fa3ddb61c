"""Test-time methods on trained networks: T3A's protocol, every cell one row.

For every network, method and setting of its hyper-parameters, the adapter meets the held-out split
of each training domain (validation) and the 80 % split of the target (the result), each from the
start. `selection` chooses settings by validation. On the target, all of them are measured, or only
those that a table will show, which costs a fraction and changes no number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from torch import nn

from driftnorm._internal.launch import Launcher, serial
from driftnorm._internal.processes import WORKER_DIED
from driftnorm._internal.types import Integers
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import (
    Cell,
    DataId,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
    Trainer,
    Training,
)
from driftnorm.bench.protocol import stream_order
from driftnorm.bench.rows import Failure, Row, RowStore, environment
from driftnorm.bench.samples import Look, keep_exhibits
from driftnorm.bench.scoring import evaluate
from driftnorm.bench.selection import most_settings, shown_cells
from driftnorm.bench.studies.domain_grids import settings_of
from driftnorm.bench.studies.measured_method import method_id, spec_of
from driftnorm.bench.vocabulary import TARGET, VALIDATION, GridSize
from driftnorm.images.domains.domain_arrays import DomainArray, DomainArrays, evaluation_batches
from driftnorm.images.domains.named import open_arrays
from driftnorm.methods.spec import MethodSpec, parse_method
from driftnorm.models import open_checkpoint

__all__ = ["DomainStudy", "Targets", "TrainedNetwork", "open_trained"]

Targets: TypeAlias = Literal["all", "selected"]


class TrainedNetwork(NamedTuple):
    """What a study must know about a file of `DomainTraining`.

    Attributes:
        path: The file.
        network: Takes images in [0, 1].
        algorithm: What it was trained with.
        trained_on: Names of the training domains.
        test_domains: Names of the others.
        content: Hash of the data set.
        side: Of its images.
        lr: It was trained with.
        weight_decay: It was trained with.
        trial_seed: Of the splits.
        digest: First letters of the weights' hash.
        id: For rows.
    """

    path: str
    network: nn.Module
    algorithm: str
    trained_on: tuple[str, ...]
    test_domains: tuple[str, ...]
    content: str
    side: int
    lr: float
    weight_decay: float
    trial_seed: int
    digest: str
    id: NetworkId

    @property
    def label(self) -> str:
        """For people: algorithm, target, trial, network, weights."""
        return self.id.label


@lru_cache(maxsize=8)
def open_trained(path: str) -> TrainedNetwork:
    """Open a file that `driftnorm train domains` wrote."""
    checkpoint = open_checkpoint(path)
    facts = checkpoint.facts
    if "trained_on" not in facts:
        raise ValueError(
            f"{path} does not say which domains it was trained on; `driftnorm train domains` "
            f"writes files that do."
        )
    training, size = facts["training"], checkpoint.preprocessing.size
    digest = checkpoint.weights_hash[:8]
    trained = Training(
        Trainer(
            training["algorithm"],
            facts.get("averaged", False),
            training.get("features", "trained"),
        ),
        tuple(facts["test_domains"]),
        training["trial_seed"],
        training["batch_norm"],
        size,
    )
    return TrainedNetwork(
        path,
        checkpoint.model,
        training["algorithm"],
        tuple(facts["trained_on"]),
        tuple(facts["test_domains"]),
        facts["content"],
        size,
        training["lr"],
        training["weight_decay"],
        training["trial_seed"],
        digest,
        NetworkId(training["backbone"], digest, trained),
    )


@dataclass(frozen=True)
class DomainStudy:
    """What is measured.

    Attributes:
        data: As `open_arrays` takes it.
        models: Files of trained networks.
        methods: Words such as ``tent`` or ``gprebn:statistics=source``.
        grid: How many settings are tried; see `grids`.
        batch_size: Images per batch.
        seeds: Of the streams' order.
        limit: At most this many images of each stream.
        validation_limit: At most this many images of each validation split; targets stay whole.
        cache: Folder of decoded images.
        targets: Which settings meet the target: all, or those that a table shows; these are known
            once validation is measured.
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

    def __post_init__(self) -> None:
        for name in ("batch_size", "limit", "validation_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        if self.targets not in get_args(Targets):
            raise ValueError(f"`targets` must be one of {get_args(Targets)}, got {self.targets!r}.")

    def cells(self) -> list[Cell]:
        """Every measurement that may be made, those of one network and stream together."""
        return [cell for _, cell in self._each(lambda cells: cells)]

    def missing(self, store: RowStore) -> list[Cell]:
        """What a run would measure; unless `is_exact`, at most so much, the slowest settings."""
        left = [cell for phase in self._phases(store) for _, cell in phase if not store.has(cell)]
        if self.is_exact(store):
            return left
        most = (cell for _, cell in self._each(lambda cells: self._most(cells, store)))
        return [*filter(_is_validation, left), *most]

    def is_exact(self, store: RowStore) -> bool:
        """Whether it is known what meets the target; if not all does, validation decides."""
        return self.targets == "all" or all(
            store.has(cell) for cell in self.cells() if _is_validation(cell)
        )

    def _phases(self, store: RowStore) -> Iterator[Iterator[tuple[str, Cell]]]:
        """Measurements with the files of their networks; a phase needs the rows of the last."""
        if self.targets == "all":
            yield self._each(lambda cells: cells)
            return
        yield self._each(lambda cells: [*filter(_is_validation, cells)])
        yield self._each(lambda cells: self._shown(cells, store))

    def _each(self, some: Callable[[list[Cell]], list[Cell]]) -> Iterator[tuple[str, Cell]]:
        for path in self.models:
            for cell in some(self._cells_of(open_trained(path))):
                yield path, cell

    def _shown(self, cells: list[Cell], store: RowStore) -> list[Cell]:
        rows = [row for cell in filter(_is_validation, cells) if (row := store.get(cell))]
        return shown_cells([*filterfalse(_is_validation, cells)], rows)

    def _most(self, cells: list[Cell], store: RowStore) -> list[Cell]:
        """Of the target's cells that are not done, as many as can be shown, the slowest."""
        known = {str(parse_method(word)): settings_of(word, self.grid) for word in self.methods}
        places: dict[tuple[str, str, int], list[Cell]] = defaultdict(list)
        for cell in filterfalse(_is_validation, cells):
            if not store.has(cell):
                places[cell.method.word, cell.stream.shift, cell.stream.seed].append(cell)
        return [
            cell
            for (method, _, _), own in places.items()
            for cell in sorted(own, key=lambda cell: -cell.method.steps)[
                : most_settings(method, known[method], known.get("tent", ()))
            ]
        ]

    def _cells_of(self, trained: TrainedNetwork) -> list[Cell]:
        arrays = self.arrays(trained)
        return [
            Cell(
                "domains",
                trained.id,
                StreamId(
                    DataId(arrays.name),
                    (Shift(domain),),
                    count=len(self.positions(arrays, trained, domain, part)),
                    split=part,
                    order="shuffled",
                    seed=seed,
                ),
                method_id(parse_method(method), settings),
                Protocol(self.batch_size),
            )
            for seed in self.seeds
            for domain, part in _streams(trained)
            for method in self.methods
            for settings in settings_of(method, self.grid)
        ]

    def arrays(self, trained: TrainedNetwork) -> DomainArrays:
        """The data in the size that the network takes; checked to be those it was trained on."""
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
        """Which images of a domain a stream has."""
        split = arrays.splits(trained.trial_seed)[arrays.index(domain)]
        if part == TARGET:
            return split.inner[: self.limit]
        return split.out[: self.limit][: self.validation_limit]

    def complete(self, method: MethodId, trained: TrainedNetwork) -> MethodSpec:
        """The method with a setting: rho is a multiple of the rate that the network had."""
        spec = spec_of(method)
        if "rho" not in dict(method.settings):
            return spec
        return spec.with_defaults(
            (("source_lr", trained.lr), ("weight_decay", trained.weight_decay))
        )

    def run(
        self, store: RowStore, launcher: Launcher = serial, workers: int = 1
    ) -> Iterator[Row | Failure]:
        """Measure what the store does not have; yields a row or a failure for each cell."""
        for phase in self._phases(store):
            tasks = (Task(self, store.folder, *each) for each in phase if not store.has(each[1]))
            for _, result in launcher(measure, tasks, workers, give_up):
                yield result


def _is_validation(cell: Cell) -> bool:
    return cell.stream.split == VALIDATION


def _streams(trained: TrainedNetwork) -> list[tuple[str, str]]:
    validation = [(domain, VALIDATION) for domain in trained.trained_on]
    return [*validation, *((domain, TARGET) for domain in trained.test_domains)]


class Task(NamedTuple):
    """One cell, and the file of its network."""

    study: DomainStudy
    folder: Path
    model: str
    cell: Cell


def give_up(task: Task) -> Failure:
    """What is left of a cell whose process died."""
    failure = Failure(task.cell, WORKER_DIED)
    RowStore(task.folder).fail(failure)
    return failure


def _exhibit(
    folder: Path, cell: Cell, classes: Sequence[str], array: DomainArray, positions: Integers
) -> str:
    def look(at: int) -> Look:
        place = int(positions[at])
        return Look(f"image {place}", int(array.labels[place]), array.images[place])

    return keep_exhibits(folder, cell, classes, look)


def measure(task: Task) -> Row | Failure:
    """Run one stream through one adapter."""
    study, cell, store = task.study, task.cell, RowStore(task.folder)
    try:
        trained = open_trained(task.model)
        arrays = study.arrays(trained)
        (domain,), part = (shift.name for shift in cell.stream.shifts), cell.stream.split
        array = arrays.domains[arrays.index(domain)]
        positions = study.positions(arrays, trained, domain, part)
        positions = positions[stream_order(len(positions), cell.stream.seed)]
        stream = evaluation_batches(array, positions, study.batch_size)
        method = study.complete(cell.method, trained)
        adapter = RecipeAdapter(
            trained.network, method.recipe(), method=method.name, guard="off", seed=cell.stream.seed
        )
        about = {"content": arrays.content, **({"note": arrays.note} if arrays.note else {})}
        if not _is_validation(cell):
            about["exhibits"] = _exhibit(store.folder, cell, arrays.classes, array, positions)
        row = Row(cell, evaluate(adapter, stream) | about, environment())
    except (RuntimeError, ValueError, OSError, TypeError) as error:
        failure = Failure(cell, f"{type(error).__name__}: {error}")
        store.fail(failure)
        return failure
    store.write(row)
    return row
