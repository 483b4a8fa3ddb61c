"""The guard on real streams that collapse, and on real ones that do not."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.adapter.guard import EMPTY, Guard, divergence, read_signals
from driftnorm.bench.studies.digit_shifts import SHIFTS
from driftnorm.bench.studies.digits import normalized, train
from driftnorm.images.embedded_digits import Digits, split_digits

MARGIN = 0.05  # what the guard may cost against the source, as the docs say


@cache
def trained() -> tuple[nn.Module, Digits]:
    training, test = split_digits(0)
    return train(training, 0), test


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch: int = 32) -> float:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
        right = sum(
            int((model(normalized(x)).argmax(1) == y).sum())
            for x, y in zip(images.split(batch), labels.split(batch), strict=True)
        )
    return right / len(labels)


@pytest.mark.parametrize("method", ["tent", "gprebn"])
def test_a_class_ordered_stream_at_a_high_rate_collapses_only_without_the_guard(method) -> None:
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    noisy = SHIFTS["noise"](test.images, 1, torch.Generator().manual_seed(0))
    stream = noisy[order], test.labels[order]
    source = accuracy(network, *stream)
    collapsed = accuracy(driftnorm.adapt(network, method, lr=0.3, guard="off"), *stream)
    guarded = driftnorm.adapt(network, method, lr=0.3, guard="freeze")
    kept = accuracy(guarded, *stream)
    assert source > 0.9
    assert collapsed < 0.3  # ten classes
    assert kept > source - MARGIN
    assert guarded.frozen
    assert guarded.alarms == 1
    adapting = driftnorm.adapt(network, method, lr=0.3, guard="reset")
    assert accuracy(adapting, *stream) > collapsed + 0.3
    assert adapting.alarms > 1
    assert not adapting.frozen


@pytest.mark.parametrize("method", [*driftnorm.list_methods(), "gprebn+rt3a"])
def test_no_alarm_on_ordinary_shifts(method) -> None:
    """A shuffled stream at the default rate: the guard must not take the gain away."""
    network, test = trained()
    for shift in ("noise", "contrast"):
        images = SHIFTS[shift](test.images, 1, torch.Generator().manual_seed(0))
        guarded = driftnorm.adapt(network, method, guard="freeze").fit(test.images[:64])
        free = driftnorm.adapt(network, method, guard="off").fit(test.images[:64])
        assert accuracy(guarded, images, test.labels, 64) == accuracy(free, images, test.labels, 64)
        assert guarded.alarms == 0


def test_a_lost_source_does_not_stop_adaptation() -> None:
    """Strong contrast loss: the source says one class for all, sure of itself, and is wrong."""
    network, test = trained()
    images = SHIFTS["contrast"](test.images, 3, torch.Generator().manual_seed(0))
    source = accuracy(network, images, test.labels)
    guarded = driftnorm.adapt(network, "gprebn", guard="freeze")
    assert source < 0.4
    assert accuracy(guarded, images, test.labels) > source + 0.3
    assert not guarded.frozen


def test_a_guarded_batch_leaves_no_trace_and_is_answered_by_the_source() -> None:
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    adapter = driftnorm.adapt(network, "tent", lr=0.3, guard="freeze")
    for batch in order.split(32):
        x = normalized(test.images[batch])
        answer = adapter(x)
        if adapter.last is not None and adapter.last.status == "guarded":
            torch.testing.assert_close(answer, network(x), rtol=1e-4, atol=1e-4)
    fresh = driftnorm.adapt(network, "tent", lr=0.3)
    assert adapter.frozen
    mine, new = adapter.state_dict(), fresh.state_dict()
    assert all(torch.equal(mine[k], new[k]) for k in new if not k.startswith("adapter."))
    adapter.unfreeze()
    adapter(normalized(test.images[:64]))
    assert adapter.batches == 1


def test_signals() -> None:
    uniform, sure = torch.zeros(8, 4), 50 * torch.eye(4).repeat(2, 1)
    assert read_signals(uniform).entropy == pytest.approx(1)
    assert read_signals(uniform).spread == pytest.approx(0)  # all ties go to one class
    assert read_signals(sure).entropy == pytest.approx(0, abs=1e-6)
    assert read_signals(sure).spread == pytest.approx(1)
    dense = sure.view(8, 4, 1, 1).expand(8, 4, 3, 3)
    assert read_signals(dense).spread == pytest.approx(1)
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert divergence(one, other) == pytest.approx(1)
    assert divergence(one, one) == pytest.approx(0)


@pytest.mark.parametrize(
    ("policy", "learns", "expected"),
    [
        ("warn", False, [0, 1, 2, 8, 32, 128]),
        ("warn", True, [0, 1, 2, *range(8, 150, 8)]),
        ("freeze", False, [0, 1, 2, *range(8, 150, 8)]),
        ("off", True, []),
    ],
)
def test_audits_that_nothing_prompts_thin_out_where_they_only_warn(policy, learns, expected):
    varied = read_signals(50 * torch.eye(4).repeat(2, 1))
    guard = Guard(policy=policy)
    asked = [
        batch
        for batch in range(150)
        if guard.wants_audit(EMPTY._replace(batches=batch), varied, 0.0, learns)
    ]
    assert asked == expected


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="`guard` must be"):
        Guard(policy="panic")
    with pytest.raises(ValueError, match="at least 1"):
        Guard(every=0)
