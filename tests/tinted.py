"""A tiny set of domains, and plans that train on it in a second."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from driftnorm.domains.training import DomainTraining

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


def driftnorm(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from driftnorm.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
        check=False,
    )
