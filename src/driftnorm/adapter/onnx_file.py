"""Export the baked network to ONNX, and check it against the adapter."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from driftnorm._internal.optional import import_optional

if TYPE_CHECKING:
    from driftnorm.adapter._engine import RecipeAdapter


class _LogitsOnly(nn.Module):
    """The baked network, returning only its logits."""

    def __init__(self, network: nn.Module, logits: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.network(x))


def export_onnx(
    adapter: RecipeAdapter,
    path: str | Path,
    example: Tensor,
    *,
    tolerance: float = 1e-3,
    metadata: Mapping[str, str] | None = None,
) -> float:
    """Write the baked network as ONNX with any batch size, and check it against onnxruntime.

    The file is written only if it predicts as the frozen adapter does.

    Args:
        adapter: Whose current state is exported.
        path: The file to write.
        example: A batch of inputs; used for tracing and for the check.
        tolerance: Largest difference of the logits that is accepted, relative to their size.
        metadata: Stored in the file, for example class names.

    Returns:
        The largest absolute difference between ONNX's logits and the frozen adapter's.
    """
    import_optional("onnxscript", "exporting to ONNX", "onnx")  # torch's exporter needs it
    onnxruntime = import_optional("onnxruntime", "exporting to ONNX", "onnx")
    select = adapter.converted.logits
    was_frozen = adapter.frozen
    try:
        adapter.freeze()
        # Also a single image: a graph may have kept the batch size that it was traced with.
        expected = [(x, select(adapter(x)).cpu()) for x in (example, example[:1])]
    finally:
        if not was_frozen:
            adapter.unfreeze()
    # Tracing with one sample would bake the batch size in.
    traced = example if len(example) > 1 else torch.cat([example, example])
    program = torch.onnx.export(
        _LogitsOnly(adapter.bake(), select).eval(),
        (traced,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        verbose=False,
        input_names=["input"],
        output_names=["logits"],
    )
    assert program is not None
    program.model.metadata_props.update(metadata or {})
    unchecked = Path(path).with_suffix(".unchecked.onnx")
    try:
        program.save(str(unchecked))
        session = onnxruntime.InferenceSession(str(unchecked), providers=["CPUExecutionProvider"])
        differences = []
        for x, wanted in expected:
            answer = torch.from_numpy(session.run(None, {"input": x.cpu().numpy()})[0])
            differences.append(checked_difference(answer, wanted, tolerance, path))
        os.replace(unchecked, path)
    finally:
        unchecked.unlink(missing_ok=True)
    return max(differences)


def checked_difference(answer: Tensor, wanted: Tensor, tolerance: float, path: str | Path) -> float:
    """The largest difference of an exported network's logits from the adapter's.

    Raises:
        ValueError: It is larger than the tolerance, relative to the size of the logits, allows.
    """
    difference = float((answer - wanted).abs().max())
    if not difference <= tolerance * max(1.0, float(wanted.abs().max())):
        raise ValueError(
            f"the exported network differs from the adapter by {difference:.2g}, more than the "
            f"`tolerance` of {tolerance:.2g} allows; {path} was not written."
        )
    return difference
