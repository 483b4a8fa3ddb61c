"""Modules of the user's own: whatever is wrong with one is said in one line."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType


def import_own(name: str, what: str, otherwise: str = "") -> ModuleType:
    """Import a module that the user names.

    Args:
        name: Of the module.
        what: What named it, for errors.
        otherwise: What else could have been given.

    Returns:
        The module.

    Raises:
        ValueError: There is no such module, or it raised something.
        ImportError: The module exists; something that it imports does not.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        hint = " without its .py" if name.endswith(".py") else ""
        raise ValueError(
            f"{what} names the module {name!r}, which cannot be imported. Use {otherwise}a module "
            f"on Python's path (on the command line also in the current folder){hint}."
        ) from error
    except ImportError:
        raise
    except Exception as error:  # whatever code of the user's raises
        raise ValueError(
            f"{what} names the module {name!r}, which cannot be imported: {_where(error)} raises "
            f"{type(error).__name__}: {getattr(error, 'msg', error)}."
        ) from error


def _where(error: Exception) -> str:
    """The line that is at fault: of the code that could not be read, or that was run last."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"
