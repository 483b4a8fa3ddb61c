"""The guard on real streams that collapse, on real ones that do not, and on its own numbers."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from digit_streams import accuracy, shifted, trained
from torch import Tensor

import driftnorm
from driftnorm.adapter import RecipeAdapter
from driftnorm.adapter.guard import Guard, read_signals
from driftnorm.bench.studies.digits import normalized_digits


@pytest.mark.parametrize("batch", [1, 8, 32])
@pytest.mark.parametrize("method", ["tent", "gprebn"])
def test_a_rate_far_too_high_is_noticed_at_every_batch_size(method: str, batch: int) -> None:
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    noisy, labels = shifted("noise")[order], test.labels[order]
    source = accuracy(network, noisy, labels)
    free = driftnorm.adapt(network, method, lr=0.3, guard="off")
    collapsed = accuracy(free, noisy, labels, batch)
    guarded = driftnorm.adapt(network, method, lr=0.3, guard="freeze")
    kept = accuracy(guarded, noisy, labels, batch)
    assert source > 0.85
    assert collapsed < 0.6
    assert kept > collapsed + 0.15
    assert guarded.alarms
    assert not guarded.frozen  # it tries again, by itself
    first = guarded.alarms[0]
    assert 0 <= first.disagreement <= 1 or first.images == 0
    assert "your network, unadapted" in first.reason or "have moved by" in first.reason


@pytest.mark.parametrize("method", [*driftnorm.list_methods(), "gprebn+rt3a"])
def test_no_alarm_on_ordinary_shifts(method: str) -> None:
    """A shuffled stream at the default rate: the guard must not take the gain away."""
    network, test = trained()
    if method in ("pl", "shot", "shot-im", "pl-c", "cotta"):
        pytest.skip("it does harm here, and the guard may say so")
    for shift in ("noise", "contrast"):
        images = shifted(shift)
        guarded = driftnorm.adapt(network, method, guard="freeze").fit(test.images[:64])
        free = driftnorm.adapt(network, method, guard="off").fit(test.images[:64])
        assert accuracy(guarded, images, test.labels, 64) == accuracy(free, images, test.labels, 64)
        assert not guarded.alarms


@pytest.mark.parametrize("batch", [8, 64])
@pytest.mark.parametrize("method", ["bn-prior", "gprebn"])
@pytest.mark.parametrize("shift", ["noise", "contrast", "fog"])
def test_the_onset_of_a_drift_is_not_harm(shift: str, method: str, batch: int) -> None:
    network, test = trained()
    images = torch.cat([test.images[:448], shifted(shift, 2)[448:]])
    guarded = driftnorm.adapt(network, method, guard="freeze")
    free = driftnorm.adapt(network, method, guard="off")
    assert accuracy(guarded, images, test.labels, batch) == accuracy(
        free, images, test.labels, batch
    )
    assert not guarded.alarms


def test_a_lost_source_does_not_stop_adaptation() -> None:
    """Strong contrast loss: the source says one class for all, sure of itself, and is wrong."""
    network, test = trained()
    images = shifted("contrast", 3)
    source = accuracy(network, images, test.labels)
    guarded = driftnorm.adapt(network, "gprebn", guard="freeze")
    assert source < 0.4
    assert accuracy(guarded, images, test.labels) > source + 0.3
    assert not guarded.alarms


@pytest.mark.parametrize("batch", [1, 8, 32])
@pytest.mark.parametrize("method", ["bn-prior", "bn-window", "tent"])
def test_images_sorted_by_class_cost_little(method: str, batch: int) -> None:
    """Harm is found within the first images, and a second try is not the user's risk."""
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    images, labels = shifted("noise", 1)[order], test.labels[order]
    guarded = driftnorm.adapt(network, method, guard="freeze")
    free = driftnorm.adapt(network, method, guard="off")
    kept, harmed = (accuracy(model, images, labels, batch) for model in (guarded, free))
    source = accuracy(network, images, labels)
    assert kept > source - 0.1, (kept, harmed, source)


def collapsing(policy: str) -> tuple[RecipeAdapter, list[str]]:
    """Sorted images at a rate far too high, and what became of their batches."""
    network, test = trained()
    images = test.images[torch.argsort(test.labels, stable=True)]
    adapter = driftnorm.adapt(network, "tent", lr=0.3, guard=policy)
    statuses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
        for x in images.split(32):
            answer = adapter(normalized_digits(x))
            statuses.append(adapter.last.status)
            if adapter.last.status == "guarded":
                expected = network(normalized_digits(x))
                torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)
    return adapter, statuses


def test_freeze_holds_back_and_tries_again() -> None:
    adapter, statuses = collapsing("freeze")
    first = statuses.index("guarded")
    assert statuses[first : first + 8] == ["guarded"] * 8  # 256 images
    assert len(adapter.alarms) > 1  # it tried again, while the source still answered
    assert adapter.alarms[0].batch == first
    assert adapter.alarms[1].batch > first + 8
    hold = adapter.state["parts"]["guard"]["hold"]
    assert hold == 256 * 2 ** (len(adapter.alarms) - 1)  # it failed again soon
    assert adapter.state_dict()  # with the alarms in it
    adapter.reset()
    assert not adapter.alarms
    assert not adapter.held


def test_reset_goes_on_at_once() -> None:
    adapter, statuses = collapsing("reset")
    assert len(adapter.alarms) == statuses.count("guarded") > 1
    places = [at for at, status in enumerate(statuses) if status == "guarded"]
    assert [alarm.batch for alarm in adapter.alarms] == places  # in the stream, not since a reset
    assert not adapter.held


def test_every_action_is_one_warning_and_stays_readable() -> None:
    network, test = trained()
    adapter = driftnorm.adapt(network, "tent", lr=0.3, guard="reset")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in test.images.split(32):
            adapter(normalized_digits(x))
    told = [str(w.message) for w in caught if "seems to do harm" in str(w.message)]
    assert len(told) == len(adapter.alarms)
    for text, alarm in zip(told, adapter.alarms, strict=True):
        assert f"in batch {alarm.batch + 1}: {alarm.reason}. The adapter starts again" in text
    resumed = driftnorm.adapt(network, "tent", lr=0.3, guard="reset")
    resumed.load_state_dict(adapter.state_dict())
    assert resumed.alarms == adapter.alarms


def test_alarms_outlive_the_resets_of_a_method() -> None:
    network, test = trained()
    adapter = driftnorm.adapt(network, "tent", lr=0.3, guard="warn", reset_every=5)
    restarted, alarms = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
        for x in test.images.split(32):
            adapter(normalized_digits(x))
            restarted.append(adapter.last.restarted)
            assert len(adapter.alarms) >= alarms
            alarms = len(adapter.alarms)
    assert alarms > 1  # each new start may do harm again
    assert [at for at, begun in enumerate(restarted) if begun] == [*range(5, len(restarted), 5)]


def test_a_warning_is_given_when_harm_begins_and_the_stream_goes_on() -> None:
    adapter, statuses = collapsing("warn")
    assert set(statuses) == {"adapted"}
    assert 1 <= len(adapter.alarms) < 4


def test_evidence_is_what_the_slow_way_gives() -> None:
    guard = Guard(memory=10.0)
    adapted, source = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(0))
    memory: dict[str, object] = {}
    for begin in (0, 4, 7, 8):
        part = slice(begin, {0: 4, 4: 7, 7: 8, 8: 12}[begin])
        memory = guard.counted(memory, adapted[part], source[part])
    found = guard.evidence(memory)
    p, q = adapted.softmax(1), source.softmax(1)
    kept = [(1 - 1 / 10.0) ** (12 - end) for end in (4, 7, 8, 12)]  # by the end of their batch
    weights = torch.tensor([kept[0]] * 4 + [kept[1]] * 3 + [kept[2]] + [kept[3]] * 4)
    total = weights.sum()
    assert found.images == pytest.approx(float(total))
    for each, worth, spread in (
        (p, found.adapted, found.adapted_spread),
        (q, found.source, found.source_spread),
    ):
        mean = (weights[:, None] * each).sum(0) / total
        entropies = torch.special.entr(each).sum(1)
        of_mean = torch.special.entr(mean).sum()
        assert spread == pytest.approx(float(of_mean), abs=1e-5)
        expected = (of_mean - 4 * (weights * entropies).sum() / total) / (of_mean + 0.5)
        assert worth == pytest.approx(float(expected), abs=1e-5)
    differ = (p.argmax(1) != q.argmax(1)).float()
    assert found.disagreement == pytest.approx(float((weights * differ).sum() / total))


@pytest.mark.parametrize(("changed", "alarmed"), [(0, False), (5, False), (6, True), (50, True)])
def test_predictions_that_agree_with_the_sources_cannot_be_harm(
    changed: int, alarmed: bool
) -> None:
    """However unsure they are; parameters that move far are another matter."""
    guard = Guard()
    source = 9.0 * torch.nn.functional.one_hot(torch.arange(100) % 4, 4).float()
    adapted = source / 9  # far less sure, of the same classes
    adapted[:changed] = adapted[:changed].roll(1, dims=1)
    memory = guard.counted({}, adapted, source)
    assert guard.evidence(memory).disagreement == pytest.approx(changed / 100)
    assert (guard.alarm(memory) is not None) == alarmed
    assert guard.alarm(memory, moved=0.9) is not None  # earlier images say nothing of the next
    dense = [logits[:, :, None].expand(-1, -1, 3) for logits in (adapted, source)]
    assert guard.alarm(guard.counted({}, *dense)) is not None  # a rare class may be lost


def test_order_tells_sorted_answers_from_a_collapsed_source() -> None:
    guard, generator = Guard(), torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(50)
    sure = 8.0 * torch.nn.functional.one_hot(labels).float()
    noise = torch.randn(200, 4, generator=generator)
    shuffled = sure[torch.randperm(200, generator=generator)]
    collapsed = noise + torch.tensor([6.0, 0, 0, 0])

    def order(logits: Tensor, size: int) -> float:
        memory: dict[str, object] = {}
        for part in logits.split(size):
            memory = guard.counted(memory, part, part)
        return guard.evidence(memory).order

    for size in (1, 10, 64):
        assert order(sure + noise, size) > 0.8
        assert abs(order(shuffled + noise, size)) < 0.2
        assert abs(order(collapsed, size)) < 0.2


@pytest.mark.parametrize("batch", [1, 8, 64, 200])
def test_as_many_images_are_asked_about_at_every_batch_size(batch: int) -> None:
    guard, asked = Guard(), 0
    assert guard.due({}, batch) == (min(batch, 64), 0)  # all of them, until there is evidence
    memory = {"images": 2.0 * guard.enough}
    for _ in range(6400 // batch):
        now, memory["owed"] = guard.due(memory, batch)
        assert now <= batch
        asked += now
    assert asked == pytest.approx(6400 * guard.share, abs=64)


def test_signals() -> None:
    uniform, sure = torch.zeros(8, 4), 50 * torch.eye(4).repeat(2, 1)
    assert read_signals(uniform).entropy == pytest.approx(1)
    assert read_signals(uniform).spread == pytest.approx(0)  # all ties go to one class
    assert read_signals(sure).entropy == pytest.approx(0, abs=1e-6)
    assert read_signals(sure).spread == pytest.approx(1)
    dense = sure.view(8, 4, 1, 1).expand(8, 4, 3, 3)
    assert read_signals(dense).spread == pytest.approx(1)


def test_dense_predictions_are_judged_by_position() -> None:
    guard, generator = Guard(), torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 5, 5, generator=generator)
    memory = guard.counted({}, logits, logits)
    found = guard.evidence(memory)
    assert found.images == 4
    assert found.disagreement == 0
    mean = logits.softmax(1).mean(dim=(0, 2, 3))
    assert found.source_spread == pytest.approx(float(torch.special.entr(mean).sum()), abs=1e-5)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="`guard` must be"):
        Guard(policy="panic")
    with pytest.raises(ValueError, match="at least 1"):
        Guard(enough=0)
    with pytest.raises(ValueError, match=r"`share` must be in \(0, 1\]"):
        Guard(share=0)
    with pytest.raises(ValueError, match=r"`harmless` must be in \[0, 1\)"):
        Guard(harmless=1)
    assert math.isfinite(Guard().hold)
