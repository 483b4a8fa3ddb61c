"""How long the corruptions take, and how long a whole CIFAR-10-C would.

Times every corruption at every severity on a slice of 32 px images and prints a Markdown table.
The images are CIFAR-10's test set if the environment variable DRIFTNORM_CIFAR10 names the folder of
its binary batches, else fractal textures. Run it with OPENBLAS_NUM_THREADS=1, as a worker process
would, for the figure of one core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/corruption_speed.py --images 1000
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS, corrupt, frost_source
from driftnorm.shifts._common import Draws, Pixels, truncate
from driftnorm.shifts._plasma import plasma

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000, help="images in the slice")
    images, kind = load_images(parser.parse_args().images)
    frost = frost_choice()
    print(f"{len(images)} {kind} of 32 px, frost from {frost_source(frost)}, ms an image\n")
    print("| corruption | 1 | 2 | 3 | 4 | 5 | mean |")
    print("|---|---|---|---|---|---|---|")
    means = {}
    for name in CORRUPTIONS + EXTRA_CORRUPTIONS:
        times = [milliseconds(images, name, severity, frost) for severity in SEVERITIES]
        means[name] = float(np.mean(times))
        cells = " | ".join(f"{value:.3f}" for value in [*times, means[name]])
        print(f"| {name} | {cells} |")
    common = float(np.mean([means[name] for name in CORRUPTIONS]))
    total = len(CORRUPTIONS) * len(SEVERITIES) * DATA_SET_IMAGES
    minutes = common * total / 1000 / CORES / 60
    print(
        f"\nMean of the {len(CORRUPTIONS)} common corruptions: {common:.3f} ms an image and core."
    )
    print(
        f"CIFAR-10-C, {total:,} images on {CORES} cores: {minutes:.1f} minutes "
        f"(extrapolated; target {TARGET_MINUTES})."
    )


if __name__ == "__main__":
    main()
