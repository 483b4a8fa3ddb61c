"""Numbers about predictions: numpy only, so that tables and reports need no torch."""

from __future__ import annotations

import base64
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

BINS = 15
"""Equally wide bins of confidence, wherever calibration is measured or drawn."""
FEW_LABELS = 30
"""Fewer labelled images than this are not judged by."""
_GUESSING = 0.05  # share of the way from chance to perfect; below it, a network is near chance
# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom; the last is used beyond them.
_STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
DECIMALS = 4  # precision of a bin's confidence and accuracy in a row


class Interval(NamedTuple):
    """An estimate with a 95 % interval."""

    value: float
    low: float
    high: float


def expected_calibration_error(confidence: NDArray[np.floating], correct: Bools) -> float:
    """Mean gap between confidence and accuracy over equally wide bins of confidence.

    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
    0.4
    """
    _, trust, hits = reliability(confidence, correct)
    return float(np.abs(hits - trust).sum() / len(correct))


def bin_of(confidence: NDArray[np.floating] | float) -> NDArray[np.int64]:
    """The bin of confidence, from 0 to ``BINS - 1``; an edge belongs to the bin below it.

    >>> bin_of(np.array([0.2, 0.4, 0.6, 1.0])), int(bin_of(np.float32(0.2)))
    (array([ 2,  5,  8, 14]), 2)
    """
    # In single precision 0.2 is slightly above the edge; it must stay in the same bin.
    above = np.ceil(np.asarray(confidence, dtype=np.float64) * BINS - 1e-6)
    return np.clip(above.astype(np.int64) - 1, 0, BINS - 1)


def reliability(confidence: NDArray[np.floating], correct: Bools) -> tuple[Floats, Floats, Floats]:
    """Per bin of confidence: how many samples, the sum of their confidence, how many were right."""
    index = bin_of(confidence)
    count, trust, hits = (
        np.bincount(index, weights=weights, minlength=BINS).astype(np.float64)
        for weights in (None, confidence, correct)
    )
    return count, trust, hits


class Bin(NamedTuple):
    """A non-empty bin of confidence."""

    samples: float
    confidence: float
    accuracy: float


def filled_bins(confidence: NDArray[np.floating], correct: Bools) -> list[list[float]]:
    """The non-empty bins as a row stores them: count, mean confidence, accuracy."""
    return [
        [int(count), round(float(trust / count), DECIMALS), round(float(hits / count), DECIMALS)]
        for count, trust, hits in zip(*reliability(confidence, correct), strict=True)
        if count
    ]


def pooled_bins(streams: Iterable[Sequence[Sequence[float]]]) -> list[Bin]:
    """Bins of several streams, as stored in rows, pooled into those of one stream.

    A bin is identified by its mean confidence, which was rounded: 0.66666 became 0.6667, which is
    in the next bin.

    >>> pooled_bins([[[10, 0.65, 0.5], [10, 0.6667, 0.7]]])
    [Bin(samples=20.0, confidence=0.65835, accuracy=0.6)]
    """
    sums = np.zeros((BINS, 3))
    for count, trust, accuracy in (each for stream in streams for each in stream):
        sums[bin_of(trust - 0.5 * 10**-DECIMALS)] += count, count * trust, count * accuracy
    return [Bin(n, trust / n, hits / n) for n, trust, hits in sums.tolist() if n]


def pack_bits(correct: Bools) -> str:
    """Which samples were right, as text, so that methods can be compared image by image."""
    return base64.b64encode(np.packbits(correct).tobytes()).decode("ascii")


def unpack_bits(text: str, count: int) -> Bools:
    """The inverse of :func:`pack_bits`."""
    packed = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(bool)


def paired_interval(
    gains: Sequence[Floats],
    images: Sequence[Hashable] | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a mean gain, resampling images.

    Streams that show the same images (one test set under many corruptions) are not independent: an
    image is drawn together with its gains in all of them.

    Args:
        gains: For each stream, the gain on every image: 1 if only the new method was right, -1 if
            only the old one was, 0 otherwise.
        images: For each stream, an identifier of its images; streams with equal ones show the same
            images in the same order. By default, each stream has its own.
        draws: Bootstrap samples.
        seed: Of the bootstrap.

    Returns:
        The mean over streams of the mean gain, with its 2.5 % and 97.5 % quantiles.
    """
    together: dict[Hashable, list[Floats]] = {}
    for shown, gain in zip(range(len(gains)) if images is None else images, gains, strict=True):
        together.setdefault(shown, []).append(gain)
    generator = np.random.default_rng(seed)
    means = np.zeros(draws)
    for own in together.values():
        total = np.sum(own, axis=0)
        # Only how often each value is drawn matters: a multinomial instead of an index matrix.
        values, counts = np.unique(total, return_counts=True)
        drawn = generator.multinomial(len(total), counts / len(total), size=draws)
        means += drawn @ values / len(total)
    low, high = np.quantile(means / len(gains), [0.025, 0.975])
    return Interval(float(np.mean([g.mean() for g in gains])), float(low), float(high))


def interval_over_runs(values: Sequence[float]) -> Interval:
    """The 95 % interval of a mean over independent runs, by Student's t; two or more values.

    With three runs it is more than four standard errors wide on either side: three are few.
    """
    degrees = len(values) - 1
    quantile = _STUDENT_T[min(degrees, len(_STUDENT_T)) - 1]
    mean = float(np.mean(values))
    half = quantile * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def counted_interval(count: int, won: int, lost: int) -> Interval:
    """The interval of a mean gain where only counts are known, by the normal approximation.

    Args:
        count: Images that both methods predicted.
        won: Of these, how many only the new method got right.
        lost: How many only the old one got right.
    """
    gain = (won - lost) / count
    margin = 1.96 * np.sqrt(max(won + lost - count * gain**2, 0.0)) / count
    return Interval(gain, float(gain - margin), float(gain + margin))


def is_guessing(accuracy: float, classes: int) -> bool:
    """Whether an accuracy is hardly better than chance; never if the classes are unknown."""
    return classes > 1 and (accuracy - 1 / classes) / (1 - 1 / classes) < _GUESSING


def standard_error(values: list[float]) -> float:
    """Population standard deviation over the root of the count, as DomainBed prints it."""
    return float(np.std(values) / np.sqrt(len(values)))
