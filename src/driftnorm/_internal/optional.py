"""Packages that are not installed with driftnorm unless they are asked for."""

from __future__ import annotations

import importlib
from typing import Any


def import_optional(package: str, needed_by: str, extra: str) -> Any:
    """The package; the error for a missing one says how to install it.

    Args:
        package: Its name.
        needed_by: What needs it, for the error's text.
        extra: The extra of driftnorm that installs it.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(
            f"{needed_by} needs the package {package}, which is not installed: "
            f'pip install "driftnorm[{extra}]"',
            name=package,
        ) from error
