"""``driftnorm methods``."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from driftnorm.cli._method_table import method_facts, method_table
from driftnorm.methods import lookup

__all__ = ["list_methods"]


def list_methods(
    name: str | None = None, *, as_json: Annotated[bool, Parameter("--json", negative="")] = False
) -> None:
    """List every method, or tell all about one.

    Parameters
    ----------
    name
        A method; without it, all are listed.
    as_json
        Print JSON instead of text.
    """
    facts = method_facts() if name is None else {name: method_facts()[lookup(name).name]}
    console = Console()
    if as_json:
        print(json.dumps(facts, indent=2))
    elif name is None:
        console.print(method_table().to_rich())
    else:
        for key, value in facts[name].items():
            shown = ", ".join(value) if isinstance(value, list) else value
            console.print(f"[bold]{key.replace('_', ' '):>18}[/bold]  {shown}", highlight=False)
