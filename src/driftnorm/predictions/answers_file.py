"""Predictions on their way to a CSV file, and what they add up to."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from driftnorm._internal.counts import counted
from driftnorm._internal.csv_cells import safe_cell
from driftnorm._internal.files import naming
from driftnorm.bench.batch_scores import BatchScores
from driftnorm.bench.metrics import BINS, bin_of
from driftnorm.errors import DataError

COLUMNS = ("name", "class_index", "class_name", "confidence", "entropy", "error")
MOST_POINTS = 1000
MOST_QUOTED = 20


class Answer(NamedTuple):
    """What the network says about one image.

    Attributes:
        choice: The class; None if there is no prediction.
        confidence: Its probability.
        entropy: Of all probabilities, as a share of the maximum.
        error: Why there is no prediction.
    """

    choice: int | None
    confidence: float = math.nan
    entropy: float = math.nan
    error: str = ""


def read_answers(scores: BatchScores, images: int, classes: int) -> list[Answer]:
    """The answers to a batch of images, from a network with this many classes."""
    if len(scores.choice) != images:
        raise TypeError(
            "expected one row of logits per image from the network, got "
            f"{counted(len(scores.choice), 'prediction')} for {counted(images, 'image')}."
        )
    entropies = scores.entropy / math.log(max(classes, 2))
    columns = (scores.choice.tolist(), scores.confidence.tolist(), entropies.tolist())
    return [
        Answer(i, c, e)
        if math.isfinite(c) and math.isfinite(e)
        else Answer(None, error="the network's answer is not finite")
        for i, c, e in zip(*columns, strict=True)
    ]


class PredictionsFile:
    r"""A CSV file that grows batch by batch, and can be cut back to an earlier length.

    Always valid UTF-8: bytes of a file's name that are not are written as ``\udcXX``. A text that a
    spreadsheet would run has an apostrophe before it.

    Args:
        path: The file.
        length: Keep this many bytes of it; 0 starts over.
        classes: Name of each class.
    """

    def __init__(self, path: Path, length: int, classes: Sequence[str]) -> None:
        self._classes = [f"{number},{_quoted(name)}" for number, name in enumerate(classes)]
        self._path, self.length = path, length
        if length == 0:
            self._stream = path.open("w+b")
            self._write([",".join(map(_quoted, COLUMNS))])
            return
        there = path.stat().st_size if path.exists() else 0
        if there < length:
            raise DataError(
                f"{path} has {counted(there, 'byte')}, but the run had written {length:,}: it was "
                "changed or removed. Start over with `--fresh`."
            )
        self._stream = path.open("r+b")
        self._stream.truncate(length)
        self._stream.seek(length)

    def append(self, names: Iterable[str], answers: Iterable[Answer]) -> None:
        """Write one line per image; they are flushed to the system when this returns."""
        self._write(
            f"{_quoted(name)},{self._cells(answer)}"
            for name, answer in zip(names, answers, strict=True)
        )

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _cells(self, answer: Answer) -> str:
        if answer.choice is None:
            return f'"","","","",{_quoted(answer.error)}'
        # A negative entropy is a rounding error of 0; adding 0 rids it of its sign.
        entropy = max(answer.entropy, 0.0) + 0.0
        return f'{self._classes[answer.choice]},{answer.confidence:.6f},{entropy:.6f},""'

    def _write(self, lines: Iterable[str]) -> None:
        # By hand: faster than the csv module, with which a test compares it.
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        with naming(self._path):
            self._stream.write(data)
            self._stream.flush()
        self.length += len(data)


def copy_in_order(path: Path, out: Path, order: Sequence[int]) -> None:
    """Write a file's rows so that the one at place ``i`` comes to ``order[i]``.

    Args:
        path: What a `PredictionsFile` wrote.
        out: The new file; it appears whole or not at all.
        order: The places; as many as there are rows.
    """
    ends = [0]
    with path.open("rb") as stream:
        quotes = length = 0
        for line in stream:
            quotes += line.count(b'"')
            length += len(line)
            if quotes % 2 == 0:  # or the line break is within a name
                ends.append(length)
    if len(ends) != len(order) + 2:
        raise DataError(
            f"{path} has {counted(len(ends) - 2, 'row')}, but there are "
            f"{counted(len(order), 'image')}: it was changed. Start over with `--fresh`."
        )
    row_of = {place: row for row, place in enumerate(order, start=1)}
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with naming(out), path.open("rb") as stream, temporary.open("wb") as sorted_rows:
            for row in (0, *(row_of[place] for place in range(len(order)))):
                stream.seek(ends[row])
                sorted_rows.write(stream.read(ends[row + 1] - ends[row]))
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


def _quoted(text: str) -> str:
    """Fit for a CSV file, whatever commas, quotes, line breaks and formulas it holds."""
    escaped = safe_cell(text).replace('"', '""')
    return f'"{escaped}"'


@dataclasses.dataclass
class Course:
    """Sums along the stream in at most 1,000 points, so that it does not grow with the stream.

    Attributes:
        width: Batches per point.
        points: For each: batches, images, sum of entropies, labelled images, wrong ones.
    """

    width: int = 1
    points: list[list[float]] = dataclasses.field(default_factory=list)

    def add(self, images: int, entropy: float, labelled: int, wrong: int) -> None:
        """Put a batch at the end."""
        batch = [1, images, entropy, labelled, wrong]
        if self.points and self.points[-1][0] < self.width:
            self.points[-1] = _sums(self.points[-1], batch)
            return
        if len(self.points) == MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [_sums(first, second) for first, second in pairs]
            self.width *= 2
        self.points.append(batch)

    def entropy(self) -> list[float]:
        """Mean entropy at each point that has images."""
        return [total / images for _, images, total, _, _ in self.points if images]

    def error(self) -> list[float]:
        """Share of wrong predictions at each point that has labels."""
        return [wrong / labelled for _, _, _, labelled, wrong in self.points if labelled]


def _sums(first: list[float], second: list[float]) -> list[float]:
    return [a + b for a, b in zip(first, second, strict=True)]


def empty_bins() -> list[list[float]]:
    """For each bin of confidence: images, sum of confidences, right ones."""
    return [[0, 0.0, 0] for _ in range(BINS)]


def place_in_bin(bins: list[list[float]], confidence: float, right: bool) -> None:
    """Count one labelled answer."""
    place = int(bin_of(confidence))
    count, total, hits = bins[place]
    bins[place] = [count + 1, total + confidence, hits + right]


@dataclasses.dataclass
class Tally:
    """What the predictions of a run add up to; all of it fit for JSON.

    Attributes:
        images: Images so far, readable or not.
        unreadable: How many had no prediction, ``quoted`` the first of them with the reason.
        predicted: How often each class was predicted.
        confidence: Sum of confidences.
        bins: For each bin of confidence: images, sum of confidences, right ones; labelled only.
        notes: Warnings of the adapter.
        seconds: Spent on the stream, over all sessions.
        cut_off: Why an unknown number of images could not even be counted, if that is so.
    """

    images: int = 0
    unreadable: int = 0
    quoted: list[list[str]] = dataclasses.field(default_factory=list)
    predicted: list[int] = dataclasses.field(default_factory=list)
    confidence: float = 0.0
    bins: list[list[float]] = dataclasses.field(default_factory=empty_bins)
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    cut_off: str = ""
    course: Course = dataclasses.field(default_factory=Course)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Tally:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**{**values, "course": Course(**values["course"])})

    def add(
        self, names: Sequence[str], answers: Sequence[Answer], labels: Sequence[int | None]
    ) -> None:
        """Count a batch."""
        labelled = wrong = 0
        entropy = 0.0
        for name, answer, label in zip(names, answers, labels, strict=True):
            if answer.choice is None:
                self.unreadable += 1
                if len(self.quoted) < MOST_QUOTED:
                    self.quoted.append([name, answer.error])
                continue
            self.predicted[answer.choice] += 1
            self.confidence += answer.confidence
            entropy += answer.entropy
            if label is not None:
                labelled += 1
                wrong += answer.choice != label
                place_in_bin(self.bins, answer.confidence, answer.choice == label)
        self.images += len(answers)
        readable = sum(answer.choice is not None for answer in answers)
        self.course.add(readable, entropy, labelled, wrong)

    def note(self, text: str) -> bool:
        """Keep a warning; returns whether it is new, and not one with other numbers in it."""
        kinds = {re.sub(r"\d+", "", known) for known in self.notes}
        new = re.sub(r"\d+", "", text) not in kinds
        if new and len(self.notes) < MOST_QUOTED:
            self.notes.append(text)
        return new
