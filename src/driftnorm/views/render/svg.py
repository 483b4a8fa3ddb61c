"""Drawing figures as inline SVG for a page: pure functions from numbers to markup, no library.

Every mark carries its value as a ``title``, which browsers show on hover and screen readers read;
the page's script turns it into a label that the arrow keys reach
too. A page has room for many small
charts: groups of bars become a chart per mark, reliability a chart per method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from driftnorm._internal.counts import counted
from driftnorm.views.figure import Figure, HeatMap, Series, Span
from driftnorm.views.palette import slot_classes
from driftnorm.views.render.markup import joined, tag

_LETTER, _LINE = 6.6, 11  # about as wide, and as high, as small text is
_UPRIGHT = 24  # letters


class Frame(NamedTuple):
    """Maps numbers to positions in a picture."""

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


def charts(figure: Figure, slots: Mapping[str, int]) -> list[Markup]:
    """The charts of a figure, each method in the colour of its slot; none without numbers."""
    if not any(math.isfinite(y) for series in figure.series for y in series.y):
        return []
    if figure.unit_square:
        return [_reliability(series, slots[series.method]) for series in figure.series]
    if figure.bars:
        return _bars(figure, slots)
    return [_lines(figure, title, own, slots) for title, own in figure.panels.items()]


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
    """Text of at most this many characters, shortened in the middle."""
    if len(text) <= limit:
        return text
    kept = limit - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


# ------------------------------------------------------------------ bars


def _bars(figure: Figure, slots: Mapping[str, int]) -> list[Markup]:
    """Horizontal bars on one scale: a chart per mark with a bar per method, or one of all marks."""
    values = [y for series in figure.series for y in series.y if math.isfinite(y)]
    top = nice_ticks(0, max(values) or 1)[-1]
    if len(figure.series) == 1:
        (series,) = figure.series
        marks = zip(figure.ticks, series.y, strict=True)
        bars = [(name, series.method, y) for (_, name), y in marks]
        return [_bar_chart(figure, figure.title, bars, top, slots)]
    drawn = []
    for place, (_, name) in enumerate(figure.ticks):
        bars = [(series.method, series.method, series.y[place]) for series in figure.series]
        drawn.append(_bar_chart(figure, name, bars, top, slots, f" on {name}"))
    return drawn


def _bar_chart(
    figure: Figure,
    title: str,
    bars: Sequence[tuple[str, str, float]],
    top: float,
    slots: Mapping[str, int],
    where: str = "",
) -> Markup:
    width, left, right, step = 340, 104, 296, 19
    height = step * len(bars) + 6
    scale, digits = (right - left) / top, figure.decimals
    marks, words = [], []
    for index, (name, method, value) in enumerate(bars):
        known = math.isfinite(value)
        y, length, slot = 3 + index * step, value * scale if known else 0.0, slots[method]
        if known:
            tip = f"{name}{where}: {value:,.{digits}f} {figure.y_label}"
            # What is there can be pointed at.
            size = {"height": step - 5, "width": max(length, 2.0), "rx": 2}
            marks.append(_mark("rect", slot, tip, x=left, y=y + 2, **size))
        label = f"{value:,.{digits}f}" if known else "no row"
        words.append(tag("text", shorten(name, 15), x=left - 6, y=y + 13, data_end=True))
        words.append(
            tag("text", label, x=left + 5 + length, y=y + 13, class_="halo", data_slot=slot)
        )
    lines = [tag("line", x1=left, x2=left, y1=0, y2=height, class_="axis")]
    for _, method, value in bars:
        if method == figure.reference and math.isfinite(value):
            x = left + value * scale
            lines.append(tag("line", x1=x, x2=x, y1=0, y2=height, class_="reference"))
    return _picture(title, width, height, joined(marks, lines, words))


# ------------------------------------------------------------------ lines


def _lines(
    figure: Figure, title: str, several: Sequence[Series], slots: Mapping[str, int]
) -> Markup:
    """Lines with markers; the figure's own ticks if it has any."""
    points = {
        series.method: [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y)]
        for series in several
    }
    every = [point for own in points.values() for point in own]
    if not every:
        return Markup("")
    low, high = min(y for _, y in every), max(y for _, y in every)
    ticks = nice_ticks(0 if 0 <= low < high / 2 else low, high)
    xs = [x for x, _ in every]
    whole = all(x == int(x) for x in xs)  # batches have no fractions
    free = (t for t in nice_ticks(min(xs), max(xs)) if t <= max(xs))
    names = dict(figure.ticks)
    at = names or {t: f"{t:g}" for t in free if not whole or t == int(t)}
    ends = (min(min(xs), *at), max(max(xs), *at)) if at else (min(xs), max(xs))
    if figure.spans:  # all of them, however few points there are
        ends = (figure.spans[0].begin, figure.spans[-1].end)
        at = {tick: name for tick, name in at.items() if ends[0] <= tick <= ends[1]}
    left = 25 + 7 * max(3, *(len(f"{tick:g}") for tick in ticks))
    frame = Frame(left, 12, 428, 214, ends, (ticks[0], ticks[-1]))
    marks = []
    for method, own in points.items():
        places, slot = [frame.place(x, y) for x, y in own], slots[method]
        classes = f"line {slot_classes(slot)}"
        marks.append(tag("polyline", points=_path(places), class_=classes, data_slot=slot))
        for (x, y), (cx, cy) in zip(own, places, strict=True):
            where = f"{figure.x_label} {names.get(x, f'{x:g}')}"
            tip = f"{method}: {figure.y_label} {y:.{figure.decimals}f} at {where}"
            marks.append(_mark("circle", slot, tip, cx=cx, cy=cy, r=2.6))
    grid = _grid(frame, at, ticks, (figure.x_label, figure.y_label))
    shades, names_of_spans = _spans(frame, figure.spans)
    return _picture(title or figure.title, 440, 256, joined(shades, grid, marks, names_of_spans))


def _spans(frame: Frame, spans: Sequence[Span]) -> tuple[list[Markup], list[Markup]]:
    """Every second span shaded, and their names upright where there is room for them."""
    shades, names = [], []
    for place, span in enumerate(spans):
        (left, top), (right, bottom) = (
            frame.place(span.begin, frame.y[1]),
            frame.place(span.end, frame.y[0]),
        )
        if place % 2:
            size = {"x": left, "y": top, "width": right - left, "height": bottom - top}
            shades.append(tag("rect", class_="span", **size))
        if right - left >= _LINE:
            x, y = (left + right) / 2 + 4, bottom - 4
            name = shorten(span.text.replace("_", " "), _UPRIGHT)
            turn = f"rotate(-90 {x:.1f} {y:.1f})"
            names.append(tag("text", name, x=x, y=y, class_="tick halo", transform=turn))
    return shades, names


def _reliability(series: Series, slot: int) -> Markup:
    """Accuracy against confidence; a dot's area is its share of the samples."""
    frame = Frame(46, 8, 188, 150, (0, 1), (0, 1))
    ticks = {0.0: "0", 0.5: "50", 1.0: "100"}
    begin, end = frame.place(0, 0), frame.place(1, 1)
    grid = _grid(frame, ticks, [0, 0.5, 1], ("confidence, %", "accuracy, %"), percent=True)
    exact = tag("line", x1=begin[0], y1=begin[1], x2=end[0], y2=end[1], class_="reference")
    total = sum(series.counts) or 1
    places = [frame.place(x, y) for x, y in zip(series.x, series.y, strict=True)]
    path = tag("polyline", points=_path(places), class_=f"line {slot_classes(slot)}")
    dots = [
        _mark(
            "circle",
            slot,
            f"{series.method}: confidence {100 * trust:.1f} %, accuracy {100 * hits:.1f} %, "
            f"{counted(round(count), 'sample')}",
            cx=x,
            cy=y,
            r=2.5 + 7 * math.sqrt(count / total),
        )
        for trust, hits, count, (x, y) in zip(
            series.x, series.y, series.counts, places, strict=True
        )
    ]
    return _picture(series.method, 196, 186, joined(grid, exact, path, dots))


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
    below = {"x": middle, "y": frame.bottom + 33}
    parts.append(tag("text", axes[0], **below, class_="tick", data_middle=True))
    height = (frame.top + frame.bottom) / 2
    turn = f"rotate(-90 11 {height:.1f})"
    parts.append(
        tag("text", axes[1], x=11, y=height, transform=turn, class_="tick", data_middle=True)
    )
    return joined(parts)


# ------------------------------------------------------------------ heat maps


def heat_chart(heat: HeatMap) -> Markup:
    """Rows of cells: with few columns, numbers beside them; with many, numbers on hover."""
    width, left, step, top = 380, 150, 17, 22
    columns = heat.columns
    cell = (width - left) / max(len(columns), 1)
    room = 48 if heat.by_column else 0  # for the number beside a cell
    finite = [
        [v for _, own in heat.rows if math.isfinite(v := own[c])] for c in range(len(columns))
    ]
    overall = max((value for own in finite for value in own), default=0) or 1
    highest = [max(own, default=0) or 1 if heat.by_column else overall for own in finite]
    labels = _layer_labels([name for name, _ in heat.rows])
    marks = []
    for index, (name, values) in enumerate(heat.rows):
        y = top + index * step
        marks.append(tag("text", labels[index], x=left - 6, y=y + 12, data_end=True))
        for c, value in enumerate(values):
            known, x = math.isfinite(value), left + c * cell
            if heat.by_column:
                marks.append(tag("text", f"{value:.2f}", x=x + cell - room + 4, y=y + 12))
            elif not known:
                continue
            joint = ": {} " if heat.by_column else ", {}: "
            tip = f"{name}{joint.format(columns[c])}{value:.3g}"
            strength = 0.06 + 0.94 * max(value / highest[c] if known else 0.0, 0.0)
            marks.append(tag("rect", tag("title", tip), x=x, y=y + 1, width=cell - room,
                             height=step - 2, class_="mark heat", role="img",
                             fill_opacity=strength))  # fmt: skip
    bottom = top + step * len(heat.rows)
    if heat.by_column:
        names = [tag("text", name, x=left + c * cell, y=14) for c, name in enumerate(columns)]
        return _picture(heat.title, width, bottom + 4, joined(names, marks))
    names, below = _column_names(columns, left, cell, bottom)
    words = tag("text", f"strongest: {overall:.3g}", x=left, y=14, class_="tick")
    return _picture(heat.title, width, bottom + below, joined(words, marks, names))


def _layer_labels(names: Sequence[str]) -> list[str]:
    """Dotted names without their common prefix, shortened to fit.

    >>> _layer_labels(["network.layer1.0.bn1", "network.bn1"])
    ['layer1.0.bn1', 'bn1']
    """
    parts = [name.split(".") for name in names]
    shared = 0
    while (
        len({tuple(each[: shared + 1]) for each in parts}) == 1
        and min(map(len, parts)) > shared + 1
    ):
        shared += 1
    return [shorten(".".join(each[shared:]), 22) for each in parts]


def _column_names(
    columns: Sequence[str], left: float, cell: float, bottom: float
) -> tuple[list[Markup], int]:
    """The names below their columns, and the room they take.

    Few are written side by side, alternating between two lines if needed; many are rotated, and if
    there is not enough room, only every second or third is shown.
    """
    longest = max(map(len, columns), default=0)
    lines = math.ceil(_LETTER * (longest + 1) / cell)
    if lines <= 2:
        places = [(left + c * cell, bottom + 14 * (1 + c % lines)) for c in range(len(columns))]
        texts = [
            tag("text", name, x=x, y=y, class_="tick")
            for name, (x, y) in zip(columns, places, strict=True)
        ]
        return texts, 34
    each = math.ceil(_LINE / cell)
    texts = []
    for c in range(0, len(columns), each):
        x, y = left + (c + 0.5) * cell + 4, bottom + 6
        turn = f"rotate(-90 {x:.1f} {y:.1f})"
        name = shorten(columns[c], _UPRIGHT)
        texts.append(tag("text", name, x=x, y=y, class_="tick", data_end=True, transform=turn))
    return texts, math.ceil(_LETTER * min(longest, _UPRIGHT)) + 14


# ------------------------------------------------------------------ shared


def _picture(title: str, width: int, height: int, content: Markup) -> Markup:
    """A picture of this size with a title; the arrow keys walk through its values."""
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
