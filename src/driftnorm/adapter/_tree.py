"""The tree that holds all that a stream changes: tensors and numbers, never changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from driftnorm.functional import statistics_dtype

_EMPTY = ":empty"
_MAPPINGS = (dict, Mapping)  # dict first: asking an abstract class is slow
_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool}


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor of a tree."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, tuple):
        for value in tree:
            yield from tensors(value)


def new_tensors(tree: Any, before: Any) -> list[Tensor]:
    """The tensors of a tree that were not in the tree before: what a batch has replaced."""
    found: list[Tensor] = []
    if isinstance(tree, Tensor) and tree is not before:
        found.append(tree)
    elif tree is not before:
        _collect(tree, before, found)
    return found


def _collect(tree: Any, before: Any, found: list[Tensor]) -> None:
    if isinstance(tree, tuple):
        tree = dict(enumerate(tree))
        before = dict(enumerate(before)) if isinstance(before, tuple) else {}
    elif not isinstance(tree, _MAPPINGS):
        return
    known = before if isinstance(before, _MAPPINGS) else {}
    for key, value in tree.items():
        earlier = known.get(key)
        if value is earlier or type(value) is int:  # every layer of every batch counts itself
            continue
        if isinstance(value, Tensor):  # no call for each of the many
            found.append(value)
        else:
            _collect(value, earlier, found)


def mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same tree with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(mapped(value, change) for value in tree)
    return tree


def moved(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The tree on the device to which ``change`` moves a network."""
    return mapped(tree, lambda t: t.to(change(torch.empty(0, device=t.device)).device))


def converted(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The tree on the device and in the precision that ``change`` gives a network.

    It stays in float32 or wider; scalars, such as an optimiser's step counters, stay as they are.
    """

    def like(value: Tensor) -> Tensor:
        if not value.is_floating_point() or not value.dim():
            return value
        new = change(torch.empty(0, dtype=value.dtype, device=value.device))
        wide = new.dtype if statistics_dtype(new.dtype) == new.dtype else value.dtype
        return value.to(device=new.device, dtype=wide)

    return mapped(tree, like)


def flatten(tree: Any, name: str = "") -> dict[str, Tensor]:
    """The tree as tensors by path; a number's key says what it was: ``batches:int``.

    A number that came back as a tensor would make later arithmetic float32, and a resumed stream
    would diverge from an uninterrupted one. An empty container is a leaf, or it would vanish.
    """
    if isinstance(tree, Tensor):
        return {name: tree}
    if isinstance(tree, bool | int | float):
        dtype = torch.float64 if isinstance(tree, float) else None
        return {f"{name}:{type(tree).__name__}": torch.tensor(tree, dtype=dtype)}
    if isinstance(tree, tuple):
        if not tree:
            return {f"{name}{_EMPTY}-tuple": torch.zeros(0)}
        items = [(f"#{place}", value) for place, value in enumerate(tree)]
    elif isinstance(tree, Mapping):
        if not tree:
            return {f"{name}{_EMPTY}": torch.zeros(0)} if name else {}
        items = [(_written(key), value) for key, value in tree.items()]
    else:
        raise TypeError(
            f"`{name}` holds a {type(tree).__name__}: a part's memory may hold tensors, numbers, "
            "dictionaries and tuples of them."
        )
    found: dict[str, Tensor] = {}
    for key, value in items:
        found |= flatten(value, f"{name}/{key}" if name else key)
    return found


def unflatten(flat: Mapping[str, Tensor]) -> Any:
    """The inverse of :func:`flatten`.

    Raises:
        ValueError: A key that no tree has.
    """
    tree: dict[str, Any] = {}
    for path, tensor in flat.items():
        *parents, last = path.split("/")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
            if not isinstance(at, dict):
                raise ValueError(f"`{path}` lies below a number.")
        name, _, kind = last.rpartition(":") if ":" in last else (last, "", "")
        at[name] = _leaf(path, kind, tensor)
    return _with_tuples(tree)


def _leaf(path: str, kind: str, tensor: Tensor) -> Any:
    if not kind:
        return tensor
    if kind == "empty":
        return {}
    if kind == "empty-tuple":
        return ()
    if kind not in _KINDS or tensor.numel() != 1:
        raise ValueError(f"`{path}` is not an entry of an adapter's state.")
    return _KINDS[kind](tensor.item())


def _with_tuples(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    inside = {key: _with_tuples(value) for key, value in tree.items()}
    if inside and all(key.startswith("#") for key in inside):
        places = sorted(inside, key=lambda key: int(key[1:]))
        return tuple(inside[key] for key in places)
    return {_read(key): value for key, value in inside.items()}


def _written(key: str) -> str:
    """The key with the characters that structure a path escaped."""
    for sign in "%/:#":
        key = key.replace(sign, f"%{ord(sign):02X}")
    return key or "%"


def _read(key: str) -> str:
    if key == "%":
        return ""
    for sign in "#:/%":
        key = key.replace(f"%{ord(sign):02X}", sign)
    return key


def mean_of(trees: list[Any]) -> Any:
    """Element-wise mean of trees of the same structure."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {key: mean_of([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(mean_of([tree[place] for tree in trees]) for place in range(len(first)))
    if isinstance(first, Tensor):
        return torch.stack(trees).mean(dim=0)
    return sum(trees) / len(trees)
