"""Blocks of the documentation that are read off the code."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from driftnorm._internal.docstrings import documented
from driftnorm.bench.cell import MethodId, NetworkId, Protocol, StreamId
from driftnorm.bench.studies.presets import PRESETS
from driftnorm.cli._method_table import method_facts, passes
from driftnorm.methods import METHODS, Method
from driftnorm.models import MODELS
from driftnorm.recipe import Optimising, Recipe
from driftnorm.shifts import CORRUPTIONS, SCALES, SHIFTS
from driftnorm.training import RECIPES
from driftnorm.training.domains.algorithms import ALGORITHMS
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.robustness import VIEWS
from driftnorm.views.table import Column, Table
from driftnorm.views.trainings import RUN_VIEWS


def table(titles: Sequence[str], rows: Sequence[Sequence[str | None]], right: int = 0) -> str:
    """A Markdown table without title; the last ``right`` columns are aligned to the right."""
    columns = [Column(title, align="left") for title in titles[: len(titles) - right]]
    columns += [Column(title) for title in titles[len(titles) - right :]]
    text = Table("", tuple(columns), tuple(tuple(row) for row in rows)).to_markdown()
    return text.split("\n\n", 1)[1]


# --------------------------------------------------------------------------- methods


def methods() -> str:
    """One line a method."""
    yes = {True: "yes", False: "no"}
    return table(
        (
            "method",
            "what it does",
            "paper",
            "passes",
            "needs BN",
            "source statistics",
            "order",
            "bakes",
        ),
        [
            (
                f"[`{name}`](#{name})",
                str(facts["summary"]),
                str(facts["paper"]),
                passes(facts),
                yes[bool(facts["batch_norm"])],
                "needed" if facts["source_statistics"] else "not needed",
                "matters" if facts["order_dependent"] else "does not matter",
                yes[bool(facts["bakes"])],
            )
            for name, facts in method_facts().items()
        ],
    )


def method_details() -> str:
    """A section per method: its module's own words, its advice and its options."""
    return "\n\n".join(_section(method) for method in METHODS.values())


def _section(method: Method) -> str:
    module = importlib.import_module(f"driftnorm.methods.{method.name.replace('-', '_')}")
    title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    before, _, rest = rest.partition("Formula:\n")
    formula, _, after = rest.partition("\n\n")
    fenced = f"```text\n{inspect.cleandoc(formula)}\n```"
    settings = method.recipe.settings() or "Recipe()"
    advice = f"It helps: {method.helps}.\n\nIt hurts: {method.hurts}."
    words = [title, before.strip(), fenced, after.strip(), advice, f"As a recipe: `{settings}`."]
    return "\n\n".join([f"### {method.name}", *filter(None, words), _options(method)])


def _options(method: Method) -> str:
    build = getattr(method.build, "func", method.build)  # a partial says nothing of its own
    told = documented(build.__doc__, "Args")
    known = inspect.signature(method.build).parameters
    own = [name for name in method.options if name in known]
    shared = len(own) < len(method.options)
    rows = [(f"`{name}`", f"`{_shown(known[name].default)}`", told.get(name, "")) for name in own]
    lines = [table(("option", "default", "meaning"), rows)] if rows else []
    if shared:
        lines.append("And [those of every method with a gradient](#gradient-options).")
    return "\n".join(lines).rstrip() or "It has no options."


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def gradient_options() -> str:
    """What every method with a gradient takes."""
    told = documented(Optimising.__doc__, "Attributes")
    return table(("option", "meaning"), [(f"`{name}`", text) for name, text in told.items()])


def recipe_fields() -> str:
    """The fields of a recipe."""
    told = documented(Recipe.__doc__, "Attributes")
    return table(("field", "meaning"), [(f"`{f.name}`", told[f.name]) for f in fields(Recipe)])


# --------------------------------------------------------------------------- protocols


def protocol_fields() -> str:
    """The fields of a cell's parts."""
    parts = {"network": NetworkId, "stream": StreamId, "method": MethodId, "protocol": Protocol}
    lines = []
    for part, kind in parts.items():
        told = documented(kind.__doc__, "Attributes")
        lines += [(f"`{part}.{f.name}`", told[f.name]) for f in fields(kind)]
    return table(("field", "meaning"), lines)


def presets() -> str:
    """The named settings."""
    rows = []
    for name, preset in PRESETS.items():
        options = dict(preset.optimising)
        severities = " ".join(map(str, preset.severities))
        rows.append(
            (
                f"`{name}`",
                preset.summary,
                severities,
                str(preset.batch_size),
                str(options["optimizer"]),
                f"{options['lr']:g}",
                str(options["steps"]),
            )
        )
    titles = ("preset", "whose", "severities", "batch", "optimiser", "rate", "steps")
    return table(titles, rows, right=4)


def tables() -> str:
    """The tables that can be made from rows, or from trainings."""
    rows = [
        (f"`{name}`", view.help, ", ".join(f"`{method}`" for method in view.methods))
        for name, view in {**VIEWS, **DOMAIN_VIEWS}.items()
    ]
    rows += [(f"`{name}`", view.help, "none") for name, view in RUN_VIEWS.items()]
    return table(("table", "what it shows", "methods"), rows)


# --------------------------------------------------------------------------- the rest


def corruptions() -> str:
    """Every corruption with its constants."""
    rows = [
        (
            f"`{name}`",
            shift.group if name in CORRUPTIONS else f"{shift.group}, extra",
            _first_line(shift.apply),
            *("; ".join(_constants(each) for each in shift.constants[scale]) for scale in SCALES),
        )
        for name, shift in SHIFTS.items()
    ]
    return table(("corruption", "group", "what it does", "at 32 px", "at 224 px"), rows)


def _constants(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _first_line(thing: object) -> str:
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "").partition("\n")[0]


def algorithms() -> str:
    """The training algorithms on domains."""
    rows = [
        (f"`{name}`", _first_line(importlib.import_module(kind.__module__)).rstrip("."))
        for name, kind in ALGORITHMS.items()
    ]
    return table(("algorithm", "what it is"), rows)


def training_recipes() -> str:
    """The recipes of robust training."""
    rows = [(f"`{name}`", _first_line(kind)) for name, kind in RECIPES.items()]
    return table(("recipe", "what it does"), rows)


def networks() -> str:
    """The built-in networks."""
    rows = [
        (f"`{name}`", str(facts.classes), f"{facts.preprocessing.size} px")
        for name, facts in MODELS.items()
    ]
    return table(("network", "classes", "input"), rows, right=2)


def commands() -> str:
    """Every command with its flags, asked from the command line itself."""
    from driftnorm.cli import app

    sections: list[str] = []
    _add_commands(app, ("driftnorm",), sections)
    return "\n".join(sections)


def _add_commands(app: Any, path: tuple[str, ...], sections: list[str]) -> None:
    for name in app:
        if name.startswith("-"):
            continue
        command = app[name]
        own = (*path, name)
        if command.default_command is None:
            _add_commands(command, own, sections)
        else:
            sections.append(_command(command, " ".join(own)))


def _command(command: Any, name: str) -> str:
    function = command.default_command
    summary = inspect.cleandoc(function.__doc__).partition("\nParameters\n")[0].strip()
    rows: dict[str, tuple[str, str, str]] = {}
    for argument in command.assemble_argument_collection(parse_docstring=True):
        if argument.parse and argument.parameter.help is not None:
            flag = _flag(argument)
            meaning = _meaning(argument)
            # Lists have entries for their members as well; those are the same flag.
            rows.setdefault(flag, (flag, _default(argument), meaning))
    titles = ("flag", "default", "meaning")
    listed = table(titles, [*rows.values()]) if rows else "It takes no flags."
    return f"### {name}\n\n{summary}\n\n{listed.rstrip()}\n"


def _meaning(argument: Any) -> str:
    text = " ".join(argument.parameter.help.split())
    choices = argument.get_choices()
    return f"{text} Choices: {', '.join(choices)}." if choices else text


def _flag(argument: Any) -> str:
    kind = argument.field_info.kind
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # What has keys is a field of flags that several commands share: never by its place.
    if kind in by_place and not argument.keys:
        return f"`{argument.field_info.name.upper()}`"
    return ", ".join(f"`{name}`" for name in argument.names if not name.startswith("--no-"))


def _default(argument: Any) -> str:
    if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL:
        return ""
    default = argument.field_info.default
    if default is inspect.Parameter.empty:
        return "required"
    silent = default is None or default is False or default == ()
    return "" if silent else f"`{default}`"


CODE_BLOCKS: Mapping[str, Callable[[], str]] = {
    "methods": methods,
    "method-details": method_details,
    "gradient-options": gradient_options,
    "recipe-fields": recipe_fields,
    "protocol-fields": protocol_fields,
    "presets": presets,
    "tables": tables,
    "corruptions": corruptions,
    "algorithms": algorithms,
    "training-recipes": training_recipes,
    "networks": networks,
    "commands": commands,
}
