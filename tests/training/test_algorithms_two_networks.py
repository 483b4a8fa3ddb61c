"""ARM, MTL, SagNet, MixStyle and SWAD: each step against the same written out by hand."""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from domain_networks import (
    DOMAINS,
    Numbers,
    SlowAdam,
    cross_entropy,
    domain_batch,
    domain_network,
    normalised,
    started,
    tiny_model,
    train_steps,
)
from torch import Tensor, nn

from driftnorm.errors import DriftnormWarning
from driftnorm.models import Normalized, build
from driftnorm.training.domains.algorithm import Algorithm
from driftnorm.training.domains.algorithms.arm import ARM
from driftnorm.training.domains.algorithms.erm import ERM
from driftnorm.training.domains.algorithms.mixstyle import MixStyle
from driftnorm.training.domains.algorithms.mtl import MTL
from driftnorm.training.domains.algorithms.sagnet import SagNet
from driftnorm.training.domains.algorithms.swad import SWAD, reestimate_statistics
from driftnorm.training.domains.algorithms.valley import Valley, ValleyRule
from driftnorm.training.domains.network import DomainNetwork

STEPS = 4
RATES = {"lr": 0.01, "weight_decay": 0.003}

Step = Callable[[int], dict[str, float]]


def assert_same_run(algorithm: Algorithm, numbers: Numbers, literal: Step, size: int = 4) -> None:
    """Losses step by step, and all parameters and buffers, agree with the literal computation."""
    state = started(algorithm)
    for step in range(STEPS):
        losses = train_steps(algorithm, state, [step], size)[0]
        torch.manual_seed(100 + step)
        assert losses == pytest.approx(literal(step), rel=1e-8)
        numbers.assert_same(algorithm)


def all_parameters(algorithm: Algorithm, numbers: Numbers) -> list[Tensor]:
    return [numbers[name] for name, _ in algorithm.named_parameters()]


# --- MTL ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["frozen", "trained"])
@pytest.mark.parametrize("reading", ["paper", "domainbed"])
def test_mtl(reading: str, mode: str) -> None:
    algorithm = MTL(domain_network(mode), DOMAINS, ema=0.7, reading=reading, **RATES)
    numbers = Numbers(algorithm)
    adam = SlowAdam(all_parameters(algorithm, numbers), 0.01, 0.003)
    memory = [torch.zeros(5, dtype=torch.float64) for _ in range(DOMAINS)]

    def literal(step: int) -> dict[str, float]:
        loss = torch.zeros((), dtype=torch.float64)
        for domain, own in enumerate(domain_batch(step).minibatches):
            features = numbers.features(own.images, mode == "trained")
            embedding = 0.7 * sum(features) / len(features) + 0.3 * memory[domain]
            memory[domain] = embedding.detach()
            numbers["embeddings"][domain] = memory[domain]
            embeddings = [embedding] * len(features)
            if reading == "domainbed":  # which draws for every image
                embeddings = [*torch.randn(len(features), 5, dtype=torch.float64)]
            weight = torch.cat(
                [
                    numbers["network.classifier.weight"],
                    numbers["network.classifier.embedding_weight"],
                ],
                1,
            )
            pairs = zip(features, embeddings, strict=True)
            both = torch.stack([torch.cat(pair) for pair in pairs])
            logits = both @ weight.T + numbers["network.classifier.bias"]
            loss = loss + cross_entropy(logits, own.labels)
        adam.descend(loss)
        return {"loss": loss.item()}

    assert_same_run(algorithm, numbers, literal)


def test_mtl_answers_by_the_batch() -> None:
    algorithm = MTL(domain_network(), DOMAINS).eval()
    images = domain_batch(0).joint().images
    head = algorithm.network.classifier
    features = algorithm.network.features(images)
    both = torch.cat([features, features.mean(0).expand_as(features)], 1)
    wanted = F.linear(both, torch.cat([head.weight, head.embedding_weight], 1), head.bias)
    torch.testing.assert_close(algorithm(images), wanted)
    torch.testing.assert_close(algorithm.deployed()(images), wanted)


# --- ARM ------------------------------------------------------------------------------------


def arm_logits(numbers: Numbers, images: Tensor, group: int, trained: bool) -> Tensor:
    x = normalised(images)
    inside = "network.featurizer.network"
    maps = x
    for conv, norm in ((0, 1), (3, 4)):
        name = f"{inside}.context.{conv}"
        maps = F.conv2d(maps, numbers[f"{name}.weight"], numbers[f"{name}.bias"], padding=2)
        maps = numbers.batch_norm(maps, f"{inside}.context.{norm}", trained=True).clamp(min=0)
    name = f"{inside}.context.6"
    maps = F.conv2d(maps, numbers[f"{name}.weight"], numbers[f"{name}.bias"], padding=2)
    seen = []
    for number in range(len(x)):
        members = [j for j in range(len(x)) if j // group == number // group]
        context = sum(maps[j] for j in members) / len(members)
        seen.append(torch.cat([x[number], context]))
    out = torch.stack(seen)
    for number in (1, 2, 3):
        out = numbers.stage(out, f"{inside}.network", number, trained)
    return numbers.linear(out.mean((2, 3)))


@pytest.mark.parametrize(
    ("reading", "mode", "group"),
    [("paper", "frozen", 4), ("paper", "trained", 2), ("domainbed", "frozen", 4)],
)
def test_arm(reading: str, mode: str, group: int) -> None:
    algorithm = ARM(domain_network(mode), DOMAINS, group_size=group, reading=reading, **RATES)
    numbers = Numbers(algorithm)
    names = [n for n, _ in algorithm.named_parameters()]
    trained = [n for n in names if reading == "paper" or "context" not in n]
    assert len(trained) < len(names) or reading == "paper"
    adam = SlowAdam([numbers[n] for n in trained], 0.01, 0.003)

    def literal(step: int) -> dict[str, float]:
        joint = domain_batch(step).joint()
        logits = arm_logits(numbers, joint.images, group, mode == "trained")
        loss = cross_entropy(logits, joint.labels)
        adam.descend(loss)
        return {"loss": loss.item()}

    assert_same_run(algorithm, numbers, literal)


def test_arm_starts_the_context_channel_with_the_first_filters() -> None:
    weight = tiny_model().network.layer1[0].weight
    network = domain_network()
    ARM(network, DOMAINS, context_channels=3)
    stem = network.featurizer.network.network.layer1[0]
    assert stem.weight.shape[1] == 5
    for channel in range(5):
        assert torch.equal(stem.weight[:, channel], weight[:, channel % 2])


@pytest.mark.parametrize("reading", ["paper", "domainbed"])
@pytest.mark.parametrize("normalized", [False, True])
def test_arm_on_digits_starts_afresh_in_domainbeds_reading(reading: str, normalized: bool) -> None:
    model = build("mnist-bn", num_classes=3)
    first = model.conv1.weight.detach().clone()
    network = DomainNetwork(Normalized(model, (0.0,), (1.0,)) if normalized else model)
    ARM(network, DOMAINS, reading=reading)
    assert model.conv1.weight.shape[1] == 2
    copied = torch.equal(model.conv1.weight, first.expand(-1, 2, -1, -1))
    assert copied == (reading == "paper")
    if reading == "domainbed":  # as a layer of two channels starts
        bound = (2 * 9) ** -0.5
        assert 0.9 * bound < model.conv1.weight.abs().max().item() <= bound


@pytest.mark.parametrize("reading", ["paper", "domainbed"])
def test_arm_keeps_pretrained_filters_in_both_readings(reading: str) -> None:
    network = domain_network()
    ARM(network, DOMAINS, reading=reading)
    stem = network.featurizer.network.network.layer1[0].weight
    assert torch.equal(stem[:, :2], tiny_model().network.layer1[0].weight)
    assert torch.equal(stem[:, 2], stem[:, 0])


def test_arm_refuses_groups_across_domains() -> None:
    algorithm = ARM(domain_network(), DOMAINS, group_size=3)
    with pytest.raises(ValueError, match="groups of 3 and a minibatch of 4"):
        train_steps(algorithm, started(algorithm), [0])


# --- SagNet ---------------------------------------------------------------------------------


def slowly_restyled(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Sample by sample and channel by channel (a vector of features is one channel)."""
    rows = features.flatten(2) if features.ndim == 4 else features[:, None]
    own, other = rng.random(len(rows)), rng.permutation(len(rows))
    out = torch.empty_like(rows)
    for n in range(len(rows)):
        for c in range(rows.shape[1]):
            x, y, a = rows[n, c], rows[other[n], c], own[n]
            mean = a * x.mean() + (1 - a) * y.mean()
            var = a * x.var() + (1 - a) * y.var()
            out[n, c] = (x - x.mean()) / (x.var() + 1e-5) ** 0.5 * (var + 1e-5) ** 0.5 + mean
    return out.view_as(features)


def slowly_refilled(features: Tensor, rng: np.random.Generator) -> Tensor:
    rows = features.flatten(2) if features.ndim == 4 else features[:, None]
    other = rng.permutation(len(rows))
    out = torch.empty_like(rows)
    for n in range(len(rows)):
        for c in range(rows.shape[1]):
            x, y = rows[n, c], rows[other[n], c].detach()
            content = (y - y.mean()) / (y.var() + 1e-5) ** 0.5
            out[n, c] = content * (x.var() + 1e-5) ** 0.5 + x.mean()
    return out.view_as(features)


def uniform_loss(logits: Tensor) -> Tensor:
    rows = [-torch.log(torch.exp(row) / torch.exp(row).sum()).mean() for row in logits]
    return sum(rows) / len(rows)


@pytest.mark.parametrize("mode", ["frozen", "trained"])
def test_sagnet_of_domainbed(mode: str) -> None:
    network = domain_network(mode)
    algorithm = SagNet(network, DOMAINS, reading="domainbed", w_adv=0.4, **RATES)
    numbers, trained = Numbers(algorithm), mode == "trained"
    groups = {"features": "network.featurizer", "content": "network.classifier", "style": "style"}
    adams = {
        group: SlowAdam(
            [numbers[n] for n, _ in algorithm.named_parameters() if n.startswith(prefix)],
            0.01,
            0.003,
        )
        for group, prefix in groups.items()
    }

    def literal(step: int) -> dict[str, float]:
        batch = domain_batch(step)
        images, labels = batch.joint().images, batch.joint().labels
        restyled = slowly_restyled(numbers.features(images, trained), batch.rng)
        content = cross_entropy(numbers.linear(restyled), labels)
        gradients = [
            torch.autograd.grad(content, adams[g].parameters, retain_graph=True)
            for g in ("features", "content")
        ]
        adams["features"].step(gradients[0])
        adams["content"].step(gradients[1])
        refilled = slowly_refilled(numbers.features(images, trained), batch.rng)
        style = cross_entropy(numbers.linear(refilled, "style"), labels)
        adams["style"].descend(style)
        refilled = slowly_refilled(numbers.features(images, trained), batch.rng)
        adversary = 0.4 * uniform_loss(numbers.linear(refilled, "style"))
        adams["features"].descend(adversary)
        losses = {"style": style, "adversary": adversary, "content": content}
        return {name: loss.item() for name, loss in losses.items()}

    assert_same_run(algorithm, numbers, literal)


@pytest.mark.parametrize(("mode", "clip"), [("frozen", 1e-3), ("trained", 100.0)])
def test_sagnet_of_the_paper(mode: str, clip: float) -> None:
    algorithm = SagNet(domain_network(mode), DOMAINS, w_adv=0.4, clip=clip, **RATES)
    numbers, trained = Numbers(algorithm), mode == "trained"
    main, side = "network.featurizer.network", "style.network.featurizer.network"
    names = [n for n, _ in algorithm.named_parameters()]
    assert [n for n in names if n.startswith(side) and "layer3" not in n] == []
    affine = [f"{main}.layer{i}.1.{part}" for i in (1, 2) for part in ("weight", "bias")]
    trained_by = {
        "style": [n for n in names if n.startswith("style")],
        "adversary": affine,
        "content": [n for n in names if n.startswith("network")],
    }
    adams = {
        loss: SlowAdam([numbers[n] for n in own], 0.01, 0.003) for loss, own in trained_by.items()
    }

    def literal(step: int) -> dict[str, float]:
        batch = domain_batch(step)
        images, labels = batch.joint().images, batch.joint().labels
        maps = numbers.stage(normalised(images), main, 1, trained)
        maps = numbers.stage(maps, main, 2, trained)
        last = numbers.stage(slowly_restyled(maps, batch.rng), main, 3, trained)
        content = cross_entropy(numbers.linear(last.mean((2, 3))), labels)
        last = numbers.stage(slowly_refilled(maps, batch.rng), side, 3, trained)
        logits = numbers.linear(last.mean((2, 3)), "style.network.classifier")
        losses = {
            "style": cross_entropy(logits, labels),
            "adversary": 0.4 * uniform_loss(logits),
            "content": content,
        }
        gradients = {
            name: torch.autograd.grad(loss, adams[name].parameters, retain_graph=True)
            for name, loss in losses.items()
        }
        norm = sum((g**2).sum() for g in gradients["adversary"]) ** 0.5
        factor = min(1.0, clip / (norm + 1e-6))
        gradients["adversary"] = tuple(g * factor for g in gradients["adversary"])
        for name, adam in adams.items():
            adam.step(gradients[name])
        return {name: loss.item() for name, loss in losses.items()}

    assert_same_run(algorithm, numbers, literal)


@pytest.mark.parametrize("name", ["mnist-gn", "mnist-bn", "resnet18"])
def test_sagnet_and_mixstyle_know_the_stages_of_real_networks(name: str) -> None:
    channels = 1 if name.startswith("mnist") else 3
    model = Normalized(build(name, num_classes=3), (0.5,) * channels, (0.2,) * channels)
    images = torch.rand(4, channels, 32, 32)
    labels = torch.tensor([0, 1, 2, 0])
    for kind in (SagNet, MixStyle):
        algorithm = kind(DomainNetwork(copy.deepcopy(model)), 1)
        plain = algorithm.deployed()(images)
        torch.testing.assert_close(plain, algorithm.eval()(images))
        batch = domain_batch(0)
        own = type(batch.minibatches[0])(images, labels)
        losses = algorithm.train().step(started(algorithm), type(batch)((own,), batch.rng))
        assert all(np.isfinite(value) for value in losses.values())
        assert not torch.equal(algorithm.deployed()(images), plain)


def test_sagnet_says_what_it_lacks() -> None:
    bare = nn.Sequential()
    bare.layer1, bare.layer2 = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3)
    bare.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten()).append(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"normalisation layers up to `layer2`.*domainbed"):
        SagNet(DomainNetwork(bare), 1)


# --- MixStyle -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "mixing"), [("frozen", "random"), ("frozen", "crossdomain"), ("trained", "random")]
)
def test_mixstyle(mode: str, mixing: str) -> None:
    stages = ("network.layer1", "network.layer2")
    algorithm = MixStyle(
        domain_network(mode), DOMAINS, p=0.6, alpha=0.3, mixing=mixing, stages=stages, **RATES
    )
    numbers = Numbers(algorithm)
    adam = SlowAdam(all_parameters(algorithm, numbers), 0.01, 0.003)
    mixed = []

    def mix(maps: Tensor, rng: np.random.Generator) -> Tensor:
        if mixing == "random":
            weights, partners = rng.beta(0.3, 0.3, 12), rng.permutation(12)
        else:
            weights = rng.beta(0.3, 0.3, 12)
            shuffled = [rng.permutation(4) for _ in range(3)]
            partners = [4 * ((n // 4 + 1) % 3) + shuffled[n // 4][n % 4] for n in range(12)]
        out = torch.empty_like(maps)
        for n, partner in enumerate(partners):
            for c in range(maps.shape[1]):
                x, y = maps[n, c], maps[partner, c]
                s, t = (((v.detach().flatten().var() + 1e-6) ** 0.5).item() for v in (x, y))
                m, k = x.mean().item(), y.mean().item()
                w = weights[n]
                out[n, c] = (x - m) / s * (w * s + (1 - w) * t) + (w * m + (1 - w) * k)
        return out

    def literal(step: int) -> dict[str, float]:
        batch = domain_batch(step)
        x = normalised(batch.joint().images)
        for number in (1, 2, 3):
            x = numbers.stage(x, "network.featurizer.network", number, mode == "trained")
            if number < 3 and batch.rng.random() < 0.6:
                mixed.append(number)
                x = mix(x, batch.rng)
        loss = cross_entropy(numbers.linear(x.mean((2, 3))), batch.joint().labels)
        adam.descend(loss)
        return {"loss": loss.item()}

    assert_same_run(algorithm, numbers, literal)
    assert 0 < len(mixed) < 2 * STEPS


def test_mixstyle_leaves_no_hook_even_when_a_step_fails() -> None:
    algorithm = MixStyle(domain_network(), DOMAINS, mixing="crossdomain", p=1.0)
    batch = domain_batch(0)
    uneven = type(batch)((*batch.minibatches[:2], domain_batch(1, 3).minibatches[0]), batch.rng)
    with pytest.raises(ValueError, match=r"as many images of each domain, got \[4, 4, 3\]"):
        algorithm.train().step(started(algorithm), uneven)
    assert not any(module._forward_hooks for module in algorithm.modules())
    images = batch.joint().images
    assert torch.equal(algorithm(images), algorithm.network(images))


# --- SWAD: the valley -----------------------------------------------------------------------


def retold(
    losses: list[float], n_s: int, n_e: int, ratio: float, twice: bool
) -> tuple[list[int], int | None, bool]:
    """Section 2.12 of the reference, told with lists: segments taken, t_s, whether it died."""
    taken: list[int] = []
    start, limit, dead = None, 0.0, False
    for now in range(len(losses)):
        stored = list(range(now + 1))
        if start is None:
            last = stored[-n_s:]
            if len(last) == n_s and all(losses[last[0]] <= losses[i] for i in last):
                start = last[0]
                limit = (1 + ratio) * np.mean([losses[i] for i in last])
                if n_e > n_s:
                    back = stored[-n_e:][: n_e - n_s + 1]
                    if not twice:
                        back = [i for i in back if i <= start]
                    outside = [i for i in back if losses[i] > limit]
                    inside = [i for i in back if not outside or i > outside[-1]]
                    taken += inside[1:]
                elif n_e < n_s:
                    taken += [start + 1 + k for k in range(n_s - n_e)]
            continue
        window = stored[-n_e:]
        if window[0] < start:
            continue
        if all(losses[i] > limit for i in window):
            dead = True
            break
        if twice or (window[0] not in taken and window[0] >= start):
            taken.append(window[0])
    if start is not None and not dead:
        window = list(range(len(losses)))[-n_e:]
        if twice:
            rest = window[1:]
        else:
            first = start if n_e > n_s else start + 1
            rest = [i for i in range(first, len(losses)) if i not in taken]
        while rest and min(losses[i] for i in range(rest[0], len(losses))) <= limit:
            taken.append(rest.pop(0))
    return taken, start, dead


def told_by_rule(rule: ValleyRule, losses: list[float]) -> tuple[list[int], int | None, bool]:
    valley, taken = Valley(), []
    for loss in losses:
        if valley.dead:
            break
        valley, more = rule.evaluated(valley, loss)
        taken += more
    taken += rule.remaining(valley)
    return taken, None if valley.start < 0 else valley.start, valley.dead


def random_losses(draw: random.Random) -> list[float]:
    """Falls, stays, rises: at random places, with noise and with ties."""
    fall, flat, rise = (draw.randint(0, 9) for _ in range(3))
    noise = draw.choice([0.0, 0.05, 0.3])
    course = [2.0 * 0.7**i for i in range(fall)]
    low = course[-1] if course else 1.0
    course += [low] * flat + [low * 1.25**i for i in range(rise)]
    return [round(loss * (1 + noise * draw.random()), draw.choice([2, 6])) for loss in course]


@pytest.mark.parametrize("twice", [False, True])
def test_valley_as_retold(twice: bool) -> None:
    draw = random.Random(1)
    ends = {"never": 0, "dead": 0, "alive": 0}
    for _ in range(3000):
        n_s, n_e = draw.choice([(3, 6), (3, 6), (3, 3), (4, 2), (2, 3), (1, 6)])
        losses = random_losses(draw)
        got = told_by_rule(ValleyRule(n_s, n_e, 0.3, twice), losses)
        assert got == retold(losses, n_s, n_e, 0.3, twice), (losses, n_s, n_e)
        ends["never" if got[1] is None else "dead" if got[2] else "alive"] += 1
        if not twice:
            assert sorted(set(got[0])) == got[0], "each once, in order"
    assert min(ends.values()) > 100, ends


def test_each_once_is_twice_without_repeats_in_an_ordinary_run() -> None:
    draw, compared = random.Random(2), 0
    for _ in range(2000):
        losses = random_losses(draw)
        once, start, _ = told_by_rule(ValleyRule(), losses)
        double, _, _ = told_by_rule(ValleyRule(count_twice=True), losses)
        if start is not None and start >= 3 and len(losses) > start + 6:
            compared += 1
            assert once == sorted(set(double))
    assert compared > 100


@pytest.mark.parametrize(
    ("losses", "once", "double", "start", "dead"),
    [
        # t_s = 4, T = 1.3 x 1.2 / 3 x ... of 1.0, 1.1, 1.2: 1.43. Within reach (1..4): 3 is the
        # first inside, so 4 is taken in looking back, then 5.. until the losses rise for good.
        (
            [9, 5, 3, 1.2, 1.0, 1.1, 1.2, 1.3, 1.4, 2, 2, 2, 2, 2, 2, 2],
            [4, 5, 6, 7, 8],
            [4, 4, 5, 6, 7, 8],
            4,
            True,
        ),
        # Ends in the valley: everything since is taken.
        ([9, 5, 3, 1.2, 1.0, 1.1, 1.2, 1.0], [4, 5, 6, 7], None, 4, False),
        # Never converges.
        ([5, 4, 3, 2, 1], [], [], None, False),
        # The reach begins with 2, which is outside: 3 is first inside, 4 and 5 follow.
        ([9, 8, 7, 1.1, 1.1, 1.0, 1.1, 1.1], [4, 5, 6, 7], None, 5, False),
    ],
)
def test_valley_by_hand(
    losses: list[float],
    once: list[int],
    double: list[int] | None,
    start: int | None,
    dead: bool,
) -> None:
    assert told_by_rule(ValleyRule(), losses) == (once, start, dead)
    if double is not None:
        assert told_by_rule(ValleyRule(count_twice=True), losses) == (double, start, dead)


# --- SWAD: the mean -------------------------------------------------------------------------

VALIDATION = [9, 5, 3, 1.2, 1.0, 1.1, 1.2, 1.3, 1.4, 2, 2, 2, 2, 2, 2, 2]


def run_swad(
    swad: SWAD, losses: list[float], per_segment: int = 2
) -> tuple[list[list[Tensor]], list[int]]:
    """Trains; gives all weights after every step by segment, and when it said stop."""
    state, weights, stops = started(swad), [], []
    for number, loss in enumerate(losses):
        weights.append([])
        for step in range(per_segment):
            train_steps(swad, state, [number * per_segment + step])
            swad.after_step()
            flat = [p.detach().flatten().clone() for p in swad.algorithm.parameters()]
            weights[-1].append(torch.cat(flat))
        if swad.evaluated(loss):
            stops.append(number)
    return weights, stops


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("end", [16, 9, 7])
def test_swad_is_the_mean_of_the_segments_taken(end: int, twice: bool) -> None:
    swad = SWAD(ERM(domain_network(), DOMAINS, lr=0.01), count_twice=twice)
    weights, stops = run_swad(swad, VALIDATION[:end])
    taken, _, dead = retold(VALIDATION[:end], 3, 6, 0.3, twice)
    assert bool(stops) == dead
    wanted = sum(sum(weights[i]) / 2 for i in taken) / len(taken)
    torch.testing.assert_close(swad.averaged_weights(), wanted, rtol=1e-9, atol=1e-12)
    assert swad.finish()["segments"] == len(taken)
    deployed = swad.deployed()
    parameters = dict(deployed.named_parameters())
    current = dict(swad.algorithm.deployed().named_parameters())
    assert parameters.keys() == current.keys()
    assert all(not torch.equal(parameters[name], current[name]) for name in current)
    torch.testing.assert_close(  # the wrapped algorithm lists the featurizer, then the classifier
        torch.cat([p.detach().flatten() for p in parameters.values()]), wanted
    )


def test_swad_without_convergence_warns_and_gives_the_last_segment() -> None:
    swad = SWAD(ERM(domain_network(), DOMAINS, lr=0.01))
    weights, stops = run_swad(swad, [5, 4, 3, 2])
    assert not stops
    with pytest.warns(DriftnormWarning, match="did not converge within 4 evaluations"):
        assert swad.finish()["segments"] == 0
    torch.testing.assert_close(swad.averaged_weights(), sum(weights[-1]) / 2)


def test_swad_trains_as_the_algorithm_alone_and_keeps_its_network_once() -> None:
    alone, wrapped = ERM(domain_network(), DOMAINS), ERM(domain_network(), DOMAINS)
    swad = SWAD(wrapped)
    assert not any(name.startswith("network.") for name in swad.state_dict())
    assert swad.network is wrapped.network
    losses = train_steps(alone, started(alone), range(3))
    assert train_steps(swad, started(swad), range(3)) == losses
    images = domain_batch(0).joint().images
    assert torch.equal(swad.eval()(images), alone.eval()(images))


def test_swad_refuses_misuse() -> None:
    swad = SWAD(ERM(domain_network(), DOMAINS))
    with pytest.raises(RuntimeError, match="no segment yet"):
        swad.deployed()
    with pytest.raises(RuntimeError, match="`after_step` after every step"):
        swad.evaluated(1.0)
    with pytest.raises(ValueError, match="`validation_loss` must be finite, got nan"):
        swad.evaluated(float("nan"))


def test_reestimated_statistics_are_those_of_the_batches() -> None:
    network = tiny_model()
    batches = [domain_batch(step).joint().images for step in range(3)]
    before = copy.deepcopy(network)
    reestimate_statistics(network, batches)
    maps = [before.network.layer1[0](normalised(images)) for images in batches]
    norm = network.network.layer1[1]
    torch.testing.assert_close(norm.running_mean, sum(m.mean((0, 2, 3)) for m in maps) / 3)
    torch.testing.assert_close(norm.running_var, sum(m.var((0, 2, 3)) for m in maps) / 3)
    assert norm.momentum == 0.1
    assert not norm.training


# --- all of them ----------------------------------------------------------------------------

MAKERS: dict[str, Callable[[DomainNetwork], Algorithm]] = {
    "mtl": lambda network: MTL(network, DOMAINS, **RATES),
    "mtl-domainbed": lambda network: MTL(network, DOMAINS, reading="domainbed", **RATES),
    "arm": lambda network: ARM(network, DOMAINS, group_size=4, **RATES),
    "arm-domainbed": lambda n: ARM(n, DOMAINS, group_size=2, reading="domainbed", **RATES),
    "sagnet": lambda network: SagNet(network, DOMAINS, **RATES),
    "sagnet-domainbed": lambda network: SagNet(network, DOMAINS, reading="domainbed", **RATES),
    "mixstyle": lambda network: MixStyle(network, DOMAINS, p=0.8, **RATES),
    "swad": lambda network: SWAD(MTL(network, DOMAINS, **RATES), n_converge=1, n_tolerance=2),
}


def run(algorithm: Algorithm, state, steps: range) -> None:
    for step in steps:
        train_steps(algorithm, state, [step])
        if isinstance(algorithm, SWAD):
            algorithm.after_step()
            if step % 2:
                algorithm.evaluated(1.0)


@pytest.mark.parametrize("mode", ["frozen", "trained"])
@pytest.mark.parametrize("name", MAKERS)
def test_resumed_runs_end_with_the_same_bits(name: str, mode: str) -> None:
    torch.manual_seed(0)
    whole = MAKERS[name](domain_network(mode))
    state = started(whole)
    run(whole, state, range(3))
    file = io.BytesIO()
    torch.save([whole.state_dict(), {n: o.state_dict() for n, o in state.optimizers.items()}], file)
    run(whole, state, range(3, 6))
    file.seek(0)
    weights, moments = torch.load(file, weights_only=True)
    torch.manual_seed(1)  # what a fresh algorithm draws must not matter
    resumed = MAKERS[name](domain_network(mode, seed=3))
    other = started(resumed)
    resumed.load_state_dict(weights)
    for key, optimizer in other.optimizers.items():
        optimizer.load_state_dict(moments[key])
    run(resumed, other, range(3, 6))
    wanted = whole.state_dict()
    for key, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, wanted[key]), key


@pytest.mark.parametrize("name", MAKERS)
def test_deployed_is_independent_plain_and_says_the_same(name: str) -> None:
    algorithm = MAKERS[name](domain_network("trained"))
    state = started(algorithm)
    run(algorithm, state, range(2))
    deployed = algorithm.deployed()
    assert not deployed.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in deployed.modules())
    images = domain_batch(9).joint().images
    torch.manual_seed(0)
    answer = deployed(images)
    if name != "swad":
        torch.manual_seed(0)
        torch.testing.assert_close(algorithm.eval()(images), answer)
    run(algorithm, state, range(2, 4))
    torch.manual_seed(0)
    assert torch.equal(deployed(images), answer)


@pytest.mark.parametrize("name", MAKERS)
def test_the_memory_layout_changes_nothing(name: str) -> None:
    images, answers = domain_batch(9).joint().images, []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        algorithm = MAKERS[name](domain_network()).to(memory_format=layout)
        run(algorithm, started(algorithm), range(4))
        torch.manual_seed(0)
        answers.append(algorithm.deployed()(images.contiguous(memory_format=layout)))
    torch.testing.assert_close(*answers)


@pytest.mark.parametrize("kind", [MTL, ARM, SagNet])
def test_unknown_readings_are_refused(kind: Callable[..., Algorithm]) -> None:
    with pytest.raises(ValueError, match="`reading` must be one of"):
        kind(domain_network(), DOMAINS, reading="folklore")
