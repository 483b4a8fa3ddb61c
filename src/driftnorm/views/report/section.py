"""A part of the page as data; `assets/report.html` writes it down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from driftnorm.views.figure import Figure, Series
from driftnorm.views.render.svg import charts
from driftnorm.views.table import Table

_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_MOST_POINTS = 60  # longer curves are averaged in blocks


class Block(NamedTuple):
    """Charts side by side under a heading; left out if there are none.

    Attributes:
        heading: What they show.
        note: How to read them.
        charts: Each a drawing with its title.
        small: Many fit into a line.
    """

    heading: str
    note: str
    charts: Sequence[Markup]
    small: bool = False


class Example(NamedTuple):
    """An image, both predictions, and the true class if known."""

    name: str
    image: str
    answers: Mapping[str, str]
    label: str = ""

    @property
    def is_embedded(self) -> bool:
        """Only such images are shown: no other data, nothing from the internet."""
        return _PICTURE.fullmatch(self.image) is not None


@dataclass(frozen=True)
class Section:
    """Everything about one comparison or one run, in the order of the page.

    Attributes:
        heading: Its title.
        verdict: What it shows in one sentence; empty if the page's header has it.
        alert: Title of the warnings, if they have one.
        warnings: What to know before reading on.
        legend: Slot of each method that can be hidden.
        blocks: Charts.
        tables: The numbers.
        words: A remark below them.
        remark: What the examples are; without it, there are none.
        examples: Images whose predictions differ.
        details_heading: What the details are.
        details: For those who want to know all, by name.
    """

    heading: str
    verdict: str
    legend: Mapping[str, int]
    blocks: Sequence[Block | None]
    tables: Sequence[Table]
    remark: str
    examples: Sequence[Example]
    details_heading: str
    details: Mapping[str, Sequence[str]]
    warnings: Sequence[str] = ()
    alert: str = ""
    words: str = ""


def mean_along(streams: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The mean over streams at each batch, in blocks of batches where there are many.

    >>> mean_along([[0.0, 1.0], [1.0, 1.0, 0.5]])
    [(1.0, 0.5), (2.0, 1.0), (3.0, 0.5)]
    """
    longest = max(map(len, streams), default=0)
    block = -(-longest // _MOST_POINTS) or 1
    points = []
    for begin in range(0, longest, block):
        values = [value for stream in streams for value in stream[begin : begin + block]]
        end = min(begin + block, longest)
        points.append(((begin + 1 + end) / 2, float(np.mean(values))))
    return points


def reliability_block(
    bins: Mapping[str, Sequence[tuple[float, float, float]]], slots: Mapping[str, int]
) -> Block:
    """A small chart per method: accuracy against confidence."""
    series = tuple(
        Series(method, tuple(trust), tuple(right), counts=tuple(count))
        for method, own in bins.items()
        if own
        for count, trust, right in (zip(*own, strict=True),)
    )
    figure = Figure("Reliability", "confidence", "accuracy", series, unit_square=True)
    note = "On the dashed line, confidence equals accuracy; below it, the network is overconfident."
    return Block(figure.title, note, charts(figure, slots), small=True)
