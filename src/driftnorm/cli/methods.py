"""``driftnorm methods``."""

from __future__ import annotations

import json
from typing import cast

from rich.console import Console
from rich.markup import escape

from driftnorm.cli._flags import AsJson
from driftnorm.cli._method_table import facts_of, method_facts, method_table, option_table
from driftnorm.cli._output import print_table
from driftnorm.methods.spec import parse_method

ALL = "list"


def list_methods(name: str = ALL, *, as_json: AsJson = False) -> None:
    """List every method, or show one in detail.

    Parameters
    ----------
    name
        A method or a composition such as gprebn:theta=0.5+rt3a, for its recipe, its options and
        when it helps and hurts; `list` lists all.
    """
    console = Console()
    if as_json:
        facts = method_facts() if name == ALL else {name: facts_of(name)}
        print(json.dumps(facts, indent=2, default=str))
    elif name == ALL:
        print_table(console, method_table())
    else:
        _print(console, name)


def _print(console: Console, name: str) -> None:
    facts = facts_of(name)
    options = cast(dict[str, dict[str, object]], facts.pop("options"))
    for key, value in facts.items():
        if value == "":
            continue  # the recipe of a method that does nothing
        said = f"[bold]{key.replace('_', ' '):>18}[/bold]  {escape(str(value))}"
        console.print(said, highlight=False)
    if options:
        print_table(console, option_table(parse_method(name).name, options))
