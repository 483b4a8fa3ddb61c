"""A figure as data: numbers that can be tested, independent of how they are drawn.

`driftnorm.views.render.matplotlib` draws it into files, `driftnorm.views.render.svg` into the page
of a report; `driftnorm.views.palette` gives each method its colour in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """A named range of the horizontal axis."""

    begin: float
    end: float
    text: str


@dataclass(frozen=True)
class Series:
    """The numbers of one method.

    Attributes:
        method: Its word, which decides the colour.
        x: Horizontal positions of the points.
        y: Their values; NaN where nothing was measured.
        remark: Shown after the method in the legend.
        spread: Margin of error of each point; empty if unknown.
        counts: Samples per point, if they differ.
        panel: Title of the panel that it belongs to, if there are several.
        quiet: Drawn in grey and without a name, for comparison.
        band: A share of a whole: bands are stacked on each other, and other series drawn as steps
            over them. Quiet ones have colours too, but no names.
    """

    method: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    remark: str = ""
    spread: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    panel: str = ""
    quiet: bool = False
    band: bool = False

    def __post_init__(self) -> None:
        for numbers in (self.y, self.spread or self.x, self.counts or self.x):
            if len(numbers) != len(self.x):
                raise ValueError(f"every list of {self.method!r} must have the same length.")


@dataclass(frozen=True)
class Figure:
    """One pair of axes, or several panels that share them.

    Attributes:
        title: What the figure shows.
        x_label: Label of the horizontal axis.
        y_label: Label of the vertical axis.
        series: One per method and panel.
        note: The protocol, and whatever else must be shown with the numbers.
        ticks: Positions and texts of the ticks on the horizontal axis; empty for automatic ones.
        bars: Draw groups of bars, one per tick, instead of lines.
        log_x: Whether the horizontal axis is logarithmic.
        spans: Named ranges of the horizontal axis, in order; empty for none.
        unit_square: Both axes from 0 to 1, with the diagonal on which a calibrated method lies.
        reference: The method whose bars the others are compared with, if any.
        decimals: Of the numbers written beside the marks.
        others: What quiet series are called together.
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
    others: str = "other methods"

    @property
    def panels(self) -> dict[str, list[Series]]:
        """The series of each panel, in the order in which panels come."""
        found: dict[str, list[Series]] = {}
        for each in self.series:
            found.setdefault(each.panel, []).append(each)
        return found


@dataclass(frozen=True)
class HeatMap:
    """Rows of cells, darker for larger numbers; NaN leaves a cell out.

    Attributes:
        title: What it shows.
        columns: Their names.
        rows: A name, such as a layer's, and a number for each column.
        by_column: Each column has its own scale, and its numbers beside the cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    by_column: bool = False
