"""Modules of the user's own: whatever is wrong with one is said in one line."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from driftnorm.errors import DriftnormError


class OwnCodeError(DriftnormError, ValueError):
    """Code of the user's own that cannot be used.

    Args:
        argument: What it was given as.
        given: The value, as messages show it.
        problem: The rest of the message.
    """

    def __init__(self, argument: str, given: str, problem: str) -> None:
        super().__init__(argument, given, problem)
        self.given, self.problem = given, problem

    def __str__(self) -> str:
        return "`{}` {}{}".format(*self.args)


class OwnResultError(OwnCodeError, TypeError):
    """It returned something of another type."""


@contextmanager
def given_as(argument: str) -> Iterator[None]:
    """Errors about the user's code name the argument that the user knows, not that of a callee."""
    try:
        yield
    except OwnCodeError as error:
        raise type(error)(argument, error.given, error.problem) from error.__cause__


def import_own(name: str, argument: str, given: str, otherwise: str = "") -> ModuleType:
    """Import a module that the user names.

    Args:
        name: Of the module.
        argument: What named it, for errors.
        given: The value of the argument, as errors show it.
        otherwise: What else could have been given.

    Returns:
        The module.

    Raises:
        OwnCodeError: There is no such module, or it raised something.
        ImportError: The module exists; something that it imports does not.
    """
    wrong = f" names the module {name!r}, which cannot be imported"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        hint = " without its .py" if name.endswith(".py") else ""
        raise OwnCodeError(
            argument,
            given,
            f"{wrong}. Use {otherwise}a module on Python's path (on the command line also in the "
            f"current folder){hint}.",
        ) from error
    except ImportError:
        raise
    except Exception as error:  # whatever code of the user's raises
        raised = f"{type(error).__name__}: {getattr(error, 'msg', error)}"
        raise OwnCodeError(argument, given, f"{wrong}: {_where(error)} raises {raised}.") from error


def _where(error: Exception) -> str:
    """The line that is at fault: of the code that could not be read, or that was run last."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"
