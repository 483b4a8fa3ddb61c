"""Heat maps of layers, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from driftnorm.views.report.charts import figure, shorten
from driftnorm.views.report.markup import Markup, joined, tag

__all__ = ["heat_grid", "heat_map"]

_LETTER, _LINE = 6.6, 11  # about as wide, and as high, as small text is
_UPRIGHT = 24  # letters


def heat_map(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]
) -> Markup:
    """A line of cells a row, darker the larger the value, with the number beside each cell."""
    width, left, step, top = 380, 150, 17, 22
    cell = (width - left) / len(columns)
    labels = _layer_labels([name for name, _ in rows])
    finite = [[v for _, own in rows if math.isfinite(v := own[c])] for c in range(len(columns))]
    heads = [tag("text", name, x=left + c * cell, y=14) for c, name in enumerate(columns)]
    marks = []
    for index, (name, values) in enumerate(rows):
        y = top + index * step
        marks.append(tag("text", labels[index], x=left - 6, y=y + 12, data_end=True))
        for c, value in enumerate(values):
            share = value / (max(finite[c], default=0) or 1) if math.isfinite(value) else 0.0
            x, tip = left + c * cell, f"{name}: {columns[c]} {value:.3g}"
            marks.append(tag("rect", tag("title", tip), x=x, y=y + 1, width=cell - 48,
                             height=step - 2, class_="mark heat", role="img",
                             fill_opacity=0.06 + 0.94 * max(share, 0.0)))  # fmt: skip
            marks.append(tag("text", f"{value:.2f}", x=x + cell - 44, y=y + 12))
    return figure(title, width, top + step * len(rows) + 4, joined(heads, marks))


def heat_grid(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]
) -> Markup:
    """Many columns of cells on one scale, stronger the larger the value; numbers on hover."""
    width, left, step, top = 380, 150, 17, 22
    cell = (width - left) / max(len(columns), 1)
    known = [value for _, values in rows for value in values if math.isfinite(value)]
    highest = max(known, default=0) or 1
    labels = _layer_labels([name for name, _ in rows])
    marks = []
    for index, (name, values) in enumerate(rows):
        y = top + index * step
        marks.append(tag("text", labels[index], x=left - 6, y=y + 12, data_end=True))
        for c, value in enumerate(values):
            if not math.isfinite(value):
                continue
            tip = f"{name}, {columns[c]}: {value:.3g}"
            marks.append(tag("rect", tag("title", tip), x=left + c * cell, y=y + 1, width=cell,
                             height=step - 2, class_="mark heat", role="img",
                             fill_opacity=0.06 + 0.94 * max(value / highest, 0.0)))  # fmt: skip
    bottom = top + step * len(rows)
    names, room = _column_names(columns, left, cell, bottom)
    words = tag("text", f"strongest: {highest:.3g}", x=left, y=14, class_="tick")
    return figure(title, width, bottom + room, joined(words, marks, names))


def _layer_labels(names: Sequence[str]) -> list[str]:
    """Dotted names without the parts that all of them begin with, short enough to stand there.

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

    Few are written beside each other, on two lines in turn if need be; many stand upright, and of
    more than there is room for, every second or third one does.
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
