"""What a figure shows, as data: numbers that can be tested, and nothing of how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Figure", "Series", "Span"]


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
        y: How high.
        remark: What the legend says beside the method.
    """

    method: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    remark: str = ""

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"`x` and `y` of {self.method!r} must be equally many.")


@dataclass(frozen=True)
class Figure:
    """One pair of axes.

    Attributes:
        title: What the figure shows.
        x_label: Of the horizontal axis.
        y_label: Of the vertical axis.
        series: One a method.
        note: The protocol, and whatever else must stand beside the numbers.
        ticks: Where the horizontal axis has its marks, and their texts; empty to leave it free.
        bars: Draw bars in groups, one a mark, rather than lines.
        log_x: Whether the horizontal axis is logarithmic.
        spans: What the stretches of the horizontal axis are, in their order; empty for none.
        unit_square: Both axes from 0 to 1, with the diagonal on which a calibrated method lies.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str
    ticks: tuple[tuple[float, str], ...] = ()
    bars: bool = False
    log_x: bool = False
    unit_square: bool = False
    spans: tuple[Span, ...] = ()
