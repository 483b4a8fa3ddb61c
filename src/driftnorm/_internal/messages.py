"""Warnings and errors as text, for a row, a run's notes or the terminal."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from driftnorm.errors import DriftnormWarning


def first_line(error: Exception) -> str:
    r"""What an error of other people's code says, in one line; its kind if it says nothing.

    >>> first_line(ValueError("no shape\nat line 3")), first_line(KeyError())
    ('no shape', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def warnings_to(hear: Callable[[str], object]) -> Iterator[None]:
    """Call a function with the text of each of our warnings; others are shown as usual.

    Filters that are set within the block end with it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", DriftnormWarning)
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, DriftnormWarning):
                hear(str(message))
            else:
                show_others(message, category, *rest, **more)

        warnings.showwarning = show
        yield
