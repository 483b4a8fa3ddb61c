"""What the guard saves and costs in segmentation, scored by mean intersection over union.

    python benchmarks/guard_segmentation.py [--seeds 0 1]
    python benchmarks/guard_page.py

Pictures of two digits each; a small network, trained on the spot, labels every pixel. Rows go to
docs/rows/guard-segmentation.jsonl; those of other seeds are kept.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from guard import POLICIES
from torch import Tensor, nn

import driftnorm
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS
from driftnorm.bench.studies.digits import normalized_digits
from driftnorm.images.embedded_digits import Digits, split_digits

ROWS = Path("docs/rows/guard-segmentation.jsonl")
SHIFTED = (("noise", 2), ("contrast", 1), ("contrast", 3))
CANVAS, SCENES, BACKGROUND = 24, 400, 10
BATCH_SIZES = (1, 4, 8, 64)
METHODS = (("bn-prior", None), ("tent", 1e-3), ("tent", 0.3), ("gprebn", 1e-3))
ORDERS = ("shuffled", "clean, then shifted")
"""A picture of several digits has no class to be sorted by."""


class Stream(NamedTuple):
    """Pictures of one shift with a class for each pixel, and the network that meets them."""

    shift: str
    seed: int
    network: nn.Module
    images: Tensor
    labels: Tensor
    clean: Tensor


def scenes(digits: Digits, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures of two digits each on a dark ground, and each pixel's class; most are background."""
    images = torch.zeros(count, 1, CANVAS, CANVAS)
    labels = torch.full((count, CANVAS, CANVAS), BACKGROUND)
    for image, label in zip(images, labels, strict=True):
        for left in (0, CANVAS // 2):
            chosen = int(torch.randint(len(digits.labels), (1,), generator=generator))
            x, y = torch.randint(0, CANVAS // 2 - 8, (2,), generator=generator).tolist()
            part = (slice(2 * y, 2 * y + 8), slice(left + x, left + x + 8))
            image[0][part] = digits.images[chosen, 0]
            label[part][digits.images[chosen, 0] > 0.3] = digits.labels[chosen]
    return images, labels


def streams(seed: int) -> Iterator[Stream]:
    """A small network that labels every pixel, trained on the spot, and what it meets."""
    training, test = split_digits(seed)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs, dilation in ((1, 16, 1), (16, 32, 2), (32, 32, 2)):
        padding = {"padding": dilation, "dilation": dilation, "bias": False}
        layers += [nn.Conv2d(inputs, outputs, 3, **padding), nn.BatchNorm2d(outputs), nn.ReLU()]  # type: ignore[arg-type]
    network = nn.Sequential(*layers, nn.Conv2d(32, BACKGROUND + 1, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(600):
        images, labels = scenes(training, 16, generator)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(network(normalized_digits(images)), labels))
        optimizer.step()
    network.eval()
    images, labels = scenes(test, SCENES, generator)
    for shift, severity in SHIFTED:
        shifted = normalized_digits(DIGIT_SHIFTS[shift](images, severity, generator))
        yield Stream(
            f"{shift} {severity}", seed, network, shifted, labels, normalized_digits(images)
        )


class Course(NamedTuple):
    """What a model did on a stream.

    Attributes:
        score: Mean over the classes of intersection over union, in %.
        alarms: How many there were.
        delay: Images until the first of them, with those of its own batch.
        asked: The share of the images that the source was shown as well.
    """

    score: float
    alarms: int
    delay: int | None
    asked: float


def follow(model: nn.Module, images: Tensor, labels: Tensor, size: int) -> Course:
    """Run a network, or an adapter, over a stream in batches."""
    answers, asked = [], 0
    adapter = model if isinstance(model, driftnorm.Adapter) else None
    with torch.no_grad():
        for x in torch.split(images, size):
            answers.append(model(x).argmax(1))
            if adapter is not None and adapter.last is not None:
                asked += 0 if adapter.last.source is None else len(adapter.last.source)
    alarms: Any = () if adapter is None else adapter.alarms
    delay = size * (alarms[0].batch + 1) if alarms else None
    return Course(mean_overlap(torch.cat(answers), labels), len(alarms), delay, asked / len(labels))


def mean_overlap(answers: Tensor, labels: Tensor) -> float:
    """Mean over the classes of intersection over union, in %."""
    shares = []
    for label in sorted(set(labels.flatten().tolist())):
        both = ((answers == label) & (labels == label)).sum()
        shares.append(both / ((answers == label) | (labels == label)).sum())
    return 100 * float(torch.stack(shares).mean())


def in_order(stream: Stream, order: str) -> Tensor:
    """All shifted, or the second half only."""
    half = len(stream.labels) // 2
    if order == "shuffled":
        return stream.images
    return torch.cat([stream.clean[:half], stream.images[half:]])


def measure(stream: Stream) -> Iterator[dict[str, Any]]:
    for order in ORDERS:
        images, labels = in_order(stream, order), stream.labels
        source = follow(stream.network, images, labels, 64).score
        for size, (method, lr) in product(BATCH_SIZES, METHODS):
            options = {} if lr is None else {"lr": lr}
            courses: dict[str, Course] = {
                policy: follow(
                    driftnorm.adapt(stream.network, method, guard=policy, **options),
                    *(images, labels, size),
                )
                for policy in POLICIES
            }
            row = {
                "count": len(labels),
                "batch": size,
                "order": order,
                "stream": stream.shift,
                "seed": stream.seed,
                "method": method if lr is None else f"{method}, rate {lr:g}",
                "source": source,
                **{policy: course.score for policy, course in courses.items()},
                "alarms": courses["warn"].alarms,
                "delay": courses["warn"].delay,
                "asked": courses["warn"].asked,
            }
            print(row, flush=True)
            yield row


def read() -> list[dict[str, Any]]:
    """The committed rows."""
    return [*map(json.loads, ROWS.read_text().splitlines())] if ROWS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
    for seed in given.seeds:
        kept = [row for row in read() if row["seed"] != seed]
        found = [row for stream in streams(seed) for row in measure(stream)]
        ROWS.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *found]))


if __name__ == "__main__":
    main()
