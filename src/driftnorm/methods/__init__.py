"""Every method by name. To add one: a file with a ``METHOD``, a line here, a row in the tests.

Methods are composed as text: ``eata@gprebn`` learns as EATA on GpreBN's statistics, ``gprebn+rt3a``
answers by rT3A on top of GpreBN.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from driftnorm._internal.names import nearest
from driftnorm._internal.own_code import import_own
from driftnorm.errors import warn
from driftnorm.methods import (
    alpha_bn,
    bn,
    bn_prior,
    bn_window,
    cotta,
    eata,
    eta,
    gprebn,
    lame,
    pl,
    pl_c,
    prior,
    rdumb,
    rotta,
    rt3a,
    sar,
    shot,
    shot_im,
    source,
    steady,
    t3a,
    tent,
)
from driftnorm.methods._method import Method
from driftnorm.recipe import Recipe, compose, normalised_as

__all__ = ["METHODS", "Method", "build", "known_methods", "options_of", "register"]

METHODS: dict[str, Method] = {
    module.METHOD.name: module.METHOD
    for module in (
        source,
        bn,
        bn_prior,
        bn_window,
        steady,
        alpha_bn,
        tent,
        gprebn,
        eta,
        eata,
        sar,
        rdumb,
        cotta,
        rotta,
        t3a,
        rt3a,
        lame,
        prior,
        pl,
        pl_c,
        shot,
        shot_im,
    )
}
PLUGINS = "DRIFTNORM_IMPORT"
"""Environment variable: comma-separated modules that register methods; workers read it too."""
_loaded: set[str] = set()


def register(method: Method) -> Method:
    """Register your own method under its name."""
    if not isinstance(method, Method):
        raise TypeError(f"`method` must be a driftnorm.Method, got {method!r}.")
    if not re.fullmatch(r"[a-z][a-z0-9_.-]*", method.name):
        raise ValueError(
            f"`name` must be lower-case letters, digits, '-', '_' and '.', got {method.name!r}."
        )
    if method.name in METHODS:
        raise ValueError(f"`name` {method.name!r} is taken; choose another one.")
    METHODS[method.name] = method
    return method


def methods_without_batch_norm() -> list[str]:
    """Names of the methods that adapt networks without batch norm."""
    known = known_methods().items()
    return [n for n, m in known if n != "source" and not m.recipe.needs_batch_norm]


def known_methods() -> dict[str, Method]:
    """Every method: built in, provided by installed packages, or registered.

    A package provides methods by entry points of the group ``driftnorm.methods``, each a `Method`.
    """
    if "entry points" not in _loaded:
        _loaded.add("entry points")
        for point in entry_points(group="driftnorm.methods"):
            _offer(point)
    for name in filter(None, os.environ.get(PLUGINS, "").split(",")):
        if name not in _loaded:
            _loaded.add(name)
            import_own(name, "--import", name)
    return METHODS


def _offer(point: EntryPoint) -> None:
    """Register what a package provides; one that is broken must not stop all other methods."""
    try:
        method = point.load()
        if not isinstance(method, Method):
            raise TypeError(f"it must name a driftnorm.Method, got {method!r}.")
        if METHODS.get(method.name) is not method:  # its module may register it as well
            register(method)
    except Exception as error:
        package = "an installed package" if point.dist is None else point.dist.name
        warn(
            f"the method {point.name!r} of {package} is left out, since its entry point "
            f"{point.value!r} cannot be used: {str(error).rstrip('.')}. Fix or uninstall {package}."
        )


def lookup(name: str) -> Method:
    """The method of that name; the error for an unknown name suggests one."""
    known = known_methods()
    if name not in known:
        raise ValueError(
            f"`method` {name!r} is not known.{nearest(name, known)} "
            f"Known: {', '.join(known)}; join methods with '+' (gprebn+rt3a), or take the "
            "statistics of another with '@' (eata@gprebn)."
        )
    return known[name]


def options_of(name: str) -> tuple[str, ...]:
    """The keyword arguments that a method, or a composition such as ``gprebn+rt3a``, takes."""
    return tuple(dict.fromkeys(option for m in members_of(name) for option in m.options))


def check_options(name: str, given: Iterable[str], further: Sequence[str] = ()) -> None:
    """Refuse an option that neither the method or composition takes nor is one of the further."""
    known = (*options_of(name), *further)
    for option in given:
        if option not in known:
            raise TypeError(
                f"{name!r} has no option `{option}`.{nearest(option, known)} "
                f"It takes: {', '.join(known) or 'none'}."
            )


def members_of(name: str) -> list[Method]:
    """The methods in a name: several in a composition."""
    return [lookup(member) for member in re.split("[+@]", name)]


def build(name: str, options: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a method or composition, with these options.

    >>> build("gprebn+rt3a", {"theta": 0.5}).answer
    (RunningCentroids(reading='normalized', labels='linear'),)
    """
    options = dict(options or {})
    check_options(name, options)
    first, *rest = re.split("([+@])", name)
    recipe = _member(first, options)
    for sign, member in zip(rest[::2], rest[1::2], strict=True):
        other = _member(member, options)
        try:
            if sign == "+":
                recipe = compose(recipe, other)
                continue
            recipe = normalised_as(recipe, other)
            if options.get("theta") == "auto":  # a way to normalise, though it acts on the answer
                choice = tuple(each for each in other.answer if each not in recipe.answer)
                recipe = replace(recipe, answer=(*choice, *recipe.answer))
        except ValueError as error:
            raise ValueError(f"{name!r} cannot be joined: {error}") from error
    return recipe


def _member(name: str, options: Mapping[str, Any]) -> Recipe:
    method = lookup(name)
    return method.made({key: value for key, value in options.items() if key in method.options})
