"""``driftnorm export``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import torch
from cyclopts import Parameter
from rich.console import Console
from torch import Tensor

from driftnorm._internal.counts import counted
from driftnorm._internal.files import written_beside
from driftnorm._internal.messages import warnings_to
from driftnorm._version import __version__
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter.onnx_file import checked_difference, export_onnx
from driftnorm.cli._flags import OUT, RARE, AsJson, Quiet
from driftnorm.cli._input_flags import DEFAULTS, Network, Opening, Shuffle, open_images, seed_of
from driftnorm.cli._output import say
from driftnorm.cli._places import check_places, make_folders
from driftnorm.cli._progress import Bar
from driftnorm.cli._source_images import SourceImages, show_source
from driftnorm.diagnosis.sample import SampledBatches
from driftnorm.methods.spec import parse_method
from driftnorm.models.adapted import check_rebuilt, save_adapted
from driftnorm.models.opened_model import Model
from driftnorm.predictions.saved_run import load_adapter

Format = Literal["safetensors", "torch-export", "onnx"]
Rare = Parameter(group=RARE)
SUFFIXES: dict[str, Format] = {
    ".safetensors": "safetensors",
    ".pt2": "torch-export",
    ".onnx": "onnx",
}
CHECKED_IMAGES = 64
SUMMARY = (
    "{out} ({format}) holds {model} {history}; on {compared_on} its logits differ from the frozen "
    "adapter's by at most {largest_difference:.2g}. It takes RGB images in [0, 1] and normalises "
    "them itself."
)


def export(
    network: Network,
    out: Annotated[Path, OUT],
    *,
    data: Path | None = None,
    load_state: Path | None = None,
    method: str = "steady",
    file_format: Annotated[Format | None, Parameter(name="--format")] = None,
    batch_size: int = 64,
    shuffle: Shuffle = None,
    limit: int | None = None,
    opening: Opening = DEFAULTS,
    source_images: SourceImages = None,
    tolerance: Annotated[float, Rare] = 1e-3,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write the adapted network as a plain one, checked against the adapter on your images.

    Parameters
    ----------
    out
        The file to write; the format follows from .safetensors, .pt2 or .onnx.
    data
        Images to adapt to, and on which to compare the file with the adapter. With a state, only
        for the comparison (default: random images).
    load_state
        A state that `driftnorm adapt --save-state` wrote, instead of adapting to the data.
    method
        How to adapt, or how the state was made; with options as in gprebn:theta=0.5.
    file_format
        Default: by the name of the file; safetensors is a driftnorm checkpoint.
    batch_size
        Images per batch.
    limit
        At most this many images, in whole batches spread over the data; default: all.
    tolerance
        Largest accepted difference of the logits, relative to their size.
    """
    chosen, spec = file_format or _format_of(out), parse_method(method)
    if data is None and load_state is None and spec.name != "source":
        raise ValueError(
            "give `--data` to adapt to, `--load-state` of an earlier run, or `--method source` to "
            "write the network as it is."
        )
    read = {"NETWORK": network, "--data": data, "--load-state": load_state}
    check_places({"--out": out}, {**read, "--source-images": source_images, **opening.files})
    console = Console(stderr=True, quiet=quiet)
    opened = opening.open(network, console)
    if chosen == "safetensors":
        check_rebuilt(opened)
    adapter = RecipeAdapter(opened.network, spec.recipe, method=spec.name, seed=0)
    show_source(adapter, source_images, opened, opening.device, known=load_state is not None)
    if load_state is not None:
        load_adapter(load_state, adapter)
    make_folders({"--out": out}, console)
    if opened.adapted_by and load_state is None and spec.name != "source":
        before = f"{opened.name} was already adapted by {opened.adapted_by}, and is adapted again"
        say(console, f"note: {before}; `--method source` writes it as it is.")
    with _notes_on(console), Bar(console) as bar:
        if data is None:
            example = _random_images(opened.preprocessing.size)
        else:
            # With a state, the images are only for the comparison.
            adapts = load_state is None
            size, most = (batch_size, limit) if adapts else (CHECKED_IMAGES, CHECKED_IMAGES)
            batches = SampledBatches(
                open_images(data, seed_of(shuffle)),
                opened.preprocessing,
                batch_size=size,
                limit=most,
            )
            example = _seen(batches, bar, opening.device, adapter if adapts else None)
        adapter.freeze().to("cpu")  # where files are written and compared
        bar("writing", 0, None)
        difference = _WRITERS[chosen](adapter, out, example, tolerance, opened)
    result = {
        "out": str(out),
        "format": chosen,
        "model": opened.name,
        "method": str(spec),
        "adapted_to_batches": adapter.batches,
        "largest_difference": difference,
        "compared_on": f"{len(example)} {'random' if data is None else 'of your'} images",
    }
    if not quiet or as_json:
        adapted = f"after {counted(adapter.batches, 'batch')} of {spec}"
        history = "as it is" if spec.name == "source" else adapted
        print(json.dumps(result) if as_json else SUMMARY.format(**result, history=history))


def _format_of(out: Path) -> Format:
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"`--out` must end in {', '.join(SUFFIXES)}, or `--format` must say what to write; got "
            f"{out.name!r}."
        )
    return SUFFIXES[suffix]


def _random_images(size: int) -> Tensor:
    return torch.rand(8, 3, size, size, generator=torch.Generator().manual_seed(0))


def _seen(
    batches: SampledBatches, bar: Bar, device: str, adapter: RecipeAdapter | None = None
) -> Tensor:
    """Run the adapter, if given, on the images; returns the first ones."""
    kept: list[Tensor] = []
    for done, (images, _) in enumerate(batches):
        bar("batches", done, batches.total)
        if sum(map(len, kept)) < CHECKED_IMAGES:
            kept.append(images)
        if adapter is not None:
            adapter(images.to(device))
    if not kept:
        name, reason = batches.unreadable[0]
        raise ValueError(f"none of the images could be read; the first, {name!r}: {reason}.")
    return torch.cat(kept)[:CHECKED_IMAGES]


@contextmanager
def _notes_on(console: Console) -> Iterator[None]:
    """The adapter's warnings as printed lines; those of the exporters are dropped."""
    heard: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warnings_to(heard.append):
            yield
    for text in dict.fromkeys(heard):
        say(console, f"note: {text}")


# --------------------------------------------------------------------------- formats

Writer = Callable[[RecipeAdapter, Path, Tensor, float, Model], float]


def _write_checkpoint(
    adapter: RecipeAdapter, out: Path, example: Tensor, tolerance: float, opened: Model
) -> float:
    with written_beside(out, ".safetensors") as file:
        written = save_adapted(file, adapter, opened)
        return _compared(adapter, written, example, tolerance, out)


def _write_program(
    adapter: RecipeAdapter, out: Path, example: Tensor, tolerance: float, opened: Model
) -> float:
    # Tracing with one sample would fix the batch size.
    traced = example if len(example) > 1 else torch.cat([example, example])
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(adapter.bake(), (traced,), dynamic_shapes=({0: batch},))
    with written_beside(out, ".pt2") as file:
        torch.export.save(program, file)
        written = torch.export.load(file).module()
        return _compared(adapter, written, example, tolerance, out)


def _write_onnx(
    adapter: RecipeAdapter, out: Path, example: Tensor, tolerance: float, opened: Model
) -> float:
    about = {
        "driftnorm": __version__,
        "classes": json.dumps(opened.classes),
        "preprocessing": json.dumps(opened.preprocessing.to_mapping()),
        "input": "RGB images (N, 3, height, width) in [0, 1]; the network normalises them itself",
    }
    return export_onnx(adapter, out, example, tolerance=tolerance, metadata=about)


_WRITERS: dict[Format, Writer] = {
    "safetensors": _write_checkpoint,
    "torch-export": _write_program,
    "onnx": _write_onnx,
}


@torch.no_grad()
def _compared(
    adapter: RecipeAdapter,
    written: Callable[[Tensor], Tensor],
    example: Tensor,
    tolerance: float,
    out: Path,
) -> float:
    """The largest difference of the logits, for the whole batch and for a single image."""
    return max(
        checked_difference(written(images), adapter(images), tolerance, out)
        for images in (example, example[:1])
    )
