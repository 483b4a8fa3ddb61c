"""What a run on the user's data came to, in the form that the report reads."""

from __future__ import annotations

import math
from typing import Any

from driftnorm._internal.counts import counted
from driftnorm.adapter import Adapter
from driftnorm.adapter.guard import KINDS, Alarm
from driftnorm.bench.metrics import counted_interval
from driftnorm.bench.rows import environment
from driftnorm.predictions.answers_file import Tally
from driftnorm.predictions.comparison import Comparison
from driftnorm.predictions.drift_log import drift_record
from driftnorm.predictions.saved_run import RunState


def summarized(state: RunState, adapter: Adapter, classes: tuple[str, ...]) -> dict[str, Any]:
    """The record of a run, fit for JSON; `driftnorm.views.report.run_record` says what it means."""
    tally, compared, settings = state.tally, state.comparison, state.settings
    predicted = tally.images - tally.unreadable
    counts: dict[str, int] = {}
    for name, count in zip(classes, tally.predicted, strict=True):
        counts[name] = counts.get(name, 0) + count
    record: dict[str, Any] = {
        "verdict": _verdict(state),
        "kind": "adapt",
        "model": settings.get("model"),
        "data": settings.get("data"),
        "method": settings.get("method"),
        "images": tally.images,
        "predicted": predicted,
        "skipped": tally.unreadable,
        "skipped_first": tally.quoted,
        "cut_off": tally.cut_off or None,
        "alarms": len(adapter.alarms),
        "alarms_raised": [_alarm(each) for each in adapter.alarms if isinstance(each, Alarm)],
        "bad_batches": adapter.bad_batches,
        "frozen": adapter.frozen,
        "compared": compared.images,
        "compared_changed": compared.changed,
        "mean_confidence": tally.confidence / predicted if predicted else None,
        "config": dict(settings),
        "classes": counts,
        "batches_a_point": tally.course.width,
        "entropy": tally.course.entropy(),
        "examples": compared.examples,
        "notes": tally.notes,
        "seconds": tally.seconds,
        "environment": environment(),
    }
    if compared.images:
        pairs = {"entropy": compared.entropy, "confidence": compared.confidence}
        for what, (source, adapted) in pairs.items():
            record[f"compared_{what}_source"] = source / compared.images
            record[f"compared_{what}_adapted"] = adapted / compared.images
    record |= drift_record(state.drift, tally.images, adapter)
    return record | _with_labels(tally, compared, settings.get("labels") is not None)


def _alarm(alarm: Alarm) -> dict[str, Any]:
    """An alarm for JSON, which has no NaN."""
    differ = None if math.isnan(alarm.disagreement) else alarm.disagreement
    named = {"kind": KINDS[alarm.kind], "disagreement": differ, "reason": alarm.reason}
    return {**alarm._asdict(), **named}


def _with_labels(tally: Tally, compared: Comparison, wanted: bool) -> dict[str, Any]:
    labelled = sum(count for count, _, _ in tally.bins)
    if not labelled:
        return {"labelled": 0, "accuracy": None} if wanted else {}
    judged, source, adapted = compared.judged
    facts: dict[str, Any] = {
        "labelled": labelled,
        "accuracy": sum(right for _, _, right in tally.bins) / labelled,
        "online_error": tally.course.error(),
        "reliability": {"adapted": _shares(tally.bins)},
    }
    if judged:
        won, lost = adapted - compared.both_right, source - compared.both_right
        gain = counted_interval(judged, won, lost)
        facts |= {
            "reliability": {"source": _shares(compared.source_bins), **facts["reliability"]},
            "sample": judged,
            "sample_accuracy_source": source / judged,
            "sample_accuracy_adapted": adapted / judged,
            "sample_gain": [*gain],
        }
    return facts


def _shares(bins: list[list[float]]) -> list[list[float]]:
    """The bins that hold images: count, mean confidence, accuracy."""
    return [[count, total / count, right / count] for count, total, right in bins if count]


def _verdict(state: RunState) -> str:
    tally, method = state.tally, state.settings.get("method")
    text = f"{method} predicted on {counted(tally.images - tally.unreadable, 'image')}"
    if tally.unreadable:
        text += f", {tally.unreadable:,} could not be read"
    sentences = [f"{text}."]
    compared = state.comparison
    if compared.images:
        sentences.append(compared.verdict())
    return " ".join(sentences)
