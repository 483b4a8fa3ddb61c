"""What a figure shows, as data: numbers that can be tested, and nothing of how they are drawn.

`driftnorm.views.render.matplotlib` draws it into files, `driftnorm.views.render.svg` into the page
of a report; `driftnorm.views.palette` gives each method its colour in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Figure", "HeatMap", "Series", "Span"]


class Span(NamedTuple):
    """A stretch of the horizontal axis with a name."""

    begin: float
    end: float
    text: str


@dataclass(frozen=True)
class Series:
    """The numbers of one method.

    Attributes:
        method: Its word, which decides the colour.
        x: Where the points stand.
        y: How high; NaN where nothing was measured.
        remark: What the legend says beside the method.
        spread: How far each point may be off, either way; empty where that is not known.
        counts: How many samples each point stands for, where they differ.
        panel: Of several pairs of axes on one scale, the title of the one that it belongs to.
        quiet: In grey and without a name, for comparison with those that the figure is about.
    """

    method: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    remark: str = ""
    spread: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    panel: str = ""
    quiet: bool = False

    def __post_init__(self) -> None:
        for numbers in (self.y, self.spread or self.x, self.counts or self.x):
            if len(numbers) != len(self.x):
                raise ValueError(f"the numbers of {self.method!r} must be equally many.")


@dataclass(frozen=True)
class Figure:
    """One pair of axes, or several panels that share them.

    Attributes:
        title: What the figure shows.
        x_label: Of the horizontal axis.
        y_label: Of the vertical axis.
        series: One per method and panel.
        note: The protocol, and whatever else must stand beside the numbers.
        ticks: Where the horizontal axis has its marks, and their texts; empty to leave it free.
        bars: Draw bars in groups, one per mark, rather than lines.
        log_x: Whether the horizontal axis is logarithmic.
        spans: What the stretches of the horizontal axis are, in their order; empty for none.
        unit_square: Both axes from 0 to 1, with the diagonal on which a calibrated method lies.
        reference: The method whose bars the others are compared with, if any.
        decimals: Of the numbers that are written beside the marks.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    bars: bool = False
    log_x: bool = False
    unit_square: bool = False
    reference: str = ""
    decimals: int = 1
    spans: tuple[Span, ...] = ()

    @property
    def panels(self) -> dict[str, list[Series]]:
        """The series of each panel, in the order in which panels come."""
        found: dict[str, list[Series]] = {}
        for each in self.series:
            found.setdefault(each.panel, []).append(each)
        return found


@dataclass(frozen=True)
class HeatMap:
    """Lines of cells, stronger the larger their number; NaN leaves a cell out.

    Attributes:
        title: What it shows.
        columns: Their names.
        rows: A name, such as a layer's, and a number for each column.
        by_column: Each column has a scale of its own, and its numbers beside the cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    by_column: bool = False
