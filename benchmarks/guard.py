"""What the guard saves on sorted streams, and costs on shuffled ones and at the onset of a drift.

    python benchmarks/guard.py [--seeds 2] [--cifar FOLDER --weights FILE] [--out docs/guard.md]

Rows go to docs/rows/guard.jsonl, and the page is written from them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm import models
from driftnorm.bench.studies.digit_shifts import SHIFTS
from driftnorm.bench.studies.digits import normalized, train
from driftnorm.images.cifar import load_cifar10
from driftnorm.images.corrupted import corrupted
from driftnorm.images.embedded_digits import split_digits
from driftnorm.views.table import Column, Table

DIGITS = (("noise", 1), ("noise", 2), ("impulse", 2), ("contrast", 1))
CIFAR = (("gaussian_noise", 5), ("fog", 5), ("contrast", 5))
CIFAR_IMAGES = 800
BATCHES = {"digits": 32, "cifar-10-c": 8}
METHODS = (("bn", None), ("bn-prior", None), ("tent", 1e-3), ("tent", 0.3), ("gprebn", 1e-3))
ORDERS = ("sorted by class", "shuffled", "clean, then shifted")
POLICIES = ("off", "reset", "freeze")


class Stream(NamedTuple):
    """Labelled batches of one shift, and the network that meets them."""

    data: str
    shift: str
    seed: int
    network: nn.Module
    images: Tensor
    labels: Tensor
    clean: Tensor


def digits(seeds: int) -> Iterator[Stream]:
    for seed in range(seeds):
        training, test = split_digits(seed)
        network = train(training, seed)
        for shift, severity in DIGITS:
            generator = torch.Generator().manual_seed(seed)
            images = normalized(SHIFTS[shift](test.images, severity, generator))
            yield Stream(
                "digits",
                f"{shift} {severity}",
                seed,
                network,
                images,
                test.labels,
                normalized(test.images),
            )


def cifar(folder: Path, weights: Path) -> Iterator[Stream]:
    clean = load_cifar10(folder, "test").first(CIFAR_IMAGES)
    network = models.load("resnet20", weights)
    for shift, severity in CIFAR:
        stream = corrupted(clean, shift, severity)
        images = torch.from_numpy(np.array(stream.images)).permute(0, 3, 1, 2).float().div(255)
        labels = torch.from_numpy(np.array(stream.labels))
        plain = torch.from_numpy(np.array(clean.images)).permute(0, 3, 1, 2).float().div(255)
        yield Stream("cifar-10-c", f"{shift} {severity}", 0, network, images, labels, plain)


def accuracy(
    model: Callable[[Tensor], Tensor], stream: Stream, order: Tensor, onset: bool = False
) -> float:
    batch, shifted = BATCHES[stream.data], stream.images
    if onset:
        half = len(shifted) // 2
        shifted = torch.cat([stream.clean[:half], shifted[half:]])
    images = torch.split(shifted[order], batch)
    labels = torch.split(stream.labels[order], batch)
    with torch.no_grad():
        pairs = zip(images, labels, strict=True)
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in pairs)
    return 100 * right / len(stream.labels)


def measure(stream: Stream) -> Iterator[dict[str, Any]]:
    orders = {
        "sorted by class": torch.argsort(stream.labels, stable=True),
        "shuffled": torch.arange(len(stream.labels)),
        "clean, then shifted": torch.arange(len(stream.labels)),
    }
    for order, positions in orders.items():
        onset = order == "clean, then shifted"
        source = accuracy(stream.network, stream, positions, onset)
        for method, lr in METHODS:
            options = {} if lr is None else {"lr": lr}
            adapters = {
                policy: driftnorm.adapt(stream.network, method, guard=policy, **options)
                for policy in POLICIES
            }
            yield {
                "data": stream.data,
                "count": len(stream.labels),
                "batch": BATCHES[stream.data],
                "order": order,
                "stream": stream.shift,
                "seed": stream.seed,
                "method": method if lr is None else f"{method}, rate {lr:g}",
                "source": source,
                **{p: accuracy(a, stream, positions, onset) for p, a in adapters.items()},
                "alarms": len(adapters["freeze"].alarms),
            }


LIMITS = """A share of the images, whatever the batch size, is shown to the source as well. Three
things raise an alarm: answers that spread over less than half as many classes as the source's (as
entropy), answers that say clearly less than the source's do, and trained parameters that have moved
by more than half of their length. `reset` starts again from the source; `freeze` lets the source
answer for 256 images and then tries again, for twice as long if that fails soon. Every action is
one warning, and `adapter.alarms` keeps its numbers.

## What it does not do

* **It cannot see every harm.** A gradient step makes answers sure of themselves, right or wrong:
  harm that neither narrows the answers nor moves the parameters far raises no alarm. The one sure
  bound is `adapter.last.disagreement`: on the images that both answered, the accuracies differ by
  no more than that share.
* **It needs evidence**: 48 images that the source was asked about. On a short stream sorted by
  class harm is done before it speaks, and again each time that it tries: see the first table.
* **`steady` does not need it**: it compares itself with the source all the time, and has no guard.
"""


def page(rows: list[dict[str, Any]]) -> str:
    parts = [
        "# What the guard saves and costs\n",
        "Written by `python benchmarks/guard.py` from `rows/guard.jsonl`. The default thresholds "
        "were chosen on other corruptions of CIFAR-10 and CIFAR-100 (benchmarks/one_default.py has "
        "the split).\n",
        LIMITS,
    ]
    for data in dict.fromkeys(row["data"] for row in rows):
        for order in ORDERS:
            mine = [row for row in rows if row["data"] == data and row["order"] == order]
            parts.append(table(f"{data}, {order}", mine).to_markdown())
    return "\n".join(parts)


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["stream"], row["method"]), []).append(row)
    lines: list[tuple[str | float | None, ...]] = []
    for (stream, method), own in groups.items():
        means = (float(np.mean([row[key] for row in own])) for key in ("source", *POLICIES))
        alarms = float(np.mean([row["alarms"] for row in own]))
        lines.append((stream, method, *means, alarms))
    columns = (
        Column("stream"),
        Column("method", align="left"),
        Column("source"),
        *(Column(f"guard {policy}") for policy in POLICIES),
        Column("alarms, freeze"),
    )
    note = (
        f"Accuracy in %, mean of {len({row['seed'] for row in rows})} seed(s), "
        f"{rows[0]['count']} samples per stream, batch {rows[0]['batch']}, 1 step, no reset by the "
        "protocol, scored before the update; default thresholds."
    )
    return Table(title, columns, tuple(lines), note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-10's official files")
    parser.add_argument("--weights", type=Path, help="weights of a CIFAR-10 ResNet-20")
    parser.add_argument("--rows", type=Path, default=Path("docs/rows/guard.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/guard.md"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
    rows = [row for stream in digits(arguments.seeds) for row in measure(stream)]
    if arguments.cifar is not None:
        rows += [row for s in cifar(arguments.cifar, arguments.weights) for row in measure(s)]
    arguments.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments.out.write_text(page(rows))
    print(arguments.out.read_text())


if __name__ == "__main__":
    main()
