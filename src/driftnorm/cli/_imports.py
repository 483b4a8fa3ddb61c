"""Modules of the user's own, which register methods: ``--import MODULE``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

PLUGINS = "DRIFTNORM_IMPORT"  # as `driftnorm.methods` reads it, which would import torch


def take_imports(words: Sequence[str]) -> list[str]:
    """A command without its ``--import MODULE`` flags, whose modules are then known."""
    rest, modules = [], []
    given = iter(words)
    for word in given:
        flag, equals, value = word.partition("=")
        if flag != "--import":
            rest.append(word)
            continue
        name = value if equals else next(given, "")
        if not name or name.startswith("-"):
            raise ValueError("`--import` must be followed by the name of a module.")
        modules.append(name)
    add_imports(modules)
    return rest


def add_imports(modules: Sequence[str]) -> None:
    """Have these modules imported when methods are looked up, here and in worker processes.

    They may be in the current folder. The environment passes them on.
    """
    known = imported()
    new = [name for name in dict.fromkeys(modules) if name not in known]
    for name in new:
        print(f"importing {name}, also from the current folder", file=sys.stderr)
    if modules:
        sys.path.insert(0, os.getcwd())
        paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.environ[PLUGINS] = ",".join([*known, *new])


def imported() -> list[str]:
    """The modules of the user's own that this command knows."""
    return [*filter(None, os.environ.get(PLUGINS, "").split(","))]
