"""An adapter's own entries in its state dict: plain tensors under the prefix ``adapter.``.

Tensors only, so that safetensors and ``torch.load(weights_only=True)`` can keep them. The one text,
``adapter.about``, is JSON in bytes: what the state belongs to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.adapter._learner import Learner
from driftnorm.adapter._probe import Layout
from driftnorm.adapter.guard import GuardState
from driftnorm.heads import HeadState

__all__ = [
    "PREFIX",
    "check_network",
    "fingerprint",
    "on_device",
    "pack",
    "read_about",
    "read_guard",
    "read_head",
    "read_optimizer",
]

PREFIX = "adapter."
# What is computed with beside the network's tensors, and so must be where they are.
_BESIDE_NETWORK = ("head.", "optimizer.", "guard.marginal", "guard.source_marginal")


def fingerprint(network: nn.Module) -> list[float]:
    """Two sums over all weights: enough to tell one trained network from another."""
    with torch.no_grad():
        # First to the CPU: not every device has float64.
        floats = [t.cpu().double() for t in network.state_dict().values() if t.is_floating_point()]
        return [float(sum(t.sum() for t in floats)), float(sum(t.abs().sum() for t in floats))]


def pack(
    about: Mapping[str, Any],
    layout: Layout | None,
    counters: tuple[int, ...],
    guard: GuardState,
    head: HeadState | None,
    learner: Learner | None,
) -> dict[str, Tensor]:
    """All that an adapter knows beyond its network, as a flat dictionary."""
    entries = {
        "counters": torch.tensor([int(c) for c in counters]),
        "guard.marginal": guard.marginal,
        "guard.source_marginal": guard.source_marginal,
        "guard.seen": torch.tensor([guard.batches, guard.audits, guard.held]),
        "guard.source_spread": torch.tensor(guard.source_spread, dtype=torch.float64),
    }
    for key, value in (head or {}).items():
        entries[f"head.{key}"] = value
    if learner is not None:
        for name, state in zip(learner.parameters, learner.optimizer_state(), strict=True):
            for key, value in state.items():
                entries |= _optimizer_entry(name, key, value)
    known = {**about, "entries": {name: list(value.shape) for name, value in entries.items()}}
    if layout is not None:
        known |= {"order": list(layout.order), "classifier": layout.classifier}
    text = json.dumps(known, sort_keys=True).encode()
    return {**entries, "about": torch.tensor(list(text), dtype=torch.uint8)}


def _optimizer_entry(name: str, key: str, value: Any) -> dict[str, Tensor]:
    if value is None:
        return {}
    if isinstance(value, Tensor):
        return {f"optimizer.{name}.{key}": value}
    if isinstance(value, int | float):
        return {f"number.{name}.{key}": torch.tensor(value)}
    raise TypeError(
        f"the optimiser keeps `{key}` as a {type(value).__name__}, which a state dict cannot hold; "
        f"use one whose state is tensors and numbers."
    )


def read_about(entries: Mapping[str, Tensor], own: Mapping[str, Any]) -> dict[str, Any]:
    """What a state belongs to.

    Raises:
        ValueError: If it is not the state of an adapter, not of this one, or not whole.
    """
    if "about" not in entries:
        raise ValueError(
            "this is not the state of a driftnorm adapter: it has no `adapter.about` entry. To "
            "load network weights, load them into the network before calling `adapt`."
        )
    try:
        about: dict[str, Any] = json.loads(bytes(entries["about"].tolist()).decode())
        expected = {name: torch.Size(shape) for name, shape in about["entries"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError("the state is damaged: `adapter.about` cannot be read.") from error
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
    return about


def check_network(given: Mapping[str, Any], own: Mapping[str, Tensor]) -> None:
    """Raise if the network's part of a state is of another network."""
    network = {k: v for k, v in given.items() if not k.startswith(PREFIX)}
    expected = {k: v for k, v in own.items() if not k.startswith(PREFIX)}
    if len(network) == len(given):
        return  # no adapter's state at all: `read_about` says so
    for what, names in (
        ("lacks", expected.keys() - network.keys()),
        ("has unexpected", network.keys() - expected.keys()),
    ):
        if names:
            raise ValueError(
                f"the state is of another network, or not whole: it {what} {len(names)} entries, "
                f"such as `{min(names)}`."
            )
    for key, value in expected.items():
        if network[key].shape != value.shape:
            raise ValueError(
                f"the state is of another network: `{key}` has shape {tuple(network[key].shape)}, "
                f"expected {tuple(value.shape)}."
            )


def on_device(entries: Mapping[str, Tensor], home: torch.device) -> dict[str, Tensor]:
    """The entries, those that are used beside the network's tensors on its device.

    Scalars, such as an optimiser's step counters, stay where they are.
    """
    return {
        name: value.to(home) if name.startswith(_BESIDE_NETWORK) and value.dim() else value
        for name, value in entries.items()
    }


def read_guard(entries: Mapping[str, Tensor]) -> GuardState:
    """The guard's memory."""
    batches, audits, held = entries["guard.seen"].tolist()
    marginal, source = entries["guard.marginal"], entries["guard.source_marginal"]
    spread = float(entries["guard.source_spread"])
    return GuardState(marginal.clone(), batches, source.clone(), audits, spread, held)


def read_head(entries: Mapping[str, Tensor], start: HeadState | None) -> HeadState | None:
    """The classifier-side state; a state saved before the first batch has none yet."""
    head = {k.removeprefix("head."): v.clone() for k, v in entries.items() if k.startswith("head.")}
    return head or start


def read_optimizer(entries: Mapping[str, Tensor], learner: Learner | None) -> list[dict[str, Any]]:
    """The optimiser's state in the order of the learner's parameters."""
    if learner is None:
        return []
    states: dict[str, dict[str, Any]] = {name: {} for name in learner.parameters}
    for key, value in entries.items():
        kind, _, rest = key.partition(".")
        if kind in ("optimizer", "number"):
            name, _, part = rest.rpartition(".")
            if name not in states:
                raise ValueError(
                    f"this state trains `{name}`, which the adapter does not: its recipe selects "
                    "other layers or parameters."
                )
            states[name][part] = value.clone() if kind == "optimizer" else value.item()
    return list(states.values())
