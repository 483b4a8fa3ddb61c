"""Metrics over time against slow, literal loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftnorm.bench.metrics import expected_calibration_error
from driftnorm.bench.windows import stream_score
from driftnorm.streams import Domain, parse_stream


def mean(values):
    return sum(values) / len(values)


def windows_of(count, window):
    """Whole windows, and a rest that is at least half a window or belongs to the one before."""
    bounds = [(start, min(start + window, count)) for start in range(0, count, window)]
    if len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] < window / 2:
        (start, _), (_, end) = bounds[-2:]
        bounds[-2:] = [(start, end)]
    return [range(*bound) for bound in bounds]


@given(st.integers(1, 120), st.integers(1, 50), st.integers(0, 1000))
def test_against_loops(count: int, window: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    correct, source = draws.random(count) < 0.7, draws.random(count) < 0.6
    confidence = draws.random(count)
    label, domain, visit = (draws.integers(5, size=count) for _ in range(3))
    events = draws.choice(count, size=min(count, 6), replace=False)
    score = stream_score(
        correct,
        confidence,
        label,
        domain,
        visit,
        source_correct=source,
        events={"resets": events},
        window=window,
    )
    windows = windows_of(count, window)
    assert sum(map(len, windows)) == count
    everything = range(count)

    def error(positions, right=correct):
        return mean([not right[i] for i in positions]) if positions else None

    def error_by(values):
        groups = [[i for i in everything if values[i] == v] for v in range(max(values) + 1)]
        return [error(group) for group in groups]

    assert score.error == pytest.approx(error(everything))
    assert [*score.error_per_window] == pytest.approx([error(w) for w in windows])
    assert [*score.error_per_domain] == pytest.approx(error_by(domain))
    assert [*score.error_per_visit] == pytest.approx(error_by(visit))
    by_class = [1 - each for each in error_by(label) if each is not None]
    assert score.class_mean_accuracy == pytest.approx(mean(by_class))
    assert score.ece == expected_calibration_error(confidence, correct)
    gains = [sum(int(correct[i]) - int(source[i]) for i in w) for w in windows]
    points = [100 * gain / len(w) for gain, w in zip(gains, windows, strict=True)]
    assert score.harm.rate == pytest.approx(mean([gain < 0 for gain in gains]))
    assert score.harm.worst == pytest.approx(min(points))
    assert score.harm.worst_start == windows[points.index(min(points))][0]
    assert [*score.harm.source_error_per_window] == pytest.approx(
        [error(w, source) for w in windows]
    )
    assert [*score.events_per_window["resets"]] == [sum(e in w for e in events) for w in windows]


def test_the_source_harms_nobody() -> None:
    correct = np.random.default_rng(0).random(2500) < 0.5
    zeros = np.zeros(2500, dtype=np.int64)
    score = stream_score(
        correct, np.full(2500, 0.5), zeros, zeros, zeros, source_correct=correct.copy()
    )
    assert len(score.error_per_window) == 3
    assert (score.harm.rate, score.harm.worst) == (0.0, 0.0)


def test_error_per_visit_shows_what_recurring_shifts_do() -> None:
    found = parse_stream("recurring:rounds=3,part=100").positions(
        np.arange(500) % 10, [Domain("fog", 5), Domain("noise", 5)]
    )
    correct = found.visit < 2  # collapses at the third visit
    score = stream_score(correct, np.ones(600), found.label, found.domain, found.visit, window=200)
    assert score.error_per_visit == (0.0, 0.0, 1.0)
    assert score.error_per_window == (0.0, 0.0, 1.0)
    assert score.error_per_domain == pytest.approx((1 / 3, 1 / 3))


def test_a_record_has_what_is_known() -> None:
    zeros = np.zeros(4, dtype=np.int64)
    domain = np.array([0, 0, 2, 2])
    score = stream_score(np.array([True, False] * 2), np.full(4, 0.5), zeros, domain, zeros)
    record = json.loads(json.dumps(score.record()))
    assert record["error_per_domain"] == [0.5, None, 0.5]
    assert "harm" not in record
    assert "events_per_window" not in record
    harmed = stream_score(
        np.array([True, False] * 2),
        np.full(4, 0.5),
        zeros,
        domain,
        zeros,
        source_correct=np.ones(4, dtype=bool),
    )
    assert json.loads(json.dumps(harmed.record()))["harm"]["worst"] == -50.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": np.zeros(3, dtype=int)}, "`label` must have one entry per position, 4"),
        ({"source_correct": np.ones(5, dtype=bool)}, "`source_correct` must .* got 5"),
        ({"window": 0}, "`window` must be at least 1, got 0"),
        ({"events": {"resets": [4]}}, "`events` must be positions from 0 to 3; resets has 4"),
        ({"events": {"jumps": [-1]}}, "`events` must be positions from 0 to 3; jumps has -1"),
    ],
)
def test_arrays_that_do_not_fit(changes, message: str) -> None:
    zeros = np.zeros(4, dtype=np.int64)
    given_arrays = {
        "correct": np.ones(4, dtype=bool),
        "confidence": np.ones(4),
        **dict.fromkeys(("label", "domain", "visit"), zeros),
    }
    with pytest.raises(ValueError, match=message):
        stream_score(**{**given_arrays, **changes})
