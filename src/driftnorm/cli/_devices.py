"""The device to compute on, checked to exist on this machine."""

from __future__ import annotations

import textwrap

import torch


def check_device(name: str) -> str:
    """The name of a device that works here.

    Raises:
        ValueError: It is not a device, or this machine or build of torch does not have it.
    """
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = textwrap.shorten(str(error) or type(error).__name__, 80, placeholder=" ...")
        raise ValueError(
            f"`--device` must be one that this machine has ({', '.join(_there())}), got {name!r} "
            f"({reason})."
        ) from error
    return name


def _there() -> list[str]:
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return ["cpu", *(name for name, usable in found.items() if usable)]
