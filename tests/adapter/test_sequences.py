"""Whatever is done between batches, the stream goes on to the bit."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor, nn

import driftnorm

METHODS = {
    "bn": {},
    "bn-window": {},
    "steady": {},
    "gprebn": {"lr": 0.02},
    "tent+t3a": {"lr": 0.02, "optimizer": "sgd"},
    "sar": {"margin": 1.0, "lr": 0.02},
    "cotta": {"views": 1, "confidence": 1.0, "restore": 0.3, "lr": 0.02},
    "rotta": {"bank": 6, "every": 5, "lr": 0.02},
}


def network(channels_last: bool) -> nn.Module:
    """Among its kernels are some of one pixel, whose strides say nothing of the layout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 1),
            nn.Conv2d(8, 8, 3, groups=8, stride=2),
            nn.BatchNorm2d(8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        )
    if channels_last:
        built.to(memory_format=torch.channels_last)
    return built.eval()


def batch(number: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return 1.3 * torch.randn(size, 3, 7, 7, generator=generator) + 0.3


class Streams(RuleBasedStateMachine):
    """An adapter to which things happen, beside one that is only asked and reset."""

    method: str
    layout: tuple[bool, bool | None]

    def build(self) -> Any:
        ours, wanted = self.layout
        options = {"guard": "off", "seed": 5, "channels_last": wanted, **METHODS[self.method]}
        return driftnorm.adapt(network(ours), self.method, **options)

    @initialize(
        method=st.sampled_from(sorted(METHODS)),
        ours=st.booleans(),
        wanted=st.sampled_from([None, True, False]),
    )
    def begin(self, method: str, ours: bool, wanted: bool | None) -> None:
        self.method, self.layout = method, (ours, wanted)
        self.adapter, self.plain, self.asked = self.build(), self.build(), 0

    @invariant()
    def both_answer_alike(self) -> None:
        """The next batch, in one memory layout or another."""
        x = batch(self.asked, (1, 9, 2, 5)[self.asked % 4])
        given = (x, x.contiguous(memory_format=torch.channels_last), x.repeat(1, 1, 1, 2)[..., :7])
        assert torch.equal(self.adapter(given[self.asked % 3]), self.plain(x))
        self.asked += 1

    @rule()
    def save_and_load_elsewhere(self) -> None:
        file = io.BytesIO()
        torch.save(self.adapter.state_dict(), file)
        file.seek(0)
        self.adapter = self.build()
        self.adapter.load_state_dict(torch.load(file, weights_only=True))

    @rule(number=st.integers(0, 50))
    def go_astray_and_load(self, number: int) -> None:
        state = self.adapter.state_dict()
        self.adapter(batch(number, 4))
        self.adapter.load_state_dict(state)

    @rule()
    def pickle(self) -> None:
        self.adapter = pickle.loads(pickle.dumps(self.adapter))

    @rule()
    def copy(self) -> None:
        self.adapter = copy.deepcopy(self.adapter)

    @rule()
    def reset(self) -> None:
        self.adapter.reset()
        self.plain.reset()

    @rule(number=st.integers(0, 50))
    def answer_frozen(self, number: int) -> None:
        self.adapter.freeze()
        before = self.adapter.state
        first, again = (self.adapter(batch(number, 3)) for _ in range(2))
        assert torch.equal(first, again)
        assert self.adapter.state is before
        self.adapter.unfreeze()

    @rule(number=st.integers(0, 50))
    def bake(self, number: int) -> None:
        self.adapter.bake()(batch(number, 3))


TestStreams = pytest.mark.filterwarnings("ignore::driftnorm.DriftnormWarning")(Streams.TestCase)
# To shrink an example takes minutes, and they are short.
TestStreams.settings = settings(max_examples=20, stateful_step_count=10, phases=[Phase.generate])
