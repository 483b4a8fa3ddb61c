"""Scores of a stream over time, by window, domain and visit; numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftnorm._internal.types import Doubles, Integers
from driftnorm.bench.metrics import Bools, expected_calibration_error
from driftnorm.streams.timeline import window_of, window_starts

WINDOW = 1000


@dataclass(frozen=True)
class Harm:
    """A method against the source on the same images.

    Attributes:
        rate: Share of windows in which the method has fewer right than the source.
        worst: Accuracy minus the source's in the window where that is lowest, in points.
        worst_start: First position of that window.
        source_error_per_window: The source's error in each window.
    """

    rate: float
    worst: float
    worst_start: int
    source_error_per_window: tuple[float, ...]


@dataclass(frozen=True)
class StreamScore:
    """What is reported about a stream. Errors are shares.

    Attributes:
        window: Images per window.
        error: Over the whole stream.
        error_per_window: In the order of the stream.
        error_per_domain: By the domain's index; None for one that never came.
        error_per_visit: Over all domains, on their first visit, the second and so on.
        class_mean_accuracy: Mean over the classes that came: rare ones count as much as others.
        ece: Expected calibration error over the whole stream.
        harm: Where the source's answers are known.
        events_per_window: Number of events, such as resets, in each window.
    """

    window: int
    error: float
    error_per_window: tuple[float, ...]
    error_per_domain: tuple[float | None, ...]
    error_per_visit: tuple[float | None, ...]
    class_mean_accuracy: float
    ece: float
    harm: Harm | None = None
    events_per_window: Mapping[str, tuple[int, ...]] | None = None

    def record(self) -> dict[str, Any]:
        """For JSON; unknown values are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def stream_score(
    correct: Bools,
    confidence: NDArray[np.floating[Any]],
    label: Integers,
    domain: Integers,
    visit: Integers,
    *,
    source_correct: Bools | None = None,
    events: Mapping[str, Sequence[int]] | None = None,
    window: int = WINDOW,
) -> StreamScore:
    """Everything about one stream, from one entry per position.

    Args:
        correct: Whether the answer was right.
        confidence: The probability of the answer.
        label: The class.
        domain: Index of the domain.
        visit: How many earlier segments showed it; both as in `driftnorm.streams.Positions`.
        source_correct: Whether the source's answer was right.
        events: Positions at which something happened, by what it was: ``{"resets": [700]}``.
        window: Images per window; a remainder of less than half a window joins the last one.
    """
    given: dict[str, NDArray[Any]] = {
        "confidence": confidence,
        "label": label,
        "domain": domain,
        "visit": visit,
    }
    if source_correct is not None:
        given["source_correct"] = source_correct
    for name, values in given.items():
        if len(values) != len(correct):
            raise ValueError(
                f"`{name}` must have one entry per position, {len(correct)} as `correct` has; got "
                f"{len(values)}."
            )
    if not len(correct):
        raise ValueError("`correct` is empty; there is nothing to score.")
    starts = window_starts(len(correct), window)
    place = window_of(np.arange(len(correct)), starts)
    per_window = _error_by(place, correct)
    return StreamScore(
        window,
        float(1 - correct.mean()),
        tuple(per_window.tolist()),
        _known(_error_by(domain, correct)),
        _known(_error_by(visit, correct)),
        float(1 - np.nanmean(_error_by(label, correct))),
        expected_calibration_error(confidence, correct),
        None if source_correct is None else harm_of(correct, source_correct, window),
        None if events is None else _counted(events, starts, len(correct)),
    )


def _error_by(group: Integers, correct: Bools) -> Doubles:
    """The error in each group from 0 on; NaN in one that has no position."""
    count = np.bincount(group)
    wrong = np.bincount(group, weights=~correct)
    nowhere = np.full(len(count), np.nan)
    return np.asarray(np.divide(wrong, count, out=nowhere, where=count > 0))


def harm_of(correct: Bools, source: Bools, window: int = WINDOW) -> Harm:
    """A method against the source, from which answers of each were right.

    Args:
        correct: Whether the method's answer was right, one entry per position.
        source: Whether the source's was.
        window: Images per window.
    """
    starts = window_starts(len(correct), window)
    place = window_of(np.arange(len(correct)), starts)
    # Counts, not shares: two shares of equal counts may differ in the last digit.
    gained = np.bincount(place[correct], minlength=len(starts)) - np.bincount(
        place[source], minlength=len(starts)
    )
    points = 100 * gained / np.bincount(place)
    worst = int(points.argmin())
    return Harm(
        float((gained < 0).mean()),
        float(points[worst]),
        int(starts[worst]),
        tuple(_error_by(place, source).tolist()),
    )


def _counted(
    events: Mapping[str, Sequence[int]], starts: Integers, count: int
) -> dict[str, tuple[int, ...]]:
    counted = {}
    for name, positions in events.items():
        at = np.asarray(positions, dtype=np.int64)
        if outside := at[(at < 0) | (at >= count)].tolist():
            raise ValueError(
                f"`events` must be positions from 0 to {count - 1}; {name} has {outside[0]}."
            )
        counts = np.bincount(window_of(at, starts), minlength=len(starts))
        counted[name] = tuple(counts.tolist())
    return counted


def _known(errors: Doubles) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(error) else error for error in errors.tolist())
