"""Select corruptions by name or group, without frost where it is not available."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from rich.console import Console

from driftnorm.cli._flags import MANY
from driftnorm.cli._output import say
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS, frost_source
from driftnorm.shifts._overlays import ENVIRONMENT_VARIABLE as FROST_VARIABLE

COMMON = "common"
_GROUPS = {
    COMMON: CORRUPTIONS,
    "extra": EXTRA_CORRUPTIONS,
    "all": CORRUPTIONS + EXTRA_CORRUPTIONS,
}

Corruptions: TypeAlias = Annotated[
    list[str] | None,
    MANY,
    Parameter(help="Names, or common (15, the default), extra (4), all (19)."),
]


def settle_corruptions(
    given: Sequence[str] | None,
    frost: str | None,
    console: Console,
    stored: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The names, each once, with groups resolved.

    Frost needs overlay images that do not come with driftnorm. If they are missing, and frost was
    not requested by name or by `--frost`, it is left out with a note.

    Args:
        given: Names and groups; None means the common ones.
        frost: Value of `--frost`.
        console: Where to report that frost is left out.
        stored: The corruptions of a folder, if they are not made here.
    """
    words = given or [COMMON]
    names = tuple(dict.fromkeys(name for word in words for name in _GROUPS.get(word, (word,))))
    # A wrong folder is an error, not a reason to leave frost out.
    asked = "frost" in words or frost is not None or bool(os.environ.get(FROST_VARIABLE))
    there = _has_frost() if stored is None else "frost" in stored
    if "frost" not in names or asked or there:
        return names
    text = "note: frost is left out: these data do not have it."
    if stored is None:
        text = (
            "note: frost is left out: its overlay pictures are not on this machine. Use `--frost "
            "FOLDER`, or `--frost procedural` for a stand-in."
        )
    say(console, text)
    return tuple(name for name in names if name != "frost")


def _has_frost() -> bool:
    with suppress(FileNotFoundError):
        return bool(frost_source())
    return False
