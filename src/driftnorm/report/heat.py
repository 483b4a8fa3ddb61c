"""Heat maps of layers, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from driftnorm.report.charts import figure, shorten
from driftnorm.report.markup import Markup, joined, tag

__all__ = ["heat_grid", "heat_map"]


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
    for line, c, end in _column_names(columns, cell):
        x = left + (c + 1) * cell if end else left + c * cell
        place = {"data_end": True} if end else {}
        marks.append(tag("text", columns[c], x=x, y=bottom + 14 * line, class_="tick", **place))
    words = tag("text", f"strongest: {highest:.3g}", x=left, y=14, class_="tick")
    return figure(title, width, bottom + 34, joined(words, marks))


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


def _column_names(columns: Sequence[str], cell: float) -> list[tuple[int, int, bool]]:
    """Line, column, and whether the text ends at the column, of the names that there is room for.

    Few columns are all named, on two lines in turn if need be; of many, the first, the last and
    some between them.
    """
    room = math.ceil(6.6 * (max(map(len, columns), default=0) + 1) / cell)
    last = len(columns) - 1
    if room <= 2 and last < 8:
        return [(1 + c % room, c, False) for c in range(last + 1)]
    named = [(1, c, False) for c in range(0, last, room) if c + room < last]
    return [*named, (1, last, True)]
