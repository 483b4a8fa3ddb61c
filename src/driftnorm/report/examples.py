"""Images that the source and an adapted network answer differently."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest
from typing import NamedTuple

from driftnorm.exhibits import Exhibits
from driftnorm.records import Row
from driftnorm.report.groups import Group
from driftnorm.report.markup import Markup, tag
from driftnorm.report.verdicts import best_method
from driftnorm.robustness.comparing import stream_of

__all__ = ["Example", "example_figures", "group_examples"]

_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_MOST = 12


class Example(NamedTuple):
    """An image, who answered what, and the true class where it is known."""

    name: str
    image: str
    answers: Mapping[str, str]
    label: str = ""


def example_figures(examples: Iterable[Example]) -> list[Markup]:
    """A small picture with its answers each."""
    return [tag("figure", _picture(each), _caption(each), class_="example") for each in examples]


def group_examples(group: Group, exhibits: Mapping[str, Exhibits]) -> tuple[str, list[Example]]:
    """Images of a comparison whose class the best method changes: a remark, and some of them."""
    best, reference = best_method(group), group.reference
    if best is None or best == reference:
        return "", []
    own = {stream_of(row): row for row in group.of(best)}
    pairs = [(row, own[stream_of(row)]) for row in group.of(reference)]
    seen, gained, lost = 0, 0, 0
    differing: dict[str, list[Example]] = defaultdict(list)
    order = {shift: place for place, shift in enumerate(group.shifts)}
    pairs.sort(key=lambda pair: (-pair[0].cell.severity, order.get(pair[0].cell.shift, -1)))
    for source, adapted in pairs:
        shown = _shown(source, adapted, exhibits)
        if shown is None:
            continue
        seen += len(shown.names)
        changed = []
        for at, label in enumerate(shown.labels):
            before, after = source.metrics["answers"][at], adapted.metrics["answers"][at]
            if before != after:
                gained += after == label
                lost += before == label
                answers = {reference: before, best: after}
                changed.append(_example(source, shown, at, answers))
        random.Random(0).shuffle(changed)  # the first ones were met before much was adapted
        differing[source.cell.shift] += changed
    total, drawn = sum(map(len, differing.values())), "drawn at even distances from the streams"
    if not total:
        same = f"{best} gives each of the {seen:,} images {drawn} the class that {reference} gives."
        return same if seen else "", []
    remark = (
        f"Of {seen:,} images {drawn}, {best} gives {total:,} another class than {reference}: "
        f"{gained:,} of them become right, {lost:,} become wrong, "
        f"{total - gained - lost:,} are wrong both times. Shown: some of them, whichever way they "
        "went, from the highest severity where there are several."
    )
    in_turn = chain.from_iterable(zip_longest(*differing.values()))
    return remark, [example for example in in_turn if example is not None][:_MOST]


def _shown(source: Row, adapted: Row, exhibits: Mapping[str, Exhibits]) -> Exhibits | None:
    """The images that both rows have answers to, if they were kept."""
    found = exhibits.get(source.metrics.get("exhibits", ""))
    if found is None or source.metrics["exhibits"] != adapted.metrics.get("exhibits"):
        return None
    answers = [row.metrics.get("answers", ()) for row in (source, adapted)]
    return found if all(len(each) == len(found.names) for each in answers) else None


def _example(row: Row, shown: Exhibits, at: int, answers: Mapping[str, int]) -> Example:
    cell = row.cell
    stream = f"{cell.shift} {cell.severity}" if cell.severity else cell.shift
    return Example(
        f"{stream}, {shown.names[at]}",
        shown.images[at],
        {who: shown.class_name(number) for who, number in answers.items()},
        shown.class_name(shown.labels[at]),
    )


def _picture(example: Example) -> Markup:
    """A picture that is no picture, or one on the network, is not shown."""
    if not _PICTURE.fullmatch(example.image):
        return tag("p", "no picture", class_="note")
    return tag("img", src=example.image, alt=f"Image {example.name}")


def _caption(example: Example) -> Markup:
    def line(who: str, what: str) -> Markup:
        right = who != "label" and what == example.label
        return tag("span", f"{who}: ", tag("b", what), " (right)" if right else None)

    lines = {**example.answers, **({"label": example.label} if example.label else {})}
    name = tag("span", example.name, class_="file")
    return tag("figcaption", name, *(line(*each) for each in lines.items()))
