"""Theta chosen without labels: against a slow literal loop, and on real streams."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from digit_streams import accuracy, shifted, trained
from torch import Tensor, nn

import driftnorm
from driftnorm.parts import Mixture, Running, ThetaChoice, Window
from driftnorm.parts.evidence import coherence, counted, information, is_ordered, judge


def worth(mean_p: Tensor, mean_entropy: Tensor, caution: float) -> float:
    spread = torch.special.entr(mean_p).sum()
    return float((spread - (1 + caution) * mean_entropy) / (spread + 0.5))


def test_information() -> None:
    p = torch.tensor([0.5, 0.25, 0.25])
    assert information(p, torch.tensor(0.2), 3) == pytest.approx(worth(p, torch.tensor(0.2), 3))


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_the_answer_is_the_mean_of_thetas_run_alone(batch: int, temperature: float) -> None:
    """Every theta as an adapter of its own; sums that fade; weights by J, at 0 the best alone."""
    network, test = trained()
    caution, memory, long, enough, short, trust = 3.0, 50.0, 80.0, 12, 6.0, 0.3
    choice = ThetaChoice(
        (0.0, 0.2),
        short=short,
        caution=caution,
        memory=memory,
        spread_memory=long,
        enough=enough,
        trust=trust,
        order=0.0,
        temperature=temperature,
        every=1,
    )
    # Without a jump, so that nothing is forgotten.
    never = float("inf")
    recipe = driftnorm.Recipe(
        statistics=Window(theta=0.5, jump=never), gradient="detached", answer=(choice,)
    )
    adapter = driftnorm.adapt(network, recipe)
    size = 1 / (1 - (1 - 1 / short) * (1 - 1 / Window().size))  # it forgets by both
    windows = (*(Window(theta=t, jump=never) for t in (0.0, 0.2, 0.5)),)
    alone = [
        driftnorm.adapt(
            network, driftnorm.Recipe(statistics=window, gradient="detached"), guard="off"
        )
        for window in (*windows, Window(theta=1.0, size=size, jump=never))
    ]
    images = torch.cat([shifted("fog", 2)[:120], test.images[120:240]])
    sums, entropies, chosen = [0.0] * 4, [0.0] * 4, set()
    count, total, seen = 0.0, 0.0, 0
    for x in normalized_batches(images, batch):
        kept, kept_long = (1 - 1 / memory) ** len(x), (1 - 1 / long) ** len(x)
        answers = torch.stack([each(x).softmax(1) for each in alone])
        count, total, seen = kept * count + len(x), kept_long * total + len(x), seen + len(x)
        for place, p in enumerate(answers):
            sums[place] = kept_long * sums[place] + p.sum(0)
            entropies[place] = kept * entropies[place] + torch.special.entr(p).sum()
        means = [each / total for each in sums]
        scores = torch.tensor(
            [worth(m, h / count, caution) for m, h in zip(means, entropies, strict=True)]
        )
        spreads = [float(torch.special.entr(m).sum()) / math.log(10) for m in means]
        scores[0] += trust * (1 - spreads[0]) ** 2 * (1 + 64 / total)
        weights = (scores / max(temperature * min(spreads) ** 2, 1e-6)).softmax(0)
        if seen < enough:
            weights = torch.tensor([1.0, 0, 0, 0])
        chosen.add(int(weights.argmax()))
        expected = (weights[:, None, None] * answers).sum(0)
        torch.testing.assert_close(adapter(x).softmax(1), expected, rtol=1e-3, atol=1e-4)
    assert len(chosen) > 1


def test_few_classes_are_answered_by_the_best_alone() -> None:
    """Of one class, every theta but the source is wrong, and none of them may weigh."""
    network, test = trained()
    images, labels = test.images[test.labels == 3], test.labels[test.labels == 3]
    source = accuracy(network, images, labels)
    for batch in (8, 64):
        assert accuracy(driftnorm.adapt(network, "steady"), images, labels, batch) > source - 0.02


def normalized_batches(images: Tensor, batch: int) -> tuple[Tensor, ...]:
    from driftnorm.bench.studies.digits import normalized_digits

    return normalized_digits(images).split(batch)


def test_losers_are_asked_seldom_and_all_are_at_a_jump() -> None:
    network, test = trained()
    adapter = driftnorm.adapt(network, "steady")
    passes: list[int] = []
    ran = 0

    def count(*about: object) -> None:
        nonlocal ran
        ran += 1

    adapter.converted.network[0].register_forward_hook(count)
    for x in normalized_batches(torch.cat([test.images[:400], shifted("contrast", 3)[400:]]), 10):
        ran = 0
        adapter(x)
        passes.append(ran)
    assert 5 in passes[40:44]  # woken by the jump
    settled = passes[60:]
    assert sum(settled) / len(settled) < 4.5  # the source is clearly behind
    assert settled.count(5) >= 2


def test_it_is_the_source_on_clean_images_and_adapts_to_shifted_ones() -> None:
    network, test = trained()
    for batch in (1, 8, 64):
        with warnings.catch_warnings():
            warnings.simplefilter("error", driftnorm.DriftnormWarning)
            clean = accuracy(driftnorm.adapt(network, "steady"), test.images, test.labels, batch)
        assert clean >= accuracy(network, test.images, test.labels) - 0.005
        foggy = shifted("fog", 2)
        adapted = accuracy(driftnorm.adapt(network, "steady"), foggy, test.labels, batch)
        assert adapted > accuracy(network, foggy, test.labels) + 0.2


def test_coherence() -> None:
    """Against its definition, over batches of any size; fading by images, not by batches."""
    torch.manual_seed(0)
    logits = torch.randn(40, 5)
    p = logits.softmax(1)
    for sizes in ([40], [8] * 5, [1] * 40, [3, 1, 36]):
        counts: dict[str, object] = {}
        for part in logits.split(sizes):
            counts = counted(counts, part, memory=1e9)
        mean = p[1:].mean(0) if sizes[0] == 1 else None  # the first image has no neighbour then
        expected = (p[1:] * p[:-1]).sum(1).mean()
        if mean is not None:
            assert coherence(counts) == pytest.approx(float(expected - mean @ mean), abs=1e-5)
        assert counts["pair_count"] == pytest.approx(39)
        assert counts["pairs"] == pytest.approx(float(expected * 39), rel=1e-5)
    forgotten = counted(counts, logits, memory=1e9, kept=0.0, spread_kept=0.5)
    assert forgotten["images"] == 40
    assert forgotten["p_images"] == forgotten["p"].sum() == pytest.approx(60)
    assert forgotten["pair_count"] == pytest.approx(79)  # a jump says nothing about the order


def test_coherence_is_high_for_right_predictions_of_ordered_labels_only() -> None:
    labels = torch.arange(4).repeat_interleave(50)
    right = 8 * torch.nn.functional.one_hot(labels, 4).float()
    half = torch.where(torch.rand(200, 1) < 0.5, right, right[torch.randperm(200)])
    shuffled, constant = right[torch.randperm(200)], right[:1].expand(200, 4)
    every = [counted({}, logits, memory=256) for logits in (right, half)]
    assert coherence(every[0]) > coherence(every[1]) > 0.1
    assert [is_ordered(counts) for counts in every] == [1, 1]
    for logits in (shuffled, constant):
        assert is_ordered(counted({}, logits, memory=256)) == 0
    assert is_ordered(counted({}, torch.randn(8, 4, 5, 5), memory=256)) == 0  # dense: no order


def test_evidence_that_cannot_be_is_refused() -> None:
    counts = counted({}, torch.randn(8, 4), memory=256)
    judge(counts)
    for name, wrong in (("pair_count", -1.0), ("pairs", torch.tensor(-1.0)), ("images", 0.0)):
        with pytest.raises(ValueError, match=name):
            judge({**counts, name: wrong})
    with pytest.raises(ValueError, match="usual"):
        judge({**counts, "usual": 2 * counts["usual"]})


def test_a_poor_source_on_images_sorted_by_class_is_not_abandoned() -> None:
    """Spread speaks for wrong predictions there; coherence speaks for the right ones."""
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    images, labels = shifted("blur", 2)[order], test.labels[order]
    source = accuracy(network, images, labels)
    for batch in (1, 16):
        without, usual, most = (
            accuracy(driftnorm.adapt(network, method), images, labels, batch)
            for method in ("steady:order=0", "steady", "steady:order=8")
        )
        assert without + 0.03 < usual < most
        assert most > source - 0.06


def test_a_source_that_collapses_under_every_shift_is_not_taken_for_ordered_labels() -> None:
    """Its predictions are as coherent as right ones of ordered labels; adapted ones are not."""
    choice = ThetaChoice((0.0, 0.2), order=8.0, trust=0.0)
    labels = torch.arange(4).repeat_interleave(60)
    shuffled = labels[torch.randperm(240, generator=torch.Generator().manual_seed(0))]
    stays, right = (6 * torch.nn.functional.one_hot(each, 4).float() for each in (labels, shuffled))

    def value(adapted: Tensor) -> dict[str, float]:
        every = {"own": right, "other0": stays, "other1": adapted}
        return choice._worth({n: counted({}, logits, memory=256) for n, logits in every.items()})

    assert value(right)["other0"] == pytest.approx(value(right)["own"], abs=0.02)
    assert value(stays)["other0"] > value(stays)["own"] + 1


def test_sorted_images_may_stay_long_with_each_class() -> None:
    """Longer than the certainty is remembered; every change of class may look like a jump."""
    network, test = trained()
    order = torch.argsort(test.labels, stable=True).repeat_interleave(6)
    images, labels = test.images[order], test.labels[order]
    source = accuracy(network, images, labels)
    for batch in (8, 64):
        assert accuracy(driftnorm.adapt(network, "steady"), images, labels, batch) > source - 0.01


def test_clean_images_sorted_by_class_stay_right() -> None:
    network, test = trained()
    order = torch.argsort(test.labels, stable=True)
    images, labels = test.images[order], test.labels[order]
    source = accuracy(network, images, labels)
    for batch in (8, 64):
        steady = accuracy(driftnorm.adapt(network, "steady"), images, labels, batch)
        plain = accuracy(driftnorm.adapt(network, "bn", guard="off"), images, labels, batch)
        assert steady > source - 0.01
        assert plain < source - 0.2


@pytest.mark.parametrize("method", ["gprebn", "bn"])
def test_theta_auto(method: str) -> None:
    network, test = trained()
    adapter = driftnorm.adapt(network, method, theta="auto")
    assert isinstance(adapter.recipe.statistics, Mixture)
    assert accuracy(adapter, test.images, test.labels) > 0.97
    with pytest.raises(ValueError, match=r"in \[0, 1\] \(or 'auto'"):
        driftnorm.adapt(network, method, theta="abc")


def test_dense_prediction() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)).eval()
    adapter = driftnorm.adapt(network, "steady")
    for size in (1, 20, 2):
        assert adapter(torch.randn(size, 3, 6, 6)).shape == (size, 4, 6, 6)


def test_constants_are_judged() -> None:
    for thetas in ((0.2,), (0.0, 0.0), (0.0, 1.1), (0.0, -1.0)):
        with pytest.raises(ValueError, match="`thetas` must be different numbers"):
            ThetaChoice(thetas)
    with pytest.raises(ValueError, match="`memory` must be at least 1"):
        ThetaChoice(memory=0)
    with pytest.raises(ValueError, match="`short` must be at least 1 image"):
        ThetaChoice(short=0.5)
    with pytest.raises(ValueError, match="`short` needs `Window`"):
        driftnorm.Recipe(statistics=Mixture(0.5), answer=(ThetaChoice(short=16),))
    with pytest.raises(ValueError, match="has none: use `Mixture` or `Window`"):
        driftnorm.Recipe(statistics=Running(), answer=(ThetaChoice(),))
