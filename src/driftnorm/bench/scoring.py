"""A stream through an adapter: predictions in, one row's metrics out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from driftnorm._internal.warning_texts import warnings_to
from driftnorm.adapter import Adapter
from driftnorm.adapter._checks import check_labelled
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

__all__ = ["Events", "Further", "evaluate"]

Events: TypeAlias = Mapping[str, list[int]]
"""At which predictions something happened: ``resets`` and ``alarms``."""
Further: TypeAlias = Callable[[Adapter, Bools, Floats, Events], Mapping[str, object]]
"""Further metrics from the adapter after a stream, which samples were right, the confidences, and
what happened on the way."""


def evaluate(
    adapter: Adapter,
    stream: Iterable[tuple[Tensor, Tensor]],
    on_batch: Callable[[int], None] | None = None,
    further: Further | None = None,
) -> dict[str, object]:
    """Run labelled batches through an adapter, and score the predictions.

    The adapter never sees the labels.

    Args:
        adapter: Starts from its current state.
        stream: Batches of (inputs, labels): class numbers, one per image, or for dense prediction
            one per position, where numbers that are not a class (such as 255) are ignored.
        on_batch: Called with the size of each finished batch.
        further: Computes further metrics.

    Returns:
        ``error``, ``nll``, ``ece``, ``entropy`` over the stream, the error of each batch
        (``online_error``), which samples were right (``correct``, packed), their ``count``, the
        predicted classes of a few images (``answers``; see `sampled_positions`), the
        ``reliability`` (per bin of confidence: count, mean confidence, accuracy), the number of
        ``bad_batches``, of guard ``alarms`` and of ``resets`` to the source, the ``seconds`` spent
        in the adapter, its ``warnings`` if it gave any, and the ``drift`` of each layer whose
        statistics it tracked: pairs of its name and the mean distance from the source's over
        channels, in deviations.
    """
    outputs, truth, online, seconds = [], [], [], 0.0
    said: set[str] = set()
    events: dict[str, list[int]] = {"resets": [], "alarms": []}
    done = 0
    for batch in stream:
        x, labels = check_labelled(batch, "stream")
        begun, alarms = time.perf_counter(), len(adapter.alarms)
        with warnings_to(said.add):
            answer = adapter(x)
        seconds += time.perf_counter() - begun
        if adapter.last is not None and adapter.last.restarted:
            events["resets"].append(done)
        events["alarms"] += [done] * (len(adapter.alarms) - alarms)
        predicted, known = _by_sample(adapter.logits_in(answer), labels)
        done += len(known)
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
        "resets": len(events["resets"]),
        "seconds": round(seconds, 4),
        **({} if further is None else further(adapter, correct, confidence, events)),
        **({"warnings": sorted(said)} if said else {}),
        **({"drift": drift} if (drift := _drift(adapter)) else {}),
    }


def _by_sample(logits: Tensor, labels: Tensor) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Logits and class of each image, or of each position that has a class."""
    rows = logits.detach().float().cpu().numpy()
    known = labels.cpu().numpy()
    if rows.shape[:1] + rows.shape[2:] != known.shape:
        raise ValueError(
            f"`labels` must be one per prediction: expected shape "
            f"{rows.shape[:1] + rows.shape[2:]} for logits of shape {rows.shape}, "
            f"got {known.shape}."
        )
    if rows.ndim == 2:
        return rows, known
    rows, known = np.moveaxis(rows, 1, -1).reshape(-1, rows.shape[1]), known.reshape(-1)
    real = (known >= 0) & (known < rows.shape[1])
    return rows[real], known[real]


def _drift(adapter: Adapter) -> list[tuple[str, float]]:
    """Pairs in the network's order; an object would be sorted by key in the row."""
    distances = layer_distances(adapter)
    return [(name, round(found[0], 4)) for name, found in distances.items() if found is not None]
