"""The demo's rows as a table and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from driftnorm.bench.protocol import together
from driftnorm.bench.rows import Row
from driftnorm.views.compare import paired_change, stream_of
from driftnorm.views.palette import colours_of
from driftnorm.views.table import Column, Table

__all__ = ["demo_plot", "demo_table"]

_HIGHLIGHT = colours_of(("source", "bn", "tent", "gprebn", "gprebn+rt3a"))


def _names(rows: Sequence[Row], what: str) -> list[str]:
    return list(dict.fromkeys(getattr(row.cell, what) for row in rows))


def demo_table(rows: Sequence[Row]) -> Table:
    """Accuracy of each method on clean and shifted streams, and its gain over the source."""
    sources = {stream_of(row): row for row in rows if row.cell.method == "source"}
    shifts = _names(rows, "shift")
    lines: list[tuple[str | float | None, ...]] = []
    for method in _names(rows, "method"):
        own = [row for row in rows if row.cell.method == method]
        means = [
            100 - 100 * float(np.mean([r.metrics["error"] for r in own if r.cell.shift == shift]))
            for shift in shifts
        ]
        shifted = [row for row in own if row.cell.shift != "clean"]
        gain = paired_change([(row, sources[stream_of(row)]) for row in shifted])
        shown = f"{gain.value:+.1f} ±{(gain.high - gain.low) / 2:.1f}"
        mean = float(
            np.mean([m for m, shift in zip(means, shifts, strict=True) if shift != "clean"])
        )
        lines.append((method, *means, mean, "-" if method == "source" else shown))
    columns = (
        Column("method"),
        *(Column(shift, best="highest") for shift in shifts),
        Column("mean", best="highest"),
        Column("gain"),
    )
    return Table(
        "Handwritten digits, shifted at test time: accuracy in %",
        columns,
        tuple(lines),
        _note(rows),
    )


def _note(rows: Sequence[Row]) -> str:
    seeds, streams = len(_names(rows, "seed")), len({(r.cell.shift, r.cell.severity) for r in rows})
    protocol = together(row.cell.protocol for row in rows).text()
    alarms = {
        method: sum(r.metrics["alarms"] > 0 for r in rows if r.cell.method == method)
        for method in _names(rows, "method")
    }
    alarmed = ", ".join(f"{method} on {count}" for method, count in alarms.items() if count)
    return (
        f"Protocol: {protocol}; every method at its defaults, nothing tuned; "
        f"{streams} streams (clean, and each shift at each severity), {seeds} seeds (split, "
        f"training, shift). Mean: over the shifted streams. Gain: over the source, paired, with "
        f"a 95 % bootstrap margin over images. The guard raised an alarm for: {alarmed or 'none'} "
        f"of {streams * seeds} streams."
    )


def demo_plot(rows: Sequence[Row], path: str | Path) -> None:
    """Accuracy against severity, one panel a shift."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "driftnorm[plots]"') from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    accuracy: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in rows:
        cell = row.cell
        accuracy[cell.method, cell.shift, cell.severity].append(100 - 100 * row.metrics["error"])
    shifts = [shift for shift in _names(rows, "shift") if shift != "clean"]
    figure, axes = pyplot.subplots(
        1, len(shifts), figsize=(2.6 * len(shifts), 3.4), sharey=True, layout="constrained"
    )
    for axis, shift in zip(axes, shifts, strict=True):
        levels = sorted({s for _, name, s in accuracy if name == shift})
        for method in _names(rows, "method"):
            values = [np.mean(accuracy[method, "clean", 0])]
            values += [np.mean(accuracy[method, shift, level]) for level in levels]
            known = method in _HIGHLIGHT
            axis.plot(
                [0, *levels],
                values,
                color=_HIGHLIGHT.get(method, "#cccccc"),
                linewidth=2 if known else 1,
                zorder=2 if known else 1,
                marker="o" if known else None,
                markersize=3,
                label=method if known else "_other",
            )
        axis.set_title(shift)
        axis.set_xlabel("severity (0: clean)")
        axis.set_xticks([0, *levels])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy (%)")
    axes[0].plot([], [], color="#cccccc", label="other methods")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
