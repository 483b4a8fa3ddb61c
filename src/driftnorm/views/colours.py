"""One colour a method, the same in every figure, told apart by colour-blind eyes too.

The colours are Paul Tol's bright scheme, with black, and an orange and a brown of his others.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["colours_of"]

_OWN = {
    "source": "#444444",
    "bn": "#4477aa",
    "t3a": "#228833",
    "tent": "#ccbb44",
    "gprebn": "#ee6677",
    "gprebn+rt3a": "#aa3377",
}
_FREE = ("#66ccee", "#ee7733", "#000000", "#bbbbbb", "#663333", "#aa3377", *_OWN.values())


def colours_of(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method: its own if it has one, else the next that none of them has.

    >>> colours_of(["gprebn:theta=0.5", "tent"])
    {'gprebn:theta=0.5': '#66ccee', 'tent': '#ccbb44'}
    """
    taken = {_OWN[method] for method in methods if method in _OWN}
    free = [colour for colour in dict.fromkeys(_FREE) if colour not in taken]
    strangers = [method for method in methods if method not in _OWN]
    if len(strangers) > len(free):
        raise ValueError(
            f"a figure has colours for {len(taken) + len(free)} methods, got {len(methods)}: "
            f"choose some with `--methods`."
        )
    given = dict(zip(strangers, free, strict=False))
    return {method: _OWN.get(method) or given[method] for method in methods}
