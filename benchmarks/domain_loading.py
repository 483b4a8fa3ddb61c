"""How fast training batches come: cached arrays augmented by the batch against Pillow per item.

Both do DomainBed's augmentation to the same pictures, in one process and on one thread, in turns,
so that a busy machine slows both alike. Pillow's side opens a file, cuts, resizes and jitters it
with Pillow's own operations and makes a tensor, as each of DomainBed's loader processes does; its
draws are made for one picture at a time. Times are of the processor, not of the clock, so that
waiting for other programs does not count. Prints a Markdown table: pictures a second, and the ratio
of the two times of a turn.

    python benchmarks/domain_loading.py pacs-160.tar --side 112
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance

from driftnorm._internal.types import Integers
from driftnorm.images.domains.augment import draw_plan
from driftnorm.images.domains.cache import cached_arrays
from driftnorm.images.domains.folder import DomainSet, open_domains
from driftnorm.training.batches import random_numbers
from driftnorm.training.domains.minibatches import Batches

ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def shifted_hue(picture: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = picture.convert("HSV").split()
    steps = np.asarray(hue) + np.array(int(turns * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(steps), saturation, value)).convert("RGB")


def augmented(path: Path, rng: np.random.Generator, side: int) -> torch.Tensor:
    with Image.open(path) as file:
        picture = file.convert("RGB")
    plan = draw_plan(rng, 1, picture.height, picture.width)
    top, left, height, width = plan.boxes[0].tolist()
    picture = picture.crop((left, top, left + width, top + height))
    picture = picture.resize((side, side), Image.Resampling.BILINEAR)
    if plan.mirrored[0]:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for operation in plan.order[0].tolist():
        factor = float(plan.factors[0, operation])
        if operation < len(ENHANCERS):
            picture = ENHANCERS[operation](picture).enhance(factor)
        else:
            picture = shifted_hue(picture, factor)
    if plan.gray[0]:
        picture = picture.convert("L").convert("RGB")
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)


def pillow_batch(
    domains: DomainSet, positions: list[Integers], size: int, step: int, side: int
) -> list[torch.Tensor]:
    order, changes = random_numbers(0, "order", step), random_numbers(0, "augmentation", step)
    batches = []
    for domain, own in zip(domains.domains, positions, strict=True):
        draws = own[order.integers(0, len(own), size)]
        batches.append(torch.stack([augmented(domain.paths[i], changes, side) for i in draws]))
    return batches


def seconds(load: Callable[[int], object], step: int) -> float:
    start = time.process_time()
    load(step)
    return time.process_time() - start


def show(taken: dict[str, list[float]], pictures: int) -> None:
    print("| loading | pictures a second (median) |\n|---|---|")
    for name, times in taken.items():
        print(f"| {name} | {pictures / statistics.median(times[1:]):.0f} |")  # the first warms up
    ratios = sorted(p / c for p, c in zip(taken["Pillow"][1:], taken["cache"][1:], strict=True))
    quarter = len(ratios) // 4
    print(
        f"\nPillow takes {statistics.median(ratios):.2f} times as long "
        f"(middle half of the turns: {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder domain/class/picture, or a tar of it")
    parser.add_argument("--side", type=int, default=112, help="pixels")
    parser.add_argument("--batch", type=int, default=32, help="pictures a domain")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--cache", type=Path, help="where to keep decoded pictures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    domains = open_domains(options.data, cache=options.cache)
    start = time.perf_counter()
    arrays = cached_arrays(domains, options.side, folder=options.cache)
    opened = time.perf_counter() - start
    positions = [split.inner for split in arrays.splits(0)]
    batches = Batches(arrays.domains, positions, options.batch, 0, augmented=True)
    ways: dict[str, Callable[[int], object]] = {
        "Pillow": lambda step: pillow_batch(domains, positions, options.batch, step, options.side),
        "cache": batches.batch,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for step in range(options.turns + 1):
        for name, load in ways.items():
            taken[name].append(seconds(load, step))
    print(
        f"{domains.name}, {options.side} px, {options.batch} pictures of each of "
        f"{len(domains.domains)} domains a step, {options.turns} turns, one thread; "
        f"the cache was made or opened in {opened:.1f} s\n"
    )
    show(taken, options.batch * len(domains.domains))


if __name__ == "__main__":
    main()
