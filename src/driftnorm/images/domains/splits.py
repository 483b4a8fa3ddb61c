"""DomainBed's seeds and splits, number for number.

A domain's pictures, in sorted order, are shuffled by NumPy's legacy generator; the first fifth is
held out ("out"), the rest is "in". The split depends only on the trial and the domain's position
among the domains.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from driftnorm._internal.types import Integers

_SEEDS = 2**31
_HELD_OUT = 0.2


class Split(NamedTuple):
    """Positions of a domain's pictures, in DomainBed's order.

    Attributes:
        inner: DomainBed's "in": for training, or for scoring if it is a target domain.
        out: DomainBed's "out": held out for validation.
    """

    inner: Integers
    out: Integers


def seed_hash(*arguments: object) -> int:
    """A seed from anything that can be converted to text.

    >>> seed_hash(0, 0)
    894182419
    """
    return int(hashlib.md5(str(arguments).encode()).hexdigest(), 16) % _SEEDS


def split_domain(count: int, trial_seed: int, domain: int) -> Split:
    """DomainBed's split of a domain.

    Args:
        count: How many pictures the domain has.
        trial_seed: The trial; each has its own split.
        domain: The domain's position among all domains of its set, counted from 0.

    Returns:
        Both parts; together they hold every position once.
    """
    out = int(count * _HELD_OUT)
    if not out:
        raise ValueError(
            f"`count` must be large enough that {_HELD_OUT:g} of it is at least one picture for "
            f"validation, got {count}."
        )
    order = np.arange(count, dtype=np.int64)
    np.random.RandomState(seed_hash(trial_seed, domain)).shuffle(order)
    return Split(inner=order[out:], out=order[:out])
