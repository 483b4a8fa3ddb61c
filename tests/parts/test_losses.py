"""Objectives against loops over rows, values and gradients."""

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftnorm.parts.losses import (
    Entropy,
    InformationMaximization,
    LogitLoss,
    PseudoLabel,
    confident_cross_entropy,
    marginal_entropy,
    softmax_entropy,
    wide_logits,
)


def value(loss, logits):
    """What a step would go down: the mean over samples, of logits as the engine hands them over."""
    found = loss.of(wide_logits(logits)) if isinstance(loss, LogitLoss) else loss(logits)
    return found if found is None else found.mean()


def draw(rows=8, classes=5, seed=0, scale=3.0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=g) * scale


def value_and_gradient(objective, logits):
    leaf = logits.detach().requires_grad_()
    loss = value(objective, leaf)
    return [loss.detach(), *torch.autograd.grad(loss, leaf)]


OBJECTIVES = {
    "entropy": (Entropy(), reference.mean_entropy),
    "pseudo labels": (PseudoLabel(), lambda z: reference.pseudo_label_loss(z, 0.9)),
    "lax pseudo labels": (PseudoLabel(0.4), lambda z: reference.pseudo_label_loss(z, 0.4)),
    "shot-im": (InformationMaximization(), lambda z: reference.shot_loss(z, 0.0, 0.9)),
    "shot": (InformationMaximization(0.1, 0.9), lambda z: reference.shot_loss(z, 0.1, 0.9)),
    "strong shot": (InformationMaximization(0.7, 0.5), lambda z: reference.shot_loss(z, 0.7, 0.5)),
}
every_objective = pytest.mark.parametrize(
    ("objective", "slow"), OBJECTIVES.values(), ids=OBJECTIVES
)


@every_objective
@pytest.mark.parametrize("seed", range(4))
def test_value_and_gradient_are_those_of_the_loop(objective, slow, seed):
    logits = draw(seed=seed)
    expected = value_and_gradient(slow, logits.double())
    answers = [t.double() for t in value_and_gradient(objective, logits)]
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-6)


@every_objective
def test_dense_predictions_count_every_position(objective, slow):
    dense = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(1)) * 4
    rows = dense.permute(0, 2, 3, 1).reshape(-1, 5)
    torch.testing.assert_close(value(objective, dense), value(objective, rows))
    torch.testing.assert_close(
        value(objective, dense).double(), slow(rows.double()), rtol=1e-5, atol=1e-6
    )


@every_objective
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_logits_are_widened_first(objective, slow, dtype):
    logits = draw(seed=2).to(dtype)
    loss, grad = value_and_gradient(objective, logits)
    assert loss.dtype == torch.float32
    assert grad.dtype == dtype
    torch.testing.assert_close(loss.double(), slow(logits.double()), rtol=1e-5, atol=1e-6)


@every_objective
def test_float64_logits_are_not_narrowed(objective, slow):
    logits = draw(seed=3).double()
    torch.testing.assert_close(value(objective, logits), slow(logits), rtol=1e-12, atol=1e-12)


@every_objective
def test_logits_are_not_changed_and_far_ones_stay_finite(objective, slow):
    logits = draw(seed=4)
    before = logits.clone()
    value(objective, logits)
    assert torch.equal(logits, before)
    loss, grad = value_and_gradient(objective, logits * 1e3)
    assert math.isfinite(loss)
    assert bool(grad.isfinite().all())


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(classes=st.integers(2, 9), seed=st.integers(0, 10_000), scale=st.floats(0.01, 30))
def test_entropy_lies_between_zero_and_log_classes(classes, seed, scale):
    logits = draw(6, classes, seed, scale)
    for values in (softmax_entropy(logits), marginal_entropy(logits).reshape(1)):
        assert bool((values >= -1e-6).all())
        assert bool((values <= math.log(classes) + 1e-5).all())
    # Concavity: the average prediction is at least as uncertain as the predictions on average.
    assert float(marginal_entropy(logits)) >= float(softmax_entropy(logits).mean()) - 1e-5


def test_marginal_entropy_is_that_of_the_average_prediction():
    certain = torch.eye(4) * 1e4  # four sure predictions, each of another class
    torch.testing.assert_close(marginal_entropy(certain).exp(), torch.tensor(4.0))
    assert float(marginal_entropy(certain[:1])) == 0
    average = certain.softmax(1).mean(0)
    floored = -(average * (average + 1e-5).log()).sum()
    torch.testing.assert_close(marginal_entropy(certain, floor=1e-5), floored)


def test_information_maximization_prefers_certain_and_diverse():
    loss = InformationMaximization()
    diverse, collapsed = torch.eye(4) * 20, torch.eye(4)[[0, 0, 0, 0]] * 20
    unsure = torch.zeros(4, 4)
    assert float(value(loss, diverse)) < float(value(loss, unsure)) - 1
    assert float(value(loss, diverse)) < float(value(loss, collapsed)) - 1


def test_nothing_confident_is_nothing_to_learn():
    flat = draw(scale=0.01)
    assert value(PseudoLabel(0.9), flat) is None
    assert confident_cross_entropy(flat, 0.9) is None
    plain = value(InformationMaximization(), flat)
    assert torch.equal(value(InformationMaximization(0.5, 0.9), flat), plain)


def test_threshold_is_exclusive_and_unsure_rows_get_no_gradient():
    tie = torch.zeros(1, 2)
    assert value(PseudoLabel(0.5), tie) is None
    logits = torch.tensor([[5.0, 0.0, 0.0], [0.1, 0.0, 0.0]])
    _, grad = value_and_gradient(PseudoLabel(0.9), logits)
    assert bool((grad[0] != 0).all())
    assert torch.equal(grad[1], torch.zeros(3))


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: PseudoLabel(1.0), "threshold"),
        (lambda: PseudoLabel(-0.1), "threshold"),
        (lambda: PseudoLabel(float("nan")), "threshold"),
        (lambda: InformationMaximization(threshold=2), "threshold"),
        (lambda: InformationMaximization(-0.1), "pseudo_label"),
        (lambda: InformationMaximization(float("nan")), "pseudo_label"),
    ],
)
def test_wrong_settings_are_named(build, named):
    with pytest.raises(ValueError, match=f"`{named}`"):
        build()
