"""Classifier heads against banks and centroids kept in Python lists."""

import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from driftnorm.parts.answers import T3A, RunningCentroids

CLASSES, WIDTH = 6, 8
HEADS = [
    T3A(1),
    T3A(5),
    T3A(20),
    T3A(-1),
    RunningCentroids(),
    RunningCentroids("literal"),
    RunningCentroids(labels="centroids"),
    RunningCentroids("literal", "centroids"),
]
every_head = pytest.mark.parametrize("head", HEADS, ids=str)
CONSTANT_MEMORY = [head for head in HEADS if head == T3A(-1) or type(head) is RunningCentroids]
properties = settings(max_examples=15, deadline=None, derandomize=True, database=None)


def draw_classifier(seed=0, own_rows=True, with_bias=True):
    """Rows that are labelled by their own class (nearly orthogonal), or by chance."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(CLASSES, WIDTH, generator=g)
    if own_rows:
        weight = 0.2 * weight + 2 * torch.eye(CLASSES, WIDTH)
    bias = torch.randn(CLASSES, generator=g) * 0.3 if with_bias else None
    labels = F.linear(weight, weight, bias).argmax(1)
    assert torch.equal(labels, torch.arange(CLASSES)) == own_rows
    return weight, bias


def draw_batches(weight, bias, sizes=(7, 1, 30, 12, 25), seed=1):
    """(features, logits) of batches of unlike sizes."""
    g = torch.Generator().manual_seed(seed)
    features = [torch.randn(n, WIDTH, generator=g) * 1.5 + 0.3 for n in sizes]
    return [(z, F.linear(z, weight, bias)) for z in features]


def slow_twin(head, weight, bias):
    if isinstance(head, T3A):
        return reference.SlowT3A(weight, bias, head.supports)
    return reference.SlowCentroids(weight, head.reading, head.labels)


def answers(head, weight, bias, batches):
    """The logits of each batch: it joins before it is answered, and the bias is unused."""
    state, out = head.start(weight, bias), []
    for features, logits in batches:
        state = head.update(state, features, logits)
        out.append(features @ head.weights(state).T)
    return out, state


@every_head
@pytest.mark.parametrize("own_rows", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_answers_are_those_of_the_loop(head, own_rows, with_bias):
    weight, bias = draw_classifier(3, own_rows, with_bias)
    batches = draw_batches(weight, bias)
    slow = slow_twin(head, weight, bias)
    fast, _ = answers(head, weight, bias, batches)
    for (features, logits), answer in zip(batches, fast, strict=True):
        slow.update(features, logits)
        expected = features @ slow.weights().T
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)


@every_head
def test_the_start_is_the_trained_classifier(head):
    weight, bias = draw_classifier()
    literal = isinstance(head, RunningCentroids) and head.reading == "literal"
    expected = weight if literal else F.normalize(weight, dim=1)
    torch.testing.assert_close(head.weights(head.start(weight, bias)), expected)


@every_head
def test_update_is_pure(head):
    weight, bias = draw_classifier()
    (features, logits), (more, more_logits) = draw_batches(weight, bias, (9, 14))
    state = head.update(head.start(weight, bias), features, logits)
    inputs = {**state, "z": more, "logits": more_logits, "weight": weight, "bias": bias}
    before = {name: torch.as_tensor(value).clone() for name, value in inputs.items()}
    first, second = (head.update(state, more, more_logits) for _ in range(2))
    head.weights(first)
    head.start(weight, bias)
    assert all(torch.equal(torch.as_tensor(v), before[name]) for name, v in inputs.items())
    assert first.keys() == second.keys()
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@every_head
def test_the_state_shares_no_memory_with_the_classifier(head):
    weight, bias = draw_classifier()
    state = head.start(weight, bias)
    before = {name: torch.as_tensor(value).clone() for name, value in state.items()}
    weight.zero_()
    bias.zero_()
    assert all(torch.equal(torch.as_tensor(v), before[name]) for name, v in state.items())


# ---------------------------------------------------------------- T3A


@pytest.mark.parametrize("supports", [1, 5, 20])
def test_the_bank_never_exceeds_m_per_class_and_keeps_the_most_certain(supports):
    weight, bias = draw_classifier(own_rows=False, seed=3)
    head, slow = T3A(supports), reference.SlowT3A(weight, bias, supports)
    state = head.start(weight, bias)
    for features, logits in draw_batches(weight, bias, (40, 60, 3, 50)):
        state = head.update(state, features, logits)
        slow.update(features, logits)
        counts = torch.bincount(state["labels"], minlength=CLASSES)
        assert int(counts.max()) <= supports
        kept = sorted(zip(state["labels"].tolist(), state["entropy"].tolist(), strict=True))
        expected = sorted((label, entropy) for entropy, label, _ in slow.bank)
        torch.testing.assert_close(torch.tensor(kept), torch.tensor(expected), rtol=0, atol=1e-5)
    assert int(counts.max()) == supports  # the limit was reached, so it was tested


@properties
@given(seed=st.integers(0, 10_000), supports=st.sampled_from([1, 5, 20]))
def test_one_large_batch_keeps_what_two_halves_keep(seed, supports):
    weight, bias = draw_classifier()
    (features, logits), *_ = draw_batches(weight, bias, (40,), seed)
    head = T3A(supports)
    start = head.start(weight, bias)
    whole = head.update(start, features, logits)
    halves = head.update(head.update(start, features[:20], logits[:20]), features[20:], logits[20:])
    torch.testing.assert_close(head.weights(whole), head.weights(halves))


@pytest.mark.parametrize("own_rows", [True, False])
def test_minus_one_keeps_every_support(own_rows):
    weight, bias = draw_classifier(3, own_rows)
    batches = draw_batches(weight, bias)
    total = CLASSES + sum(len(features) for features, _ in batches)
    unlimited, _ = answers(T3A(-1), weight, bias, batches)
    roomy, state = answers(T3A(total), weight, bias, batches)
    assert len(state["labels"]) == total
    torch.testing.assert_close(unlimited, roomy, rtol=1e-4, atol=1e-5)


def test_equal_entropies_keep_the_first_to_arrive():
    weight = torch.eye(2) * 3
    features = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    same = torch.tensor([[4.0, 0.0]] * 3)  # one class, one entropy, for all three
    head = T3A(1)
    state = head.start(weight, None)
    strong = head.update(state, features, same * 5)
    again = head.update(strong, features.flip(0), same * 5)
    assert torch.equal(strong["features"], again["features"])
    assert torch.equal(head.weights(strong)[0], torch.tensor([1.0, 0.0]))


def test_a_class_without_supports_answers_zero():
    weight = torch.tensor([[1.0, 0.0], [3.0, 0.0]])  # both rows are labelled 1
    features = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    logits = torch.tensor([[0.0, 9.0]] * 5)
    for supports in (2, -1):
        head = T3A(supports)
        state = head.update(head.start(weight, None), features, logits)
        assert torch.equal(head.weights(state)[0], torch.zeros(2))


@pytest.mark.parametrize("supports", [0, -2, 2.5])
def test_t3a_refuses_a_senseless_number_of_supports(supports):
    with pytest.raises(ValueError, match="`supports`"):
        T3A(supports)


# ---------------------------------------------------------------- rT3A


@properties
@given(seed=st.integers(0, 10_000))
def test_normalised_reading_is_t3a_with_every_support(seed):
    weight, bias = draw_classifier()
    batches = draw_batches(weight, bias, seed=seed)
    centroids, _ = answers(RunningCentroids(), weight, bias, batches)
    supports, _ = answers(T3A(-1), weight, bias, batches)
    torch.testing.assert_close(centroids, supports, rtol=1e-4, atol=1e-5)


@properties
@given(seed=st.integers(0, 10_000))
def test_literal_centroid_is_the_mean_of_all_its_features(seed):
    weight, bias = draw_classifier()
    batches = draw_batches(weight, bias, seed=seed)
    _, state = answers(RunningCentroids("literal"), weight, bias, batches)
    features = torch.cat([z for z, _ in batches])
    labels = torch.cat([logits.argmax(1) for _, logits in batches])
    for k in range(CLASSES):
        members = features[labels == k]
        expected = members.mean(0) if len(members) else weight[k]
        torch.testing.assert_close(state["centroids"][k], expected, rtol=1e-4, atol=1e-5)
        assert int(state["counts"][k]) == len(members)


@pytest.mark.parametrize("reading", ["normalized", "literal"])
def test_an_unseen_class_keeps_its_row(reading):
    weight, bias = draw_classifier()
    head = RunningCentroids(reading)
    start = head.start(weight, bias)
    features = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(2))
    logits = F.one_hot(torch.tensor([0, 2, 4] * 3), CLASSES).float()
    state = head.update(start, features, logits)
    unseen, seen = [1, 3, 5], [0, 2, 4]
    assert torch.equal(state["centroids"][unseen], start["centroids"][unseen])
    assert torch.equal(state["counts"][unseen], start["counts"][unseen])
    assert bool((state["counts"][seen] == start["counts"][seen] + 3).all())
    assert not torch.allclose(state["centroids"][seen], start["centroids"][seen])


def test_labels_by_centroids_ignore_the_linear_answer():
    weight, bias = draw_classifier()
    ((features, logits),) = draw_batches(weight, bias, (20,))
    by_centroids, by_linear = RunningCentroids(labels="centroids"), RunningCentroids()
    start = by_centroids.start(weight, bias)
    assert torch.equal(
        by_centroids.update(start, features, logits)["centroids"],
        by_centroids.update(start, features, -logits)["centroids"],
    )
    assert not torch.equal(
        by_linear.update(start, features, logits)["centroids"],
        by_linear.update(start, features, -logits)["centroids"],
    )


def test_rt3a_refuses_unknown_readings():
    with pytest.raises(ValueError, match="`reading` must be one of normalized, literal; got"):
        RunningCentroids("free")
    with pytest.raises(ValueError, match="`labels` must be one of linear, centroids; got"):
        RunningCentroids(labels="true")


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("head", CONSTANT_MEMORY, ids=str)
def test_the_state_never_grows(head):
    weight, bias = draw_classifier()
    state = head.start(weight, bias)
    shapes = {name: tensor.shape for name, tensor in state.items()}
    assert sum(tensor.numel() for tensor in state.values()) <= CLASSES * (WIDTH + 1)
    for features, logits in draw_batches(weight, bias, (50, 50, 50)):
        state = head.update(state, features, logits)
        assert {name: tensor.shape for name, tensor in state.items()} == shapes


@every_head
def test_an_empty_batch_changes_nothing(head):
    weight, bias = draw_classifier()
    ((features, logits),) = draw_batches(weight, bias, (20,))
    state = head.update(head.start(weight, bias), features, logits)
    after = head.update(state, features[:0], logits[:0])
    assert torch.equal(head.weights(after), head.weights(state))
