"""Drawing figures into files with matplotlib, which is imported only here and only when called."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftnorm.views.figure import Figure, Series
from driftnorm.views.palette import COLOURS, QUIET, colours_of

# For each format, the metadata that would make two files of one figure differ.
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


def open_pyplot() -> Any:
    """Pyplot for files; one line where matplotlib is missing or its installation is broken."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except Exception as error:  # a broken installation raises anything
        if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
            raise ImportError('plots need matplotlib: pip install "driftnorm[plots]"') from error
        raise ImportError(
            f"plots need matplotlib, and importing it fails ({type(error).__name__}: {error}): "
            "pip install --force-reinstall matplotlib"
        ) from error
    return pyplot


def draw(figure: Figure, path: str | Path) -> None:
    """Draw a figure into a file; the extension, .png, .svg or .pdf, decides the format."""
    path = Path(path)
    if path.suffix not in FORMS:
        raise ValueError(f"`path` must end in {', '.join(FORMS)}, got {path}.")
    named = [series.method for series in figure.series if not series.quiet]
    colours = colours_of(named)
    pyplot = open_pyplot()
    panels = figure.panels
    several = len(panels) > 1
    with pyplot.rc_context(_STYLE):
        # Panels of lines go side by side, wide panels of bars below each other.
        width = max(7.0, 0.75 * len(figure.ticks)) if figure.bars else 7.0
        shape = (len(panels), 1) if figure.bars else (1, len(panels))
        if several:
            size = (width, 2.4 * len(panels) + 1.2) if figure.bars else (2.2 * len(panels) + 1, 4.2)
        else:
            size = (width, 4.6)
        canvas, grid = pyplot.subplots(
            *shape, figsize=size, layout="constrained", sharex=True, sharey=True, squeeze=False
        )
        try:
            for axes, (title, series) in zip(grid.flat, panels.items(), strict=True):
                if figure.bars:
                    _bars(axes, series, colours)
                elif any(each.band for each in series):
                    _bands(axes, series, colours, figure.others)
                else:
                    _lines(axes, series, colours, figure.others)
                _dress(axes, figure)
                axes.set_title(title if several else figure.title, loc="left")
            for axes in grid[:-1, :].flat:
                axes.set_xlabel("")
            for axes in grid[:, 1:].flat:
                axes.set_ylabel("")
            if several:
                canvas.suptitle(figure.title, x=0.01, ha="left")
            _legend(canvas, grid.flat, figure.others)
            note = textwrap.fill(figure.note, int(size[0] * _LETTERS_AN_INCH))
            canvas.supxlabel(note, x=0.01, ha="left", fontsize=7, color="#444444")
            path.parent.mkdir(parents=True, exist_ok=True)
            canvas.savefig(path, dpi=150, metadata=FORMS[path.suffix])
        finally:
            pyplot.close(canvas)


def _legend(canvas: Any, every: Any, others: str) -> None:
    """One entry per name, even if it is in several panels."""
    known: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    if others in known:
        known[others] = known.pop(others)  # last
    canvas.legend(known.values(), known.keys(), loc="outside right upper", frameon=False)


def _lines(axes: Any, several: list[Series], colours: dict[str, str], others: str) -> None:
    markers = dict(zip(colours, _MARKERS, strict=False))
    for series in several:
        quiet = series.quiet
        axes.plot(
            series.x,
            series.y,
            color=QUIET if quiet else colours[series.method],
            linewidth=1 if quiet else None,
            zorder=1.5 if quiet else 2,
            marker=None if quiet else markers[series.method],  # a second sign beside the colour
            markersize=4,
            markevery=max(1, len(series.x) // 12),
            label=others if quiet else _label(series),
        )
        if series.spread:
            low, high = np.array(series.y) + np.array([[-1.0], [1.0]]) * series.spread
            axes.fill_between(series.x, low, high, color=colours[series.method], alpha=0.2)


def _bars(axes: Any, several: list[Series], colours: dict[str, str]) -> None:
    width = _GROUP_WIDTH / len(several)
    for index, series in enumerate(several):
        places = np.array(series.x) + width * (index - (len(several) - 1) / 2)
        colour, spread = colours[series.method], series.spread or None
        axes.bar(places, series.y, width, color=colour, label=_label(series), yerr=spread)


def _bands(axes: Any, several: list[Series], colours: dict[str, str], others: str) -> None:
    """Shares stacked on each other, each as wide as its window, and lines of steps over them."""
    every = list(colours_of(map(str, range(len(COLOURS)))).values())
    below = np.zeros(len(several[0].x))
    for place, series in enumerate(several):
        if not series.band:
            axes.plot(*_steps(series), color="#000000", zorder=3, label=_label(series))
            continue
        left, width = _windows(series.x)
        colour = every[place % len(every)] if series.quiet else colours[series.method]
        label = (others if place == 0 else None) if series.quiet else _label(series)
        pale = {"color": colour, "alpha": 0.55}  # for the lines over them
        axes.bar(left, series.y, width, bottom=below, align="edge", label=label, **pale)
        below += series.y


def _windows(middles: Sequence[float]) -> tuple[list[float], list[float]]:
    """Where windows that follow each other from 0 on begin, and how wide they are."""
    begins, widths = [], []
    end = 0.0
    for middle in middles:
        begins.append(end)
        widths.append(2 * (middle - end))
        end += widths[-1]
    return begins, widths


def _steps(series: Series) -> tuple[list[float], list[float]]:
    begins, widths = _windows(series.x)
    corners = [(x, y) for b, w, y in zip(begins, widths, series.y, strict=True)
               for x, y in ((b, y), (b + w, y))]  # fmt: skip
    return [x for x, _ in corners], [y for _, y in corners]


def _label(series: Series) -> str:
    return f"{series.method} ({series.remark})" if series.remark else series.method


def _dress(axes: Any, figure: Figure) -> None:
    """Labels, marks and limits."""
    banded = any(series.band for series in figure.series)  # which shades would be hidden by
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
        if banded:
            axes.axvline(span.end, color="#000000", linewidth=0.5)
        elif place % 2:
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
                zorder=3,  # readable where lines cross it
                bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5},
            )
    if figure.spans:  # all of them, however few points there are
        axes.set_xlim(figure.spans[0].begin, figure.spans[-1].end)
    if figure.unit_square:
        axes.plot([0, 1], [0, 1], color="#999999", linestyle="--", linewidth=1, zorder=1)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    else:
        axes.set_ylim(bottom=0, top=103 if banded else None)
