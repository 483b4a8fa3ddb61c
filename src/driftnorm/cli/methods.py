"""``driftnorm methods``."""

from __future__ import annotations

import json

from rich.console import Console

from driftnorm.cli._flags import AsJson
from driftnorm.cli._method_table import method_facts, method_table, option_table
from driftnorm.cli._output import print_table
from driftnorm.methods import lookup

__all__ = ["list_methods"]

ALL = "list"


def list_methods(name: str = ALL, *, as_json: AsJson = False) -> None:
    """List every method, or show one in detail.

    Parameters
    ----------
    name
        A method, for its options and when it helps and hurts; `list` lists all.
    """
    everything = name == ALL
    facts = method_facts() if everything else {name: method_facts()[lookup(name).name]}
    console = Console()
    if as_json:
        print(json.dumps(facts, indent=2, default=str))
    elif everything:
        console.print(method_table().to_rich())
    else:
        for key, value in facts[name].items():
            if key != "options":
                console.print(f"[bold]{key.replace('_', ' '):>18}[/bold]  {value}", highlight=False)
        if facts[name]["options"]:
            print_table(console, option_table(lookup(name)))
