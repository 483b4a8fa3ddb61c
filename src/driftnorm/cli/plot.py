"""``driftnorm plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from driftnorm.cli._flags import Quiet
from driftnorm.cli.table import chosen, first_that_fits, having, rows_of
from driftnorm.views.compare import in_order, methods_of
from driftnorm.views.render.matplotlib import draw
from driftnorm.views.robustness import VIEWS
from driftnorm.views.robustness_figures import PLOTS, find_plot

__all__ = ["plot"]

Many = Parameter(consume_multiple=True, negative="")
# Not in the docstring, where "methods" would be the heading of a section.
METHODS_HELP = "Only these, in this order; default: all that the rows hold."


def plot(
    name: str,
    rows: Annotated[list[Path] | None, Many] = None,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("plot.png"),
    methods: Annotated[list[str] | None, Many, Parameter(help=METHODS_HELP)] = None,
    where: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    quiet: Quiet = False,
) -> None:
    """Draw a plot from rows; the protocol stands in its foot.

    Parameters
    ----------
    name
        Which plot; ``driftnorm plot list`` says what there is.
    rows
        Folders of rows, or .jsonl files; what they hold is put together.
    output
        The file; its ending, .png, .svg or .pdf, says the form.
    where
        Only rows that have this, such as batch_size=32 or severity=5; can be given several times.
    """
    if name == "list":
        for each, known in PLOTS.items():
            print(f"{each:<14}{known.help}")
        return
    make = find_plot(name).make
    if not rows:
        raise ValueError("`rows` must name at least one folder of rows or .jsonl file, got none.")
    found = chosen(having(rows_of(rows), where), methods)
    usual = VIEWS["summary"].methods
    if methods:
        figure = make(in_order(found, methods_of(found)))
    else:
        figure = first_that_fits(make, in_order(found, usual), usual)
    draw(figure, output)
    if not quiet:
        print(f"Saved {output}.")
