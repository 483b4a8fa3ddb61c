"""A service that adapts while it answers: freeze, reset, and a state that survives a restart.

Run it with ``python examples/serving_loop.py``. The loop at the end stands for your web framework:
an adapter serves threads one after the other, so one ``Service`` can be shared by all requests.
"""

import os
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import driftnorm
from driftnorm.bench.studies import DIGIT_SHIFTS, normalized_digits, train_digits
from driftnorm.images import split_digits


class Service:
    """Answers requests with one adapter, and keeps its state in a file."""

    def __init__(self, network: nn.Module, file: Path) -> None:
        self.model = driftnorm.adapt(network)
        self.file = file
        if file.exists():
            self.model.load_state_dict(load_file(file))

    def answer(self, images: Tensor) -> list[int]:
        """Predict classes, and adapt."""
        classes: list[int] = self.model(normalized_digits(images)).argmax(1).tolist()
        return classes

    def save(self) -> None:
        """Under another name first: a crash in the middle leaves the old state."""
        half = self.file.with_suffix(".half")
        save_file(self.model.state_dict(), half)
        os.replace(half, self.file)


torch.set_num_threads(1)
clean, test = split_digits(seed=0)
network = train_digits(clean, seed=0, epochs=10)  # any trained network
foggy = torch.split(DIGIT_SHIFTS["fog"](test.images, 1, torch.Generator().manual_seed(0)), 100)
with tempfile.TemporaryDirectory() as folder:
    service = Service(network, Path(folder) / "stream.safetensors")
    for number, request in enumerate(foggy[:6]):
        service.answer(request)
        if number % 3 == 2:  # a state is small; save as often as you can bear to lose batches
            service.save()
    restarted = Service(network, service.file)  # as after a crash
    print(f"restarted after {restarted.model.batches} batches")
    print(f"it goes on bit for bit: {restarted.answer(foggy[6]) == service.answer(foggy[6])}")
    service.model.freeze()
    print(f"frozen, it repeats itself: {service.answer(foggy[7]) == service.answer(foggy[7])}")
    service.model.reset()  # such as when the camera is exchanged
    print(f"after a reset: {service.model.batches} batches, frozen {service.model.frozen}")
