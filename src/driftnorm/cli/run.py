"""``driftnorm run``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from driftnorm._internal.files import check_regular
from driftnorm._version import __version__
from driftnorm.cli import app
from driftnorm.cli._config import REPEATABLE, Config, check_keys, load_config
from driftnorm.cli._imports import add_imports

CHANGES = "Arguments of the command that override the file's, such as --out elsewhere."


def run(
    config: Path, *changes: Annotated[str, Parameter(allow_leading_hyphen=True, help=CHANGES)]
) -> None:
    """Repeat a command from the config.yaml of its run folder, or from one written by hand.

    Arguments that follow override the file's: `driftnorm run config.yaml --out elsewhere`. Relative
    paths stay relative: run it in the same folder as the command.

    Parameters
    ----------
    config
        The file, with the keys `command` (its words) and `arguments` (its flags and values); or the
        run folder that contains it.
    """
    if config.is_dir():
        config = config / "config.yaml"
    check_regular(config, "CONFIG")
    kept = load_config(config)
    add_imports(kept.imports)
    command, bound = parse_config(config, kept, changes)
    if kept.version not in ("", __version__):
        print(f"note: written by driftnorm {kept.version}, this is {__version__}.", file=sys.stderr)
    command(*bound.args, **bound.kwargs)


def parse_config(
    path: Path, kept: Config, changes: Sequence[str] = ()
) -> tuple[Callable[..., Any], inspect.BoundArguments]:
    """The command's function and its arguments, read as the command line would read them.

    Args:
        path: Where it is from, for messages.
        kept: What the file holds.
        changes: Command-line words that override the file's arguments.

    Raises:
        ValueError: An unknown command or argument, or a value that the command does not take.
    """
    check_keys(path, [kept.command], REPEATABLE, "command")
    words = [*kept.command.split(), *_words(path, kept, changes), *changes]
    try:
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    return command, bound


def _words(path: Path, kept: Config, changes: Sequence[str]) -> list[str]:
    """The file's arguments as on the command line, with the changes."""
    _, apps, _ = app.parse_commands(kept.command.split())
    flags: dict[str, str] = {}
    short: dict[str, str] = {}
    for argument in apps[-1].assemble_argument_collection():
        # A dataclass of shared flags is not an argument itself.
        flag = next((name for name in argument.names if name.startswith("--")), None)
        if flag is not None:
            flags |= {argument.field_info.name: flag, _key(flag): flag}
            short |= {name: flag for name in argument.names if not name.startswith("--")}
    given = {_key(name): value for name, value in kept.arguments.items()}
    check_keys(path, given, flags, f"argument of `{kept.command}`")
    changed = {flags.get(_key(word)) for word in changes if word.startswith("--")}
    changed |= {short.get(word.partition("=")[0]) for word in changes}
    return [
        f"{flags[name]}={entry}"
        for name, value in given.items()
        if flags[name] not in changed
        for entry in ([value] if isinstance(value, str) else value)
    ]


def _key(word: str) -> str:
    """``--batch-size=8``, ``batch-size`` and ``batch_size`` are one key."""
    name = word.partition("=")[0].removeprefix("--").replace("-", "_")
    return name.removeprefix("no_") if word.startswith("--no-") else name
