"""How numbers were measured, as one line to show beside them; and the order of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from driftnorm._internal.counts import agreeing
from driftnorm.bench.cell import Cell

SAMPLED = 48  # images per stream whose predictions are stored


def comparable(cell: Cell) -> tuple[object, ...]:
    """What must agree between numbers in one table; severities and seeds are averaged over."""
    return (cell.stream.data, cell.stream.count, cell.protocol)


def protocol_text(cells: Iterable[Cell]) -> str:
    """The line for one or several cells; lists the values in which they may differ.

    >>> from driftnorm.bench.cell import DataId, MethodId, NetworkId, Protocol, Shift, StreamId
    >>> stream = StreamId(DataId("digits"), (Shift("fog", 2),), count=10)
    >>> protocol_text([Cell("demo", NetworkId("net"), stream, MethodId("bn"), Protocol(5))])
    'digits, 10 samples per stream, severity 2, as stored, batch 5, 1 step, reset per shift, \
scored before the update, seed 0'
    """
    several = list(cells)
    streams = [cell.stream for cell in several]
    counts = [f"{count:,}" for count in sorted({stream.count for stream in streams})]
    most = max(stream.count for stream in streams)
    known = {stream.severity for stream in streams if stream.has_severity}
    levels = sorted(known - {0} or known)  # 0 means the clean images beside the shifted ones
    steps = sorted({cell.method.steps for cell in several})
    guards = sorted({cell.protocol.guard for cell in several} - {"off"})
    parts = (
        _alternatives(sorted({stream.data.label for stream in streams})),
        f"{_alternatives(counts)} {agreeing(most, 'sample', 'samples')} per stream",
        _listed("severity", "severities", levels),
        _alternatives(sorted({stream.ordered for stream in streams})),
        f"batch {' '.join(map(str, sorted({cell.protocol.batch_size for cell in several})))}",
        f"{_alternatives(steps)} {agreeing(max(steps), 'step', 'steps')}",
        f"reset {_alternatives(sorted({cell.protocol.reset for cell in several}))}",
        f"scored {_alternatives(sorted({c.protocol.predict for c in several}))} the update",
        f"guard {_alternatives(guards)}" if guards else "",
        _listed("seed", "seeds", sorted({stream.seed for stream in streams})),
    )
    return ", ".join(filter(None, parts))


def stream_order(count: int, seed: int) -> NDArray[np.int64]:
    """Which stored image comes when in a shuffled stream; needed to compare rows by image."""
    return np.random.default_rng(seed).permutation(count)


def sampled_positions(count: int) -> NDArray[np.int64]:
    """The few images of a stream whose predictions a row stores, evenly spaced.

    >>> sampled_positions(3), sampled_positions(96)[:3]
    (array([0, 1, 2]), array([0, 2, 4]))
    """
    few = min(SAMPLED, count)
    return np.arange(few, dtype=np.int64) * count // max(few, 1)


def _alternatives(values: Sequence[object]) -> str:
    return " or ".join(map(str, values))


def _listed(one: str, several: str, numbers: Sequence[int]) -> str:
    """Consecutive numbers as a range: severities 1 to 5."""
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f"{one} {numbers[0]}"
    if len(numbers) > 2 and [*numbers] == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{several} {numbers[0]} to {numbers[-1]}"
    return f"{several} {' '.join(map(str, numbers))}"
