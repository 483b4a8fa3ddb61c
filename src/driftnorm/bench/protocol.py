"""How a number was measured, as data; its one-line text stands beside every number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Protocol", "sampled_positions", "stream_order", "text_of", "together"]

SAMPLED = 48  # images a stream whose answers are kept one by one


@dataclass(frozen=True)
class Protocol:
    """Everything about a measurement that is not the model, the kind of shift or the method.

    Attributes:
        data: Name of the data set.
        count: How many samples a stream has.
        batch_size: The last batch of a stream may be smaller; it is kept.
        severities: How strong the shifts are; empty where that means nothing.
        order: How a stream is ordered.
        steps: Gradient steps a batch, for methods that take any.
        reset: When the adapter starts from the source again.
        predict: Which forward pass is scored.
        seeds: Of the order and of whatever else is drawn.
    """

    data: str
    count: int
    batch_size: int
    severities: tuple[int, ...] = ()
    order: str = "as stored"
    steps: int = 1
    reset: Literal["per shift", "per batch", "never"] = "per shift"
    predict: Literal["before", "after"] = "before"
    seeds: tuple[int, ...] = (0,)

    def text(self) -> str:
        """One line for people."""
        return _line(self, (self.count,), (self.batch_size,), (self.steps,))

    def comparable(self) -> tuple[object, ...]:
        """What must agree between numbers in one table; severities and seeds are averaged over.

        Steps need not: methods that take none record one, and those of a method are in its word
        or its options. `text_of` lists them.
        """
        return (self.data, self.count, self.batch_size, self.reset, self.predict)


def together(protocols: Iterable[Protocol]) -> Protocol:
    """The protocol of a table: the first, with the severities and the seeds of all.

    >>> one = Protocol("digits", 10, 5, severities=(1,))
    >>> together([one, replace(one, severities=(3,), seeds=(1,))]).text()
    'digits, 10 samples a stream, severities 1 3, as stored, batch 5, 1 step, reset per shift, \
scored before the update, seeds 0 1'
    """
    several = list(protocols)
    orders = sorted({p.order for p in several})
    return replace(
        several[0],
        severities=tuple(sorted({s for p in several for s in p.severities})),
        seeds=tuple(sorted({s for p in several for s in p.seeds})),
        order=" or ".join(orders),
    )


def text_of(protocols: Iterable[Protocol]) -> str:
    """The line of several protocols at once, with everything in which they may differ listed.

    >>> one = Protocol("digits", 10, 5)
    >>> text_of([one, replace(one, batch_size=8, steps=3)])
    'digits, 10 samples a stream, as stored, batch 5 8, 1 or 3 steps, reset per shift, \
scored before the update, seeds 0'
    """
    several = list(protocols)
    counts = sorted({p.count for p in several})
    sizes = sorted({p.batch_size for p in several})
    steps = sorted({p.steps for p in several})
    return _line(together(several), counts, sizes, steps)


def stream_order(count: int, seed: int) -> NDArray[np.int64]:
    """Which stored image comes when in a shuffled stream; rows are compared by image with it."""
    return np.random.default_rng(seed).permutation(count)


def sampled_positions(count: int) -> NDArray[np.int64]:
    """The few images of a stream whose answers a row tells, at even distances.

    >>> sampled_positions(3), sampled_positions(96)[:3]
    (array([0, 1, 2]), array([0, 2, 4]))
    """
    few = min(SAMPLED, count)
    return np.arange(few, dtype=np.int64) * count // max(few, 1)


def _line(
    protocol: Protocol, counts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> str:
    levels = protocol.severities
    severities = f"severities {_listed(levels)}, " if levels else ""
    plural = "s" * (max(steps) != 1)
    return (
        f"{protocol.data}, {' or '.join(f'{count:,}' for count in counts)} samples a stream, "
        f"{severities}{protocol.order}, "
        f"batch {' '.join(map(str, sizes))}, {' or '.join(map(str, steps))} step{plural}, "
        f"reset {protocol.reset}, scored {protocol.predict} the update, "
        f"seeds {_listed(protocol.seeds)}"
    )


def _listed(numbers: tuple[int, ...]) -> str:
    """Neighbours as a range: 1 to 5."""
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return " ".join(map(str, numbers))
