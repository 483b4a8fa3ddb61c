"""Plain batched inference: what `driftnorm adapt` is measured against, in a process of its own.

    python benchmarks/plain_inference.py MODEL.safetensors DATA [--batch 64] [--layout default]

The loop that one writes with torch, over driftnorm's own loader. Prints the seconds that it took.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

import torch
from torch import nn

from driftnorm.images import Inputs, as_batch, open_inputs
from driftnorm.models import Preprocessing, open_checkpoint

# torch's own loaders hand over images plane by plane; its kernels are faster pixel by pixel.
LAYOUTS = {"default": torch.contiguous_format, "channels-last": torch.channels_last}


def plainly(
    network: nn.Module,
    inputs: Inputs,
    wanted: Preprocessing,
    batch_size: int,
    layout: str = "channels-last",
) -> Iterator[None]:
    """A bare loop that keeps the predicted classes, batch by batch."""
    stream = inputs.stream(wanted, ahead=batch_size)
    while batch := [*islice(stream, batch_size)]:
        pixels = [item.pixels for item in batch if item.pixels is not None]
        x = as_batch(pixels).contiguous(memory_format=LAYOUTS[layout])
        with torch.no_grad():
            network(x).argmax(dim=1).tolist()
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layout", choices=LAYOUTS, default="default")
    given = parser.parse_args()
    saved = open_checkpoint(given.model)
    inputs = open_inputs(given.data)
    begun = time.perf_counter()
    loop = plainly(saved.model, inputs, saved.preprocessing, given.batch, given.layout)
    deque(loop, maxlen=0)
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    main()
