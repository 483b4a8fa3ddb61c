"""An ImageNet network that meets few of its thousand classes: what adapting costs there.

    python benchmarks/few_classes.py --pacs FOLDER_OR_TAR --weights FILE [--images 300]

Photographs of PACS whose class is one of ImageNet's, or a group of them: dogs, elephants, guitars.
An answer is right if it is any class of the group. No constant was chosen on these. Rows go to
docs/rows/few-classes.jsonl, and docs/one-default.md shows them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch

import driftnorm
from driftnorm.images.domains import cached_arrays, open_domains
from driftnorm.models import open_model

ROWS = Path("docs/rows/few-classes.jsonl")
GROUPS = {
    "dog": range(151, 269),
    "elephant": (101, 385, 386),  # tusker, Indian, African
    "guitar": (402, 546),  # acoustic, electric
}
METHODS = ("source", "steady", "bn-window", "gprebn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pacs", required=True)
    parser.add_argument("--weights", required=True, help="of the v1 ResNet-50")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
    arrays = cached_arrays(open_domains(arguments.pacs), arguments.side)
    photos = arrays.domains[arrays.index("photo")]
    wanted = [arrays.classes.index(name) for name in GROUPS]
    places = np.flatnonzero(np.isin(np.asarray(photos.labels), wanted))
    chosen = np.random.default_rng(0).permutation(places)[: arguments.images]
    pixels = np.array(photos.images[np.sort(chosen)])
    labels = np.asarray(photos.labels)[np.sort(chosen)]
    order = np.random.default_rng(1).permutation(len(chosen))
    images = torch.from_numpy(pixels[order]).permute(0, 3, 1, 2).float().div(255)
    right = [np.array(GROUPS[arrays.classes[label]]) for label in labels[order]]
    network = open_model("resnet50-v1", weights=arguments.weights).network
    rows = []
    for method in METHODS:
        adapter = driftnorm.adapt(network, method, guard="off")
        answers = torch.cat(
            [adapter(x).argmax(1) for x in torch.split(images, arguments.batch_size)]
        ).numpy()
        correct = [bool(a in group) for a, group in zip(answers, right, strict=True)]
        rows.append(
            {
                "network": "resnet50-v1",
                "data": "PACS photo: dog, elephant, guitar",
                "images": len(correct),
                "side": arguments.side,
                "batch_size": arguments.batch_size,
                "method": method,
                "correct": correct,
                "version": driftnorm.__version__,
            }
        )
        print(method, f"{100 * np.mean(correct):.1f} %", flush=True)
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
