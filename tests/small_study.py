"""A study of seconds: small images, small networks, and commands that run it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from driftnorm.bench.rows import Row
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.methods.spec import parse_method
from driftnorm.models import build

DRIFTNORM = [sys.executable, "-c", "from driftnorm.cli import main; main()"]


def write_data(path: Path, count: int = 60) -> str:
    """Images of 4 x 4 coloured squares, ten classes."""
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (count, 4, 4, 3))
    images = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.int64)
    classes = np.array([f"class {i}" for i in range(10)])
    np.savez(path, images=images, labels=labels, classes=classes)
    return str(path)


def write_weights(path: Path) -> Path:
    """Of a ResNet-20 that was never trained."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(build("resnet20").state_dict(), path)
    return path


def study(data: str, *methods: str, **changes: object) -> CorruptionStudy:
    small = CorruptionStudy(
        data=data,
        model="resnet20",
        weights=None,
        methods=tuple(map(parse_method, methods or ("source", "tent", "gprebn"))),
        corruptions=("contrast", "gaussian_noise"),
        severities=(1, 5),
        batch_size=20,
    )
    return replace(small, **changes)  # type: ignore[arg-type]


def rows_of(results: object) -> list[Row]:
    return [r for r in results if isinstance(r, Row)]  # type: ignore[attr-defined]


def call(
    *arguments: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    return subprocess.run(
        [*DRIFTNORM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
        cwd=cwd,
    )
