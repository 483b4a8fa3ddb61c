"""Images of the source domain for methods that must see some before the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.cli._flags import RARE
from driftnorm.diagnosis.sample import SampledBatches
from driftnorm.images import open_inputs
from driftnorm.models.opened_model import Model

SourceImages: TypeAlias = Annotated[
    Path | None,
    Parameter(
        group=RARE,
        help="Unlabelled images like those the network was trained on, for methods that must see "
        "some first (eata); up to 512 of them are read.",
    ),
]

_BATCH, _MOST = 64, 512


def show_source(
    adapter: RecipeAdapter, images: Path | None, opened: Model, device: str, known: bool
) -> None:
    """Fit the adapter to the source's images, if its method needs that.

    Args:
        adapter: Has not seen anything yet.
        images: Where the images are, if they were given.
        opened: The network.
        device: Where it runs.
        known: Whether a loaded state holds what was learned from them.
    """
    needed = adapter.recipe.needs_fit
    if not needed or known:
        if images is not None:
            why = "its state holds what it needs" if needed else "it needs none"
            raise ValueError(f"`--source-images` is not for {adapter.method!r} here: {why}.")
        return
    if images is None:
        raise ValueError(
            f"{adapter.method!r} must first see images like those that the network was trained on, "
            "without labels: give `--source-images` (a few hundred are enough)."
        )
    sample = SampledBatches(
        open_inputs(images), opened.preprocessing, batch_size=_BATCH, limit=_MOST
    )
    seen = [batch.to(device) for batch, _ in sample]
    if not seen:
        name, reason = sample.unreadable[0]
        raise ValueError(
            f"`--source-images`: none could be read; the first of {images}, {name!r}: {reason}."
        )
    adapter.fit(seen)
