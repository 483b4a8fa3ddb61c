"""Selecting layers by name, by place in the forward pass and by predicate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftnorm.parts.layers import First, Last, needs_forward_order, select

LAYERS = ["bn1", "layer1.0.bn1", "layer1.0.bn2", "layer2.0.bn1", "layer10.0.bn1"]
properties = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        (None, LAYERS),
        ("*", LAYERS),
        ("bn1", ["bn1"]),
        ("layer1.*", ["layer1.0.bn1", "layer1.0.bn2"]),
        ("*.bn1", ["layer1.0.bn1", "layer2.0.bn1", "layer10.0.bn1"]),
        ("layer[12].*", ["layer1.0.bn1", "layer1.0.bn2", "layer2.0.bn1"]),
        (("bn1", "layer2.*"), ["bn1", "layer2.0.bn1"]),
        (["bn1", "bn1"], ["bn1"]),
        (lambda name: name.endswith("bn2"), ["layer1.0.bn2"]),
        (lambda name: False, []),
        (First(0.5), LAYERS[:2]),
        (Last(0.5), LAYERS[3:]),
        (First(0), []),
        (Last(0), []),
        (First(1), LAYERS),
        (Last(1), LAYERS),
    ],
)
def test_selectors_mean_these_layers(selector, chosen):
    assert select(selector, LAYERS) == set(chosen)


def test_place_follows_the_forward_order_not_the_names():
    order = list(reversed(LAYERS))
    assert select(First(0.5), order) == set(order[:2])
    assert select(Last(0.5), order) == set(order[-2:])


def test_names_are_case_sensitive():
    with pytest.raises(ValueError, match="BN1"):
        select("BN1", LAYERS)


@properties
@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_a_fraction_of_k_in_n_selects_k_of_n(numbers):
    n, k = numbers  # such as First(29 / 100), where 0.29 * 100 is 28.999999999999996
    order = [f"layer{i}" for i in range(n)]
    assert select(First(k / n), order) == set(order[:k])
    assert select(Last(k / n), order) == set(order[n - k :])


@properties
@given(n=st.integers(0, 60), fraction=st.floats(0, 1))
def test_places_round_down(n, fraction):
    order = [f"layer{i}" for i in range(n)]
    for chosen in (select(First(fraction), order), select(Last(fraction), order)):
        assert len(chosen) <= fraction * n + 1e-6
        assert len(chosen) > fraction * n - 1


def test_only_places_need_the_forward_order():
    assert needs_forward_order(First(0.5))
    assert needs_forward_order(Last(0.5))
    assert not any(map(needs_forward_order, (None, "bn*", ("a", "b"), lambda name: True)))


def test_a_pattern_without_a_match_lists_the_layers():
    with pytest.raises(ValueError, match=r"layer3\.\*.*bn1, layer1\.0\.bn1"):
        select("layer3.*", LAYERS)
    many = [f"layer{i}" for i in range(20)]
    with pytest.raises(ValueError, match=r"layer7, \.\.\.") as error:
        select("bn", many)
    assert "layer8" not in str(error.value)


def test_a_misspelt_pattern_among_good_ones_is_not_dropped_silently():
    with pytest.raises(ValueError, match=r"layer3"):
        select(("bn1", "layer3.*"), LAYERS)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), 50])
@pytest.mark.parametrize("place", [First, Last])
def test_fractions_are_checked(place, fraction):
    with pytest.raises(ValueError, match="`fraction` must be from 0 to 1"):
        place(fraction)


def test_something_else_than_a_selector_is_refused_by_name():
    with pytest.raises(TypeError, match=r"selector|`only`"):
        select(0.5, LAYERS)
