"""Input that is unusual but not broken, input of the wrong kind, and states that do not fit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from methods_table import MAINSTREAM, Row
from torch import Tensor, nn

import driftnorm
from driftnorm import adapt

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
every_row = pytest.mark.parametrize("row", MAINSTREAM, ids=lambda row: row.id)


def bits(adapter: nn.Module) -> dict[str, bytes]:
    return {k: v.float().numpy().tobytes() for k, v in adapter.state_dict().items()}


@every_row
@pytest.mark.parametrize("kind", ["1d", "2d"])
@pytest.mark.filterwarnings("ignore:statistics of a batch of 1:driftnorm.DriftnormWarning")
def test_batch_of_one(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter = row.adapt(network(kind))
    for x in batches(kind, 3):
        answer = adapter(x[:1])
        assert answer.shape == (1, 4)
        assert answer.isfinite().all()
        assert adapter(x).isfinite().all()  # and nothing was spoilt for later
    assert adapter.bad_batches == 0


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn"])
@pytest.mark.filterwarnings("ignore:statistics of a batch of 1:driftnorm.DriftnormWarning")
def test_one_value_a_channel_has_no_statistics(method: str, network: Build) -> None:
    source = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    source[0].running_mean.fill_(0.3)
    adapter, x = adapt(source, method, guard="off"), torch.randn(1, 3)
    torch.testing.assert_close(adapter(x), source(x))  # the source's, before any other batch
    assert not adapter.state["layers"]


@every_row
@pytest.mark.parametrize("seen", [0, 2])
def test_empty_batch(row: Row, seen: int, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network()), batches()
    for x in data[:seen]:
        adapter(x)
    before = bits(adapter)
    answer = adapter(data[0][:0])
    assert answer.shape == (0, 4)
    assert bits(adapter) == before
    assert (adapter.last.status, adapter.last.samples) == ("empty", 0)
    assert (adapter.batches, adapter.bad_batches) == (seen, 0)


@pytest.mark.parametrize("method", ["bn", "gprebn"])
def test_empty_batch_without_any_statistics(method: str, network: Build, batches: Draw) -> None:
    adapter = adapt(network("untracked"), method, guard="off")
    assert adapter(batches()[0][:0]).shape == (0, 4)


@every_row
def test_last_partial_batch(row: Row, network: Build, batches: Draw) -> None:
    adapter = row.adapt(network())
    sizes = [len(adapter(x)) for x in [*batches(), batches()[0][:8]]]
    assert sizes == [9, 9, 9, 9, 8]
    assert adapter.batches == 5


@every_row
@pytest.mark.parametrize("kind", ["1d", "2d"])
@pytest.mark.filterwarnings("ignore:the predicted classes changed:driftnorm.DriftnormWarning")
def test_constant_channels(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter = row.adapt(network(kind))
    for x in batches(kind):
        x[:, 1] = 0.7
        assert adapter(x).isfinite().all()
    assert adapter(torch.zeros_like(x)).isfinite().all()  # every channel at once
    assert adapter.bad_batches == 0


@pytest.mark.parametrize("method", ["source", "gprebn", "rt3a"])
@pytest.mark.parametrize("seen", [0, 1])
def test_wrong_channel_count(method: str, seen: int, network: Build, batches: Draw) -> None:
    adapter, data = adapt(network(), method, guard="off"), batches()
    for x in data[:seen]:
        adapter(x)
    before = bits(adapter)
    with pytest.raises(RuntimeError, match=r"PixelNet failed on a batch of shape \(9, 5, 6, 6\)"):
        adapter(torch.randn(9, 5, 6, 6))
    assert bits(adapter) == before
    assert adapter(data[0]).isfinite().all()


def test_wrong_channel_count_at_a_batch_norm_layer() -> None:
    adapter = adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten()).eval(), "bn")
    with pytest.raises(RuntimeError, match=r"expected 3 channels on axis 1.*\(9, 4, 2, 2\)"):
        adapter(torch.randn(9, 4, 2, 2))


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.zeros(9, 3, 6, 6, dtype=torch.uint8), TypeError, r"torch\.uint8.*/ 255"),
        (torch.zeros(9, 3, 6, 6, dtype=torch.int64), TypeError, r"torch\.int64"),
        (torch.zeros(9, 3, 6, 6, dtype=torch.bool), TypeError, r"torch\.bool"),
        (torch.zeros(9, 3, 6, 6, dtype=torch.complex64), TypeError, r"torch\.complex64"),
        (torch.zeros(9), ValueError, r"\(9,\).*unsqueeze"),
        (torch.tensor(1.0), ValueError, "batch axis"),
        ([[1.0, 2.0]], TypeError, "with a batch, a tensor; got float, float"),
        (None, TypeError, "with a batch, a tensor; got NoneType"),
        (torch.zeros(9, 3, 6, 6, device="meta"), ValueError, r"on meta .* on cpu"),
        (torch.zeros(9, 3, 6, 6, dtype=torch.float64), RuntimeError, r"torch\.float64"),
        (torch.zeros(3, 6, 6), RuntimeError, r"shape \(3, 6, 6\)"),
    ],
    ids=lambda value: str(getattr(value, "dtype", value))[:20],
)
def test_input_of_the_wrong_kind(x: Any, error: type, words: str, network: Build) -> None:
    adapter = adapt(network(), "gprebn", guard="off")
    before = bits(adapter)
    with pytest.raises(error, match=words):
        adapter(x)
    assert bits(adapter) == before
    assert (adapter.batches, adapter.bad_batches) == (0, 0)


def test_integers_are_fine_for_a_network_that_reads_them() -> None:
    source = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 2))
    adapter = adapt(source.eval(), "gprebn", guard="off")
    assert adapter(torch.randint(5, (9, 4))).shape == (9, 2)


# ------------------------------------------------------------------ states that do not fit


def refuse_state(adapter: driftnorm.Adapter, state: dict[str, Any], words: str) -> None:
    before = bits(adapter)
    with pytest.raises((ValueError, RuntimeError), match=words):
        adapter.load_state_dict(state)
    assert bits(adapter) == before


@pytest.mark.parametrize("seen", [0, 1])
def test_foreign_states(seen: int, network: Build, batches: Draw) -> None:
    x = batches()[0]

    def ran(method: str, of: nn.Module, **options: Any) -> driftnorm.Adapter:
        adapter = adapt(of, method, guard="off", **options)
        for _ in range(seen):
            adapter(x)
        return adapter

    adapter = ran("gprebn", network())
    refuse_state(adapter, network().state_dict(), "not the state of a driftnorm adapter")
    refuse_state(adapter, {}, "not the state of a driftnorm adapter")
    refuse_state(adapter, ran("tent", network()).state_dict(), r"'tent'.*'gprebn'")
    refuse_state(adapter, ran("gprebn", network(), theta=0.5).state_dict(), "theta=0.5")
    refuse_state(adapter, ran("gprebn", network(), lr=0.5).state_dict(), "lr=0.5")
    refuse_state(adapter, ran("gprebn", network(seed=1)).state_dict(), "other weights")
    other = adapt(network("twice"), "gprebn", guard="off")
    refuse_state(adapter, other.state_dict(), "another network")
    parent = nn.ModuleDict({"inner": adapter})
    with pytest.raises(ValueError, match="'tent'"):
        parent.load_state_dict(nn.ModuleDict({"inner": ran("tent", network())}).state_dict())
    with pytest.raises(ValueError, match="assign"):
        adapter.load_state_dict(adapter.state_dict(), assign=True)


@pytest.mark.parametrize("method", ["gprebn", "shot", "t3a", "rt3a", "gprebn+rt3a", "bn"])
@pytest.mark.parametrize("damage", ["missing", "misshapen"])
def test_damaged_states(method: str, damage: str, network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(network(), method, guard="off")
    adapter(data[0])
    whole = adapter.state_dict()
    resumed = adapt(network(), method, guard="off")
    resumed(data[1])
    before = bits(resumed)
    for name, value in whole.items():
        if damage == "missing":
            state = {k: v for k, v in whole.items() if k != name}
        else:
            wrong = torch.cat([value.flatten(), value.flatten(), value.flatten()[:1]])
            state = {**whole, name: wrong.view(-1, 1)}
        with pytest.raises((ValueError, RuntimeError)):
            resumed.load_state_dict(state)
        assert bits(resumed) == before, name
    resumed.load_state_dict(whole)
    assert torch.equal(resumed(data[2]), adapter(data[2]))


def test_garbled_description(network: Build, batches: Draw) -> None:
    adapter = adapt(network(), "gprebn", guard="off")
    adapter(batches()[0])
    state = adapter.state_dict()
    about = bytes(state["adapter.about"].tolist())
    assert json.loads(about)["method"] == "gprebn"
    for text in (about[:-7], b"[]", b"{}", b"\xff\xfe"):
        garbled = torch.tensor(list(text), dtype=torch.uint8)
        refuse_state(adapter, {**state, "adapter.about": garbled}, ".")


@pytest.mark.parametrize("method", ["rt3a", "gprebn+t3a", "shot"])
def test_state_from_before_the_first_batch(method: str, network: Build, batches: Draw) -> None:
    data = batches()
    fresh, used = (adapt(network(), method, guard="off") for _ in range(2))
    state = copy.deepcopy(fresh.state_dict())
    for x in data:
        used(x)
    used.load_state_dict(state)
    assert used.batches == 0
    assert all(torch.equal(used(x), fresh(x)) for x in data)
