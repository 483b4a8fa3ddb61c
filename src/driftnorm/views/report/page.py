"""The whole page: one file that opens from disk, loads nothing and runs no foreign script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from driftnorm._internal.counts import counted
from driftnorm._version import __version__
from driftnorm.views.palette import palette_css, slot_classes, slots_of
from driftnorm.views.render.markup import breakable, prose, sound
from driftnorm.views.report.gather import Gathered, gather
from driftnorm.views.report.group_section import group_section
from driftnorm.views.report.groups import Group, group_rows
from driftnorm.views.report.measure import ACCURACY, ERROR, Measure
from driftnorm.views.report.run_record import Run
from driftnorm.views.report.run_section import look_of, run_section, run_series
from driftnorm.views.report.tables import sort_key
from driftnorm.views.report.targets import compared_failures, compared_rows, domain_tables
from driftnorm.views.report.verdicts import best_method, overall_verdict
from driftnorm.views.table import Column, Table


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


TEMPLATES = Environment(
    loader=PackageLoader("driftnorm.views.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "breakable": breakable,
    "digest": _digest,
    "prose": prose,
    "slot_classes": slot_classes,
    "sort_key": sort_key,
}


def make_report(paths: Iterable[str | Path]) -> str:
    """A page about everything that the paths hold.

    Args:
        paths: As `driftnorm.views.report.gather.gather` takes them.

    Returns:
        The HTML; the same input gives the same text.
    """
    return page(gather(paths))


def page(found: Gathered) -> str:
    """The page of rows and runs."""
    groups = group_rows(compared_rows(found.rows), compared_failures(found.failures))
    runs = found.runs
    if not groups and not runs:
        raise ValueError(
            "`rows` has no row of a target domain yet; finish `driftnorm bench domains` first."
        )
    slots = slots_of(
        [
            *(method for group in groups for method in group.methods),
            *(look_of(run, name) for run in runs for name in run_series(run)),
        ]
    )
    alone = len(groups) + len(runs) == 1
    measure = ERROR if any(group.kind == "shift" for group in groups) else ACCURACY
    assets = files("driftnorm.views.report") / "assets"
    text = TEMPLATES.get_template("report.html").render(
        title=_title(groups, runs),
        verdict=overall_verdict(groups, runs, measure),
        overview=[_overview(groups, measure)] if len(groups) > 1 else [],
        sections=[
            *(group_section(group, slots, measure, alone, found.exhibits) for group in groups),
            *(run_section(run, slots, measure, alone) for run in runs),
        ],
        # These are in accuracy: on a page of errors, `driftnorm table domains` prints them.
        tables=domain_tables(found.rows) if measure == ACCURACY else [],
        style=palette_css() + (assets / "report.css").read_text(encoding="utf-8"),
        script=(assets / "report.js").read_text(encoding="utf-8"),
        version=__version__,
    )
    return sound(text)


def _title(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """The only comparison, even if a demo's run comes with it, the only run, or how many."""
    if len(groups) == 1:
        return groups[0].title
    if not groups and len(runs) == 1:
        return f"Run {runs[0].name}"
    counts = {"comparison": len(groups), "run": len(runs)}
    return ", ".join(counted(n, what) for what, n in counts.items() if n)


def _overview(groups: Sequence[Group], measure: Measure) -> Table:
    """The groups side by side."""
    lines: list[tuple[str | float | None, ...]] = []
    for group in groups:
        best, protocol = best_method(group), group.rows[0].cell.protocol
        base, own = (measure.mean(group.of(method or "")) for method in ("source", best))
        lines.append((group.title, float(protocol.batch_size), best, own, base))
    columns = (
        Column("data, network"),
        Column("batch", decimals=0),
        Column("best method", align="left"),
        Column(f"its {measure.name}, %", decimals=2),
        Column(f"source's {measure.name}, %", decimals=2),
    )
    note = "Means over the streams that every method of the comparison ran on."
    return Table("All comparisons", columns, tuple(lines), note)
