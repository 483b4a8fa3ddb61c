"""Every choice of statistics against slow formulas over streams, and its exact properties."""

from contextlib import nullcontext
from dataclasses import FrozenInstanceError

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._pass import Pass
from driftnorm.functional import Moments
from driftnorm.parts.statistics import Batch, Mixture, Prior, Running, Source, tracked_moments

CHANNELS = 4
MOMENTUM = 0.3


def generator(seed):
    return torch.Generator().manual_seed(seed)


def draw_moments(g, values=0, samples=0):
    mean = torch.randn(CHANNELS, generator=g, dtype=torch.float64)
    var = torch.rand(CHANNELS, generator=g, dtype=torch.float64) * 3 + 0.1
    return Moments(mean, var, values, samples)


def draw_stream(length, seed=0):
    """Batches of unlike sizes, so that a weight by size would show."""
    g = generator(seed)
    return [draw_moments(g, values=3 * n, samples=n) for n in range(2, 2 + length)]


SOURCE = draw_moments(generator(99))
EMPTY = {}
EPS = 1e-5


class At:
    """A layer's input that was measured already."""

    def __init__(self, batch):
        self.moments, self.samples, self.eps = batch, batch.samples, EPS


def propose(kind, memory, batch, source):
    return kind.propose(memory, At(batch), source, None)


def settled(kind, memory, source):
    return kind.settled(memory, source, {})


KINDS = [
    Source(),
    Batch(),
    Batch(unbiased=True),
    Running(),
    Running(momentum=MOMENTUM),
    Running(momentum=MOMENTUM, start="source"),
    Running(update="after"),
    Running(momentum=MOMENTUM, update="after"),
    Running(momentum=MOMENTUM, start="source", update="after"),
    Running(average="std"),
    Running(momentum=MOMENTUM, average="std"),
    Running(momentum=MOMENTUM, average="std", start="source", update="after"),
    Running(unbiased=True),
    Running(momentum=MOMENTUM, unbiased=True, average="std", update="after"),
    Mixture(0.3),
    Mixture(0.7, Running(momentum=MOMENTUM)),
    Mixture(0.4, Batch()),
    Mixture(0.4, Batch(unbiased=True)),
    Mixture(0.4, Source()),
    Prior(16),
    Prior(2.5),
    Prior(2.5, unbiased=True),
    Prior(0),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
every_running = pytest.mark.parametrize("kind", [k for k in KINDS if type(k) is Running], ids=str)
properties = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def replay(kind, stream, source=SOURCE):
    """The moments that normalised each batch, and the state after all of them."""
    tracked, used = EMPTY, []
    for batch in stream:
        answer, tracked = propose(kind, tracked, batch, source)
        used.append(answer)
    return used, tracked


def expected_use(kind, stream):
    """(mean, var) for each batch, from the formulas."""
    pairs = [(b.mean, b.var, b.values) for b in stream]
    whole = [
        (mean, var * n / (n - 1) if getattr(kind, "unbiased", False) else var)
        for mean, var, n in pairs
    ]
    if isinstance(kind, Source):
        return [tuple(SOURCE[:2]) for _ in stream]
    if isinstance(kind, Batch):
        return whole
    if isinstance(kind, Mixture):
        targets = expected_use(kind.of, stream)
        return [reference.mixture(SOURCE[:2], target, kind.theta) for target in targets]
    if isinstance(kind, Prior):
        return [
            reference.prior_mixture(SOURCE[:2], own, kind.strength, b.samples)
            for b, own in zip(stream, whole, strict=True)
        ]
    return reference.running_statistics(
        pairs, kind.momentum, kind.start, kind.update, kind.average, kind.unbiased, SOURCE, EPS
    )


def assert_moments(actual, expected, tolerance=1e-12):
    for left, right in zip(actual[:2], expected[:2], strict=True):
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def identical(left, right):
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(left, right, strict=True)
    )


def copied(memory):
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in memory.items()}


def alike(left, right):
    return left.keys() == right.keys() and identical(left.values(), right.values())


# ---------------------------------------------------------------- every kind


@every_kind
@pytest.mark.parametrize("seed", [0, 1])
def test_each_batch_is_normalised_as_the_formula_says(kind, seed):
    stream = draw_stream(6, seed)
    used, _ = replay(kind, stream)
    for answer, right in zip(used, expected_use(kind, stream), strict=True):
        assert_moments(answer, right)


@every_kind
def test_propose_is_pure(kind):
    stream = draw_stream(4)
    _, tracked = replay(kind, stream[:3])
    state, batch = copied(tracked), stream[3]
    given_batch = Moments(batch.mean.clone(), batch.var.clone(), batch.values, batch.samples)
    given_source = Moments(SOURCE.mean.clone(), SOURCE.var.clone())
    first = propose(kind, state, given_batch, given_source)
    second = propose(kind, state, given_batch, given_source)
    assert identical(first[0][:2], second[0][:2])
    assert alike(first[1], second[1])
    assert alike(state, tracked)
    assert identical(given_batch[:2], batch[:2])
    assert identical(given_source[:2], SOURCE[:2])
    with pytest.raises(FrozenInstanceError):
        kind.momentum = 0.5


@every_kind
def test_every_batch_counts_once_unless_nothing_is_tracked(kind):
    _, tracked = replay(kind, draw_stream(5))
    remembers = kind.uses_batch and not (isinstance(kind, Mixture) and kind.of == Source())
    assert tracked.get("batches", 0) == (5 if remembers else 0)


@every_kind
def test_before_any_batch_it_settles_on_the_source(kind):
    assert_moments(settled(kind, EMPTY, SOURCE), SOURCE, tolerance=1e-15)


@every_kind
def test_missing_source_is_refused_where_it_is_needed(kind):
    batch = draw_stream(1)[0]
    if kind.uses_source:
        with pytest.raises(ValueError, match="source statistics are needed"):
            propose(kind, EMPTY, batch, None)
    else:
        without, with_source = (propose(kind, EMPTY, batch, s) for s in (None, SOURCE))
        assert identical(without[0][:2], with_source[0][:2])


@every_kind
def test_facts_are_true(kind):
    stream, other = draw_stream(3), draw_stream(3, seed=7)
    base = replay(kind, stream)[0][-1]

    def same_last(changed_stream, source=SOURCE):
        return identical(replay(kind, changed_stream, source)[0][-1][:2], base[:2])

    moved_source = Moments(SOURCE.mean + 1, SOURCE.var + 1)
    lagging = isinstance(kind, Running) and kind.update == "after"
    fixed = isinstance(kind, Mixture) and kind.of == Source()
    unweighted = isinstance(kind, Prior) and kind.strength == 0
    assert same_last([*other[:2], stream[2]]) != kind.keeps_history
    if not lagging and not fixed:
        assert same_last([*stream[:2], other[2]]) != kind.uses_batch
    if not unweighted:
        assert same_last(stream, moved_source) != kind.uses_source


# ---------------------------------------------------------------- exact properties


@properties
@given(length=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_cumulative_is_the_arithmetic_mean_of_batch_moments(length, seed):
    stream = draw_stream(length, seed)  # of unequal sizes: each batch counts the same
    used, tracked = replay(Running(), stream)
    mean = torch.stack([b.mean for b in stream]).mean(0)
    var = torch.stack([b.var for b in stream]).mean(0)
    assert_moments(used[-1], (mean, var))
    assert identical(used[-1][:2], tracked_moments(tracked)[:2])


@properties
@given(length=st.integers(2, 8), momentum=st.floats(0.01, 1.0), seed=st.integers(0, 10_000))
def test_exponential_average_follows_its_recurrence(length, momentum, seed):
    used, _ = replay(Running(momentum=momentum), draw_stream(length, seed))
    for old, new, batch in zip(used, used[1:], draw_stream(length, seed)[1:], strict=False):
        expected = [(1 - momentum) * o + momentum * b for o, b in zip(old[:2], batch[:2])]  # noqa: B905
        assert_moments(new, expected)


@properties
@given(
    momentum=st.none() | st.floats(0.01, 1.0),
    update=st.sampled_from(["before", "after"]),
    seed=st.integers(0, 10_000),
)
def test_first_batch_normalises_itself_exactly(momentum, update, seed):
    batch = draw_stream(1, seed)[0]
    used, tracked = propose(Running(momentum=momentum, update=update), EMPTY, batch, None)
    assert identical(used[:2], batch[:2])
    assert identical(tracked_moments(tracked)[:2], batch[:2])


@properties
@given(length=st.integers(1, 5), momentum=st.none() | st.floats(0.01, 1.0), seed=st.integers(0, 99))
def test_theta_zero_is_the_source_and_theta_one_the_running_exactly(length, momentum, seed):
    stream, target = draw_stream(length, seed), Running(momentum=momentum)
    running, state = replay(target, stream)
    for theta, expected in ((0.0, [SOURCE] * length), (1.0, running)):
        used, tracked = replay(Mixture(theta, target), stream)
        assert all(identical(u[:2], e[:2]) for u, e in zip(used, expected, strict=True))
        assert alike(tracked, state)


@properties
@given(theta=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_mixture_mixes_variances_not_deviations(theta, seed):
    batch = draw_stream(1, seed)[0]
    used, _ = propose(Mixture(theta, Batch()), EMPTY, batch, SOURCE)
    assert_moments(used, reference.mixture(SOURCE[:2], batch[:2], theta))
    low, high = torch.minimum(SOURCE.var, batch.var), torch.maximum(SOURCE.var, batch.var)
    assert bool(((used.var >= low - 1e-12) & (used.var <= high + 1e-12)).all())


@properties
@given(strength=st.floats(0, 1e4), samples=st.integers(1, 500), seed=st.integers(0, 10_000))
def test_prior_weights_the_source_by_its_worth(strength, samples, seed):
    batch = draw_moments(generator(seed), samples=samples)
    used, _ = propose(Prior(strength), EMPTY, batch, SOURCE)
    assert_moments(used, reference.prior_mixture(SOURCE[:2], batch[:2], strength, samples))


def test_published_prior_weights():
    batch = draw_moments(generator(0), samples=256)
    half, _ = propose(Prior(256), EMPTY, batch, SOURCE)
    assert_moments(half, reference.mixture(SOURCE[:2], batch[:2], 0.5))
    single = batch._replace(samples=1)
    memo, _ = propose(Prior(16), EMPTY, single, SOURCE)
    assert_moments(memo, reference.mixture(SOURCE[:2], batch[:2], 1 / 17))


def test_prior_of_zero_is_the_batch_exactly():
    batch = draw_stream(1)[0]
    assert identical(propose(Prior(0), EMPTY, batch, SOURCE)[0][:2], batch[:2])


@pytest.mark.parametrize("start", ["batch", "source"])
def test_update_after_lags_by_one_batch(start):
    stream = draw_stream(6)
    before, state = replay(Running(momentum=MOMENTUM, start=start), stream)
    after, lagged = replay(Running(momentum=MOMENTUM, start=start, update="after"), stream)
    assert all(identical(a[:2], b[:2]) for a, b in zip(after[1:], before, strict=False))
    assert identical(after[0][:2], (stream[0] if start == "batch" else SOURCE)[:2])
    assert alike(lagged, state)


def test_unbiased_stores_what_native_running_buffers_store():
    x = torch.randn(5, CHANNELS, 3, generator=generator(0), dtype=torch.float64)
    native = torch.nn.BatchNorm1d(CHANNELS, momentum=None).double().train()
    native(x)
    mean, var = reference.own_moments(x)
    batch = Moments(mean, var, values=15, samples=5)
    _, tracked = propose(Running(unbiased=True), EMPTY, batch, None)
    assert_moments(tracked_moments(tracked), (native.running_mean, native.running_var))
    assert_moments((tracked["mean"], tracked["var"] * 14 / 15), (mean, var))


def test_averaged_deviations_are_below_averaged_variances():
    stream = draw_stream(5)
    of_std, of_var = (replay(Running(average=a), stream)[0][-1].var for a in ("std", "var"))
    assert bool((of_std < of_var).all())


# ---------------------------------------------------------------- what a frozen network uses


@every_running
def test_running_settles_on_its_average(kind):
    _, tracked = replay(kind, draw_stream(5))
    assert identical(settled(kind, tracked, SOURCE)[:2], tracked_moments(tracked)[:2])
    assert identical(settled(kind, tracked, None)[:2], tracked_moments(tracked)[:2])


def test_batch_and_prior_settle_on_the_mean_of_what_was_used():
    for kind in (Batch(), Prior(3)):
        used, tracked = replay(kind, draw_stream(5))
        expected = [reference.average([u[i] for u in used]) for i in (0, 1)]
        assert_moments(settled(kind, tracked, SOURCE), expected)


def test_source_settles_on_the_source_and_mixture_on_the_mixture():
    _, tracked = replay(Batch(), draw_stream(5))
    assert identical(settled(Source(), tracked, SOURCE)[:2], SOURCE[:2])
    expected = reference.mixture(SOURCE[:2], tracked_moments(tracked)[:2], 0.3)
    for of in (Batch(), Running()):
        assert_moments(settled(Mixture(0.3, of), tracked, SOURCE), expected)
    for kind in (Source(), Mixture(0.3)):
        with pytest.raises(ValueError, match="source statistics are needed"):
            settled(kind, tracked, None)


# ---------------------------------------------------------------- choices that make no sense


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Running(momentum=0.0), "momentum"),
        (lambda: Running(momentum=1.1), "momentum"),
        (lambda: Running(momentum=-0.1), "momentum"),
        (lambda: Running(momentum=float("nan")), "momentum"),
        (lambda: Running(start="zero"), "start"),
        (lambda: Running(start="source"), "momentum"),
        (lambda: Running(update="never"), "update"),
        (lambda: Running(average="mad"), "average"),
        (lambda: Mixture(-0.1), "theta"),
        (lambda: Mixture(1.1), "theta"),
        (lambda: Mixture(float("nan")), "theta"),
        (lambda: Mixture(0.5, "running"), "of"),
        (lambda: Prior(-1), "strength"),
        (lambda: Prior(float("nan")), "strength"),
    ],
)
def test_wrong_settings_are_named(build, named):
    with pytest.raises((ValueError, TypeError), match=f"`{named}"):
        build()


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [(Prior(0), "samples"), (Prior(16), "samples"), (Running(unbiased=True), "values")],
    ids=str,
)
def test_a_batch_of_unknown_size_is_not_guessed_about(kind, unknown):
    batch = draw_stream(1)[0]._replace(**{unknown: 0})
    with pytest.raises(ValueError, match=unknown):
        propose(kind, EMPTY, batch, SOURCE)


# ---------------------------------------------------------------- DELTA's TBR


class TwoLayers(torch.nn.Module):
    """The same small network around two normalisations; the first one's gradient crosses both."""

    def __init__(self):
        super().__init__()
        g = generator(5)

        def parameter(*size):
            return torch.nn.Parameter(torch.randn(*size, generator=g, dtype=torch.float64))

        self.first, self.second = parameter(6, CHANNELS), parameter(CHANNELS, CHANNELS)
        self.affine = torch.nn.ParameterList(parameter(CHANNELS) for _ in range(4))

    def forward(self, x, norms):
        hidden = torch.tanh(norms[0](x @ self.first))
        return norms[1](hidden @ self.second)


def tbr_norms(network, eps):
    layers = [reference.TBR(0.05), reference.TBR(0.05)]
    weights, biases = network.affine[::2], network.affine[1::2]
    return [
        lambda x, layer=layer, w=w, b=b: layer(x, w, b, eps)
        for layer, w, b in zip(layers, weights, biases, strict=True)
    ]


def adaptive_norms(network, eps):
    layers = []
    for i in (0, 2):
        layer = AdaptiveBatchNorm(None, None, SOURCE, CHANNELS, eps)
        layer.weight, layer.bias = network.affine[i], network.affine[i + 1]
        layer.statistics = Running(momentum=0.05, average="std", update="after")
        layer.name = str(i)
        layers.append(layer)
    return layers


class Adapting:
    """Layers in an adapting pass whose proposals are kept."""

    def __init__(self, layers):
        self.layers, self.memories = layers, {}

    def __enter__(self):
        self.now = Pass("adapt", self.memories)
        for layer in self.layers:
            layer.stage.now = self.now

    def __exit__(self, *_):
        self.memories = self.now.outcome()


@pytest.mark.parametrize(
    ("eps", "tolerance"),
    [(1e-13, 1e-9), (1e-5, 1e-11)],
)
def test_lagged_average_of_deviations_is_deltas_tbr(eps, tolerance):
    network, g = TwoLayers(), generator(6)
    theirs, ours = tbr_norms(network, eps), adaptive_norms(network, eps)
    adapting = Adapting(ours)
    values = []
    for number in range(6):
        x = torch.randn(12, 6, generator=g, dtype=torch.float64) * (1 + number) + number
        answers = []
        for norms in (theirs, ours):
            leaf = x.clone().requires_grad_()
            with adapting if norms is ours else nullcontext():
                y = network(leaf, norms)
            loss = torch.special.entr(y.softmax(1)).sum(1).mean()
            answers.append([y, *torch.autograd.grad(loss, [leaf, *network.parameters()])])
        torch.testing.assert_close(answers[1], answers[0], rtol=tolerance, atol=tolerance)
        values.append(answers[1][1].abs().max())
    assert min(values) > 1e-4  # the gradients that agree are not nothing
