"""One stream and the methods that meet it: corrupted once, each row written as soon as it is there.

This is what a launcher runs, in whichever process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from driftnorm._internal.process_memory import forget_peak, peak_megabytes
from driftnorm._internal.processes import WORKER_DIED, end_if_stopped
from driftnorm._internal.scratch import scratch_folder
from driftnorm._internal.types import Pixels
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.cell import Cell
from driftnorm.bench.rows import Failure, Row, RowStore, environment
from driftnorm.bench.samples import Look, keep_exhibits
from driftnorm.bench.scoring import evaluate
from driftnorm.bench.studies.measured_method import spec_of
from driftnorm.images.image_set import ImageSet
from driftnorm.images.pictures import PictureSet

if TYPE_CHECKING:
    from driftnorm.bench.studies.corruptions import Study

__all__ = ["Task", "batches", "give_up", "measure"]


class Task(NamedTuple):
    """One stream and the methods that meet it."""

    study: Study
    folder: Path
    cells: tuple[Cell, ...]


def measure(task: Task) -> list[Row | Failure]:
    """Corrupt once, then run every method; each row is written as soon as it is there.

    Raises:
        KeyboardInterrupt: The run was stopped; what was finished is kept.
    """
    with scratch_folder(task.folder) as scratch:
        return [*_results(task, scratch)]


def give_up(task: Task) -> list[Row | Failure]:
    """What is left of a stream whose process died: the rows it had, failures for the rest."""
    store, results = RowStore(task.folder), list[Row | Failure]()
    for cell in task.cells:
        row = store.get(cell)
        if row is None:
            failure = Failure(cell, WORKER_DIED)
            store.fail(failure)
            results.append(failure)
        else:
            results.append(row)
    return results


def _results(task: Task, scratch: Path) -> Iterator[Row | Failure]:
    study, store = task.study, RowStore(task.folder)
    images: ImageSet | None = None
    for cell in task.cells:
        end_if_stopped()
        if store.has(cell):  # another run was faster
            continue
        try:
            forget_peak()
            if images is None:
                images = _in_memory(study.images(cell), scratch)
            about = {"exhibits": _exhibit(store.folder, cell, images)}
            row = _measured(study, cell, images, about)
        except Exception as error:  # whatever a network of the user's raises
            failure = Failure(cell, f"{type(error).__name__}: {error}")
            store.fail(failure)
            yield failure
        else:
            store.write(row)
            yield row


def _in_memory(found: ImageSet | PictureSet, scratch: Path) -> ImageSet:
    if isinstance(found, ImageSet):
        return found
    read = found.read

    def reading(path: Path, index: int) -> Pixels:
        end_if_stopped()
        return read(path, index)

    return replace(found, read=reading).spool(scratch / "pixels")


def _exhibit(folder: Path, cell: Cell, images: ImageSet) -> str:
    def look(at: int) -> Look:
        return Look(f"image {images.indices[at]}", int(images.labels[at]), images.images[at])

    return keep_exhibits(folder, cell, images.classes, look)


def _measured(study: Study, cell: Cell, images: ImageSet, about: dict[str, str]) -> Row:
    model = study.open_model(images)
    if cell.network.digest != model.digest[:8]:
        raise ValueError(
            f"the network's weights are others in every process ({cell.network.label}, now "
            f"@{model.digest[:8]}): seed the function that builds it, or give weights."
        )
    method = spec_of(cell.method)
    adapter = RecipeAdapter(model.network, method.recipe(), method=method.name, guard=study.guard)
    metrics = evaluate(
        adapter,
        batches(images, cell.protocol.batch_size),
        on_batch=lambda size: end_if_stopped(),
    )
    if images.note:
        about |= {"note": images.note}
    return Row(cell, {**metrics, "peak_megabytes": peak_megabytes(), **about}, environment())


def batches(images: ImageSet, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1] as (N, 3, H, W), with labels, batch by batch."""
    for begin in range(0, len(images), size):
        part = slice(begin, begin + size)
        pixels = torch.from_numpy(np.array(images.images[part]))
        labels = torch.from_numpy(np.array(images.labels[part]))
        yield pixels.permute(0, 3, 1, 2).float().div(255), labels
