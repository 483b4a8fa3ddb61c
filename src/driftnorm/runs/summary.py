"""What a run on the user's data came to, in the form that the report reads."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from driftnorm.adapter import Adapter
from driftnorm.inputs.contents import Pixels
from driftnorm.records import environment
from driftnorm.runs.predictions import Tally
from driftnorm.runs.state import RunState

__all__ = ["summarized", "thumbnail"]

THUMBNAIL = 96  # pixels


def summarized(state: RunState, adapter: Adapter, classes: tuple[str, ...]) -> dict[str, Any]:
    """The record of a run, fit for JSON; `driftnorm.report.gather` says what it means."""
    tally, settings = state.tally, state.settings
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
        "alarms": adapter.alarms,
        "bad_batches": adapter.bad_batches,
        "frozen": adapter.frozen,
        "compared": tally.compared,
        "compared_changed": tally.changed,
        "mean_confidence": tally.confidence / predicted if predicted else None,
        "config": dict(settings),
        "classes": counts,
        "batches_a_point": tally.course.width,
        "entropy": tally.course.entropy(),
        "examples": tally.examples,
        "notes": tally.notes,
        "seconds": tally.seconds,
        "environment": environment(),
    }
    return record | _with_labels(tally)


def _with_labels(tally: Tally) -> dict[str, Any]:
    labelled = sum(count for count, _, _ in tally.bins)
    if not labelled:
        return {}
    judged, source, adapted = tally.judged
    facts: dict[str, Any] = {
        "labelled": labelled,
        "accuracy": sum(right for _, _, right in tally.bins) / labelled,
        "online_error": tally.course.error(),
        "reliability": [
            [count, total / count, right / count] for count, total, right in tally.bins if count
        ],
    }
    if judged:
        facts |= {
            "sample": judged,
            "sample_accuracy_source": source / judged,
            "sample_accuracy_adapted": adapted / judged,
        }
    return facts


def _verdict(state: RunState) -> str:
    tally, method = state.tally, state.settings.get("method")
    text = f"{method} predicted on {tally.images - tally.unreadable:,} images"
    if tally.unreadable:
        text += f", {tally.unreadable:,} could not be read"
    if tally.compared:
        share = 100 * tally.changed / tally.compared
        text += (
            f"; on {tally.compared:,} of them that the source was asked about too, it "
            f"answers {share:.1f} % differently"
        )
    return text + "."


def thumbnail(pixels: Pixels) -> str:
    """A small JPEG as a ``data:`` address."""
    as_bytes = pixels if pixels.dtype == np.uint8 else np.rint(pixels * 255).astype(np.uint8)
    picture = Image.fromarray(as_bytes)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
