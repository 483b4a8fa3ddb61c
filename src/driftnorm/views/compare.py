"""What every robustness table does with rows: check that they go together, average, compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftnorm.bench.metrics import Interval, paired_interval, unpack_bits
from driftnorm.bench.protocol import Protocol, stream_order, text_of
from driftnorm.bench.rows import Row
from driftnorm.bench.shift_names import corruption_of
from driftnorm.errors import MixedRowsError
from driftnorm.shifts.registry import CORRUPTIONS, SHIFTS

__all__ = [
    "Part",
    "change_of_error",
    "change_text",
    "check_protocol",
    "check_same",
    "check_streams",
    "data_set",
    "images_of",
    "in_order",
    "lacking_of_all",
    "mean_error",
    "methods_of",
    "note_of",
    "paired_change",
    "parts_of",
    "right_by_image",
    "shifts_of",
    "stream_of",
]

ALL_SEVERITIES = (1, 2, 3, 4, 5)
# Metrics that say how it went, not what came of it.
_CIRCUMSTANCES = ("seconds", "peak_megabytes", "recipe")


def methods_of(rows: Sequence[Row]) -> list[str]:
    """The methods, in the order in which they come."""
    return list(dict.fromkeys(row.cell.method for row in rows))


def shifts_of(rows: Sequence[Row]) -> list[str]:
    """The corruptions in their canonical order, whatever else there is after them."""
    found = {row.cell.shift for row in rows if row.cell.severity}
    rank = {name: place for place, name in enumerate(SHIFTS)}
    return sorted(found, key=lambda shift: (rank.get(corruption_of(shift), len(rank)), shift))


def in_order(rows: Sequence[Row], methods: Sequence[str] = ()) -> list[Row]:
    """Each measurement once, in an order that does not depend on how its file is named.

    Args:
        rows: From any number of files; those that overlap hold the same measurement twice.
        methods: These come first, in this order; others follow by name.

    Raises:
        MixedRowsError: Two rows of one measurement differ in more than time and memory.
    """
    rank = {method: index for index, method in enumerate(methods)}
    shifts = {shift: index for index, shift in enumerate(shifts_of(rows))}
    once: dict[str, Row] = {}
    for row in rows:
        other = once.setdefault(row.cell.key, row)
        if other is not row and not _agree(other, row):
            cell = row.cell
            raise MixedRowsError(
                f"two rows of one measurement differ: {cell.model}, {cell.method!r} on "
                f"{cell.shift} {cell.severity}, seed {cell.seed}. Leave one of their files out."
            )
    return sorted(
        once.values(),
        key=lambda row: (
            row.cell.model,
            rank.get(row.cell.method, len(rank)),
            row.cell.method,
            shifts.get(row.cell.shift, -1),  # clean data first
            row.cell.severity,
            row.cell.seed,
        ),
    )


def _agree(one: Row, other: Row) -> bool:
    """Whether both give the same results, as far as both have them: older rows lack some."""
    shared = one.metrics.keys() & other.metrics.keys() - {*_CIRCUMSTANCES}
    # As text, NaN equals NaN.
    first, second = (json.dumps([row.metrics[m] for m in sorted(shared)]) for row in (one, other))
    return first == second


def lacking_of_all(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Which of the 15 corruptions at 5 severities, the paper's streams, nothing was measured on."""
    met = {(row.cell.shift, row.cell.severity) for row in rows}
    return [(c, s) for c in CORRUPTIONS for s in ALL_SEVERITIES if (c, s) not in met]


def check_same(rows: Sequence[Row]) -> Sequence[Row]:
    """Refuse to mix models, data or protocols, or methods that met other streams."""
    check_protocol(rows)
    for what, plural in (("model", "models"), ("study", "studies")):
        found = {getattr(row.cell, what) for row in rows}
        if len(found) > 1:
            listed = ", ".join(sorted(found))
            raise MixedRowsError(f"rows of several {plural} cannot stand together: {listed}.")
    check_streams(rows)
    return rows


class Part(NamedTuple):
    """Rows that may make a table where all of them do not; the note says what was left out."""

    rows: list[Row]
    note: str


def parts_of(rows: Sequence[Row], methods: Sequence[str]) -> Iterator[Part]:
    """All rows; those of a table's own methods; of these, the severities that each of them met.

    A folder often holds more than a table shows: an ablation at one severity beside a summary over
    all of them. Streams that are missing within a severity stay missing: the run is not finished.
    """
    part = Part([*rows], "")
    yield part
    own = [row for row in rows if row.cell.method in methods]
    others = [method for method in methods_of(rows) if method not in methods]
    if own and others:
        part = Part(own, f" Left out, for they met other streams: {', '.join(others)}.")
        yield part
    met = [
        {r.cell.severity for r in part.rows if r.cell.method == m} for m in methods_of(part.rows)
    ]
    common, every = set.intersection(*met), set.union(*met)
    if common and common != every:
        shown, less = (" ".join(map(str, sorted(some))) for some in (common, every - common))
        note = f" Only severity {shown}, which all methods met; left out: severity {less}."
        yield Part([r for r in part.rows if r.cell.severity in common], part.note + note)


def check_streams(rows: Sequence[Row]) -> None:
    """Refuse methods that met other streams than the rest, or one of them twice."""
    streams = {m: {stream_of(r) for r in rows if r.cell.method == m} for m in methods_of(rows)}
    every = set().union(*streams.values())
    for method, met in streams.items():
        if met != every:
            shift, severity, seed = sorted(every - met)[0]
            raise MixedRowsError(
                f"{method!r} lacks {len(every - met)} of {len(every)} streams, such as {shift} at "
                f"severity {severity} (seed {seed}); finish the run, or leave the method out."
            )
    (method, stream), times = Counter((r.cell.method, stream_of(r)) for r in rows).most_common(1)[0]
    if times > 1:
        raise MixedRowsError(
            f"{method!r} met the stream {stream} {times} times; give each measurement once."
        )


def check_protocol(rows: Sequence[Row]) -> None:
    """Refuse no rows at all, and rows of several protocols."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")
    if len({p.comparable() for p in _protocols(rows)}) > 1:
        texts = sorted({p.text() for p in _protocols(rows)})
        raise MixedRowsError("these protocols cannot be mixed: " + " | ".join(texts))
    optimising = {row.cell.options for row in rows if row.cell.options}
    if len(optimising) > 1:
        raise MixedRowsError(f"methods were optimised differently: {sorted(optimising)}.")
    for method in methods_of(rows):
        found = {row.cell.options for row in rows if row.cell.method == method}
        if len(found) > 1:
            raise MixedRowsError(f"{method!r} was optimised differently: {sorted(found)}.")


def data_set(rows: Sequence[Row]) -> str:
    """The clean data's name: ``cifar-10`` for its released and for our own corruptions."""
    return rows[0].cell.protocol.data.partition(" (")[0].removesuffix("-c")


def _protocols(rows: Sequence[Row]) -> list[Protocol]:
    return [row.cell.protocol for row in rows]


def stream_of(row: Row) -> tuple[str, int, int]:
    """What tells streams apart: corruption, severity, seed."""
    return row.cell.shift, row.cell.severity, row.cell.seed


def note_of(rows: Sequence[Row]) -> str:
    """The protocol, and whatever else must stand beside the numbers."""
    models = ", ".join(sorted({row.cell.model for row in rows}))
    notes = sorted({str(r.metrics["note"]) for r in rows if "note" in r.metrics})
    options = sorted({f"{k} {v}" for r in rows for k, v in r.cell.options if k != "steps"})
    optimising = f" Gradient steps with {', '.join(options)}." if options else ""
    said = f"{optimising}{_corruptions_text(rows)}{''.join(f' {note}.' for note in notes)}"
    return f"Error in %. Model {models}; {text_of(_protocols(rows))}.{said}"


def _corruptions_text(rows: Sequence[Row]) -> str:
    """How many corruptions a mean is over, and which if they are not the 15 common ones."""
    shifts = shifts_of(rows)
    if not shifts:
        return ""
    which = "" if set(shifts) == set(CORRUPTIONS) else f": {', '.join(shifts)}"
    return f" Over {len(shifts)} corruption{'s' * (len(shifts) != 1)}{which}."


def mean_error(rows: Sequence[Row], method: str, shift: str | None = None) -> float:
    """Mean error in % over the corrupted streams of a method, or of one shift of them."""
    errors = [
        100 * row.metrics["error"]
        for row in rows
        if row.cell.method == method and row.cell.severity and shift in (None, row.cell.shift)
    ]
    if not errors:
        raise MixedRowsError(f"{method!r} has no row on {shift or 'corrupted images'}.")
    return float(np.mean(errors))


def change_of_error(rows: Sequence[Row], method: str, reference: str) -> Interval:
    """How much larger a method's error is than another's, paired image by image, in points."""
    before = {stream_of(row): row for row in rows if row.cell.method == reference}
    pairs = [
        (before[stream_of(row)], row)
        for row in rows
        if row.cell.severity and row.cell.method == method
    ]
    if not pairs:
        raise MixedRowsError(f"{method!r} has no row on corrupted images.")
    return paired_change(pairs)


def paired_change(pairs: Sequence[tuple[Row, Row]]) -> Interval:
    """By how many points the first row of each pair is more accurate, paired image by image."""
    gains = [
        right_by_image(first).astype(np.float64) - right_by_image(second) for first, second in pairs
    ]
    found = paired_interval(gains, [images_of(first) for first, _ in pairs])
    return Interval(*(100 * value for value in found))


def images_of(row: Row) -> Hashable:
    """Which images a row's stream shows, whatever was done to them, and in whichever order.

    Corruptions are of the same images; a domain has its own, and so has a split of the digits.
    """
    cell = row.cell
    if cell.study == "domains":
        return cell.shift
    return cell.seed if cell.protocol.data == "digits" else None


def right_by_image(row: Row) -> NDArray[np.bool_]:
    """Which images were right, in the order in which they are stored, not streamed."""
    streamed = unpack_bits(row.metrics["correct"], row.metrics["count"])
    if row.cell.protocol.order != "shuffled":
        return streamed
    stored = np.empty_like(streamed)
    stored[stream_order(len(streamed), row.cell.seed)] = streamed
    return stored


def change_text(change: Interval) -> str:
    """Such as ``-0.31 [-0.36, -0.26]``."""
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
