"""A tiny set of domains, and plans that train on it in a second."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from PIL import Image

from driftnorm.cli import main
from driftnorm.training.domains.domain_training import DomainTraining

DOMAINS = ("blue", "green", "red")
SIDE = 12


def make_domains(root: Path) -> Path:
    """Three domains (tints) of two classes (stripes across or along), 15 pictures each."""
    rng = np.random.default_rng(0)
    for tint, domain in enumerate(DOMAINS):
        for kind, label in enumerate(("across", "along")):
            place = root / domain / label
            place.mkdir(parents=True)
            for number in range(15):
                pixels = rng.integers(0, 60, (SIDE, SIDE, 3))
                stripes = np.arange(SIDE) // 2 % 2 * 150
                pixels[..., tint] += stripes[:, None] if kind else stripes[None, :]
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    return root


def first_one_dies(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    workers: int,
    died: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """A launcher whose first worker dies."""
    assert died is not None
    for number, task in enumerate(tasks):
        yield task, (function if number else died)(task)


def plan(**changes: object) -> DomainTraining:
    """A short training, changed as told."""
    small = DomainTraining(
        "erm",
        ("red",),
        backbone="mnist-bn",
        batch_norm="trained",
        steps=6,
        batch_size=4,
        lr=1e-3,
        evaluate_every=3,
    )
    return replace(small, **changes)  # type: ignore[arg-type]


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def driftnorm(*words: object) -> Said:
    """Run a command in this process: importing torch takes longer than most of them."""
    out, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        patch.object(sys, "argv", ["driftnorm", *map(str, words)]),
        patch.dict(os.environ, COLUMNS="160"),
        redirect_stdout(out),
        redirect_stderr(errors),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Said(code, out.getvalue(), errors.getvalue())
