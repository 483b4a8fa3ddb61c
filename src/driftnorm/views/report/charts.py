"""Charts as inline SVG: small pure functions from numbers to markup, no library.

Every mark carries its value as a ``title``, which browsers show on hover and read aloud; the page's
script turns it into a label that the arrow keys reach as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from driftnorm.views.palette import slot_classes
from driftnorm.views.report.markup import Markup, joined, tag

__all__ = [
    "Bar",
    "Series",
    "bar_chart",
    "figure",
    "legend",
    "line_chart",
    "nice_ticks",
    "reliability_chart",
    "shorten",
]


class Bar(NamedTuple):
    """A bar; without a value, only the reason stands there."""

    name: str
    slot: int
    value: float | None
    tip: str


class Series(NamedTuple):
    """A line through points (x, y)."""

    name: str
    slot: int
    points: Sequence[tuple[float, float]]


class Frame(NamedTuple):
    """Where numbers fall in a picture."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """A point's position; y grows upwards."""
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that cover a range, about as many as wanted.

    >>> nice_ticks(0, 87)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = (high - low) or abs(high) or 1.0
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{step * i:.12g}") for i in range(first, max(last, first + 1) + 1)]


def shorten(text: str, limit: int) -> str:
    """Text of at most so many characters, its middle left out."""
    if len(text) <= limit:
        return text
    kept = limit - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def legend(slots: Mapping[str, int]) -> Markup:
    """A button a method, which hides and shows its marks in the section."""
    buttons = [
        tag(
            "button",
            tag("span", class_=f"swatch {slot_classes(slot)}", aria_hidden="true"),
            name,
            type="button",
            data_slot=slot,
            aria_pressed="true",
        )
        for name, slot in slots.items()
    ]
    return tag("div", *buttons, class_="legend", role="group", aria_label="Methods to show")


def bar_chart(
    title: str, bars: Sequence[Bar], top: float, reference: float | None, digits: int = 1
) -> Markup:
    """Horizontal bars from 0 to ``top``, with a line at the reference's value."""
    width, left, right, step = 340, 104, 296, 19
    height = step * len(bars) + 6
    scale = (right - left) / (top or 1)
    marks, words = [], []
    for index, (name, slot, value, tip) in enumerate(bars):
        y, length = 3 + index * step, (value or 0) * scale
        size = {
            "height": step - 5,
            "width": max(length, 2.0),
            "rx": 2,
        }  # what is there can be pointed at
        if value is not None:
            marks.append(_mark("rect", slot, tip, x=left, y=y + 2, **size))
        label = "no row" if value is None else f"{value:,.{digits}f}"
        name = shorten(name, 15)
        words.append(tag("text", name, x=left - 6, y=y + 13, data_end=True))
        words.append(
            tag("text", label, x=left + 5 + length, y=y + 13, class_="halo", data_slot=slot)
        )
    lines = [tag("line", x1=left, x2=left, y1=0, y2=height, class_="axis")]
    if reference is not None:
        x = left + reference * scale
        lines.append(tag("line", x1=x, x2=x, y1=0, y2=height, class_="reference"))
    return figure(title, width, height, joined(marks, lines, words))


def line_chart(
    title: str,
    series: Sequence[Series],
    axes: tuple[str, str],
    names: Mapping[float, str] | None = None,
    digits: int = 1,
) -> Markup:
    """Lines with markers; ``names`` are the ticks of x where round numbers would not do."""
    series = [s._replace(points=[p for p in s.points if math.isfinite(p[1])]) for s in series]
    points = [point for one in series for point in one.points]
    if not points:
        return Markup("")
    low, high = min(y for _, y in points), max(y for _, y in points)
    ticks = nice_ticks(0 if 0 <= low < high / 2 else low, high)
    xs = [x for x, _ in points]
    whole = all(x == int(x) for x in xs)  # batches have no fractions
    ticks_of_x = (t for t in nice_ticks(min(xs), max(xs)) if t <= max(xs))
    at = dict(names or {t: f"{t:g}" for t in ticks_of_x if not whole or t == int(t)})
    ends = (min(min(xs), *at), max(max(xs), *at)) if at else (min(xs), max(xs))
    left = 25 + 7 * max(3, *(len(f"{tick:g}") for tick in ticks))
    frame = Frame(left, 12, 368, 214, ends, (ticks[0], ticks[-1]))
    marks = [_line(frame, one, axes, at if names else {}, digits) for one in series]
    return figure(title, 380, 256, joined(_grid(frame, at, ticks, axes), marks))


def reliability_chart(title: str, slot: int, bins: Sequence[tuple[float, float, float]]) -> Markup:
    """Accuracy against confidence; a dot's area is its share of the samples."""
    frame = Frame(46, 8, 188, 150, (0, 1), (0, 1))
    ticks = {0.0: "0", 0.5: "50", 1.0: "100"}
    begin, end = frame.place(0, 0), frame.place(1, 1)
    grid = _grid(frame, ticks, [0, 0.5, 1], ("confidence, %", "accuracy, %"), percent=True)
    exact = tag("line", x1=begin[0], y1=begin[1], x2=end[0], y2=end[1], class_="reference")
    total = sum(count for count, _, _ in bins) or 1
    places = [frame.place(trust, hits) for _, trust, hits in bins]
    path = tag("polyline", points=_path(places), class_=f"line {slot_classes(slot)}")
    dots = [
        _mark(
            "circle",
            slot,
            f"{title}: confidence {100 * trust:.1f} %, accuracy {100 * hits:.1f} %, "
            f"{count:,.0f} samples",
            cx=x,
            cy=y,
            r=2.5 + 7 * math.sqrt(count / total),
        )
        for (count, trust, hits), (x, y) in zip(bins, places, strict=True)
    ]
    return figure(title, 196, 186, joined(grid, exact, path, dots))


def figure(title: str, width: int, height: int, content: Markup) -> Markup:
    """A picture of that size under its title, which the arrow keys walk through."""
    picture = tag(
        "svg",
        content,
        viewBox=f"0 0 {width} {height}",
        role="group",
        aria_roledescription="chart",
        aria_label=f"{title}. Arrow keys read the values.",
        tabindex=0,
    )
    return tag("figure", tag("figcaption", title), picture, class_="chart")


def _mark(shape: str, slot: int, tip: str, **place: float) -> Markup:
    return tag(
        shape,
        tag("title", tip),
        class_=f"mark {slot_classes(slot)}",
        data_slot=slot,
        role="img",
        **place,
    )


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _line(
    frame: Frame, one: Series, axes: tuple[str, str], names: Mapping[float, str], digits: int
) -> Markup:
    places = [frame.place(x, y) for x, y in one.points]
    classes = f"line {slot_classes(one.slot)}"
    path = tag("polyline", points=_path(places), class_=classes, data_slot=one.slot)
    dots = [
        _mark(
            "circle",
            one.slot,
            f"{one.name}: {axes[1]} {y:.{digits}f} at {axes[0]} {names.get(x, f'{x:g}')}",
            cx=at[0],
            cy=at[1],
            r=2.6,
        )
        for (x, y), at in zip(one.points, places, strict=True)
    ]
    return joined(path, dots)


def _grid(
    frame: Frame,
    x_ticks: Mapping[float, str],
    y_ticks: Sequence[float],
    axes: tuple[str, str],
    percent: bool = False,
) -> Markup:
    parts = []
    for value in y_ticks:
        _, y = frame.place(frame.x[0], value)
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="grid"))
        text = f"{100 * value:g}" if percent else f"{value:g}"
        parts.append(tag("text", text, x=frame.left - 6, y=y + 4, class_="tick", data_end=True))
    for value, name in x_ticks.items():
        x, _ = frame.place(value, frame.y[0])
        parts.append(tag("text", name, x=x, y=frame.bottom + 16, class_="tick", data_middle=True))
    middle = (frame.left + frame.right) / 2
    parts.append(
        tag("text", axes[0], x=middle, y=frame.bottom + 33, class_="tick", data_middle=True)
    )
    turn = f"rotate(-90 11 {(frame.top + frame.bottom) / 2:.1f})"
    parts.append(
        tag("text", axes[1], x=11, y=(frame.top + frame.bottom) / 2, class_="tick",
            data_middle=True, transform=turn)
    )  # fmt: skip
    return joined(parts)
