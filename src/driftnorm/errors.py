"""Errors and warnings of our own kinds: ``except driftnorm.DriftnormError`` catches these errors.

An argument with a wrong value is a plain ``ValueError`` or ``TypeError``, as everywhere in Python.
"""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "BadBatchError",
    "BusyError",
    "CheckpointError",
    "DataError",
    "DriftnormError",
    "DriftnormWarning",
    "MixedRowsError",
    "NoBatchNormError",
    "OldRowsError",
    "TrainingError",
    "UnusableImageError",
    "WorkerError",
]


class DriftnormError(Exception):
    """The root of all errors that driftnorm raises by a class of its own."""


class BadBatchError(DriftnormError, ValueError):
    """A batch that cannot be adapted to (raised with ``on_bad_batch="raise"``)."""


class NoBatchNormError(DriftnormError, ValueError):
    """The network has no batch-norm layer to adapt."""


class CheckpointError(DriftnormError, ValueError):
    """A weight file that cannot be used; `problem` says in one word why."""

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class DataError(DriftnormError, ValueError):
    """Data that are unavailable, or not what they should be; the message says which and why."""


class UnusableImageError(DriftnormError, ValueError):
    """An image that could be read, but must not or cannot be used."""


class TrainingError(DriftnormError, ValueError):
    """Training cannot go on; the message says why and what is kept."""


class MixedRowsError(DriftnormError, ValueError):
    """Rows that were measured differently cannot stand in one table."""


class OldRowsError(DriftnormError, ValueError):
    """Rows of an older format, which must be converted first."""


class BusyError(DriftnormError, ValueError):
    """Another process holds what this one wants to write."""


class WorkerError(DriftnormError, ValueError):
    """A worker process died."""


class DriftnormWarning(UserWarning):
    """Something that would make results silently wrong."""


def warn(message: str) -> None:
    """A :class:`DriftnormWarning` that points at the caller's line, not into libraries."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "driftnorm",
        "torch",
        "contextlib",
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DriftnormWarning, stacklevel=level)
