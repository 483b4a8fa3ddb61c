"""The demo's rows as a table and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from driftnorm.bench.cell import CLEAN
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row
from driftnorm.views.compare import methods_of, paired_change, stream_of
from driftnorm.views.palette import colours_of
from driftnorm.views.table import Column, Table

__all__ = ["demo_plot", "demo_table"]

_HIGHLIGHT = colours_of(("source", "bn", "tent", "gprebn", "gprebn+rt3a"))


def _shifts(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.shift for row in rows))


def demo_table(rows: Sequence[Row]) -> Table:
    """Accuracy of each method on clean and shifted streams, and its gain over the source."""
    sources = {stream_of(row): row for row in rows if row.method == "source"}
    shifts = _shifts(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method in methods_of(rows):
        own = [row for row in rows if row.method == method]
        means = [
            100 - 100 * float(np.mean([r.metrics["error"] for r in own if r.shift == shift]))
            for shift in shifts
        ]
        shifted = [row for row in own if row.shift != CLEAN]
        gain = paired_change([(row, sources[stream_of(row)]) for row in shifted])
        shown = f"{gain.value:+.1f} ±{(gain.high - gain.low) / 2:.1f}"
        mean = float(np.mean([m for m, shift in zip(means, shifts, strict=True) if shift != CLEAN]))
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
    seeds, streams = (
        len({row.seed for row in rows}),
        len({row.cell.stream.label for row in rows}),
    )
    protocol = protocol_text(row.cell for row in rows)
    alarms = {
        method: sum(r.metrics["alarms"] > 0 for r in rows if r.method == method)
        for method in methods_of(rows)
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
        accuracy[cell.method.word, cell.stream.shift, cell.stream.severity].append(
            100 - 100 * row.metrics["error"]
        )
    shifts = [shift for shift in _shifts(rows) if shift != CLEAN]
    figure, axes = pyplot.subplots(
        1, len(shifts), figsize=(2.6 * len(shifts), 3.4), sharey=True, layout="constrained"
    )
    for axis, shift in zip(axes, shifts, strict=True):
        levels = sorted({s for _, name, s in accuracy if name == shift})
        for method in methods_of(rows):
            values = [np.mean(accuracy[method, CLEAN, 0])]
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
