"""Drawing figures into files with matplotlib, which is imported only here and only when called."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from driftnorm.views.figure import Figure
from driftnorm.views.palette import colours_of

__all__ = ["FORMS", "draw"]

# Of each form, the metadata that would make two files of one figure differ.
FORMS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
# Text stays text, so that a figure can be searched and read aloud.
_STYLE: dict[Any, Any] = {"svg.hashsalt": "driftnorm", "svg.fonttype": "none", "font.size": 9}
_MARKERS = "osD^vP*X<>hp"
_MOST_NAMED_SPANS = 24  # more would be written over each other
_GROUP_WIDTH = 0.85  # of the distance between two groups of bars
_LETTERS_AN_INCH = 17  # of the note


def draw(figure: Figure, path: str | Path) -> None:
    """Draw a figure into a file; the form follows from the ending, .png, .svg or .pdf."""
    path = Path(path)
    if path.suffix not in FORMS:
        raise ValueError(f"`path` must end in {', '.join(FORMS)}, got {path}.")
    colours = colours_of([series.method for series in figure.series])
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "driftnorm[plots]"') from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_STYLE):
        width = max(7.0, 0.75 * len(figure.ticks)) if figure.bars else 7.0
        canvas, axes = pyplot.subplots(figsize=(width, 4.6), layout="constrained")
        try:
            (_bars if figure.bars else _lines)(axes, figure, colours)
            _dress(axes, figure)
            canvas.legend(loc="outside right upper", frameon=False)
            note = textwrap.fill(figure.note, int(width * _LETTERS_AN_INCH))
            canvas.supxlabel(note, x=0.01, ha="left", fontsize=7, color="#444444")
            path.parent.mkdir(parents=True, exist_ok=True)
            canvas.savefig(path, dpi=150, metadata=FORMS[path.suffix])
        finally:
            pyplot.close(canvas)


def _lines(axes: Any, figure: Figure, colours: dict[str, str]) -> None:
    for series, marker in zip(figure.series, _MARKERS, strict=False):
        axes.plot(
            series.x,
            series.y,
            color=colours[series.method],
            marker=marker,  # a second sign beside the colour
            markersize=4,
            markevery=max(1, len(series.x) // 12),
            label=_label(series.method, series.remark),
        )


def _bars(axes: Any, figure: Figure, colours: dict[str, str]) -> None:
    width = _GROUP_WIDTH / len(figure.series)
    for index, series in enumerate(figure.series):
        places = np.array(series.x) + width * (index - (len(figure.series) - 1) / 2)
        label = _label(series.method, series.remark)
        axes.bar(places, series.y, width, color=colours[series.method], label=label)


def _label(method: str, remark: str) -> str:
    return f"{method} ({remark})" if remark else method


def _dress(axes: Any, figure: Figure) -> None:
    """Title, labels, marks and limits."""
    axes.set_title(figure.title, loc="left")
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(axis="y" if figure.bars else "both", alpha=0.3)
    axes.set_axisbelow(True)
    if figure.log_x:
        axes.set_xscale("log")
        axes.minorticks_off()
    if figure.ticks:
        slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if figure.bars else {}
        axes.set_xticks(*zip(*figure.ticks, strict=True), **slanted)
    for place, span in enumerate(figure.spans):
        if place % 2:
            axes.axvspan(span.begin, span.end, color="#000000", alpha=0.06, linewidth=0)
        if len(figure.spans) <= _MOST_NAMED_SPANS:
            axes.text(
                (span.begin + span.end) / 2,
                0.01,
                span.text.replace("_", " "),
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=7,
                color="#444444",
            )
    if figure.unit_square:
        axes.plot([0, 1], [0, 1], color="#999999", linestyle="--", linewidth=1, zorder=1)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    else:
        axes.set_ylim(bottom=0)
