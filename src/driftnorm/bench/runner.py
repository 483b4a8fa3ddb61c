"""The one runner: a study describes what to measure, and `run` measures what has no row yet.

A study is sent to other processes and machines as a description, without what it has opened. A task
that ran elsewhere leaves its rows in the folder it was given; nothing here requires that folder to
be shared while the task runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from torch import Tensor, nn

from driftnorm._internal.description import Description
from driftnorm._internal.launch import Launcher, serial
from driftnorm._internal.options import Options
from driftnorm._internal.process_memory import forget_peak, peak_megabytes
from driftnorm._internal.processes import WORKER_DIED, end_if_stopped
from driftnorm._internal.scratch import remove_leftovers, scratch_folder
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter.guard import Policy
from driftnorm.bench.cell import Cell
from driftnorm.bench.rows import Failure, Row, RowStore, environment
from driftnorm.bench.samples import Look, keep_exhibits
from driftnorm.bench.stream_scores import Further, evaluate
from driftnorm.bench.studies.measured_method import spec_of

# Per task: many cells, to open a stream only once, but few enough to keep all workers busy.
_MOST_CELLS = 24


class Prepared(NamedTuple):
    """Something that later measurements need was made."""

    what: str


class Unprepared(NamedTuple):
    """Something that later measurements need could not be made."""

    what: str
    error: str


Result: TypeAlias = Row | Failure | Prepared | Unprepared


@dataclass(frozen=True)
class Opened:
    """A network and a stream, opened once for all methods.

    Attributes:
        network: Takes what ``batches`` gives.
        batches: Returns the stream from its beginning, as (inputs, labels).
        classes: Name of each class.
        look: Returns the image at a position of the stream; None stores no examples.
        about: What the row holds besides its numbers.
        defaults: Options of methods that follow from the network.
        further: More numbers; see `evaluate`.
        fit: Source-domain images, for methods that must see some first.
    """

    network: nn.Module
    batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    classes: Sequence[str] = ()
    look: Callable[[int], Look] | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    defaults: Options = ()
    further: Further | None = None
    fit: Callable[[], Iterable[Tensor]] | None = None


class Outlook(NamedTuple):
    """What a run would do.

    Attributes:
        cells: Measurements to make.
        preparations: Other things to make first.
        exact: Whether these are exact, not upper bounds.
    """

    cells: Sequence[Cell]
    preparations: int = 0
    exact: bool = True


class Task(ABC):
    """What a launcher passes to a worker. It is pickled, so it holds descriptions."""

    @abstractmethod
    def work(self, folder: Path) -> Iterator[Result]:
        """Do the work; everything is written below ``folder``."""

    @abstractmethod
    def given_up(self, folder: Path) -> Iterator[Result]:
        """Its results after its process died."""


class Study(Description, ABC):
    """A description of cells. Subclasses are frozen dataclasses."""

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Every possible measurement, grouped by network and stream."""

    @abstractmethod
    def open(self, cell: Cell, scratch: Path) -> Opened:
        """The cell's network and stream; large data may be written to ``scratch``."""

    @abstractmethod
    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """The cell's network and a batch like its stream's, made cheaply: for estimates."""

    def preparations(self, missing: Sequence[Cell]) -> Sequence[Task]:
        """What must be made before these cells can be measured."""
        return ()

    def phases(self, store: RowStore) -> Iterator[Iterable[Task]]:
        """The work in phases: a phase starts when the results of the previous one exist."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        yield self.preparations(missing)
        yield self.measurements(missing, store)

    def outlook(self, store: RowStore) -> Outlook:
        """What a run would do."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        return Outlook(missing, len(self.preparations(missing)))

    def measurements(self, cells: Iterable[Cell], store: RowStore) -> Iterator[Task]:
        """The cells without a row, as tasks."""
        missing = (cell for cell in cells if not store.has(cell))
        for _, same in groupby(missing, key=lambda cell: (cell.network, cell.stream)):
            own = tuple(same)
            for begin in range(0, len(own), _MOST_CELLS):
                yield Measurement(self, own[begin : begin + _MOST_CELLS])


@dataclass(frozen=True)
class Measurement(Task):
    """Cells of one network and one stream, which is opened once."""

    study: Study
    cells: tuple[Cell, ...]

    def work(self, folder: Path) -> Iterator[Result]:
        """Run every method; each row is written as soon as it is measured."""
        store, opened = RowStore(folder), None
        with scratch_folder(folder) as scratch:
            for cell in self.cells:
                end_if_stopped()
                if store.has(cell):  # another run was faster
                    continue
                try:
                    forget_peak()
                    opened = opened or self.study.open(cell, scratch)
                    row = _measured(cell, opened, folder)
                except Exception as error:  # the user's network may raise anything
                    failure = Failure(cell, f"{type(error).__name__}: {error}")
                    store.fail(failure)
                    yield failure
                else:
                    store.write(row)
                    yield row

    def given_up(self, folder: Path) -> Iterator[Result]:
        """Its finished rows, and failures for the rest."""
        store = RowStore(folder)
        for cell in self.cells:
            row = store.get(cell)
            if row is None:
                failure = Failure(cell, WORKER_DIED)
                store.fail(failure)
                yield failure
            else:
                yield row


@dataclass(frozen=True)
class Preparation(Task):
    """Something to be made before others can be measured: a network, a set of images.

    Attributes:
        what: A description.
        make: An importable function, or a method of a value that can be pickled.
        arguments: Its arguments.
    """

    what: str
    make: Callable[..., object]
    arguments: tuple[Any, ...] = ()

    def work(self, folder: Path) -> Iterator[Result]:
        """Make it."""
        end_if_stopped()
        try:
            self.make(*self.arguments)
        except (ValueError, RuntimeError, OSError) as error:
            yield Unprepared(self.what, f"{type(error).__name__}: {error}")
        else:
            yield Prepared(self.what)

    def given_up(self, folder: Path) -> Iterator[Result]:
        """It could not be made."""
        yield Unprepared(self.what, WORKER_DIED)


def run(
    study: Study, store: RowStore, launcher: Launcher = serial, workers: int = 1
) -> Iterator[Result]:
    """Measure what the store does not have; yields each result when its task is done."""
    remove_leftovers(store.folder)
    for phase in study.phases(store):
        tasks = ((task, store.folder) for task in phase)
        for _, results in launcher(_work, tasks, workers, _given_up):
            yield from results


def summary(result: Result) -> str:
    """One readable line: what was measured, and the result."""
    if isinstance(result, Prepared):
        return result.what
    if isinstance(result, Unprepared):
        return f"{result.what}: FAILED {result.error}"
    if isinstance(result, Failure):
        return f"{result.cell.label}: FAILED {result.error}"
    return f"{result.cell.label}: {100 * result.metrics['error']:.2f} % error"


def _work(sent: tuple[Task, Path]) -> list[Result]:
    task, folder = sent
    return [*task.work(folder)]


def _given_up(sent: tuple[Task, Path]) -> list[Result]:
    task, folder = sent
    return [*task.given_up(folder)]


def adapter_of(cell: Cell, network: nn.Module, defaults: Options = ()) -> RecipeAdapter:
    """The cell's method on a network, with the settings of its protocol."""
    spec = spec_of(cell.method).with_defaults(defaults)
    return RecipeAdapter(
        network,
        spec.recipe,
        method=spec.name,
        guard=cast(Policy, cell.protocol.guard),
        episodic=cell.protocol.reset == "per batch",
        seed=cell.stream.seed,
    )


def _measured(cell: Cell, opened: Opened, folder: Path) -> Row:
    about = dict(opened.about)
    if opened.look is not None:
        about["exhibits"] = keep_exhibits(folder, cell, opened.classes, opened.look)
    defaults = opened.defaults if "rho" in dict(cell.method.settings) else ()
    adapter = adapter_of(cell, opened.network, defaults)
    if opened.fit is not None and adapter.recipe.needs_fit:
        adapter.fit(opened.fit())
    metrics = evaluate(
        adapter,
        opened.batches(),
        on_batch=lambda size: end_if_stopped(),
        further=opened.further,
    )
    return Row(cell, {**metrics, "peak_megabytes": peak_megabytes(), **about}, environment())
