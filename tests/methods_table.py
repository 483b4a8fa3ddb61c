"""One row for every method, option set and composition, with the facts that it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.methods import build, known_methods
from driftnorm.parts import Batch, Descent, Entropy, Mixture, Running, Window

KINDS = ("1d", "2d", "3d", "sync", "frozen", "timm", "affineless", "twice", "aliased", "untracked")


@dataclass(frozen=True)
class Row:
    """A method as a user would ask for it, and what it may touch.

    Attributes:
        method: A name, or a recipe.
        options: Keyword arguments of ``adapt``.
        trains: ``"affine"``, ``"features"``, ``"classifier"``, ``"all"`` or ``None``.
        layers: The batch-norm layers that take part; ``None`` is all of them.
        needs_source: Whether it must refuse networks that kept no running statistics.
    """

    method: str | driftnorm.Recipe
    options: Mapping[str, Any] = field(default_factory=dict)
    trains: str | None = None
    layers: tuple[str, ...] | None = None
    needs_source: bool = False

    @property
    def id(self) -> str:
        name = self.method if isinstance(self.method, str) else "recipe"
        return "-".join([name, *(f"{k}={v}".replace(" ", "") for k, v in self.options.items())])

    def adapt(self, network: nn.Module, **more: Any) -> driftnorm.Adapter:
        """The adapter, with the guard off unless asked for: untrained networks alarm it."""
        adapter = driftnorm.adapt(network, self.method, **{"guard": "off", **self.options, **more})
        return adapter.fit(fitting_images(network)) if adapter.recipe.needs_fit else adapter

    @property
    def recipe(self) -> driftnorm.Recipe:
        """What it does."""
        if not isinstance(self.method, str):
            return self.method
        return build(self.method, {k: v for k, v in self.options.items() if k != "only"})


def fitting_images(network: nn.Module) -> Tensor:
    """Images of the source's domain that the network takes."""
    shape = {nn.Conv1d: (3, 7), nn.Conv3d: (3, 4, 4, 4)}.get(type(network.conv1), (3, 6, 6))
    return torch.randn(12, *shape, generator=torch.Generator().manual_seed(5))


_BOLD = {"lr": 0.02}  # so that a few batches show
_KEEPING = {"margin": 1.0, "similarity": 1.0, **_BOLD}  # every sample counts
_EASY = {"threshold": 0.2, **_BOLD}  # below chance: every prediction is confident


def _from_outside() -> Iterator[Row]:
    """The methods that ``DRIFTNORM_IMPORT`` or an installed package provides, at their defaults."""
    for name, method in known_methods().items():
        function = getattr(method.build, "func", method.build)  # some of ours are partial
        if not function.__module__.startswith("driftnorm."):
            recipe = build(name)
            trains = None if recipe.trainable == "none" else recipe.trainable
            yield Row(name, trains=trains, needs_source=recipe.needs_source_statistics)


ROWS = (
    Row("source", needs_source=True),
    Row("bn"),
    Row("bn", {"running": True}),
    Row("bn", {"running": True, "momentum": 0.3}),
    Row("bn", {"running": True, "average": "total"}),
    Row("bn", {"only": driftnorm.First(0.5)}, layers=("bn1",), needs_source=True),
    Row("bn", {"only": "bn2"}, layers=("bn2",), needs_source=True),
    Row("bn", {"theta": "auto"}, needs_source=True),
    Row("bn-prior", needs_source=True),
    Row("steady", needs_source=True),
    Row("bn-prior", {"strength": 2.0}, needs_source=True),
    Row("alpha-bn", {"target_weight": 0.7}, needs_source=True),
    Row("tent", _BOLD, trains="affine"),
    Row("tent", {"optimizer": "sgd", "steps": 2, "predict": "after", **_BOLD}, trains="affine"),
    Row("tent", {"optimizer": "adamw", "weight_decay": 0.1, **_BOLD}, trains="affine"),
    Row(
        "tent",
        {"statistics": "source", "gradient": "detached", **_BOLD},
        trains="affine",
        needs_source=True,
    ),
    Row("gprebn", _BOLD, trains="affine"),
    Row("gprebn", {"momentum": 0.2, **_BOLD}, trains="affine"),
    Row("gprebn", {"theta": 0.5, **_BOLD}, trains="affine", needs_source=True),
    Row("gprebn", {"statistics": "source", **_BOLD}, trains="affine", needs_source=True),
    Row("gprebn", {"statistics": "batch", "rho": 40.0, "source_lr": 5e-4}, trains="affine"),
    Row("gprebn", {"gradient": "detached", **_BOLD}, trains="affine"),
    Row("gprebn", {"optimizer": "sgd", **_BOLD}, trains="affine"),
    Row("gprebn", {"steps": 2, **_BOLD}, trains="affine"),
    Row("gprebn", {"steps": 2, "count": "step", **_BOLD}, trains="affine"),
    Row("gprebn", {"steps": 3, "predict": "after", **_BOLD}, trains="affine"),
    Row(
        "gprebn",
        {"only": driftnorm.Last(0.5), **_BOLD},
        trains="affine",
        layers=("bn2",),
        needs_source=True,
    ),
    Row("gprebn", {"statistics": Running(0.3, update="after", average="std"), **_BOLD}, "affine"),
    Row(
        "gprebn",
        {"statistics": Running(0.3, start="source", unbiased=True), **_BOLD},
        trains="affine",
        needs_source=True,
    ),
    Row(
        driftnorm.Recipe(
            statistics=Running(),
            trainable="affine",
            loss=Entropy(),
            update=(Descent(lr=0.02),),
            per_layer=(("bn1", Mixture(0.3)), (driftnorm.Last(0.5), Batch())),
        ),
        trains="affine",
        needs_source=True,
    ),
    Row("t3a", needs_source=True),
    Row("t3a", {"supports": 2}, needs_source=True),
    Row("t3a", {"supports": -1}, needs_source=True),
    Row("rt3a", needs_source=True),
    Row("rt3a", {"reading": "literal"}, needs_source=True),
    Row("rt3a", {"labels": "centroids"}, needs_source=True),
    Row("pl", _EASY, trains="all", needs_source=True),
    Row("pl-c", _EASY, trains="classifier", needs_source=True),
    Row("shot", _EASY, trains="features", needs_source=True),
    Row("shot-im", _BOLD, trains="features", needs_source=True),
    Row("bn-window", needs_source=True),
    Row("bn-window", {"theta": 1.0, "prior": 0.0, "jump": 0.5}),
    Row("eta", _KEEPING, trains="affine"),
    Row("eata", {"fisher": 10.0, **_KEEPING}, trains="affine"),
    Row("sar", {"margin": 1.0, **_BOLD}, trains="affine"),
    Row("rdumb", {"every": 5, **_KEEPING}, trains="affine"),
    Row("cotta", {"views": 2, "restore": 0.3, "confidence": 1.0, **_BOLD}, trains="all"),
    Row("cotta", {"views": 0, "trainable": "affine", **_BOLD}, trains="affine"),
    Row("cotta", {"views": 0, "steps": 2, "predict": "after", **_BOLD}, trains="all"),
    Row("rotta", {"bank": 12, "every": 9, "decay": 0.9, **_BOLD}, "affine", needs_source=True),
    Row(
        "rotta",
        {"bank": 5, "every": 10, "steps": 2, "predict": "after", **_BOLD},
        trains="affine",
        needs_source=True,
    ),
    Row("rotta@bn-window", {"bank": 12, "every": 20, **_BOLD}, "affine", needs_source=True),
    Row("lame", needs_source=True),
    Row("lame", {"kernel": "knn", "k": 2}, needs_source=True),
    Row("lame", {"gated": True}, needs_source=True),
    Row("gprebn+prior", {**_BOLD, "gated": True}, trains="affine"),
    Row("prior", needs_source=True),
    Row("gprebn", {"cap": 0.01, "anchor": 0.1, "leash": 0.05, "lr": 0.1}, trains="affine"),
    Row("gprebn", {"statistics": Window(), **_BOLD}, trains="affine", needs_source=True),
    Row("eata@gprebn", _KEEPING, trains="affine"),
    Row("eata@gprebn+lame", _KEEPING, trains="affine"),
    Row("eata@gprebn+lame", {"theta": 0.5, "k": 3, **_KEEPING}, "affine", needs_source=True),
    Row("tent@bn-window", _BOLD, trains="affine", needs_source=True),
    Row("tent@bn-window", {"cap": 0.01, "leash": 0.05, "lr": 0.1}, "affine", needs_source=True),
    Row("eata@bn-window", _KEEPING, trains="affine", needs_source=True),
    Row("sar@bn-window", {"margin": 1.0, **_BOLD}, trains="affine", needs_source=True),
    Row("tent@bn", {"theta": "auto", **_BOLD}, trains="affine", needs_source=True),
    Row("bn-window+lame", needs_source=True),
    Row("bn-window+lame", {"gated": True}, needs_source=True),
    Row("bn-window+prior", needs_source=True),
    Row("bn-window+prior", {"gated": True}, needs_source=True),
    Row("gprebn+rt3a", _BOLD, trains="affine"),
    Row("gprebn+rt3a", {"theta": 0.5, "steps": 2, "predict": "after"}, "affine", needs_source=True),
    Row("tent+t3a", {"supports": 3, **_BOLD}, trains="affine"),
    Row("bn+rt3a", {"reading": "literal"}),
    Row("pl-c+t3a", _EASY, trains="classifier", needs_source=True),
    *_from_outside(),
)


def _mainstream() -> Iterator[Row]:
    """The first row of each method, and the paper's composition."""
    names = {*driftnorm.list_methods(), "gprebn+rt3a"}
    for row in ROWS:
        if row.method in names:
            names.remove(row.method)
            yield row


MAINSTREAM = [*_mainstream()]
# Every method on every kind of layer; options and compositions on plain BatchNorm2d.
CELLS = [
    (row, kind)
    for row in ROWS
    for kind in (KINDS if row in MAINSTREAM else ("2d",))
    if not (kind == "untracked" and row.needs_source)
]
CELL_IDS = [f"{row.id}-{kind}" for row, kind in CELLS]
