"""Random numbers of networks that draw some (dropout): repeatable with a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def caller_kept(seed: int | None, network: nn.Module) -> Iterator[None]:
    """With a seed, leave the caller's random state alone."""
    if seed is None:
        yield
        return
    home = next((p.device.type for p in network.parameters()), "cpu")
    elsewhere = {} if home in ("cpu", "meta") else {"device_type": home}
    with torch.random.fork_rng(**elsewhere):
        yield


def reseed(seed: int | None, batches: int, device: torch.device) -> None:
    """With a seed, a batch's random numbers depend only on how many came before it."""
    if seed is None:
        return
    if device.type == "cpu":
        # Before CUDA is initialised, `torch.manual_seed` records the call stack: slow.
        torch.default_generator.manual_seed(seed + batches)
    else:
        torch.manual_seed(seed + batches)
