"""The front door: :func:`adapt`, :func:`methods` and :func:`export_onnx`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.engine import RecipeAdapter
from driftnorm.recipe import Recipe
from driftnorm.recipes import METHODS, Method, build, nearest, options_of

__all__ = ["adapt", "export_onnx", "methods"]

_ENGINE_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(RecipeAdapter.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "method"
)


def adapt(network: nn.Module, method: str | Recipe = "gprebn", **options: Any) -> RecipeAdapter:
    """Wrap a trained network so that it adapts to what it predicts on.

    ``network`` itself is never changed (unless ``inplace=True``).

    Args:
        network: Any trained ``nn.Module``; most methods need batch-norm layers in it.
        method: A name (:func:`methods` lists them), two joined by ``+`` (``"gprebn+rt3a"``), or a
            :class:`Recipe` of your own.
        **options: Those of the method (``lr``, ``steps``, ``theta``, ...) and those of every
            adapter (``guard``, ``on_bad_batch``, ``episodic``, ``reset_every``, ``classifier``,
            ``logits``, ``channels_last``, ``seed``, ``inplace``; see :class:`RecipeAdapter`).

    Returns:
        An ``nn.Module`` to be called like the network.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> model = adapt(net.eval(), "gprebn")
        >>> logits = model(torch.randn(32, 4))
        >>> logits.shape
        torch.Size([32, 3])
    """
    engine = {k: options.pop(k) for k in [*options] if k in _ENGINE_OPTIONS}
    if isinstance(method, Recipe):
        if options:
            raise TypeError(
                f"a Recipe has its options inside: change it with `dataclasses.replace`, "
                f"got `{next(iter(options))}`."
            )
        return RecipeAdapter(network, method, **engine)
    if not isinstance(method, str):
        raise TypeError(f"`method` must be a name or a Recipe, got {type(method).__name__}.")
    known = (*options_of(method), *_ENGINE_OPTIONS)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{method!r} has no option `{name}`.{nearest(name, known)} "
                f"It takes: {', '.join(known)}."
            )
    return RecipeAdapter(network, build(method, options), method=method, **engine)


def methods() -> dict[str, Method]:
    """Every registered method by name; each knows its paper, its options and its recipe."""
    return dict(METHODS)


def export_onnx(
    adapter: RecipeAdapter, path: str | Path, example: Tensor, *, tolerance: float = 1e-3
) -> float:
    """Write the baked network as ONNX with a free batch size, and check it against onnxruntime.

    Args:
        adapter: Whose current state is exported.
        path: The file to write.
        example: A batch of inputs; used for tracing and for the check.
        tolerance: Largest difference of the logits that is accepted, relative to their size.

    Returns:
        The largest absolute difference between ONNX's logits and the frozen adapter's.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise ImportError(
            'exporting needs onnx, onnxruntime and onnxscript: pip install "driftnorm[onnx]"'
        ) from error
    baked = adapter.bake()
    free = {0: torch.export.Dim("batch", min=1)}
    traced = example if len(example) > 1 else torch.cat([example, example])
    program = torch.onnx.export(
        baked, (traced,), dynamo=True, dynamic_shapes=(free,), verbose=False, input_names=["input"]
    )
    assert program is not None
    program.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    answer = torch.from_numpy(session.run(None, {"input": example.cpu().numpy()})[0])
    was_frozen = adapter.frozen
    expected = adapter.freeze()(example).cpu()
    adapter.frozen = was_frozen
    difference = float((answer - expected).abs().max())
    if difference > tolerance * max(1.0, float(expected.abs().max())):
        raise RuntimeError(
            f"the ONNX file {path} differs from the adapter by {difference:.2g}, more than the "
            f"`tolerance` of {tolerance:.2g} allows; do not use it."
        )
    return difference
