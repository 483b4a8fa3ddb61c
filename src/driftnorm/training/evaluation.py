"""Image sets as tensors, and the accuracy of a network on one."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn

from driftnorm.images.image_set import ImageSet
from driftnorm.images.tensors import tensors, unit

# Small enough for the C library to reuse the memory of activations: pieces of more than 32 MB go
# back to the system each time, and clearing new ones then takes a large part of the time.
TEST_BATCH = 200


def fingerprint(data: ImageSet) -> dict[str, str | int]:
    """Which images and labels these are: name, number, hash of all bytes."""
    digest = hashlib.sha256()
    for begin in range(0, len(data), 1000):  # a memory map is read in pieces
        part = data.take(slice(begin, begin + 1000))
        digest.update(np.ascontiguousarray(part.images).data)
        digest.update(np.ascontiguousarray(part.labels).data)
    return {"name": data.name, "count": len(data), "sha256": digest.hexdigest()}


@torch.inference_mode()
def clean_accuracy(model: nn.Module, data: ImageSet, device: str = "cpu") -> float:
    """Part of the images that the model, in evaluation mode, classifies correctly."""
    was_training = model.training
    model.eval()
    right = 0
    for begin in range(0, len(data), TEST_BATCH):
        images, labels = tensors(data, slice(begin, begin + TEST_BATCH))
        right += int((model(unit(images.to(device))).argmax(dim=1).cpu() == labels).sum())
    model.train(was_training)
    return right / len(data)
