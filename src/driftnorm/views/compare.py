"""What every robustness table does with rows: check that they belong together, average, compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.metrics import Interval, is_guessing, paired_interval, unpack_bits
from driftnorm.bench.protocol import comparable, protocol_text, stream_order
from driftnorm.bench.rows import Row
from driftnorm.errors import MixedRowsError
from driftnorm.shifts.registry import CORRUPTIONS, SHIFTS

ALL_SEVERITIES = (1, 2, 3, 4, 5)
# Metrics of the run, not of its result.
_CIRCUMSTANCES = ("seconds", "peak_megabytes")
_CLASSES = {
    "cifar-10": 10,
    "cifar-100": 100,
    "imagenet": 1000,
    "digits": 10,
    "PACS": 7,
    "VLCS": 5,
    "OfficeHome": 65,
    "TerraIncognita": 10,
    "RotatedMNIST": 10,
    "ColoredMNIST": 2,
}


def by_method(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each method, in the order in which they come."""
    return partition(rows, lambda row: row.method)


def methods_of(rows: Sequence[Row]) -> list[str]:
    """The methods, in the order in which they come."""
    return list(dict.fromkeys(row.method for row in rows))


def error_of(rows: Iterable[Row]) -> float:
    """Mean error in %; there must be rows."""
    return float(np.mean([100 * row.metrics["error"] for row in rows]))


def errors_by_severity(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Mean error in % of each method at each severity, ascending; 0 are the clean images."""
    check_same(rows)
    return {
        method: {level: error_of(own) for level, own in sorted(partition(mine, _severity).items())}
        for method, mine in by_method(rows).items()
    }


def _severity(row: Row) -> int:
    return row.severity


def shifts_of(rows: Sequence[Row]) -> list[str]:
    """The corruptions in their canonical order, then any other shifts."""
    rank = {name: place for place, name in enumerate(SHIFTS)}
    streams = {row.cell.stream for row in rows if row.severity}
    places = {s.shift: min(rank.get(each.name, len(rank)) for each in s.shifts) for s in streams}
    return sorted(places, key=lambda shift: (places[shift], shift))


def in_order(rows: Sequence[Row], methods: Sequence[str] = ()) -> list[Row]:
    """Each measurement once, in an order that does not depend on how its file is named.

    Args:
        rows: From any number of files, which may overlap.
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
                f"two rows of one measurement differ: {row.network}, {row.method!r} on "
                f"{cell.stream.label}, seed {row.seed}. Leave one of their files out."
            )
    return sorted(
        once.values(),
        key=lambda row: (
            row.network,
            rank.get(row.method, len(rank)),
            row.method,
            shifts.get(row.shift, -1),  # clean data first
            row.severity,
            row.seed,
        ),
    )


def _agree(one: Row, other: Row) -> bool:
    """Whether both have the same results, for the metrics that both have."""
    shared = one.metrics.keys() & other.metrics.keys() - {*_CIRCUMSTANCES}
    # As text, NaN equals NaN.
    first, second = (json.dumps([row.metrics[m] for m in sorted(shared)]) for row in (one, other))
    return first == second


def lacking_of_all(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Those of the paper's streams, 15 corruptions at 5 severities, that were not measured."""
    met = {(row.shift, row.severity) for row in rows}
    return [(c, s) for c in CORRUPTIONS for s in ALL_SEVERITIES if (c, s) not in met]


def check_same(rows: Sequence[Row]) -> Sequence[Row]:
    """Refuse to mix models, data or protocols, or methods that ran on different streams."""
    check_protocol(rows)
    networks, studies = ({r.network for r in rows}, {r.cell.study for r in rows})
    for plural, found in (("models", networks), ("studies", studies)):
        if len(found) > 1:
            listed = ", ".join(sorted(found))
            raise MixedRowsError(f"rows of several {plural} cannot be in one table: {listed}.")
    check_streams(rows)
    return rows


class Part(NamedTuple):
    """Some rows of which a table can be made; the note says what was left out."""

    rows: list[Row]
    note: str


def parts_of(rows: Sequence[Row], methods: Sequence[str]) -> Iterator[Part]:
    """All rows; those of a table's own methods; of these, the severities that all of them ran on.

    A folder often holds more than a table shows: an ablation at one severity beside a summary over
    all of them. Streams that are missing within a severity stay missing: the run is not finished.
    """
    part = Part([*rows], "")
    yield part
    own = [row for row in rows if row.method in methods]
    others = [method for method in methods_of(rows) if method not in methods]
    if own and others:
        part = Part(own, f" Left out, because they ran on other streams: {', '.join(others)}.")
        yield part
    met = [{row.severity for row in own} for own in by_method(part.rows).values()]
    common, every = set.intersection(*met), set.union(*met)
    if common and common != every:
        shown, less = (" ".join(map(str, sorted(some))) for some in (common, every - common))
        note = f" Only severity {shown}, which all methods ran on; left out: severity {less}."
        yield Part([r for r in part.rows if r.severity in common], part.note + note)


def check_streams(rows: Sequence[Row]) -> None:
    """Refuse methods that ran on other streams than the rest, or on one of them twice."""
    streams = {m: {stream_of(row) for row in own} for m, own in by_method(rows).items()}
    every = set().union(*streams.values())
    for method, met in streams.items():
        if met != every:
            shift, severity, seed = sorted(every - met)[0]
            raise MixedRowsError(
                f"{method!r} lacks {len(every - met)} of {counted(len(every), 'stream')}, such as "
                f"{shift} at severity {severity} (seed {seed}); finish the run, or leave the "
                "method out."
            )
    (method, stream), times = Counter((r.method, stream_of(r)) for r in rows).most_common(1)[0]
    if times > 1:
        raise MixedRowsError(
            f"{method!r} ran on the stream {stream} {times} times; give each measurement once."
        )


def check_some(rows: Sequence[Row]) -> None:
    """Refuse an empty list."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")


def check_protocol(rows: Sequence[Row]) -> None:
    """Refuse an empty list, and rows of several protocols."""
    check_some(rows)
    of_domains = any(row.cell.stream.shifts and not row.severity for row in rows)
    if of_domains and len({(row.network, row.cell.stream.label) for row in rows}) > 1:
        raise MixedRowsError(
            "these rows are of target domains, each with a network and a stream of its own: use "
            "`driftnorm table domains` or `driftnorm plot domains`."
        )
    if len({comparable(row.cell) for row in rows}) > 1:
        texts = sorted({protocol_text([row.cell]) for row in rows})
        sizes = sorted({row.cell.protocol.batch_size for row in rows})
        advice = f". Choose with `--where batch_size={sizes[0]}`." if len(sizes) > 1 else ""
        raise MixedRowsError(f"these protocols cannot be mixed: {' | '.join(texts)}{advice}")
    optimising = {row.cell.method.settings for row in rows if row.cell.method.settings}
    if len(optimising) > 1:
        raise MixedRowsError(f"methods were optimised differently: {sorted(optimising)}.")
    for method, own in by_method(rows).items():
        found = {row.cell.method.settings for row in own}
        if len(found) > 1:
            raise MixedRowsError(f"{method!r} was optimised differently: {sorted(found)}.")


def data_set(rows: Sequence[Row]) -> str:
    """The clean data's name: ``cifar-10`` for its released and for our own corruptions."""
    return rows[0].cell.stream.data.name


def stream_of(row: Row) -> tuple[str, int, int]:
    """What identifies a stream: corruption, severity, seed."""
    return row.shift, row.severity, row.seed


def note_of(rows: Sequence[Row]) -> str:
    """The protocol, and whatever else must be shown with the numbers."""
    models = ", ".join(sorted({row.network for row in rows}))
    options = sorted({f"{k} {v}" for r in rows for k, v in r.cell.method.settings if k != "steps"})
    optimising = f" Gradient steps with {', '.join(options)}." if options else ""
    remarks = "".join(f" {note}." for note in notes_of(rows)) + one_batch_note(rows)
    said = f"{optimising}{_corruptions_text(rows)}{remarks}"
    return f"Error in %. Model {models}; {protocol_text(row.cell for row in rows)}.{said}"


def notes_of(rows: Sequence[Row]) -> list[str]:
    """What benchmarks noted about the data."""
    return sorted({str(row.metrics["note"]) for row in rows if "note" in row.metrics})


def _corruptions_text(rows: Sequence[Row]) -> str:
    """How many corruptions a mean is over, and which if they are not the 15 common ones."""
    shifts = shifts_of(rows)
    if not shifts:
        return ""
    which = "" if set(shifts) == set(CORRUPTIONS) else f": {', '.join(shifts)}"
    return f" Over {counted(len(shifts), 'corruption')}{which}."


def scored_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that means are over: of corrupted streams, or of clean ones if there are no others.

    Clean images beside corrupted ones have their own columns.
    """
    return [row for row in rows if row.severity] or [*rows]


def mean_error(rows: Sequence[Row], method: str, shift: str | None = None) -> float:
    """Mean error in % over a method's scored rows, or over those of one shift."""
    own = [r for r in scored_rows(rows) if r.method == method and shift in (None, r.shift)]
    if not own:
        raise MixedRowsError(f"{method!r} has no row on {shift or 'corrupted images'}.")
    return error_of(own)


def clean_error(rows: Sequence[Row], method: str) -> float | None:
    """Mean error in % on the clean images beside corrupted ones, or None."""
    own = [row for row in rows if row.method == method and not row.cell.stream.shifts]
    beside = own and any(row.severity for row in rows)
    return error_of(own) if beside else None


def near_chance(rows: Sequence[Row], beside: Sequence[Row] = ()) -> bool:
    """Whether these rows are hardly better than chance, as far as the classes are known.

    Rows do not store the number of classes: it comes from a known data set, or from the largest
    class that this network predicted.
    """
    if not rows:
        return False
    answered = 1 + max(max(row.metrics.get("answers") or (-1,)) for row in (*rows, *beside))
    classes = _CLASSES.get(data_set(rows), answered)
    return is_guessing(1 - error_of(rows) / 100, classes)


def one_batch_note(rows: Sequence[Row]) -> str:
    """Why methods are exactly equal if one batch makes up a whole stream."""
    for row in rows:
        protocol = row.cell.protocol
        if row.cell.stream.count > protocol.batch_size or protocol.predict != "before":
            return ""

    def answered(own: list[Row]) -> Hashable:
        # The likelihood too: as many right, or even the same ones, may be chance.
        found = {
            (row.network, *stream_of(row)): (row.metrics.get("correct"), row.metrics.get("nll"))
            for row in own
        }
        return tuple(sorted(found.items(), key=lambda item: item[0]))

    answers = {method: answered(own) for method, own in by_method(rows).items()}
    return "".join(
        f" The whole stream is one batch, and a batch is scored before its step: "
        f"{', '.join(equal[:-1])} and {equal[-1]}, which differ in what they carry over to the "
        "next batch, are equal here."
        for equal in partition(answers, lambda method: answers[method]).values()
        if len(equal) > 1
    )


def change_of_error(rows: Sequence[Row], method: str, reference: str) -> Interval:
    """How much larger a method's error is than another's, paired image by image, in points."""
    before = {stream_of(row): row for row in rows if row.method == reference}
    pairs = [(before[stream_of(row)], row) for row in scored_rows(rows) if row.method == method]
    if not pairs:
        raise MixedRowsError(f"{method!r} has no row on corrupted images.")
    return paired_change(pairs)


def change_cell(rows: Sequence[Row], method: str, reference: str) -> str:
    """The change of error with its interval; a dash for the reference itself."""
    return "-" if method == reference else change_text(change_of_error(rows, method, reference))


def paired_change(
    pairs: Sequence[tuple[Row, Row]], factors: Sequence[float] | None = None
) -> Interval:
    """By how many points the first row of each pair is more accurate, paired image by image.

    Args:
        pairs: Rows on the same streams.
        factors: What the change of each pair is multiplied by; by default 1.
    """
    gains = [
        factor * (right_by_image(first).astype(np.float64) - right_by_image(second))
        for (first, second), factor in zip(pairs, factors or [1.0] * len(pairs), strict=True)
    ]
    found = paired_interval(gains, [images_of(first) for first, _ in pairs])
    return Interval(*(100 * value for value in found))


def images_of(row: Row) -> Hashable:
    """Which images a row's stream shows, however they are shifted and ordered.

    Corruptions show the same images; a domain has its own, and so has a split of the digits.
    """
    stream = row.cell.stream
    if stream.settings:  # of a stream that changes, positions are compared
        return stream
    if not stream.has_severity:
        return stream.shift, stream.split
    return stream.seed if stream.data.name == "digits" else None


def right_by_image(row: Row) -> NDArray[np.bool_]:
    """Which predictions were right, in the order in which images are stored, not streamed."""
    streamed = unpack_bits(row.metrics["correct"], row.metrics["count"])
    if row.cell.stream.order != "shuffled":
        return streamed
    stored = np.empty_like(streamed)
    stored[stream_order(len(streamed), row.seed)] = streamed
    return stored


def change_text(change: Interval) -> str:
    """Such as ``-0.31 [-0.36, -0.26]``."""
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
