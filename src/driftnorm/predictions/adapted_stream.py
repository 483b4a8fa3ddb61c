"""A stream of the user's images through an adapter, into a CSV file: killed, it resumes."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import agreeing, counted
from driftnorm._internal.files import exclusive, write_atomically
from driftnorm._internal.messages import warnings_to
from driftnorm.adapter import Adapter
from driftnorm.adapter.drift import layer_distances
from driftnorm.bench.batch_scores import BatchScores
from driftnorm.bench.stream_scores import scores_of, serve
from driftnorm.errors import DataError
from driftnorm.images import Inputs, Item, Labels, as_batch, in_batches
from driftnorm.models import Preprocessing
from driftnorm.predictions.answers_file import (
    Answer,
    PredictionsFile,
    Tally,
    copy_in_order,
    read_answers,
)
from driftnorm.predictions.comparison import COMPARED_IMAGES
from driftnorm.predictions.saved_run import RunState, read_state, save_state
from driftnorm.predictions.summary import summarized

# Of work that a kill may cost: two seconds, or more where writing a state takes long, so that
# saving takes at most one part in 400 of the time.
SAVE_SECONDS, SAVE_SHARE = 2.0, 1 / 400
FEW = 16  # images
STATE = "state.safetensors"


@dataclass(frozen=True)
class Plan:
    """What to do with the images.

    Attributes:
        out: The CSV file. The run's own files are in a folder beside it, named alike.
        preprocessing: Size and resampling of the images.
        classes: Names of the classes.
        settings: What identifies the run, fit for JSON; it resumes only with the same settings.
        batch_size: Positions per batch. An unreadable image leaves its place empty, so that no
            other image moves into another batch. A rest of less than half a batch joins the last.
        every: Batches between saved states; None saves every two seconds, or less often where
            writing a state takes long.
        fresh: Start over, whatever is there.
    """

    out: Path
    preprocessing: Preprocessing
    classes: tuple[str, ...]
    settings: Mapping[str, Any]
    batch_size: int = 64
    every: int | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        if self.out.suffix.lower() != ".csv":
            raise ValueError(f"`--out` must be a file that ends in .csv, got {self.out}.")
        if len(self.classes) == 1:
            raise ValueError(
                "`NETWORK` returns one number per image, so that all images would get one class: "
                "let it return two logits, such as `torch.cat([-z, z], dim=1) / 2`."
            )
        for flag, value in (("--batch-size", self.batch_size), ("--every", self.every)):
            if value is not None:
                check_whole(flag, value)

    @property
    def folder(self) -> Path:
        """Where the run keeps its state and its record."""
        return self.folder_of(self.out)

    @staticmethod
    def folder_of(out: Path) -> Path:
        """The folder of the run that writes a CSV file."""
        return out.with_suffix(".run")

    @property
    def state_file(self) -> Path:
        """How far the run is."""
        return self.folder / STATE

    @property
    def stream_file(self) -> Path:
        """The predictions as they were made, where that is not the order of the images."""
        return self.folder / "stream.csv"

    @property
    def record_file(self) -> Path:
        """The result, for the report."""
        return self.folder / "run.json"


def batch_size_of(out: Path) -> int | None:
    """The batch size of the run that a CSV file is of, if there is one that could be resumed."""
    file = Plan.folder_of(out) / STATE
    size = read_state(file)[0].settings.get("batch_size") if file.exists() else None
    return size if isinstance(size, int) else None


class Snapshot(NamedTuple):
    """How the run is going."""

    done: int
    unreadable: int
    speed: float
    entropy: float
    guard: str


class Began(NamedTuple):
    """The run may write: it has the lock, and its settings are unchanged.

    Attributes:
        position: Images that an earlier session has done.
    """

    position: int


class Note(NamedTuple):
    """A warning, reported once however often it comes."""

    text: str


class Outcome(NamedTuple):
    """The run is finished.

    Attributes:
        record: The result; on disk as well.
    """

    record: dict[str, Any]


Event: TypeAlias = Began | Snapshot | Note | Outcome


def adapt_stream(
    adapter: Adapter,
    source: nn.Module,
    inputs: Inputs,
    plan: Plan,
    *,
    labels: Labels | None = None,
) -> Generator[Event, None, None]:
    """Predict on all images and adapt to them; resumes where an earlier call was stopped.

    However often the process is killed and started again, the CSV file comes out the same. To stop
    it, close the generator between two events: what is done is kept.

    Args:
        adapter: Of ``source``; in the state in which a new run starts.
        source: The network without adaptation, shown images for comparison.
        inputs: The images.
        plan: What to do with them.
        labels: True classes, in the order of the images. They are counted with, and never shown to
            the adapter.

    Yields:
        `Began`, a `Snapshot` after each batch with a `Note` before it for each new warning, and
        the `Outcome`.
    """
    plan.folder.mkdir(exist_ok=True)
    with exclusive(plan.folder / "lock", f"Another process is writing {plan.out}."):
        state = _begin(adapter, inputs, plan)
        written = plan.out if inputs.order is None else plan.stream_file
        file, tally = PredictionsFile(written, state.length, plan.classes), state.tally
        heard: list[str] = []
        with closing(file), warnings_to(heard.append):
            # Pillow's are about images that are reported anyway.
            warnings.filterwarnings("ignore", module=r"PIL\.")
            yield Began(state.position)
            session = _Session(adapter, source, inputs, plan, labels, file, state)
            with closing(session.batches()) as batches:
                for snapshot in batches:
                    yield from _new_notes(heard, tally)
                    yield snapshot
            read = tally.images - tally.unreadable
            if 0 < read < FEW and any(layer_distances(adapter).values()):
                images = f"{agreeing(read, 'was', 'were')} only {counted(read, 'image')}"
                heard.append(f"there {images}: statistics of so few are mostly noise.")
            yield from _new_notes(heard, tally)
        if inputs.order is not None:
            copy_in_order(written, plan.out, inputs.order)
        record = summarized(state, adapter, plan.classes)
        record["left_out"] = inputs.survey().left_out
        write_atomically(plan.record_file, json.dumps(record, indent=1) + "\n")
        yield Outcome(record)


def _new_notes(heard: list[str], tally: Tally) -> Iterator[Note]:
    """What was heard and is not among the run's notes yet."""
    new = [text for text in heard if tally.note(text)]
    heard.clear()
    yield from map(Note, new)


def _begin(adapter: Adapter, inputs: Inputs, plan: Plan) -> RunState:
    """The state to resume from; a new one is on disk before the first prediction is."""
    if plan.fresh or not plan.state_file.exists():
        if plan.out.exists() and not plan.fresh:
            raise ValueError(
                f"{plan.out} already exists and is not from a run that can be resumed: choose "
                "another `--out`, or overwrite it with `--fresh`."
            )
        plan.record_file.unlink(missing_ok=True)
        counts = Tally(predicted=[0] * len(plan.classes))
        state = RunState(plan.settings, began=time.time(), tally=counts)
        save_state(plan.state_file, state, adapter)
        return state
    state, tensors = read_state(plan.state_file)
    state.check_settings(plan.settings, plan.out)
    if state.position and inputs.name_at(state.position - 1) != state.last_name:
        raise DataError(
            f"{inputs.path} has changed since the run was stopped: image number {state.position} "
            f"was {state.last_name!r}. Start over with `--fresh`."
        )
    changed = inputs.changed_since(state.began, state.position)
    if changed is not None:
        raise DataError(
            f"{changed} has changed since the run of {plan.out} began: choose another `--out`, or "
            "start over with `--fresh`."
        )
    adapter.load_state_dict(tensors)
    return state


@dataclass
class _Session:
    """One process's part of a run."""

    adapter: Adapter
    source: nn.Module
    inputs: Inputs
    plan: Plan
    labels: Labels | None
    file: PredictionsFile
    state: RunState

    @property
    def _device(self) -> torch.device:
        return next((p.device for p in self.source.parameters()), torch.device("cpu"))

    def batches(self) -> Generator[Snapshot, None, None]:
        """Does one batch at a time, and saves the state now and then and at the end."""
        plan, state = self.plan, self.state
        begun, spent, first = time.perf_counter(), state.tally.seconds, state.position
        unsaved, saved_at, pause = 0, begun, SAVE_SECONDS
        items = self.inputs.stream(
            plan.preprocessing, starting_at=first, ahead=max(plan.batch_size, 16)
        )
        with closing(items):
            try:
                for batch in in_batches(items, plan.batch_size):
                    entropy = self._predict(batch)
                    now = time.perf_counter()
                    state.tally.seconds = spent + now - begun
                    unsaved += 1
                    yield self._snapshot((state.position - first) / (now - begun), entropy)
                    due = now - saved_at > pause if plan.every is None else unsaved >= plan.every
                    if due:
                        now = time.perf_counter()
                        save_state(plan.state_file, state, self.adapter)
                        unsaved, saved_at = 0, time.perf_counter()
                        pause = max(SAVE_SECONDS, (saved_at - now) / SAVE_SHARE)
            except GeneratorExit:
                pass  # stopped between two batches, where the state is whole
            if unsaved:
                save_state(plan.state_file, state, self.adapter)

    def _predict(self, batch: Sequence[Item]) -> float:
        """Answer, write and count a batch; returns its mean entropy."""
        state = self.state
        readable = [(i, item.pixels) for i, item in enumerate(batch) if item.pixels is not None]
        answers = [Answer(None, error=item.error) for item in batch]
        if readable:
            x = as_batch([pixels for _, pixels in readable], self._device)
            given = self._read(serve(self.adapter, x).scores, len(x))
            for (place, _), answer in zip(readable, given, strict=True):
                answers[place] = answer
        names = [item.name for item in batch]
        labels = [
            None if self.labels is None else self.labels.of(name, state.position + i)
            for i, name in enumerate(names)
        ]
        if readable:
            places = [place for place, _ in readable]
            self._compare(x, [(batch[p], answers[p], labels[p]) for p in places])
        for item in batch:
            if item.and_more:
                state.tally.cut_off = item.error
        self.file.append(names, answers)
        state.tally.add(names, answers, labels)
        state.position += len(batch)
        state.drift.add(state.position, self.adapter)
        state.last_name, state.length = names[-1], self.file.length
        entropies = [answer.entropy for answer in answers if answer.choice is not None]
        return sum(entropies) / len(entropies) if entropies else float("nan")

    def _read(self, scores: BatchScores, images: int) -> list[Answer]:
        return read_answers(scores, images, len(self.plan.classes))

    def _compare(self, x: Tensor, shown: Sequence[tuple[Item, Answer, int | None]]) -> None:
        """Put the source's answers beside ours: to all labelled batches, else to a sample."""
        comparison, last = self.state.comparison, self.adapter.last
        asked = None if last is None else last.source  # by the guard: it need not be asked again
        labelled = any(label is not None for _, _, label in shown)
        wanted = len(x) if labelled else COMPARED_IMAGES
        if asked is None and not labelled and not comparison.wants(self.state.position):
            return
        if asked is None or (labelled and len(asked) < wanted):
            with torch.no_grad():
                asked = self.adapter.logits_in(self.source(x[:wanted]))
        plain = self._read(scores_of(asked), len(asked))
        comparison.add(shown[: len(plain)], plain, self.plan.classes)

    def _snapshot(self, speed: float, entropy: float) -> Snapshot:
        state, adapter = self.state, self.adapter
        guard = counted(len(adapter.alarms), "alarm") if adapter.alarms else "ok"
        if adapter.last is not None and adapter.last.status not in ("adapted", "empty"):
            guard = adapter.last.status
        return Snapshot(state.position, state.tally.unreadable, speed, entropy, guard)
