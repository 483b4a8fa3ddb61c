"""What the paper claims about robustness, and what rows of one network say to it.

A claim compares two settings. It is confirmed if the paired interval of the difference lies wholly
on the claimed side, contradicted if wholly on the other, and not confirmed if it holds zero;
a claim of likeness is confirmed if the interval lies within the margin, and contradicted if it lies
wholly beyond it. A claim of several parts is confirmed if all of them are, and contradicted if one
of them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from driftnorm.bench.metrics import Interval
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE, TENT_STOPPED
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import (
    change_of_error,
    change_text,
    check_protocol,
    check_streams,
    data_set,
    note_of,
    stream_of,
)
from driftnorm.views.table import Column, Table

__all__ = ["CLAIMS", "Claim", "claims_table", "joint_verdict", "verdict"]


class Claim(NamedTuple):
    """That a method's error is lower than, higher than or like a reference's.

    Attributes:
        text: The claim.
        method: The one it is about.
        reference: What it is compared with.
        expects: On which side of the reference it should be.
        paper: The paper's two numbers.
        margin: In points; what still counts as alike.
    """

    text: str
    method: str
    reference: str
    expects: Literal["lower", "higher", "alike"]
    paper: str
    margin: float = 0.5


CLAIMS = (
    Claim("target statistics beat source statistics", "bn", "source", "lower", "10.8 / 11.2"),
    Claim("an entropy step improves on target statistics", "tent", "bn", "lower", "9.2 / 10.8"),
    Claim("GpreBN with running statistics beats Tent", "gprebn", "tent", "lower", "8.9 / 9.2"),
    Claim("GpreBN beats the source", "gprebn", "source", "lower", "8.9 / 11.2"),
    Claim("T3A helps a little", "t3a", "source", "lower", "10.7 / 11.2"),
    Claim(
        "T3A helps less than target statistics and a step", "t3a", "tent", "higher", "10.7 / 9.2"
    ),
    Claim("stopping the gradient hurts Tent", TENT_STOPPED, "tent", "higher", "10.3 / 9.2"),
    Claim(
        "an entropy step on source statistics does harm",
        TENT_ON_SOURCE,
        "source",
        "higher",
        "17.7 / 11.2",
    ),
    Claim(
        "on source statistics, the preserved gradient helps",
        "gprebn:statistics=source",
        TENT_ON_SOURCE,
        "lower",
        "10.2 / 17.7",
    ),
    Claim(
        "without a step, running statistics beat the batch's",
        "bn:running=True",
        "bn",
        "lower",
        "not printed for CIFAR",
    ),
    Claim(
        "exponential and cumulative running statistics are alike",
        "gprebn:momentum=0.1",
        "gprebn",
        "alike",
        "8.9 / 8.9",
    ),
    Claim(
        "target statistics in the first half of the layers nearly suffice",
        "bn:only=first(0.5)",
        "bn",
        "alike",
        "14.6 / 14.4",
        margin=1.0,
    ),
)


def verdict(claim: Claim, change: Interval) -> str:
    """What an interval of ``method`` minus ``reference`` says to a claim.

    >>> verdict(CLAIMS[0], Interval(-3.0, -3.2, -2.8))
    'confirmed'
    """
    if claim.expects == "alike":
        if -claim.margin <= change.low and change.high <= claim.margin:
            return "confirmed"
        beyond = change.low > claim.margin or change.high < -claim.margin
        return "contradicted" if beyond else "not confirmed"
    if change.low <= 0 <= change.high:
        return "not confirmed"
    return "confirmed" if (change.high < 0) == (claim.expects == "lower") else "contradicted"


def joint_verdict(parts: Sequence[str]) -> str:
    """What the verdicts on its parts say to a claim.

    >>> joint_verdict(["confirmed", "not confirmed", "contradicted"])
    'contradicted'
    """
    if "contradicted" in parts:
        return "contradicted"
    return "confirmed" if set(parts) == {"confirmed"} else "not confirmed"


def claims_table(rows: Sequence[Row]) -> Table:
    """Every claim with our difference and a verdict, on the streams that both settings met."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")
    if len({row.network for row in rows}) > 1 or len({data_set([row]) for row in rows}) > 1:
        raise MixedRowsError(
            "claims are judged for one network and one data set at a time: give the rows of one, "
            "or choose with `--where model=...` or `--where data=...`."
        )
    sizes = sorted({row.cell.protocol.batch_size for row in rows})
    if len(sizes) > 1:
        raise MixedRowsError(
            f"claims are judged at one batch size, but these rows have {sizes}: give the rows of "
            "one of them."
        )
    lines: list[tuple[str | float | None, ...]] = []
    comparable = data_set(rows) == "cifar-10"
    for claim in CLAIMS:
        own = _common(rows, claim)
        paper = claim.paper if comparable else "-"
        words = f"{claim.method} {claim.expects} than {claim.reference}".replace(
            "alike than", f"within {claim.margin} of"
        )
        if not own:
            lines.append((claim.text, "not measured", "-", words, "-", paper))
            continue
        _check_pair(own, claim)
        change = change_of_error(own, claim.method, claim.reference)
        severities = sorted({row.severity for row in own})
        met = (
            f"{len({stream_of(r) for r in own})} streams, severity {' '.join(map(str, severities))}"
        )
        lines.append((claim.text, verdict(claim, change), change_text(change), words, met, paper))
    columns = (
        Column("claim"),
        Column("verdict", align="left"),  # early: the end of a wide table is out of sight
        Column("difference, 95 %"),
        Column("that is, in error", align="left"),
        Column("on", align="left"),
        Column("paper", align="left"),
    )
    note = f"{note_of(rows)} Paired bootstrap over images."
    if comparable:
        note += " Paper: CIFAR-10-C, WRN-40-2 or WRN-28-10."
    return Table("What the paper claims and what we measured", columns, tuple(lines), note)


def _common(rows: Sequence[Row], claim: Claim) -> list[Row]:
    """Rows of both settings on the corrupted streams that both met."""
    shifted = [row for row in rows if row.severity]
    met = {
        method: {stream_of(row) for row in shifted if row.method == method}
        for method in (claim.method, claim.reference)
    }
    shared = met[claim.method] & met[claim.reference]
    return [row for row in shifted if row.method in met and stream_of(row) in shared]


def _check_pair(rows: Sequence[Row], claim: Claim) -> None:
    """Refuse two settings that were not measured alike."""
    try:
        check_protocol(rows)
        check_streams(rows)
    except MixedRowsError as error:
        raise MixedRowsError(f"the claim {claim.text!r} cannot be judged: {error}") from error
