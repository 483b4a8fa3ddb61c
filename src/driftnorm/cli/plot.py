"""``driftnorm plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from driftnorm.cli._flags import OUT, AsJson, Quiet
from driftnorm.cli._output import print_listing
from driftnorm.cli._places import check_view, make_folders
from driftnorm.cli._row_flags import (
    ChosenMethods,
    RowPaths,
    Where,
    Window,
    listing,
    made_of,
    rows_of,
)
from driftnorm.views.compare import methods_of
from driftnorm.views.figures import PLOTS, find_plot
from driftnorm.views.palette import MOST
from driftnorm.views.render.matplotlib import draw


def plot(
    name: str = "list",
    rows: RowPaths = (),
    *,
    out: Annotated[Path | None, OUT] = None,
    form: Annotated[Literal["png", "svg", "pdf"] | None, Parameter(name="--format")] = None,
    methods: ChosenMethods = None,
    where: Where = (),
    window: Window = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
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
    """
    if name == "list":
        print_listing(listing("Plots", PLOTS), as_json=as_json)
        return
    view = find_plot(name)
    file = out or Path(f"plot.{form or 'png'}")
    if form is not None and file.suffix != f".{form}":
        raise ValueError(f"`--out` must end in .{form} as `--format` says, got {file}.")
    check_view(file, rows)
    found = rows_of(rows, where, window)
    if methods is None and len(methods_of(found)) > MOST:
        found = [row for row in found if row.method in view.methods] or found
    figure = made_of(found, view.make, view.methods, methods)
    make_folders({"--out": file}, Console(stderr=True, quiet=quiet))
    draw(figure, file)
    if as_json:
        print(json.dumps({"file": str(file)}))
    elif not quiet:
        print(f"Saved {file}.")
