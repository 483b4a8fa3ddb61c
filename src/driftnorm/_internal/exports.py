"""Names that a package exports, imported on first use.

Importing a package then costs nothing, and those of its names that need torch wait until they are
asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that imports its names on first use.

    Assign them under ``if not TYPE_CHECKING``: to a type checker, a module with a ``__getattr__``
    has every name there could be.

    Args:
        package: The package's ``__name__``.
        homes: The module of each name, relative to the package. ``module:name`` says that it has
            another name there; ``module:`` is the module itself.
    """

    def getter(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, colon, other = homes[name].partition(":")
        module = importlib.import_module(f"{package}.{home}")
        value = module if colon and not other else getattr(module, other or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(homes)

    return getter, names
