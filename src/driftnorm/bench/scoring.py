"""A stream through an adapter: predictions in, one row's metrics out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from driftnorm.adapter import Adapter
from driftnorm.adapter.drift import layer_distances
from driftnorm.bench.metrics import (
    Bools,
    Floats,
    expected_calibration_error,
    filled_bins,
    log_softmax,
    mean_entropy,
    negative_log_likelihood,
    pack_bits,
)
from driftnorm.bench.protocol import sampled_positions
from driftnorm.errors import DriftnormWarning

__all__ = ["Further", "evaluate"]

Further: TypeAlias = Callable[[Adapter, Bools, Floats], Mapping[str, object]]
"""From the adapter after a stream, which samples were right, and the probability of each answer."""


def evaluate(
    adapter: Adapter,
    stream: Iterable[tuple[Tensor, Tensor]],
    on_batch: Callable[[int], None] | None = None,
    further: Further | None = None,
) -> dict[str, object]:
    """Run labelled batches through an adapter, scoring each answer as it comes.

    The labels are never shown to the adapter.

    Args:
        adapter: Starts from the state it is in.
        stream: Batches of (inputs, labels): class numbers, one an image, or for dense prediction
            one a position, where numbers that are no class (such as 255) are left out.
        on_batch: Called with the size of each finished batch.
        further: What else to return.

    Returns:
        ``error``, ``nll``, ``ece``, ``entropy`` over the stream, the error of each batch
        (``online_error``), which samples were right (``correct``, packed), their ``count``, the
        classes that a few were given (``answers``; see `sampled_positions`), the
        ``reliability`` (per bin of confidence: count, mean confidence, accuracy), the number of
        ``bad_batches`` and of guard ``alarms``, the ``seconds`` spent in the adapter, its
        ``warnings`` if it gave any, and the ``drift`` of each layer whose statistics it tracked:
        pairs of its name and the mean distance from the source's over channels, in deviations.
    """
    outputs, truth, online, seconds = [], [], [], 0.0
    said: set[str] = set()
    for x, labels in stream:
        begun = time.perf_counter()
        with _noting(said):
            answer = adapter(x)
        seconds += time.perf_counter() - begun
        predicted, known = _by_sample(adapter.logits_in(answer), labels)
        outputs.append(predicted)
        truth.append(known)
        online.append(float((predicted.argmax(axis=1) != known).mean()) if len(known) else 0.0)
        if on_batch is not None:
            on_batch(len(labels))
    if not outputs:
        raise ValueError("`stream` gave no batch; there is nothing to evaluate.")
    log_p, target = log_softmax(np.concatenate(outputs)), np.concatenate(truth)
    chosen = log_p.argmax(axis=1)
    correct = chosen == target
    confidence = np.exp(log_p.max(axis=1))
    return {
        "error": float(1 - correct.mean()),
        "nll": negative_log_likelihood(log_p, target),
        "ece": expected_calibration_error(confidence, correct),
        "entropy": mean_entropy(log_p),
        "online_error": [round(e, 6) for e in online],
        "correct": pack_bits(correct),
        "count": len(target),
        "answers": chosen[sampled_positions(len(target))].tolist(),
        "reliability": filled_bins(confidence, correct),
        "bad_batches": adapter.bad_batches,
        "alarms": len(adapter.alarms),
        "seconds": round(seconds, 4),
        **({} if further is None else further(adapter, correct, confidence)),
        **({"warnings": sorted(said)} if said else {}),
        **({"drift": drift} if (drift := _drift(adapter)) else {}),
    }


def _by_sample(logits: Tensor, labels: Tensor) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """One row of logits and one class for each image, or for each position that has a class."""
    rows = logits.detach().float().cpu().numpy()
    known = labels.cpu().numpy()
    if rows.shape[:1] + rows.shape[2:] != known.shape:
        raise ValueError(
            f"`labels` must be one a prediction: expected shape {rows.shape[:1] + rows.shape[2:]} "
            f"for logits of shape {rows.shape}, got {known.shape}."
        )
    if rows.ndim == 2:
        return rows, known
    rows, known = np.moveaxis(rows, 1, -1).reshape(-1, rows.shape[1]), known.reshape(-1)
    real = (known >= 0) & (known < rows.shape[1])
    return rows[real], known[real]


def _drift(adapter: Adapter) -> list[tuple[str, float]]:
    """In the network's order, which an object would lose: the keys of a row are sorted."""
    distances = layer_distances(adapter)
    return [(name, round(found[0], 4)) for name, found in distances.items() if found is not None]


@contextmanager
def _noting(said: set[str]) -> Iterator[None]:
    """A row is read later than a terminal: what the adapter warns of goes into it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, DriftnormWarning):
            said.add(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
