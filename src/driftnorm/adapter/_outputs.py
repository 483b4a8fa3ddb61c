"""What an adapter returns: the network's own kind of output, without a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def detached(answer: Any) -> Any:
    """The output with every tensor in it detached: in containers, dataclasses, plain objects."""
    return _changed(answer, Tensor.detach, {})


def replaced(answer: Any, logits: Tensor, new: Tensor) -> Any:
    """The output with new logits in the place of the network's.

    Just the new ones if the network's are not in it, but were computed from it.
    """
    places = 0

    def change(value: Tensor) -> Tensor:
        nonlocal places
        places += value is logits
        return new if value is logits else value

    changed = _changed(answer, change, {})
    return changed if places else new


def _changed(answer: Any, change: Callable[[Tensor], Tensor], twins: dict[int, Any]) -> Any:
    return tree_map(lambda leaf: _changed_leaf(leaf, change, twins), answer)


def _changed_leaf(value: Any, change: Callable[[Tensor], Tensor], twins: dict[int, Any]) -> Any:
    """What torch sees as a leaf may be an object that holds tensors, or even itself."""
    if isinstance(value, Tensor):
        return change(value)
    if id(value) in twins:
        return twins[id(value)]
    if not _holds_tensor(value, ()):
        return value
    twin = twins[id(value)] = copy.copy(value)  # the network may keep what it returned
    if isinstance(value, Mapping):  # of a kind that torch does not look into
        for name, part in value.items():
            twin[name] = _changed(part, change, twins)
    for name, part in _attributes(value).items():
        object.__setattr__(twin, name, _changed(part, change, twins))  # frozen dataclasses too
    return twin


def _holds_tensor(value: Any, within: tuple[int, ...]) -> bool:
    """Whether there is a tensor anywhere in an object."""
    if isinstance(value, Tensor):
        return True
    if id(value) in within or isinstance(value, nn.Module | type):
        return False
    parts = [*_attributes(value).values()]
    if isinstance(value, Mapping):
        parts += value.values()
    return any(_holds_tensor(part, (*within, id(value))) for part in tree_leaves(parts))


def _attributes(value: Any) -> dict[str, Any]:
    named = dict(getattr(value, "__dict__", {}))
    if is_dataclass(value) and not isinstance(value, type):  # it may have slots
        named |= {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    return named
