"""The whole page: one file that opens from disk, loads nothing and runs no foreign script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from driftnorm._version import __version__
from driftnorm.views.palette import palette_css, slots_of
from driftnorm.views.render.markup import Markup, tag, verbatim
from driftnorm.views.report.gather import Gathered, gather
from driftnorm.views.report.group_section import group_section
from driftnorm.views.report.groups import Group, group_rows
from driftnorm.views.report.measure import ACCURACY, ERROR, Measure
from driftnorm.views.report.run_section import look_of, run_section, run_series
from driftnorm.views.report.tables import table_html
from driftnorm.views.report.targets import compared_failures, compared_rows, domain_tables
from driftnorm.views.report.verdicts import best_method, overall_verdict
from driftnorm.views.table import Column, Table

__all__ = ["make_report", "page"]


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
    anchors = [f"part-{number}" for number in range(1, len(groups) + len(runs) + 1)]
    names = [*(group.title for group in groups), *(f"Run {run.name}" for run in runs)]
    alone = len(names) == 1
    measure = ERROR if any(group.kind == "shift" for group in groups) else ACCURACY
    sections = [
        *(
            group_section(g, slots, a, measure, alone, found.exhibits)
            for g, a in zip(groups, anchors, strict=False)
        ),
        *(
            run_section(r, slots, a, measure, alone)
            for r, a in zip(runs, anchors[len(groups) :], strict=True)
        ),
    ]
    main = tag(
        "main",
        tag("p", overall_verdict(groups, runs, measure), class_="verdict", id="verdict"),
        _contents(names, anchors),
        _overview(groups, measure),
        *sections,
        # These are in accuracy: on a page of errors, `driftnorm table domains` prints them.
        *(table_html(t) for t in domain_tables(found.rows) if measure == ACCURACY),
        id="content",
    )
    # A single comparison is the subject of the page, even if a demo's run comes with it.
    title = names[0] if alone or len(groups) == 1 else _counted(len(groups), len(runs))
    return _document(title, main)


def _counted(comparisons: int, runs: int) -> str:
    """Such as ``2 comparisons, 1 run``."""
    parts = {"comparison": comparisons, "run": runs}
    return ", ".join(f"{n} {what}{'s' * (n != 1)}" for what, n in parts.items() if n)


def _contents(names: Sequence[str], anchors: Sequence[str]) -> Markup | None:
    if len(names) < 2:
        return None
    links = [
        tag("li", tag("a", name, href=f"#{anchor}"))
        for name, anchor in zip(names, anchors, strict=True)
    ]
    return tag("nav", tag("ol", *links), aria_label="Contents")


def _overview(groups: Sequence[Group], measure: Measure) -> Markup | None:
    """The groups side by side, if there are several."""
    if len(groups) < 2:
        return None
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
    return table_html(Table("All comparisons", columns, tuple(lines), note))


def _document(title: str, main: Markup) -> str:
    assets = files("driftnorm.views.report") / "assets"
    style = palette_css() + (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    # Only this style and script may run, and nothing may be loaded, whatever is in the data.
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} - driftnorm report"),
        tag("link", rel="icon", href="data:,"),
        verbatim("style", style),
    )
    toggle = tag("button", "Theme: as the system", type="button", id="theme")
    header = tag("header", tag("h1", title), toggle)
    made = f"Made by driftnorm {__version__}. One self-contained file: keep it, print it, send it."
    body = tag(
        "body",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        header,
        main,
        tag("footer", tag("p", made)),
        tag("div", id="tip", role="status", hidden=True),
        verbatim("script", script),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
