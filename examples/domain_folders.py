"""PACS-like folders: train on all domains but one, adapt to that one.

Run it with ``python examples/domain_folders.py``. The pictures are made up; name your own folder
``domain/class/picture`` instead (``driftnorm train domains`` does the same in one command).
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import driftnorm
from driftnorm.bench.studies import read_trained
from driftnorm.images.domains import cached_arrays, evaluation_batches, open_domains
from driftnorm.training.domains import DomainTraining

SIDE = 16
DOMAINS = {"chalk": (30, 150), "ink": (220, -150), "pencil": (120, 100), "faint": (180, 16)}


def draw_pictures(root: Path) -> None:
    """Stripes across or along, on lighter and darker paper: ground and contrast by domain."""
    rng = np.random.default_rng(0)
    for domain, (ground, contrast) in DOMAINS.items():
        for name in ("across", "along"):
            (root / domain / name).mkdir(parents=True)
            for number in range(60):
                stripes = (np.arange(SIDE) + rng.integers(4)) // 2 % 2 * contrast
                lines = np.tile(stripes, (SIDE, 1))
                paper = ground + (lines if name == "along" else lines.T)
                page = paper[..., None] + rng.normal(0, 6, (SIDE, SIDE, 3))
                picture = Image.fromarray(page.clip(0, 255).astype(np.uint8))
                picture.save(root / domain / name / f"{number}.png")


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    draw_pictures(Path(folder) / "pictures")
    domains = open_domains(f"{folder}/pictures")
    # One worker is this process; with more, guard the script with `if __name__ == "__main__":`.
    arrays = cached_arrays(domains, SIDE, folder=f"{folder}/cache", workers=1)
    plan = DomainTraining(
        "erm", ("faint",), "mnist-bn", "trained", steps=40, evaluate_every=20, batch_size=8, lr=1e-3
    )
    plan.run(arrays, Path(folder) / "run")
    trained = read_trained(f"{folder}/run/best.safetensors")
    network = trained.network()
    print(f"trained on {', '.join(trained.trained_on)}; never saw {trained.test_domains[0]}")
    target = arrays.domains[arrays.index("faint")]
    order = np.random.default_rng(0).permutation(len(target))
    for method in ("source", "bn", "gprebn"):
        model = driftnorm.adapt(network, method)
        batches = evaluation_batches(target, order, batch_size=30)
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
        print(f"{method:<8}{100 * right / len(target):.1f} %")
