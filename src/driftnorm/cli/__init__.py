"""The command line: one verb a file, each imported only when it is called.

Nothing here may import torch; ``driftnorm --help`` must answer at once.
"""

from __future__ import annotations

import sys

import cyclopts

from driftnorm._version import __version__

__all__ = ["app", "main"]

app = cyclopts.App(
    name="driftnorm",
    version=__version__,
    help="Keep trained BatchNorm networks accurate when the data drift.",
)
app.command(
    "driftnorm.cli.demo:demo",
    name="demo",
    help="Train, shift, adapt and measure on digits that come with the package.",
)
app.command(
    "driftnorm.cli.methods:list_methods",
    name="methods",
    help="List every method with its paper, its cost and when to take it.",
)


def main() -> None:
    """Entry point: errors of use in one line, Ctrl-C without a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        print("\nstopped; what was finished is kept.", file=sys.stderr)
        sys.exit(130)
    except (ValueError, TypeError, FileNotFoundError, ImportError) as error:
        print(f"driftnorm: {error}", file=sys.stderr)
        sys.exit(2)
