"""How long the corruptions take, and how long a whole CIFAR-10-C would.

Times every corruption at every severity on a sample of 32 px images; adds a row to the rows and
writes the page from the latest. The images are CIFAR-10's test set if the environment variable
DRIFTNORM_CIFAR10 names the folder of its binary batches, else fractal textures. Run it with
OPENBLAS_NUM_THREADS=1, as a worker process would, for the figure of one core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/corruption_speed.py --images 1000
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from driftnorm._internal.types import Pixels
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS, corrupt, frost_source
from driftnorm.shifts._common import Draws, truncate
from driftnorm.shifts._plasma import plasma
from driftnorm.views.table import Column, Table

ROWS, PAGE = Path("docs/rows/corruption-speed.jsonl"), Path("docs/corruption-speed.md")

SEVERITIES = range(1, 6)
DATA_SET_IMAGES = 10_000
CORES = 2
TARGET_MINUTES = 20


def load_images(count: int) -> tuple[Pixels, str]:
    folder = os.environ.get("DRIFTNORM_CIFAR10")
    if folder:
        found = sorted(Path(folder).rglob("test_batch.bin"))
        if not found:
            raise FileNotFoundError(f"DRIFTNORM_CIFAR10 names '{folder}': no test_batch.bin there.")
        rows = np.fromfile(found[0], dtype=np.uint8, count=count * 3073).reshape(-1, 3073)
        return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), "CIFAR-10 test images"
    noise = Draws(0, range(3 * count), "texture", 0).uniform(-1, 1, 32, 32)
    planes = truncate(255 * plasma(noise, 1.8)).reshape(-1, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), "fractal textures"


def frost_choice() -> str | None:
    try:
        frost_source()
    except FileNotFoundError:
        return "procedural"
    return None


def milliseconds(images: Pixels, name: str, severity: int, frost: str | None) -> float:
    # Matrices, kernels and frost pictures are made once a process, not once an image.
    corrupt(images[:8], name, severity, frost=frost)
    start = time.perf_counter()
    corrupt(images, name, severity, frost=frost)
    return (time.perf_counter() - start) / len(images) * 1000


def page(rows: Path = ROWS) -> str:
    """The page of the latest run."""
    found: dict[str, Any] = json.loads(rows.read_text().splitlines()[-1])
    times: dict[str, list[float]] = found["milliseconds"]
    columns = (Column("corruption"), *(Column(str(s), decimals=3) for s in SEVERITIES))
    lines: tuple[tuple[str | float | None, ...], ...] = tuple(
        (name, *own, float(np.mean(own))) for name, own in times.items()
    )
    shown = (*columns, Column("mean", decimals=3))
    note = f"{found['about']}. `{found['command']}`"
    table = Table("Milliseconds per image by severity, on one core", shown, lines, note)
    common = float(np.mean([times[name] for name in CORRUPTIONS]))
    total = len(CORRUPTIONS) * len(SEVERITIES) * DATA_SET_IMAGES
    minutes = common * total / 1000 / CORES / 60
    kept = "kept" if minutes <= TARGET_MINUTES else "NOT kept"
    return f"""# How long the corruptions take

Written by `python benchmarks/corruption_speed.py` from `rows/{rows.name}`.

{table.to_markdown()}
- Mean of the {len(CORRUPTIONS)} common corruptions: {common:.3f} ms per image and core.
- CIFAR-10-C, {total:,} images on {CORES} cores: **{minutes:.1f} minutes**, extrapolated from the
  sample (<= {TARGET_MINUTES}: {kept}).
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000, help="images in the sample")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    images, kind = load_images(given.images)
    frost = frost_choice()
    measured = {
        "about": f"{len(images)} {kind} of 32 px, frost from {frost_source(frost)}, "
        f"{platform.machine()}, numpy {np.__version__}",
        "command": f"python {shlex.join(sys.argv)}",
        "milliseconds": {
            name: [round(milliseconds(images, name, s, frost), 5) for s in SEVERITIES]
            for name in CORRUPTIONS + EXTRA_CORRUPTIONS
        },
    }
    with given.rows.open("a") as file:
        file.write(json.dumps(measured) + "\n")
    given.out.write_text(page(given.rows))
    print(given.out.read_text())


if __name__ == "__main__":
    main()
