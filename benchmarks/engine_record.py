"""What every method answers, recorded so that a change of the engine can be compared to the bit.

    python benchmarks/engine_record.py record before.safetensors
    python benchmarks/engine_record.py record after.safetensors     # with the other engine
    python benchmarks/engine_record.py compare before.safetensors after.safetensors

Both recordings must come from one machine: kernels differ between processors. A case is a method
with its options on a network; it records the answers to a stream whose batches vary in size, then
those of the frozen adapter, of the baked network, and after a reset.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import driftnorm
from driftnorm.parts import Mixture, Prior

SIZES = (16, 16, 8, 16, 3)
CLASSES = 5


class Images(nn.Module):
    """Convolutions, batch norm with and without affine parameters, a shared layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.plain = nn.BatchNorm2d(width, affine=False)
        self.conv3 = nn.Conv2d(width, width, 3, stride=2)
        self.fc = nn.Linear(width, CLASSES)

    def features(self, x: Tensor) -> Any:
        """All but the classifier."""
        x = self.bn1(self.plain(self.conv1(x))).relu()
        x = self.bn2(self.conv2(x)).relu() + x
        return self.bn1(self.conv3(x)).relu()  # shared

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        return self.fc(self.features(x).mean((2, 3)))


class Dense(Images):
    """One answer for every position."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Any:
        """Logits of shape (N, K, H, W)."""
        return self.last(self.features(x))


class Several(Images):
    """Two inputs, and an object for an answer."""

    def forward(self, x: Tensor, scale: Tensor) -> Any:  # type: ignore[override]
        """Logits and features by name."""
        z = self.features(x * scale).mean((2, 3))
        return {"logits": self.fc(z), "features": z}


class Untracked(nn.Module):
    """Layers that kept no statistics beside one that did."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6, track_running_stats=False),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
        )
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        return self.fc(self.body(x).mean((2, 3)))


def rows() -> nn.Module:
    """BatchNorm1d on vectors."""
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)
    )


def volumes() -> nn.Module:
    """BatchNorm3d."""
    return nn.Sequential(
        nn.Conv3d(3, 6, 3),
        nn.BatchNorm3d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def noisy() -> nn.Module:
    """Draws random numbers at test time too."""

    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x + 0.1 * torch.randn_like(x)

    return nn.Sequential(Noise(), rows())


IMAGE, ROW, VOLUME = (3, 9, 9), (6,), (3, 5, 5, 5)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "images": (Images, IMAGE),
    "rows": (rows, ROW),
    "volumes": (volumes, VOLUME),
    "dense": (Dense, IMAGE),
    "several": (Several, IMAGE),
    "untracked": (Untracked, IMAGE),
    "noisy": (noisy, ROW),
    "wide": (lambda: Images(32), (3, 24, 24)),
}


def trained(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The network with statistics that are not those of a new one."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    network = build().train()
    with torch.no_grad():
        for _ in range(4):
            given: list[Tensor] = [torch.randn(16, *shape) * 1.3 + 0.2]
            network(*given, *([torch.ones(())] if name == "several" else []))
        for p in network.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return network.eval().to(dtype)


def stream(name: str, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
    """Batches whose shift grows."""
    shape = NETWORKS[name][1]
    generator = torch.Generator().manual_seed(1)
    batches = []
    for place, size in enumerate(SIZES):
        x = torch.randn(size, *shape, generator=generator) * (1.5 + 0.1 * place) + 0.5
        extra = (torch.tensor(1.1, dtype=dtype),) if name == "several" else ()
        batches.append((x.to(dtype), *extra))
    return batches


METHODS = (
    *("source", "bn", "bn-prior", "alpha-bn", "tent", "gprebn", "t3a", "rt3a", "pl", "pl-c"),
    *("shot", "shot-im", "gprebn+rt3a", "tent+t3a"),
)
GRADIENT = ("tent", "gprebn", "pl", "pl-c", "shot", "shot-im")
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "bn": (
        {"running": True},
        {"running": True, "momentum": 0.1},
        {"only": driftnorm.First(0.5)},
        {"episodic": True},
        {"reset_every": 2},
    ),
    "t3a": ({"supports": -1}, {"supports": 3}, {"classifier": "fc"}),
    "rt3a": ({"reading": "literal"}, {"labels": "centroids"}),
    "gprebn": (
        {"theta": 0.5},
        {"momentum": 0.1, "theta": 0.7},
        {"count": "step", "steps": 3},
        {"steps": 3},
        {"predict": "after"},
        {"steps": 2, "predict": "after", "count": "step"},
        {"gradient": "detached"},
        {"statistics": "source"},
        {"statistics": "batch"},
        {"only": driftnorm.Last(0.5)},
        {"episodic": True},
        {"reset_every": 2},
        {"inplace": True},
        {"seed": 3},
        {"optimizer": "sgd", "lr": 0.05},
        {"optimizer": "adamw", "weight_decay": 0.01, "lr": 0.01},
        {"guard": "off"},
        {"guard": "reset", "lr": 0.3},
        {"guard": "freeze", "lr": 0.3},
        {"channels_last": True},
    ),
    "tent": ({"predict": "after"}, {"gradient": "detached"}, {"statistics": "source"}),
    "shot": ({"lr": 0.01, "steps": 2},),
    "pl": ({"threshold": 0.2, "lr": 0.01},),
}


def cases() -> Iterator[tuple[str, dict[str, Any], str, torch.dtype]]:
    """Method, options, network, precision."""
    for name in NETWORKS:
        for method in METHODS:
            if name in ("dense", "several") and "t3a" in method:
                continue
            if name == "dense" and method in ("pl-c", "shot", "shot-im"):
                continue
            if name == "untracked" and method not in ("bn", "tent", "gprebn"):
                continue
            yield method, {}, name, torch.float32
    for method, every in OPTIONS.items():
        for options in every:
            for name in ("images", "rows"):
                if name == "rows" and ("classifier" in options or "only" in options):
                    continue
                yield method, options, name, torch.float32
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        for method in ("bn", "tent", "gprebn", "rt3a"):
            yield method, {}, "images", dtype
    yield "gprebn", {"seed": 5}, "noisy", torch.float32


def tensors(answer: Any) -> list[Tensor]:
    """The tensors of an answer."""
    return [*answer.values()] if isinstance(answer, dict) else [answer]


def recorded(method: Any, options: dict[str, Any], name: str, dtype: torch.dtype) -> list[Tensor]:
    """All that one case answers."""
    options = dict(options)
    if name == "several":
        options["logits"] = lambda answer: answer["logits"]
    adapter = driftnorm.adapt(trained(name, dtype), method, **options)
    batches = stream(name, dtype)
    torch.manual_seed(2)
    found: list[Tensor] = []
    for batch in batches:
        found += tensors(adapter(*batch))
    found.append(torch.tensor([adapter.batches, adapter.bad_batches]))
    adapter.freeze()
    found += tensors(adapter(*batches[0]))
    torch.manual_seed(2)
    with torch.no_grad():
        found += tensors(adapter.bake()(*batches[0]))
    adapter.reset()
    for batch in batches[:2]:
        found += tensors(adapter(*batch))
    return [t.detach().clone().contiguous() for t in found]


def layered() -> list[Tensor]:
    """Statistics chosen layer by layer, which no option of a method says."""
    gprebn = driftnorm.list_methods()["gprebn"].recipe
    chosen = replace(gprebn, per_layer=(("bn1", Mixture(0.3)), ("bn2", Prior(8))))
    return recorded(chosen, {}, "images", torch.float32)


def record(file: Path) -> None:
    """Run every case."""
    torch.set_num_threads(1)
    found: dict[str, Tensor] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            method, options, name, dtype = case
            said = ",".join(f"{k}={v}" for k, v in options.items())
            key = f"{method}:{said} on {name} {str(dtype).removeprefix('torch.')}"
            for place, tensor in enumerate(recorded(*case)):
                found[f"{key} #{place:02}"] = tensor
        for place, tensor in enumerate(layered()):
            found[f"per_layer on images #{place:02}"] = tensor
    save_file(found, file)
    print(f"{len(found)} tensors of {len({k.split(' #')[0] for k in found})} cases in {file}")


def compare(before: Path, after: Path) -> int:
    """Print every case that differs; the number of them."""
    old, new = load_file(before), load_file(after)
    differing: dict[str, str] = {}
    for key in sorted(old.keys() | new.keys()):
        case = key.split(" #")[0]
        if key not in old or key not in new:
            differing.setdefault(case, "recorded on one side only")
        elif old[key].shape != new[key].shape or not torch.equal(old[key], new[key]):
            same = old[key].shape == new[key].shape
            gap = (old[key].double() - new[key].double()).abs().max().item() if same else "shape"
            differing.setdefault(case, f"first at #{key.split('#')[1]}, by {gap}")
    for case, why in differing.items():
        print(f"{case}: {why}")
    print(f"{len(differing)} of {len({k.split(' #')[0] for k in old})} cases differ")
    return len(differing)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "record":
        record(given.files[0])
    else:
        sys.exit(compare(*given.files) > 0)


if __name__ == "__main__":
    main()
