"""Images per batch: as many as requested, or as memory allows."""

from __future__ import annotations

import torch
from rich.console import Console

from driftnorm._internal.process_memory import free_bytes
from driftnorm.cli._output import say
from driftnorm.models.footprint import footprint
from driftnorm.models.opened_model import Model

USUAL, FEWEST = 64, 8


def settle_batch_size(
    given: int | None,
    model: Model,
    console: Console,
    *,
    device: str,
    gradient: bool,
    networks: int = 2,
) -> int:
    """The batch size; prints how much memory it will take.

    Args:
        given: What the user requested; None means 64, or less if that would take more than half of
            the free memory.
        model: What will run.
        console: Where to print.
        device: Where it will run.
        gradient: Whether backward passes are needed.
        networks: Copies of the network in memory.
    """
    size, free = USUAL if given is None else given, _free_on(device)
    measured = footprint(model.network, model.preprocessing.size)

    def needed(images: int) -> int:
        return measured.of_batch(images, gradient=gradient, networks=networks)

    while given is None and free is not None and size > FEWEST and needed(size) > free / 2:
        size //= 2
    text = f"note: batches of {size} take about {_amount(needed(size))} of memory"
    if free is not None:
        text += f", {_amount(free)} are free"
    if given is None and size < USUAL:
        text += f"; fewer than the usual {USUAL} for that reason, see `--batch-size`"
    elif free is not None and needed(size) > free / 2:
        text += "; a smaller `--batch-size` would be safer"
    say(console, f"{text}.")
    return size


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{-(-size // 10**6)} MB"


def _free_on(device: str) -> int | None:
    kind = torch.device(device).type
    if kind == "cuda":
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return free_bytes() if kind == "cpu" else None
