"""An ordinary evaluation loop under ``torch.inference_mode``, with torchmetrics if it is there.

Run it with ``python examples/evaluation_loop.py``. A method that takes gradient steps works inside
inference mode too, and in the ``test_step`` of a Lightning module, which runs in it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import driftnorm
from driftnorm.bench.studies import DIGIT_SHIFTS, normalized_digits, train_digits
from driftnorm.images import split_digits


class Counter:
    """What to do without torchmetrics."""

    def __init__(self) -> None:
        self.right = self.seen = 0

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        self.right += int((logits.argmax(1) == labels).sum())
        self.seen += len(labels)

    def compute(self) -> float:
        """The share that was right."""
        return self.right / self.seen


def new_metric() -> Any:
    try:
        from torchmetrics.classification import MulticlassAccuracy
    except (ImportError, RuntimeError):  # the latter: torchvision's CUDA wheel beside a CPU torch
        return Counter()
    return MulticlassAccuracy(num_classes=10, average="micro")


@torch.inference_mode()
def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    metric = new_metric()
    for images, labels in loader:
        metric.update(model(images), labels)
    return float(metric.compute())


torch.set_num_threads(1)
clean, test = split_digits(seed=0)
network = train_digits(clean, seed=0, epochs=10)  # any trained network
dark = DIGIT_SHIFTS["contrast"](test.images, 2, torch.Generator().manual_seed(0))
loader = DataLoader(TensorDataset(normalized_digits(dark), test.labels), batch_size=100)
print("counted by", "a plain counter" if isinstance(new_metric(), Counter) else "torchmetrics")
print(f"source   {100 * accuracy(network, loader):.1f} %")
for method in ("bn", "gprebn"):
    print(f"{method:<8} {100 * accuracy(driftnorm.adapt(network, method), loader):.1f} %")
