"""How ``--help`` looks: each command on one screen, and nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts.help import (
    ColumnSpec,
    DefaultFormatter,
    DescriptionRenderer,
    NameRenderer,
    TableSpec,
)

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions


class HelpPages(DefaultFormatter):
    """Headings instead of boxes, whose frames take lines and columns from the texts.

    There is no column of asterisks either: a flag that is required says so.
    """

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print the flags, or commands, under one heading."""
        if not panel.entries:
            return
        entries = [_plain(entry) for entry in panel.entries]
        console.rule(str(panel.title), align="left", style="dim")
        # A long pair of names takes a second line, or all texts would be narrow.
        names = ColumnSpec(renderer=NameRenderer(max_width=console.width // 3), style="cyan")
        texts = ColumnSpec(renderer=DescriptionRenderer(), overflow="fold")
        console.print(TableSpec(padding=(0, 2, 0, 0)).build((names, texts), entries))


def _plain(entry: HelpEntry) -> HelpEntry:
    """A switch is off unless it is given: that, and how to say it, is left out."""
    if entry.type is not bool or entry.default not in (None, "False"):
        return entry
    plain: HelpEntry = entry.copy(negative_names=(), default=None)
    return plain
