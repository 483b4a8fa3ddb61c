"""What people read: rows to tables, figures and pages. Importing this never imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.views.figure import Figure as Figure
    from driftnorm.views.figure import Series as Series
    from driftnorm.views.render.matplotlib import draw as draw
    from driftnorm.views.report.page import make_report as make_report
    from driftnorm.views.stream_figures import timeline_figure as timeline_figure
    from driftnorm.views.table import Column as Column
    from driftnorm.views.table import Table as Table

_HOMES = {
    "Column": "table",
    "Figure": "figure",
    "Series": "figure",
    "Table": "table",
    "draw": "render.matplotlib",
    "make_report": "report.page",
    "timeline_figure": "stream_figures",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
