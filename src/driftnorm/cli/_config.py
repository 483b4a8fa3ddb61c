"""A command's arguments in a YAML file, from which it can be repeated.

Values are text, as on the command line, so YAML's own rules (``off`` is a boolean, ``1e-3`` is not
a number, ``2026-01-01`` is a date) change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from driftnorm._internal.files import write_atomically
from driftnorm._internal.names import nearest
from driftnorm._version import __version__
from driftnorm.cli._imports import imported

# Commands that write rows, networks, predictions or data; most keep a config with them.
REPEATABLE = (
    *("bench robustness", "bench domains", "bench fine-tuned", "bench streams"),
    *("train robust", "train domains", "sweep domains", "adapt"),
    *("demo", "diagnose", "export", "corrupt"),
)

_KEYS = ("driftnorm", "command", "arguments")
_HEAD = "# `driftnorm run` repeats this command; arguments after the file override those in it.\n"
# Output flags and `--fresh` are not part of what a command does: repeated, it resumes.
_TALK = ("quiet", "as_json", "fresh")
_NULL = "tag:yaml.org,2002:null"

Value = str | list[str]


class Config(NamedTuple):
    """A command to repeat.

    Attributes:
        command: Its words, such as ``bench robustness``.
        arguments: By name, without those that were not given.
        version: The driftnorm version that wrote it; empty in a file written by hand.
        imports: The modules of the user's own that it needs, as with ``--import``.
    """

    command: str
    arguments: dict[str, Value]
    version: str
    imports: tuple[str, ...] = ()


def keep_config(folder: Path, command: str, arguments: Mapping[str, Any]) -> Path:
    """Save a command's arguments in its run folder.

    Another command on the same folder gets its own file, ``config-2.yaml`` and so on, so everything
    in the folder can be reproduced. Repeating the same command changes nothing.

    Args:
        folder: The run's; created if missing.
        command: Its words, one of `REPEATABLE`.
        arguments: Every argument by name, including defaults; ``None`` for those not given.
            ``quiet``, ``as_json`` and ``fresh`` are not saved.

    Returns:
        The file.
    """
    assert command in REPEATABLE, f"`driftnorm run` would refuse {command!r}"
    content = {
        "driftnorm": __version__,
        "command": command,
        **({"import": modules} if (modules := imported()) else {}),
        "arguments": {n: _plain(v) for n, v in _flags(arguments) if n not in _TALK},
    }
    text = _HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    folder.mkdir(parents=True, exist_ok=True)
    number, path = 1, folder / "config.yaml"
    while path.exists():
        if path.read_text() == text:
            return path
        number += 1
        path = folder / f"config-{number}.yaml"
    write_atomically(path, text)
    return path


def _flags(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Name and value of every flag; one argument may hold a dataclass of shared flags."""
    for name, value in arguments.items():
        if is_dataclass(value):
            yield from ((each.name, getattr(value, each.name)) for each in fields(value))
        else:
            yield name, value


def _plain(value: Any) -> Any:
    """A value for YAML: text, numbers, booleans, and lists of those."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    raise TypeError(f"an argument must be text, a number or a list, got {type(value).__name__}.")


def load_config(path: Path) -> Config:
    """Read a saved file, or one written by hand.

    Raises:
        ValueError: It is not such a file; the message names the wrong key.
    """
    try:
        content = yaml.load(path.read_text(), _TextLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold the keys {', '.join(_KEYS)}, got {_kind(content)}.")
    check_keys(path, content, (*_KEYS, "import"))
    command, arguments = content.get("command"), content.get("arguments") or {}
    if not isinstance(command, str):
        raise ValueError(f"{path}: `command` must be words such as adapt, got {_kind(command)}.")
    if not isinstance(arguments, dict):
        raise ValueError(f"{path}: `arguments` must be names and values, got {_kind(arguments)}.")
    given = {name: value for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        _entries(path, name, value)
    imports = _entries(path, "import", content.get("import") or [])
    version = content.get("driftnorm") or ""
    return Config(" ".join(command.split()), given, version, tuple(imports))


def _entries(path: Path, name: str, value: Any) -> list[str]:
    """One value or several, as text."""
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError(f"{path}: `{name}` must be one value or a list of values.")
    return entries


def check_keys(path: Path, given: Iterable[str], known: Iterable[str], what: str = "key") -> None:
    """Reject an unknown key, and suggest the one that was probably meant."""
    known = [*known]
    for key in given:
        if key not in known:
            raise ValueError(
                f"{path}: unknown {what} `{key}`.{nearest(key, known)} Known: {', '.join(known)}."
            )


def _kind(value: object) -> str:
    kinds = {dict: "names and values", list: "a list", type(None): "nothing"}
    return kinds.get(type(value), repr(value))


class _TextLoader(yaml.SafeLoader):
    """Only text, lists, mappings and null; a duplicate key is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own name, meant for the class
        first: [(tag, pattern) for tag, pattern in resolvers if tag == _NULL]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} comes twice", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)
