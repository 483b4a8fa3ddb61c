"""``driftnorm methods``."""

from __future__ import annotations

import json

from rich.console import Console

from driftnorm.method_table import method_facts, method_table

__all__ = ["list_methods"]


def list_methods(*, json_output: bool = False) -> None:
    """List every method with its paper, its cost and when to take it.

    Parameters
    ----------
    json_output
        Print JSON instead of a table.
    """
    if json_output:
        print(json.dumps(method_facts(), indent=2))
        return
    Console().print(method_table().to_rich())
