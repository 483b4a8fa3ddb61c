"""``driftnorm plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from driftnorm.cli._flags import Quiet
from driftnorm.cli.table import chosen, first_that_fits, having, rows_of
from driftnorm.views.compare import in_order, methods_of
from driftnorm.views.figures import PLOTS, find_plot
from driftnorm.views.palette import MOST
from driftnorm.views.render.matplotlib import draw

__all__ = ["plot"]

Many = Parameter(consume_multiple=True, negative="", show_default=False)
# Not in the docstring, where "methods" would be parsed as a heading.
METHODS_HELP = "Only these, in this order; default: all in the rows."


def plot(
    name: str = "list",
    rows: Annotated[tuple[Path, ...], Many] = (),
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    form: Annotated[Literal["png", "svg", "pdf"] | None, Parameter(name="--format")] = None,
    methods: Annotated[list[str] | None, Many, Parameter(help=METHODS_HELP)] = None,
    where: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    quiet: Quiet = False,
) -> None:
    """Draw a plot from rows, with the protocol as its footer.

    Parameters
    ----------
    name
        Which plot; `list` shows them all.
    rows
        Folders of rows, or .jsonl files; they are combined.
    out
        The file; default: plot.png, or with the extension of `--format`.
    form
        File format; default: by the extension of `--out`.
    where
        Only rows with this value, such as batch_size=32 or severity=5; can be repeated.
    """
    if name == "list":
        for each, known in PLOTS.items():
            print(f"{each:<24}{known.help}")
        return
    view = find_plot(name)
    if not rows:
        raise ValueError("`rows` must name at least one folder of rows or .jsonl file, got none.")
    file = out or Path(f"plot.{form or 'png'}")
    if form is not None and file.suffix != f".{form}":
        raise ValueError(f"`--out` must end in .{form} as `--format` says, got {file}.")
    found = chosen(having(rows_of(rows), where), methods)
    if not methods and len(methods_of(found)) > MOST:
        found = [row for row in found if row.method in view.methods] or found
    if methods:
        figure = view.make(in_order(found, methods_of(found)))
    else:
        figure = first_that_fits(view.make, in_order(found, view.methods), view.methods)
    draw(figure, file)
    if not quiet:
        print(f"Saved {file}.")
