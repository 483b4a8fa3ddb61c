"""What a network said about each image of a batch, and whether it was right; numpy only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftnorm.bench.metrics import Bools, Floats

BLOCK = 2**16  # predictions that are in double precision at a time: dense ones are many


class BatchScores(NamedTuple):
    """One entry per image, or in dense prediction per position.

    Attributes:
        choice: The predicted class.
        confidence: Its probability.
        entropy: Of all probabilities, in nats.
        correct: Whether the prediction was right; None without labels.
        log_likelihood: Log probability of the true class; None without labels.
    """

    choice: NDArray[np.int64]
    confidence: Floats
    entropy: Floats
    correct: Bools | None = None
    log_likelihood: Floats | None = None


def score_batch(
    logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]] | None = None
) -> BatchScores:
    """Read the answers in a batch of logits.

    Args:
        logits: Of shape (N, K), or (N, K, ...) in dense prediction.
        labels: The true classes, (N,) or (N, ...). Positions of a dense prediction whose number is
            not a class (such as 255) are left out.
    """
    if labels is not None and logits.shape[:1] + logits.shape[2:] != labels.shape:
        raise ValueError(
            f"`labels` must be one per prediction: expected shape "
            f"{logits.shape[:1] + logits.shape[2:]} for logits of shape {logits.shape}, "
            f"got {labels.shape}."
        )
    if logits.ndim > 2:
        logits = np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1])
        if labels is not None:
            labels = labels.reshape(-1)
            known = (labels >= 0) & (labels < logits.shape[1])
            logits, labels = logits[known], labels[known]
    starts = range(0, max(len(logits), 1), BLOCK)
    return joined(
        _block(logits[at : at + BLOCK], None if labels is None else labels[at : at + BLOCK])
        for at in starts
    )


def _block(
    logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]] | None
) -> BatchScores:
    log_p = log_softmax(logits)
    p = np.exp(log_p)
    choice = log_p.argmax(axis=1)
    rows = np.arange(len(choice))
    # A class that is impossible adds nothing, where 0 times minus infinity is not a number.
    entropy = -(p * np.where(p == 0, 0.0, log_p)).sum(axis=1)
    scores = BatchScores(choice, p[rows, choice], entropy)
    if labels is None:
        return scores
    return scores._replace(correct=choice == labels, log_likelihood=log_p[rows, labels])


def log_softmax(logits: NDArray[np.floating[Any]]) -> Floats:
    """Log probabilities along axis 1 in double precision, without overflow."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinite logits give NaN, which is for the caller to see
        shifted = wide - wide.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def joined(batches: Iterable[BatchScores]) -> BatchScores:
    """The scores of several batches, one after the other; with labels if all have them."""
    choice, confidence, entropy, correct, log_likelihood = zip(*batches, strict=True)
    return BatchScores(
        np.concatenate(choice),
        np.concatenate(confidence),
        np.concatenate(entropy),
        None if any(each is None for each in correct) else np.concatenate(correct),
        None if any(each is None for each in log_likelihood) else np.concatenate(log_likelihood),
    )
