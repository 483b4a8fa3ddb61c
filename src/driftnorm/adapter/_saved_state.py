"""An adapter's own entries in its state dict: plain tensors under the prefix ``adapter.``.

Tensors only, so that safetensors and ``torch.load(weights_only=True)`` can store them. The only
text, ``adapter.about``, is JSON in bytes: what the state belongs to, and what it consists of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.adapter._tree import flatten, unflatten

PREFIX = "adapter."
FORMAT = 3
_TREES = ("state", "fitted", "counts")


def fingerprint(network: nn.Module) -> list[float]:
    """Two sums over all weights: enough to tell one trained network from another."""
    with torch.no_grad():
        # First to the CPU: not every device has float64.
        floats = [t.cpu().double() for t in network.state_dict().values() if t.is_floating_point()]
        return [float(sum(t.sum() for t in floats)), float(sum(t.abs().sum() for t in floats))]


def pack(about: Mapping[str, Any], trees: Mapping[str, Any]) -> dict[str, Tensor]:
    """An adapter's state beyond its network, as a flat dictionary."""
    entries: dict[str, Tensor] = {}
    for name in _TREES:
        entries |= {f"{name}/{key}": value for key, value in flatten(trees[name]).items()}
    shapes = {name: list(value.shape) for name, value in entries.items()}
    text = json.dumps({**about, "format": FORMAT, "entries": shapes}, sort_keys=True).encode()
    return {**entries, "about": torch.tensor(list(text), dtype=torch.uint8)}


def check_format(state: Mapping[str, Any]) -> None:
    """Raise if a state dict is an adapter's of another format, of which nothing else is known."""
    if f"{PREFIX}about" in state:
        _told(state[f"{PREFIX}about"])


def _told(about: Tensor) -> tuple[dict[str, Any], dict[str, torch.Size]]:
    """The text of a state of this format, and the shapes of its entries."""
    try:
        told: dict[str, Any] = json.loads(bytes(about.tolist()).decode())
        saved = told.get("format", 1)
        listed = told["entries"] if saved == FORMAT else {}
        shapes = {name: torch.Size(shape) for name, shape in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError("the state is damaged: `adapter.about` cannot be read.") from error
    if saved != FORMAT:
        raise ValueError(
            f"this state was saved in format {saved} by another version of driftnorm, which this "
            f"one (format {FORMAT}) does not read: start the stream again."
        )
    return told, shapes


def read_about(entries: Mapping[str, Tensor], own: Mapping[str, Any]) -> dict[str, Any]:
    """What a state belongs to.

    Raises:
        ValueError: If it is not an adapter's state, not this one's, or incomplete.
    """
    if "about" not in entries:
        raise ValueError(
            "this is not the state of a driftnorm adapter: it has no `adapter.about` entry. To "
            "load network weights, load them into the network before calling `adapt`."
        )
    about, expected = _told(entries["about"])
    if (about["method"], about["settings"]) != (own["method"], own["settings"]):
        raise ValueError(
            f"this state belongs to {about['method']!r} ({about['settings']}), but the adapter "
            f"runs {own['method']!r} ({own['settings']})."
        )
    close = (
        math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6 * abs(own["fingerprint"][1]))
        for a, b in zip(about["fingerprint"], own["fingerprint"], strict=True)
    )
    if not all(close):
        raise ValueError(
            "this state was made on a network with other weights; build the adapter from the same "
            "source network before loading it."
        )
    for name, shape in expected.items():
        if name not in entries or entries[name].shape != shape:
            raise ValueError(f"the state is damaged: `{PREFIX}{name}` is missing or misshapen.")
    unknown = entries.keys() - expected.keys() - {"about"}
    if unknown:
        raise ValueError(f"the state is damaged: `{PREFIX}{min(unknown)}` does not belong to it.")
    return about


def unpack(entries: Mapping[str, Tensor]) -> dict[str, Any]:
    """The trees in a state, with every number checked.

    Raises:
        ValueError: A number that is not finite, or a negative count.
    """
    trees = {}
    for name in _TREES:
        flat = {
            key.removeprefix(f"{name}/"): value
            for key, value in entries.items()
            if key.startswith(f"{name}/")
        }
        for key, value in flat.items():
            check_entry(f"{PREFIX}{name}/{key}", value)
        trees[name] = unflatten({key: value.detach().clone() for key, value in flat.items()})
    return trees


def check_entry(key: str, value: Tensor) -> None:
    """Raise if an entry holds NaN, infinite values or a negative count."""
    if not has_numbers(value):
        raise ValueError(f"the state is damaged: `{key}` holds NaN or infinite values.")
    if key.endswith(":int") and int(value) < 0:
        raise ValueError(f"the state is damaged: `{key}` must be >= 0, got {int(value)}.")


def has_numbers(value: Tensor) -> bool:
    """Whether no value is NaN or infinite."""
    return not value.is_floating_point() or bool(torch.isfinite(value).all())
