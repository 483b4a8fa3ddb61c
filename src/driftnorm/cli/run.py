"""``driftnorm run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from driftnorm._version import __version__
from driftnorm.cli import app
from driftnorm.runs.config import Config, check_keys, load_config

__all__ = ["repeatable", "run"]

Changes = Parameter(show=False, allow_leading_hyphen=True)


def repeatable() -> tuple[str, ...]:
    """The commands whose run folders keep a config."""
    return (
        *("bench robustness", "bench domains", "bench fine-tuned"),
        *("train robust", "train domains", "adapt"),
    )


def run(config: Path, *changes: Annotated[str, Changes]) -> None:
    """Repeat a command from the config.yaml of its run folder, or from one written by hand.

    Arguments of the command can follow and win over the file's: `driftnorm run config.yaml --out
    elsewhere`. Paths are as they were given: run it where the command was run.

    Parameters
    ----------
    config
        The file: `command`, its words, and `arguments`, its flags with their values.
    """
    kept = load_config(config)
    check_keys(config, [kept.command], repeatable(), "command")
    tokens = [*kept.command.split(), *_tokens(config, kept, changes), *changes]
    try:
        command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise ValueError(f"{config}: {' '.join(str(error).split())}") from error
    if kept.version not in ("", __version__):
        print(f"note: kept by driftnorm {kept.version}, this is {__version__}.", file=sys.stderr)
    command(*bound.args, **bound.kwargs)


def _tokens(config: Path, kept: Config, changes: Sequence[str]) -> list[str]:
    """The file's arguments as they would stand on the command line, but for what is changed."""
    _, path, _ = app.parse_commands(kept.command.split())
    flags = {}
    for argument in path[-1].assemble_argument_collection():
        flag = next(name for name in argument.names if name.startswith("--"))
        flags[argument.field_info.name] = flag
        flags.setdefault(_key(flag), flag)
    given = {_key(name): value for name, value in kept.arguments.items()}
    check_keys(config, given, flags, f"argument of `{kept.command}`")
    changed = {flags.get(_key(word), word) for word in changes if word.startswith("--")}
    return [
        f"{flags[name]}={entry}"
        for name, value in given.items()
        if flags[name] not in changed
        for entry in ([value] if isinstance(value, str) else value)
    ]


def _key(word: str) -> str:
    """``--batch-size=8`` and ``batch-size`` are the key ``batch_size``."""
    name = word.partition("=")[0].removeprefix("--").replace("-", "_")
    return name.removeprefix("no_") if word.startswith("--no-") else name
