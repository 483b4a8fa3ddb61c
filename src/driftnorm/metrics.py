"""Numbers about predictions: numpy only, so that tables and reports need no torch."""

from __future__ import annotations

import base64
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Interval",
    "expected_calibration_error",
    "log_softmax",
    "mean_entropy",
    "negative_log_likelihood",
    "pack_bits",
    "paired_interval",
    "reliability",
    "standard_error",
    "unpack_bits",
]

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


class Interval(NamedTuple):
    """An estimate with a 95 % interval."""

    value: float
    low: float
    high: float


def log_softmax(logits: NDArray[np.floating]) -> Floats:
    """Log probabilities along axis 1, without overflow."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def negative_log_likelihood(log_p: Floats, labels: NDArray[np.integer]) -> float:
    """Mean of -log p(true class), in nats."""
    return float(-log_p[np.arange(len(labels)), labels].mean())


def mean_entropy(log_p: Floats) -> float:
    """Mean Shannon entropy of the predictions, in nats."""
    return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())


def expected_calibration_error(
    confidence: NDArray[np.floating], correct: Bools, bins: int = 15
) -> float:
    """Mean gap between confidence and accuracy over equally wide bins of confidence.

    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
    0.4
    """
    _, trust, hits = reliability(confidence, correct, bins)
    return float(np.abs(hits - trust).sum() / len(correct))


def reliability(
    confidence: NDArray[np.floating], correct: Bools, bins: int = 15
) -> tuple[Floats, Floats, Floats]:
    """Per bin of confidence: how many samples, the sum of their confidence, how many were right."""
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count, trust, hits = (
        np.bincount(index, weights=weights, minlength=bins).astype(np.float64)
        for weights in (None, confidence, correct)
    )
    return count, trust, hits


def pack_bits(correct: Bools) -> str:
    """Which samples were right, as text, so that methods can be compared image by image."""
    return base64.b64encode(np.packbits(correct).tobytes()).decode("ascii")


def unpack_bits(text: str, count: int) -> Bools:
    """The inverse of :func:`pack_bits`."""
    packed = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(bool)


def paired_interval(gains: list[Floats], draws: int = 2000, seed: int = 0) -> Interval:
    """Bootstrap interval of a mean gain, resampling images within each group.

    Args:
        gains: For each group (a shift, a seed), the gain on every image: 1 if only the new method
            was right, -1 if only the old one was, 0 otherwise.
        draws: Bootstrap samples.
        seed: Of the bootstrap.

    Returns:
        The mean over groups of the mean gain, with its 2.5 % and 97.5 % quantiles.
    """
    generator = np.random.default_rng(seed)
    means = np.zeros(draws)
    for gain in gains:
        # Only how often -1, 0 and 1 are drawn matters: a multinomial instead of an index matrix.
        values, counts = np.unique(gain, return_counts=True)
        drawn = generator.multinomial(len(gain), counts / len(gain), size=draws)
        means += drawn @ values / len(gain)
    low, high = np.quantile(means / len(gains), [0.025, 0.975])
    return Interval(float(np.mean([g.mean() for g in gains])), float(low), float(high))


def standard_error(values: list[float]) -> float:
    """Population standard deviation over the root of the count, as DomainBed prints it."""
    return float(np.std(values) / np.sqrt(len(values)))
