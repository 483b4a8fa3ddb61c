"""Methods against slow, literal loops written from their formulas, in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import literal_gprebn, own_moments, plain_bn
from torch import Tensor, nn

import driftnorm
from driftnorm.methods import build
from driftnorm.parts import View, Window
from driftnorm.parts.answers import Lame
from driftnorm.parts.contract import Measured
from driftnorm.parts.memories import Kept, TimelyUncertain

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
CLASSES = 4


def literal_network(source: nn.Module) -> tuple[nn.Module, list[nn.Parameter]]:
    """Batch norm in training mode, only its affine parameters trained."""
    network = copy.deepcopy(source).double().eval().requires_grad_(False)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.train().requires_grad_(True)
        norm.track_running_stats = False
    return network, [p for m in norms for p in m.parameters()]


def entropy_of(logits: Tensor) -> Tensor:
    return torch.distributions.Categorical(logits=logits).entropy()


def doubled(batches: Draw, count: int = 6) -> list[Tensor]:
    return [x.double() * (1 + 0.3 * place) for place, x in enumerate(batches(count=count))]


def assert_stream(
    adapter: nn.Module, data: list[Tensor], expected: list[Tensor], within: float = 1e-8
) -> None:
    for x, right in zip(data, expected, strict=True):
        torch.testing.assert_close(adapter(x), right, rtol=100 * within, atol=within)


def literal_eta(
    source: nn.Module, data: list[Tensor], margin: float, near: float, fisher: float = 0.0
) -> tuple[list[Tensor], list[int]]:
    network, trained = literal_network(source)
    start = [p.detach().clone() for p in trained]
    optimizer = torch.optim.Adam(trained, lr=0.02)
    limit, mean, answers, kept_counts = margin * math.log(CLASSES), None, [], []
    weights = [torch.zeros_like(p) for p in trained]
    if fisher:
        logits = network(fitting(source))
        loss = F.cross_entropy(logits, logits.argmax(1))
        weights = [g.square() for g in torch.autograd.grad(loss, trained)]
    for x in data:
        logits = network(x)
        answers.append(logits.detach())
        h, p = entropy_of(logits), logits.detach().softmax(1)
        sure = h.detach()
        chosen = []
        for i in range(len(x)):
            if not sure[i] < limit:
                continue
            if mean is not None and not abs(F.cosine_similarity(mean, p[i], dim=0)) < near:
                continue
            chosen.append(i)
        kept_counts.append(len(chosen))
        if not chosen:
            continue
        now = p[chosen].mean(0)
        mean = now if mean is None else 0.9 * mean + 0.1 * now
        loss = sum(math.exp(limit - float(sure[i])) * h[i] for i in chosen) / len(chosen)
        for p0, f, w in zip(start, weights, trained, strict=True):
            loss = loss + fisher * (f * (w - p0).square()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return answers, kept_counts


def fitting(source: nn.Module) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(16, 3, 6, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("margin", "near"), [(0.97, 0.99), (1.0, 1.0), (0.9, 0.95), (0.01, 0.4)])
@pytest.mark.parametrize("method", ["eta", "rdumb"])
def test_eta(method: str, margin: float, near: float, network: Build, batches: Draw) -> None:
    source, data = network().double(), doubled(batches)
    expected, kept = literal_eta(source, data, margin, near)
    adapter = driftnorm.adapt(source, method, margin=margin, similarity=near, lr=0.02, guard="off")
    assert_stream(adapter, data, expected)
    assert (margin == 0.01) == (sum(kept) == 0)  # "every sample dropped" is one of the cases


def test_eata(network: Build, batches: Draw) -> None:
    source, data = network().double(), doubled(batches)
    free, _ = literal_eta(source, data, 1.0, 1.0)
    expected, _ = literal_eta(source, data, 1.0, 1.0, fisher=500.0)
    assert not torch.allclose(free[-1], expected[-1], atol=1e-4)  # the term does something
    options: dict[str, Any] = {"margin": 1.0, "similarity": 1.0, "lr": 0.02, "guard": "off"}
    adapter = driftnorm.adapt(source, "eata", fisher=500.0, **options).fit(fitting(source))
    assert_stream(adapter, data, expected)
    adapter.reset()  # keeps what was fitted
    assert_stream(adapter, data, expected)


def test_eata_asks_for_images_of_the_source(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "eata", margin=1.0, guard="off")
    with pytest.raises(ValueError, match=r"call `adapter.fit\(images\)`"):
        adapter(batches()[0])
    assert adapter.batches == 0


def test_rdumb_starts_anew(network: Build, batches: Draw) -> None:
    data = batches(count=6)
    options: dict[str, Any] = {"margin": 1.0, "similarity": 1.0, "lr": 0.05, "guard": "off"}
    eta = driftnorm.adapt(network(), "eta", **options)
    expected = []
    for place, x in enumerate(data):
        if place in (2, 4):
            eta.reset()
        expected.append(eta(x))
    rdumb = driftnorm.adapt(network(), "rdumb", every=2, **options)
    assert all(torch.equal(rdumb(x), right) for x, right in zip(data, expected, strict=True))


def literal_sar(
    source: nn.Module, data: list[Tensor], margin: float, floor: float
) -> tuple[list[Tensor], int]:
    network, trained = literal_network(source)
    start = [p.detach().clone() for p in trained]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    limit, usual, answers, recoveries = margin * math.log(CLASSES), None, [], 0
    for x in data:
        logits = network(x)
        answers.append(logits.detach())
        h = entropy_of(logits)
        first = h < limit
        if not first.any():
            continue
        gradient = torch.autograd.grad(h[first].mean(), trained)
        length = torch.sqrt(sum(g.square().sum() for g in gradient))
        here = [p.detach().clone() for p in trained]
        with torch.no_grad():
            for p, g in zip(trained, gradient, strict=True):
                p += 0.05 * g / (length + 1e-12)
        h = entropy_of(network(x))
        second = first & (h < limit)
        if second.any():
            loss = h[second].mean()
            gradient = torch.autograd.grad(loss, trained)
        with torch.no_grad():
            for p, old in zip(trained, here, strict=True):
                p.copy_(old)
        if not second.any():
            continue
        for p, g in zip(trained, gradient, strict=True):
            p.grad = g
        optimizer.step()
        value = float(loss.detach())
        usual = value if usual is None else 0.9 * usual + 0.1 * value
        if usual < floor * math.log(CLASSES):
            recoveries += 1
            usual = None
            optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
            with torch.no_grad():
                for p, old in zip(trained, start, strict=True):
                    p.copy_(old)
    return answers, recoveries


@pytest.mark.parametrize(("margin", "floor", "recovers"), [(1.0, 0.01, False), (1.0, 0.97, True)])
def test_sar(margin: float, floor: float, recovers: bool, network: Build, batches: Draw) -> None:
    source, data = network().double(), doubled(batches, 8)
    expected, recoveries = literal_sar(source, data, margin, floor)
    adapter = driftnorm.adapt(source, "sar", margin=margin, floor=floor, lr=0.1, guard="off")
    assert_stream(adapter, data, expected)
    assert (recoveries > 0) == recovers


def literal_cotta(source: nn.Module, data: list[Tensor], decay: float) -> list[Tensor]:
    """Without views and without restore: a mean teacher over all parameters."""
    student = copy.deepcopy(source).double().eval()
    teacher = copy.deepcopy(student)
    for network in (student, teacher):
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.train()
                norm.track_running_stats = False
    # Not Adam: where teacher and student agree the gradient is noise, which it makes steps of.
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)
    answers = []
    for x in data:
        with torch.no_grad():
            taught = teacher(x)
        answers.append(taught)
        loss = -(taught.softmax(1) * student(x).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.copy_(decay * slow + (1 - decay) * fast)
    return answers


def test_cotta_without_chance(network: Build, batches: Draw) -> None:
    source, data = network().double(), doubled(batches)
    expected = literal_cotta(source, data, 0.9)
    adapter = driftnorm.adapt(
        source,
        "cotta",
        decay=0.9,
        views=0,
        restore=0.0,
        lr=0.01,
        optimizer="sgd-plain",
        guard="off",
    )
    assert_stream(adapter, data, expected)


def test_cotta_restores_about_as_often_as_it_says(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "cotta", views=0, restore=0.3, lr=0.01, guard="off")
    adapter(batches()[0])
    start = dict(network().named_parameters())
    values = adapter.trained_values()
    moved = torch.cat([(values[n] != start[n]).flatten() for n in values])
    assert 0.6 < float(moved.float().mean()) < 0.8
    twin = driftnorm.adapt(network(), "cotta", views=0, restore=0.3, lr=0.01, seed=1, guard="off")
    twin(batches()[0])
    other = twin.trained_values()
    assert any(not torch.equal(values[n], other[n]) for n in values)


def test_cotta_looks_at_views_only_where_the_source_is_unsure(
    network: Build, batches: Draw
) -> None:
    for confidence, passes in ((0.0, 3), (1.0, 3 + 4)):
        calls = []
        adapter = driftnorm.adapt(network(), "cotta", views=4, confidence=confidence, guard="off")
        adapter(batches()[0])
        adapter.converted.network.register_forward_hook(lambda *_, c=calls: c.append(1))
        adapter(batches()[1])
        assert len(calls) == passes  # student, teacher, source, and the views
        assert passes <= adapter.recipe.cost.forwards


class LiteralNorm(nn.Module):
    """RoTTA's batch norm: running statistics from the source, which a lesson moves before use."""

    def __init__(self, norm: nn.BatchNorm2d, momentum: float) -> None:
        super().__init__()
        self.mean, self.var = norm.running_mean.clone(), norm.running_var.clone()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.momentum, self.learning = momentum, False

    def forward(self, x: Tensor) -> Tensor:
        if not self.learning:
            return plain_bn(x, self.mean, self.var, self.weight, self.bias, self.eps)
        mean, var = (moment.detach() for moment in own_moments(x))
        self.mean = (1 - self.momentum) * self.mean + self.momentum * mean
        self.var = (1 - self.momentum) * self.var + self.momentum * var
        return literal_gprebn(x, self.mean, self.var, self.weight, self.bias, self.eps)


def literal_learner(source: nn.Module) -> tuple[nn.Module, list[LiteralNorm]]:
    network = copy.deepcopy(source).double().eval().requires_grad_(False)
    norms = []
    for name, module in [*network.named_modules()]:
        if isinstance(module, nn.BatchNorm2d):
            norms.append(LiteralNorm(module, 0.2))
            setattr(network, name, norms[-1])
    return network, norms


class Item:
    """One image of RoTTA's memory."""

    def __init__(self, x: Tensor, uncertainty: float) -> None:
        self.x, self.uncertainty, self.age = x, uncertainty, 0

    def score(self, size: int) -> float:
        return 1 / (1 + math.exp(-self.age / size)) + self.uncertainty / math.log(CLASSES)


def add_to_memory(memory: list[list[Item]], new: Item, label: int, size: int) -> str:
    """One list for each class; returns which of the rules applied."""
    counts = [len(items) for items in memory]
    if counts[label] < size / CLASSES:
        if sum(counts) < size:
            memory[label].append(new)
            return "room"
        classes, rule = [c for c in range(CLASSES) if counts[c] == max(counts)], "largest"
    else:
        classes, rule = [label], "own"
    held = [(item.score(size), c, item) for c in classes for item in memory[c]]
    worst, c, item = max(held, key=lambda entry: entry[0])
    if worst <= new.score(size):
        return "refused"
    memory[c].remove(item)
    memory[label].append(new)
    return rule


def literal_rotta(
    source: nn.Module, data: list[Tensor], size: int, every: int, decay: float
) -> tuple[list[Tensor], int]:
    student, norms = literal_learner(source)
    teacher, slow_norms = literal_learner(source)
    trained = [p for norm in norms for p in (norm.weight, norm.bias)]
    slow = [p for norm in slow_norms for p in (norm.weight, norm.bias)]
    for parameter in trained:
        parameter.requires_grad_(True)
    optimizer = torch.optim.SGD(trained, lr=0.5, momentum=0.9)
    memory: list[list[Item]] = [[] for _ in range(CLASSES)]
    seen, lessons, answers = 0, 0, []
    for x in data:
        with torch.no_grad():
            logits = teacher(x)
        answers.append(logits)
        for i in range(len(x)):
            new = Item(x[i], float(entropy_of(logits[i])))
            add_to_memory(memory, new, int(logits[i].argmax()), size)
            for item in (item for items in memory for item in items):
                item.age += 1
            seen += 1
            if seen % every:
                continue
            lessons += 1
            items = [item for row in memory for item in row]
            images = torch.stack([item.x for item in items])
            for norm in (*norms, *slow_norms):
                norm.learning = True
            with torch.no_grad():
                taught = teacher(images).softmax(1)
            losses = -(taught * student(1.4 * images.flip(3)).log_softmax(1)).sum(1)
            ages = torch.tensor([item.age / size for item in items], dtype=torch.float64)
            loss = (losses * torch.exp(-ages) / (1 + torch.exp(-ages))).mean()
            for norm in (*norms, *slow_norms):
                norm.learning = False
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, value in zip(slow, trained, strict=True):
                    mean.copy_(decay * mean + (1 - decay) * value)
    return answers, lessons


@pytest.mark.parametrize("size", [1, 3, 6, 12, 64])
def test_timely_uncertain_keeps_whom_the_rules_keep(size: int) -> None:
    generator, bank = torch.Generator().manual_seed(size), TimelyUncertain(size)
    memory: list[list[Item]] = [[] for _ in range(CLASSES)]
    kept, held, rules = Kept([], [], []), [], set()
    for number in range(400):
        label = int(torch.multinomial(torch.tensor([8.0, 4, 2, 1]), 1, generator=generator))
        share = float(torch.rand((), generator=generator, dtype=torch.float64))
        item = Item(torch.tensor(number), share * math.log(CLASSES))
        rules.add(add_to_memory(memory, item, label, size))
        place = bank.place(kept, label, share, CLASSES)
        if place is not None:
            held[place : place + 1] = [number]
            for name, value in (("label", label), ("score", share), ("age", 0)):
                getattr(kept, name)[place : place + 1] = [value]
        kept.age = [age + 1 for age in kept.age]
        for each in (each for row in memory for each in row):
            each.age += 1
        assert sorted(held) == sorted(int(each.x) for row in memory for each in row)
    assert len(held) <= size
    assert rules == {"room", "refused", "own"} | ({"largest"} if size in (1, 3, 6) else set())


@dataclass(frozen=True)
class Mirrored(View):
    """A view without chance, which parts student and teacher."""

    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        return 1.4 * x.flip(3)


@pytest.mark.parametrize(("size", "every"), [(12, 9), (6, 4), (3, 20), (64, 5)])
def test_rotta(size: int, every: int, network: Build, batches: Draw) -> None:
    source, data = network().double(), doubled(batches, 8)
    with torch.no_grad():  # so that every class is predicted
        source.fc.bias -= source(torch.cat(data)).mean(0)
    expected, lessons = literal_rotta(source, data, size, every, 0.6)
    assert lessons == 72 // every
    recipe = build(
        "rotta",
        {"bank": size, "every": every, "decay": 0.6, "momentum": 0.2}
        | {"lr": 0.5, "optimizer": "sgd-plain"},
    )
    recipe = replace(recipe, memory=TimelyUncertain(size, every, Mirrored()))
    adapter = driftnorm.adapt(source, recipe, guard="off")
    assert_stream(adapter, data, expected)
    with torch.no_grad():
        moved = [
            float((right - source(x)).abs().max()) for x, right in zip(data, expected, strict=True)
        ]
    assert moved[0] < 1e-9
    assert moved[-1] > 1e-3  # the lessons did something
    adapter.freeze()
    torch.testing.assert_close(adapter(data[0]), adapter.bake()(data[0]))


def test_rotta_learns_nothing_before_its_first_lesson(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "rotta", every=20, lr=0.1, guard="off")
    answers = [adapter(x) for x in batches(count=4)]
    plain = network()
    same = [torch.allclose(plain(x), a) for x, a in zip(batches(count=4), answers, strict=True)]
    assert same == [True, True, True, False]
    assert adapter.state["parts"]["timelyuncertain"]["seen"] == 36


def test_a_memory_refuses_what_it_cannot_mix(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "rotta", guard="off")
    adapter(batches()[0])
    state = adapter.state
    with pytest.raises(ValueError, match=r"holds images of shape \(3, 6, 6\)"):
        adapter(torch.randn(4, 3, 8, 8))
    assert adapter.state is state


def literal_lame(logits: Tensor, features: Tensor, k: int, kernel: str) -> Tensor:
    unit = features / features.norm(dim=1, keepdim=True)
    n = len(unit)
    distance = torch.tensor([[float((a - b).norm()) for b in unit] for a in unit]).double()
    affinity = torch.zeros(n, n, dtype=torch.float64)
    if kernel == "rbf":
        sigma = sum(float(row.sort().values[min(k, n) - 1]) for row in distance) / n
        affinity = torch.exp(-distance.square() / (2 * sigma**2))
    else:
        for i in range(n):
            order = [j for j in distance[i].argsort().tolist() if j != i][:k]
            affinity[i, order] = 1.0
    p = logits.softmax(1)
    y = p
    for _ in range(200):
        y = (torch.log(p + 1e-10) + affinity @ y).softmax(1)
    return y


@pytest.mark.parametrize("kernel", ["rbf", "knn"])
@pytest.mark.parametrize("size", [2, 9])
def test_lame(kernel: Any, size: int, network: Build, batches: Draw) -> None:
    source, x = network(), batches()[0][:size]
    adapter = driftnorm.adapt(source, "lame", kernel=kernel, k=3, rounds=200, guard="off")
    answer = adapter(x)
    features = source.features(x).detach().double()
    expected = literal_lame(source(x).detach().double(), features, 3, kernel)
    torch.testing.assert_close(answer.softmax(1).double(), expected, rtol=1e-3, atol=1e-4)


def test_lame_leaves_one_image_alone(network: Build, batches: Draw) -> None:
    source, x = network(), batches()[0][:1]
    answer = driftnorm.adapt(source, "lame", guard="off")(x)
    torch.testing.assert_close(answer.softmax(1), source(x).softmax(1))
    assert Lame().per_batch


@pytest.mark.parametrize("multiply", [False, True])
def test_prior_correction(multiply: bool, network: Build, batches: Draw) -> None:
    source, x = network(), batches()[0]
    logits = source(x).detach()
    p = logits.softmax(1)
    prior = [float(p[:, k].mean()) for k in range(CLASSES)]
    g = max(1 / len(x), 1 / CLASSES) / max(prior)
    smooth = torch.tensor([(q + g) / (1 + g * CLASSES) for q in prior])
    expected = logits * smooth if multiply else p.log() + smooth.log()
    answer = driftnorm.adapt(source, "prior", multiply=multiply, guard="off")(x)
    torch.testing.assert_close(answer, expected)


# ------------------------------------------------------------------ the window


def literal_window(
    stream: list[Tensor], source: tuple[Tensor, Tensor], kind: Window
) -> tuple[list[tuple[Tensor, Tensor]], int]:
    """One layer, from the formulas: what normalises each batch, and how often it jumped."""
    evidence, usual, judged, mean, second, used, jumps = 0.0, 0.0, 0, None, None, [], 0
    recent: list[tuple[float, Tensor]] = []  # every image with its weight
    for x in stream:
        n, mu, v = len(x), x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        keep = (1 - 1 / kind.size) ** n
        fade = (1 - 1 / kind.reach) ** n
        recent = [(fade * weight, image) for weight, image in recent] + [(1.0, one) for one in x]
        total = sum(weight for weight, _ in recent)
        if mean is not None and evidence >= 1.5 * (total - n):
            near = sum(weight * image.mean((1, 2)) for weight, image in recent) / total
            squares = sum(weight * (image**2).mean((1, 2)) for weight, image in recent) / total
            var = second - mean**2
            spread = (squares - near**2).clamp(min=0)
            moved = ((near - mean) ** 2 + (spread.sqrt() - var.sqrt()) ** 2) / (var + 1e-5)
            d = min(total, 64) * float(moved.mean())
            if judged >= 2 * kind.reach and d > kind.jump * usual:
                keep, jumps = kind.forget, jumps + 1
                recent = [(1.0, one) for one in x]
            else:
                judged += n
                rate = max(n / judged, 1 - (1 - 1 / (8 * kind.reach)) ** n)
                usual += rate * (min(d, 2 * usual if judged > 4 * kind.reach else math.inf) - usual)
        evidence = keep * evidence + n
        w = n / evidence
        mean = mu if mean is None else (1 - w) * mean + w * mu
        square = v + mu**2
        second = square if second is None else (1 - w) * second + w * square
        theta = min(kind.theta, evidence / (evidence + kind.prior))
        var = second - mean**2
        used.append(((1 - theta) * source[0] + theta * mean, (1 - theta) * source[1] + theta * var))
    return used, jumps


@pytest.mark.parametrize(
    "sizes", [(8,) * 40, (1,) * 260, (3, 64, 1, 200, 70, 5, 30, 64, 16, 90, 7, 1)]
)
def test_window(sizes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    stream = []
    for place, n in enumerate(sizes):
        x = torch.randn(n, 4, 5, 5, generator=generator, dtype=torch.float64)
        stream.append(x if place < len(sizes) // 2 else 3 * x + 4)  # an abrupt change
    source = (torch.full((4,), 0.3).double(), torch.full((4,), 1.5).double())
    kind = Window()
    expected, jumps = literal_window(stream, source, kind)
    assert jumps >= 1
    memory: Any = {}
    shared: Any = {}
    for x, right in zip(stream, expected, strict=True):
        at = Measured(x)
        seen, shared = kind.observe(shared, memory, at)
        given = driftnorm.functional.Moments(*source)
        used, memory = kind.propose(memory, at, given, seen)
        torch.testing.assert_close((used.mean, used.var), right, rtol=1e-9, atol=1e-9)
    settled = kind.settled(memory, driftnorm.functional.Moments(*source), shared)
    torch.testing.assert_close((settled.mean, settled.var), expected[-1], rtol=1e-9, atol=1e-9)
    assert shared["jumps"] == jumps


def test_a_window_counts_samples_not_batches() -> None:
    """Without a jump, the same images in other batches give the same moments."""
    x = torch.randn(48, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    source = driftnorm.functional.Moments(torch.zeros(3).double(), torch.ones(3).double())
    kind, found = Window(theta=1.0, prior=0.0, size=1e9, jump=math.inf), []
    for size in (1, 4, 48):
        memory: Any = {}
        shared: Any = {}
        for part in x.split(size):
            seen, shared = kind.observe(shared, memory, Measured(part))
            used, memory = kind.propose(memory, Measured(part), source, seen)
        found.append(torch.stack([used.mean, used.var]))
    whole = torch.stack([x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)])
    for each in found:
        torch.testing.assert_close(each, whole, rtol=1e-6, atol=1e-7)


def test_single_rows_carry_variance(network: Build) -> None:
    """One row per batch through BatchNorm1d: most statistics learn nothing, a window does."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    model, plain = driftnorm.adapt(net, "bn-window", jump=math.inf, guard="off"), copy.deepcopy(net)
    rows = torch.randn(200, 4) * 3 + 2
    answers = torch.cat([model(row[None]) for row in rows])
    assert not torch.allclose(answers[-20:], plain(rows[-20:]), atol=0.1)
    hidden = net[0](rows)
    memory = model.state["layers"]["1"]
    var = memory["second"] - memory["mean"] ** 2
    assert (var / hidden.var(0)).log().abs().max() < math.log(2)
