"""Images for which source and adapted network predict different classes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from driftnorm._internal.counts import counted
from driftnorm.bench.rows import Row
from driftnorm.bench.samples import Exhibits
from driftnorm.views.report.groups import Group
from driftnorm.views.report.section import Example
from driftnorm.views.report.verdicts import usual_method

_MOST = 12


def group_examples(group: Group, exhibits: Mapping[str, Exhibits]) -> tuple[str, list[Example]]:
    """Images of a comparison whose class the usual method changes: a remark, and some of them."""
    best, reference = usual_method(group), group.reference
    if best is None or best == reference:
        return "", []
    pairs = [pair for pair in group.pairs(best) if _shown(*pair, exhibits) is not None]
    order = {shift: place for place, shift in enumerate(group.shifts)}
    pairs.sort(key=lambda pair: (-pair[0].severity, order.get(pair[0].shift, -1)))
    changes: dict[str, list[_Change]] = defaultdict(list)
    for pair in pairs:
        changes[pair[0].shift] += _changes(*pair, exhibits)
    seen = sum(len(adapted.metrics["answers"]) for _, adapted in pairs)
    every = [change for own in changes.values() for change in own]
    in_turn = [each for each in chain.from_iterable(zip_longest(*changes.values())) if each]
    return _remark(seen, every, best, reference), [each.example for each in in_turn[:_MOST]]


class _Change(NamedTuple):
    example: Example
    was_right: bool
    is_right: bool


def _changes(source: Row, adapted: Row, exhibits: Mapping[str, Exhibits]) -> list[_Change]:
    """The images of a stream that get another class, in an order that says nothing."""
    shown = _shown(source, adapted, exhibits)
    assert shown is not None
    found = []
    answers = zip(source.metrics["answers"], adapted.metrics["answers"], strict=True)
    for at, (before, after) in enumerate(answers):
        if before != after:
            given = {source.method: before, adapted.method: after}
            right = (answer == shown.labels[at] for answer in (before, after))
            found.append(_Change(_example(source, shown, at, given), *right))
    random.Random(0).shuffle(found)  # the first ones came before much was adapted
    return found


def _remark(seen: int, changes: Sequence[_Change], best: str, reference: str) -> str:
    drawn = f"{counted(seen, 'image')} drawn at even distances from the streams"
    if not seen:
        return ""
    if not changes:
        return f"{best} gives each of the {drawn} the class that {reference} gives."
    gained, lost = sum(c.is_right for c in changes), sum(c.was_right for c in changes)
    return (
        f"Of {drawn}, {best} gives {len(changes):,} another class than {reference}: {gained:,} of "
        f"them become right, {lost:,} become wrong, {len(changes) - gained - lost:,} are wrong "
        "both times. Shown: some of them, whichever way they went, from the highest severity where "
        "there are several."
    )


def _shown(source: Row, adapted: Row, exhibits: Mapping[str, Exhibits]) -> Exhibits | None:
    """The images for which both rows have predictions, if stored."""
    found = exhibits.get(source.metrics.get("exhibits", ""))
    if found is None or source.metrics["exhibits"] != adapted.metrics.get("exhibits"):
        return None
    answers = [row.metrics.get("answers", ()) for row in (source, adapted)]
    return found if all(len(each) == len(found.names) for each in answers) else None


def _example(row: Row, shown: Exhibits, at: int, answers: Mapping[str, int]) -> Example:
    cell = row.cell
    name = shown.names[at]  # with its domain, where the stream has several
    if len(cell.stream.shifts) < 2:
        name = f"{cell.stream.shift} {cell.stream.severity or ''}".strip() + f", {name}"
    return Example(
        name,
        shown.images[at],
        {who: shown.class_name(number) for who, number in answers.items()},
        shown.class_name(shown.labels[at]),
    )
