"""An adapter's own entries in its state dict: plain tensors under the prefix ``adapter.``.

Tensors only, so that safetensors and ``torch.load(weights_only=True)`` can keep them. The one text,
``adapter.about``, is JSON in bytes: what the state belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from driftnorm.guard import GuardState
from driftnorm.heads import HeadState
from driftnorm.probe import Layout
from driftnorm.transaction import Learner

__all__ = [
    "PREFIX",
    "check_compatible",
    "describe",
    "pack",
    "read_about",
    "read_guard",
    "read_head",
    "read_optimizer",
]

PREFIX = "adapter."


def describe(method: str, settings: str, layout: Layout | None) -> Tensor:
    """What a state belongs to, as bytes."""
    about: dict[str, Any] = {"method": method, "settings": settings}
    if layout is not None:
        about |= {"order": list(layout.order), "classifier": layout.classifier}
    return torch.tensor(list(json.dumps(about, sort_keys=True).encode()), dtype=torch.uint8)


def read_about(entries: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inverse of :func:`describe`.

    Raises:
        ValueError: If this is not the state of an adapter.
    """
    if "about" not in entries or "counters" not in entries:
        raise ValueError(
            "this is not the state of a driftnorm adapter: it has no `adapter.about` entry. To "
            "load network weights, load them into the network before calling `adapt`."
        )
    about: dict[str, Any] = json.loads(bytes(entries["about"].tolist()).decode())
    return about


def check_compatible(
    given: Mapping[str, Any], own: Mapping[str, Tensor], method: str, settings: str
) -> None:
    """Raise, before anything is changed, if a state cannot be loaded into this adapter."""
    about = read_about(
        {k.removeprefix(PREFIX): v for k, v in given.items() if k.startswith(PREFIX)}
    )
    if (about["method"], about["settings"]) != (method, settings):
        raise ValueError(
            f"this state belongs to {about['method']!r} ({about['settings']}), but the adapter "
            f"runs {method!r} ({settings})."
        )
    network = {k: v for k, v in given.items() if not k.startswith(PREFIX)}
    expected = {k: v for k, v in own.items() if not k.startswith(PREFIX)}
    for what, names in (
        ("lacks", expected.keys() - network.keys()),
        ("has unexpected", network.keys() - expected.keys()),
    ):
        if names:
            raise ValueError(
                f"the state is of another network: it {what} {len(names)} entries, "
                f"such as `{min(names)}`."
            )
    for key, value in expected.items():
        if network[key].shape != value.shape:
            raise ValueError(
                f"the state is of another network: `{key}` has shape {tuple(network[key].shape)}, "
                f"expected {tuple(value.shape)}."
            )


def pack(
    about: Tensor,
    counters: tuple[int, int, bool],
    guard: GuardState,
    head: HeadState | None,
    learner: Learner | None,
) -> dict[str, Tensor]:
    """All that an adapter knows beyond its network, as a flat dictionary."""
    entries = {
        "about": about,
        "counters": torch.tensor([int(c) for c in counters]),
        "guard.marginal": guard.marginal,
        "guard.batches": torch.tensor(guard.batches),
    }
    for key, value in (head or {}).items():
        entries[f"head.{key}"] = value
    if learner is not None:
        for name, state in zip(learner.parameters, learner.optimizer_state(), strict=True):
            for key, value in state.items():
                if isinstance(value, Tensor):
                    entries[f"optimizer.{name}.{key}"] = value
    return entries


def read_guard(entries: Mapping[str, Tensor]) -> GuardState:
    """The guard's memory."""
    return GuardState(entries["guard.marginal"].clone(), int(entries["guard.batches"]))


def read_head(entries: Mapping[str, Tensor]) -> HeadState | None:
    """The classifier-side state, if the method has one."""
    head = {k.removeprefix("head."): v.clone() for k, v in entries.items() if k.startswith("head.")}
    return head or None


def read_optimizer(entries: Mapping[str, Tensor], learner: Learner) -> list[dict[str, Any]]:
    """The optimiser's state in the order of the learner's parameters."""
    states: dict[str, dict[str, Any]] = {name: {} for name in learner.parameters}
    for key, value in entries.items():
        if key.startswith("optimizer."):
            name, _, part = key.removeprefix("optimizer.").rpartition(".")
            states[name][part] = value.clone()
    return list(states.values())
