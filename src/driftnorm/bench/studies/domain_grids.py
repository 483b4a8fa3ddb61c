"""The hyper-parameters of test-time methods that are tried, to be selected on source validation.

T3A's grids: rho (multiple of the trained learning rate) x delta (steps), M supports; the paper adds
theta, whose values it does not print, and alpha-BN's alpha. ``short`` grids fit small machines.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from driftnorm._internal.options import Options
from driftnorm.bench.vocabulary import GridSize
from driftnorm.methods import options_of
from driftnorm.methods.spec import MethodSpec, parse_method

_VALUES: dict[GridSize, dict[str, tuple[Any, ...]]] = {
    "full": {
        "rho": (0.1, 1, 10),
        "steps": (1, 3),
        "theta": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
        "target_weight": (0.1, 0.3, 0.5, 0.7, 0.9),
        "supports": (1, 5, 20, 50, 100, -1),
    },
    "short": {
        "rho": (1, 10),
        "steps": (1,),
        "theta": (0.3, 0.7, 1.0),
        "target_weight": (0.1, 0.3, 0.5, 0.7, 0.9),
        "supports": (1, 20, 100, -1),
    },
    "single": {"rho": (10,), "steps": (1,)},
}


def settings_of(method: str | MethodSpec, size: GridSize = "full") -> tuple[Options, ...]:
    """Every setting of a method that is tried; options in its own word stay fixed.

    >>> settings_of("t3a", "short")
    ((('supports', 1),), (('supports', 20),), (('supports', 100),), (('supports', -1),))
    >>> settings_of("tent:lr=0.01", "short")
    ((('steps', 1),),)
    """
    word = parse_method(method) if isinstance(method, str) else method
    fixed = {name for name, _ in word.options}
    if "statistics" in fixed or "momentum" in fixed:
        fixed.add("theta")  # a row of an ablation is about the statistics themselves
    if not word.recipe.needs_backward:
        fixed.add("theta")  # the paper selects that of GpreBN only
    if "lr" in fixed:
        fixed.add("rho")  # another way to write the rate
    known = options_of(word.name)
    names = [name for name in _VALUES[size] if name in known and name not in fixed]
    values = [_VALUES[size][name] for name in names]
    return tuple(tuple(zip(names, chosen, strict=True)) for chosen in product(*values))
