"""A stream through an adapter: predictions in, one row's metrics out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from torch import Tensor

from driftnorm._internal.messages import warnings_to
from driftnorm.adapter import Adapter
from driftnorm.adapter._checks import check_labelled
from driftnorm.adapter.drift import layer_distances
from driftnorm.bench.batch_scores import BatchScores, joined, score_batch
from driftnorm.bench.metrics import (
    Bools,
    Floats,
    expected_calibration_error,
    filled_bins,
    pack_bits,
)
from driftnorm.bench.protocol import sampled_positions

Events: TypeAlias = Mapping[str, list[int]]
"""At which predictions something happened: ``resets`` and ``alarms``."""
Further: TypeAlias = Callable[[Adapter, Bools, Floats, Events], Mapping[str, object]]
"""Further metrics from the adapter after a stream, which samples were right, the confidences, and
what happened on the way."""


class Served(NamedTuple):
    """What became of one batch.

    Attributes:
        scores: What the adapter answered.
        seconds: Spent in the adapter.
        restarted: Whether it started again from the source.
        alarms: How many its guard raised.
        asked: How many of the images its guard showed to the source as well.
    """

    scores: BatchScores
    seconds: float
    restarted: bool
    alarms: int
    asked: int


def serve(adapter: Adapter, x: Tensor, labels: Tensor | None = None) -> Served:
    """Show a batch to an adapter, and read its answers; it never sees the labels.

    This is how benchmarks, `driftnorm adapt` and `driftnorm diagnose` run an adapter: they differ
    in what they keep.
    """
    begun, alarms = time.perf_counter(), len(adapter.alarms)
    answer = adapter(x)
    seconds = time.perf_counter() - begun
    last = adapter.last
    return Served(
        scores_of(adapter.logits_in(answer), labels),
        seconds,
        restarted=last is not None and last.restarted,
        alarms=len(adapter.alarms) - alarms,
        asked=0 if last is None or last.source is None else len(last.source),
    )


def scores_of(logits: Tensor, labels: Tensor | None = None) -> BatchScores:
    """The answers in a batch of logits, of any network and on any device."""
    known = None if labels is None else labels.cpu().numpy()
    return score_batch(logits.detach().float().cpu().numpy(), known)


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
        ``bad_batches``, of guard ``alarms`` and of ``resets`` to the source, how many images the
        guard ``asked`` the source about (if any), the ``seconds`` spent in the adapter, its
        ``warnings`` if it gave any, and the ``drift`` of each layer whose statistics it tracked:
        pairs of its name and the mean distance from the source's over channels, in deviations.
    """
    served: list[BatchScores] = []
    online, seconds, done, asked = [], 0.0, 0, 0
    said: set[str] = set()
    events: dict[str, list[int]] = {"resets": [], "alarms": []}
    for batch in stream:
        x, labels = check_labelled(batch, "stream")
        with warnings_to(said.add):
            batch_served = serve(adapter, x, labels)
        scores = batch_served.scores
        seconds += batch_served.seconds
        asked += batch_served.asked
        events["resets"] += [done] * batch_served.restarted
        events["alarms"] += [done] * batch_served.alarms
        served.append(scores)
        done += len(scores.choice)
        online.append(_error(scores))
        if on_batch is not None:
            on_batch(len(labels))
    if not served:
        raise ValueError("`stream` gave no batch; there is nothing to evaluate.")
    whole = joined(served)
    correct, log_likelihood = whole.correct, whole.log_likelihood
    assert correct is not None
    assert log_likelihood is not None
    return {
        "error": float(1 - correct.mean()),
        "nll": float(-log_likelihood.mean()),
        "ece": expected_calibration_error(whole.confidence, correct),
        "entropy": float(whole.entropy.mean()),
        "online_error": [round(e, 6) for e in online],
        "correct": pack_bits(correct),
        "count": done,
        "answers": whole.choice[sampled_positions(done)].tolist(),
        "reliability": filled_bins(whole.confidence, correct),
        "bad_batches": adapter.bad_batches,
        "alarms": len(adapter.alarms),
        "resets": len(events["resets"]),
        **({"asked": asked} if asked else {}),
        "seconds": round(seconds, 4),
        **({} if further is None else further(adapter, correct, whole.confidence, events)),
        **({"warnings": sorted(said)} if said else {}),
        **({"drift": drift} if (drift := _drift(adapter)) else {}),
    }


def _error(scores: BatchScores) -> float:
    """Of a batch; 0 if none of its positions has a class."""
    assert scores.correct is not None
    return float(1 - scores.correct.mean()) if len(scores.correct) else 0.0


def _drift(adapter: Adapter) -> list[tuple[str, float]]:
    """Pairs in the network's order; an object would be sorted by key in the row."""
    distances = layer_distances(adapter)
    return [(name, round(found[0], 4)) for name, found in distances.items() if found is not None]
