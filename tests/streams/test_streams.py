"""Every stream: counts, marginals, determinism, text, files."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftnorm.bench.protocol import stream_order
from driftnorm.errors import DataError
from driftnorm.streams import (
    COURSES,
    ORDERS,
    STREAMS,
    BalancedDirichlet,
    Continual,
    Course,
    Domain,
    Gradual,
    LabelShift,
    LongTail,
    Mixed,
    Probes,
    Recurring,
    Segment,
    SlottedDirichlet,
    Sorted,
    Steady,
    Stream,
    load_positions,
    mean_run,
    order_index,
    parse_stream,
)

LABELS = np.arange(1200) % 10
CLEAN, FOG, NOISE = Domain("clean"), Domain("fog", 5), Domain("noise", 3)
SEVERITIES = tuple(Domain(name, level) for name in ("fog", "noise") for level in (1, 2, 3))
ARRAYS = ("image", "label", "domain", "segment", "visit")


def domains_for(stream):
    if isinstance(stream.course, Gradual):
        return SEVERITIES
    return (FOG,) if isinstance(stream.course, Steady) else (CLEAN, FOG, NOISE)


ALL = [
    Stream(course(part=300), order, seed=5)
    for course in COURSES.values()
    for order in [(), *((kind(),) for kind in ORDERS.values())]
]


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.kind)
def test_positions_are_in_range_and_labels_are_those_of_the_images(stream):
    domains = domains_for(stream)
    found = stream.positions(LABELS, domains)
    assert found.domains == domains
    assert {len(getattr(found, name)) for name in ARRAYS} == {len(found)}
    assert {getattr(found, name).dtype for name in ARRAYS} == {np.dtype(np.int64)}
    assert found.image.min() >= 0
    assert found.image.max() < len(LABELS)
    assert found.domain.min() >= 0
    assert found.domain.max() == len(domains) - 1
    assert np.array_equal(found.label, LABELS[found.image])
    assert set(np.diff(found.segment)) <= {0, 1}
    assert found.segment[0] == 0


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.kind)
def test_counts_are_exact(stream):
    domains = domains_for(stream)
    found = stream.positions(LABELS, domains)
    segments = stream.course.segments(domains)
    assert found.segment[-1] == len(segments) - 1
    for place, segment in enumerate(segments):
        inside = found.segment == place
        images = Counter(
            zip(found.domain[inside].tolist(), found.image[inside].tolist(), strict=True)
        )
        expected = 300 * len(segment.domains)
        if isinstance((stream.order or (None,))[0], LongTail):
            assert 0.3 * expected < len(images) == inside.sum() < 0.6 * expected
        elif isinstance((stream.order or (None,))[0], LabelShift):
            assert inside.sum() == expected  # with replacement
        else:
            assert inside.sum() == len(images) == expected
            counts = Counter(domain for domain, _ in images)
            assert counts == {domains.index(domain): 300 for domain in segment.domains}


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.kind)
def test_a_stream_follows_from_its_seed(stream):
    domains = domains_for(stream)
    found, again = stream.positions(LABELS, domains), stream.positions(LABELS, domains)
    other = Stream(stream.course, stream.order, seed=6).positions(LABELS, domains)
    assert all(np.array_equal(getattr(found, name), getattr(again, name)) for name in ARRAYS)
    assert not np.array_equal(found.image, other.image)


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.kind)
def test_text_and_settings_name_every_parameter(stream):
    assert parse_stream(str(stream)) == stream
    assert Stream.of(stream.kind, stream.settings[::-1], stream.seed) == stream
    for kind in stream.kinds:
        assert all(f"{name}={value}" in str(stream) for name, value in kind.settings)


def digest(stream, labels=LABELS):
    found = stream.positions(labels, domains_for(stream))
    joined = b"".join(getattr(found, name).astype("<i8").tobytes() for name in ARRAYS)
    return hashlib.sha256(joined).hexdigest()[:8]


PINNED = {
    "steady:part=200": "e66c8155",
    "continual:part=200": "47209035",
    "probes:part=200,seed=1": "f605a091",
    "gradual:part=100": "df9c2d0e",
    "mixed:part=200": "044fdf57",
    "recurring:part=100,rounds=2": "8c651264",
    "sorted:part=200": "690d8c76",
    "dirichlet-balanced:part=600": "b2909444",
    "dirichlet-slots:part=600": "1be5bafe",
    "label-shift:part=200": "0adda589",
    "long-tail:part=200": "3b116dc4",
}


@pytest.mark.parametrize("text", PINNED)
def test_seeds_are_promises(text):
    """Rows and saved streams of others depend on them, on every platform and version."""
    assert digest(parse_stream(text)) == PINNED[text]


def test_the_hash_seed_of_python_does_not_matter():
    code = (
        "import numpy as np, hashlib; from driftnorm.streams import *\n"
        "d = [Domain(n, s) for n in ('fog', 'noise', 'clean') for s in (3, 1, 2)]\n"
        "for text in ('gradual', 'mixed+long-tail', 'probes+dirichlet-slots', 'label-shift'):\n"
        "    p = parse_stream(text).positions(np.arange(99) % 7, d)\n"
        "    print(hashlib.sha256(np.stack([p.image, p.domain, p.visit])).hexdigest())\n"
    )
    outputs = {
        subprocess.check_output(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in "123"
    }
    assert len(outputs) == 1


def test_domains_with_images_of_their_own_in_whichever_order_they_are_given():
    own = {CLEAN: np.arange(40) % 4, FOG: np.arange(90) % 3, NOISE: np.arange(50) % 5}
    backwards = dict(reversed(own.items()))
    for text in ("continual", "mixed", "recurring:rounds=2"):
        found = parse_stream(text).positions(own, (FOG, CLEAN, NOISE))
        again = parse_stream(text).positions(backwards, (FOG, CLEAN, NOISE))
        assert np.array_equal(found.image, again.image)
        times = found.visit.max() + 1
        assert np.bincount(found.domain).tolist() == [90 * times, 40 * times, 50 * times]
        for index, domain in enumerate(found.domains):
            there = found.domain == index
            assert np.array_equal(found.label[there], own[domain][found.image[there]])


def test_a_steady_stream_is_the_shuffled_stream_of_other_studies():
    for seed in (0, 1, 7):
        found = Stream(Steady(), seed=seed).positions(LABELS, [FOG])
        assert np.array_equal(found.image, stream_order(len(LABELS), seed))


def test_a_continual_stream_is_that_of_the_changing_stream():
    """`benchmarks/changing_stream.py` draws each part by ``[0, place]``."""
    found = Stream(Continual(part=160)).positions(LABELS, (CLEAN, FOG, CLEAN, NOISE))
    for place in range(4):
        order = np.random.default_rng([0, place]).permutation(len(LABELS))[:160]
        assert np.array_equal(found.image[found.segment == place], order)
    assert found.domains == (CLEAN, FOG, NOISE)
    assert found.domain[::160].tolist() == [0, 1, 0, 2]
    assert found.visit[::160].tolist() == [0, 0, 1, 0]


def test_an_order_does_not_change_which_images_are_drawn():
    plain = Stream(Continual(part=100)).positions(LABELS, (CLEAN, FOG))
    for order in (Sorted(), BalancedDirichlet(shortest=1), SlottedDirichlet()):
        found = Stream(Continual(part=100), (order,)).positions(LABELS, (CLEAN, FOG))
        for place in range(2):
            here, there = (set(p.image[p.segment == place].tolist()) for p in (plain, found))
            assert here == there


def test_probes_come_after_every_domain():
    found = Stream(Probes(part=10)).positions(LABELS, (FOG, CLEAN, NOISE))
    assert found.domain[::10].tolist() == [0, 1, 2, 1]
    assert found.visit[::10].tolist() == [0, 0, 0, 1]
    photo = Stream(Probes(part=10, probe="noise")).positions(LABELS, (FOG, CLEAN, NOISE))
    assert photo.domain[::10].tolist() == [0, 2, 1, 2]


def test_severity_rises_and_falls():
    mixed_up = (Domain("fog", 2), Domain("noise", 1), Domain("fog", 1), Domain("fog", 3))
    path = [s.domains[0] for s in Gradual().segments(mixed_up)]
    assert [(d.name, d.severity) for d in path] == [
        *(("fog", level) for level in (1, 2, 3, 2, 1)),
        ("noise", 1),
    ]
    cotta = [s.domains[0].severity for s in Gradual(falling_first=True).segments(SEVERITIES)]
    assert cotta == [3, 2, 1, 1, 2, 3, 2, 1]


def test_rounds_show_the_same_images_in_the_same_order():
    found = Stream(Recurring(part=50, rounds=3), (SlottedDirichlet(),)).positions(
        LABELS, (CLEAN, FOG)
    )
    rounds = found.image.reshape(3, 100)
    assert np.array_equal(rounds[0], rounds[1])
    assert np.array_equal(rounds[0], rounds[2])
    assert found.visit.tolist() == np.repeat([0, 1, 2], 100).tolist()
    assert not np.array_equal(rounds[0, :50], rounds[0, 50:])
    once = Stream(Continual(part=50), (SlottedDirichlet(),)).positions(LABELS, (CLEAN, FOG))
    assert np.array_equal(rounds[0], once.image)


@dataclass(frozen=True)
class Twice(Course):
    """A course of somebody else: all domains at once, and then again."""

    name: ClassVar[str] = "twice"
    summary: ClassVar[str] = "mixed domains, twice"

    def segments(self, domains):
        return [Segment(tuple(domains), draw) for draw in range(2)]


def test_visits_of_a_course_of_ones_own_are_counted_by_segments():
    found = Stream(Twice(part=10)).positions(LABELS, (FOG, CLEAN, FOG))
    assert found.visit.tolist() == [0] * 30 + [1] * 30
    assert np.bincount(found.domain).tolist() == [40, 20]


def test_mixed_domains_are_spread_evenly():
    found = Stream(Mixed(part=1000)).positions(LABELS, (CLEAN, FOG, NOISE, FOG))
    assert np.bincount(found.domain).tolist() == [1000, 2000, 1000]  # fog is listed twice
    shares = found.timeline(500).domains
    assert np.abs(shares - [0.25, 0.5, 0.25]).max() < 0.08
    assert 1.3 < mean_run(found.domain) < 1.9  # 1 / (1 - 6/16) if each is drawn apart


def test_sorted_labels_rise_within_each_segment_and_are_random_within_a_class():
    found = Stream(Continual(), (Sorted(),)).positions(LABELS, (CLEAN, FOG))
    for place in range(2):
        inside = found.segment == place
        assert np.all(np.diff(found.label[inside]) >= 0)
        assert not np.all(np.diff(found.image[inside][:120]) > 0)


def auto_correlation(labels):
    return np.mean(labels[1:] == labels[:-1])


@pytest.mark.parametrize("kind", [BalancedDirichlet, SlottedDirichlet])
def test_dirichlet_order_is_correlated_the_more_the_smaller_its_concentration(kind):
    labels = np.random.default_rng(0).integers(10, size=5000)
    shuffled = Stream(Continual()).positions(labels, [FOG]).label
    assert auto_correlation(shuffled) < 0.13
    assert order_index(shuffled) < 0.05
    groups = []
    for concentration in (0.01, 0.1, 1.0, 100.0):
        order = (kind(concentration=concentration),)
        label = Stream(Continual(), order).positions(labels, [FOG]).label
        assert np.array_equal(np.bincount(label), np.bincount(labels))  # each image once
        assert auto_correlation(label) > 0.9  # images of a class come together within a stretch
        # Stretches of 500: what is left of the order when they are taken as a whole.
        groups.append(order_index(label, 500))
    assert groups[0] > 0.6
    assert groups == sorted(groups, reverse=True)


def test_balanced_stretches_are_balanced():
    """Literally: fill the stretches, and see where they end."""
    labels = np.repeat(np.arange(8), 200)
    order = BalancedDirichlet(shortest=40)
    pieces = order._pieces(np.full(8, 200), np.random.default_rng(3))
    assert pieces.sum(axis=1).tolist() == [200] * 8
    held = np.zeros(8, dtype=int)
    for row in pieces:
        assert not row[held >= 200].any()  # full stretches get nothing more
        held += row
    for seed in range(20):
        found = order.arranged(labels, np.random.default_rng(seed))
        assert sorted(found.tolist()) == [*range(1600)]


def test_a_stretch_that_has_its_part_is_full():
    """A concentration near 0 puts each class into a single stretch, and no two into the same."""
    for seed in range(5):
        pieces = BalancedDirichlet(1e-6)._pieces(np.full(8, 200), np.random.default_rng(seed))
        assert sorted(pieces.tolist()) == sorted((200 * np.eye(8, dtype=int)).tolist())


def test_all_is_drawn_again_until_the_shortest_stretch_is_long_enough():
    labels, order, tries = np.repeat(np.arange(8), 200), BalancedDirichlet(shortest=100), []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        tries.append(0)
        pieces = np.zeros((8, 8))
        while pieces.sum(axis=0).min() < 100:
            pieces, tries[-1] = order._pieces(np.full(8, 200), generator), tries[-1] + 1
        expected = []
        for stretch in range(8):
            for each in generator.permutation(8).tolist():
                begin = pieces[each, :stretch].sum()
                images = range(200 * each + begin, 200 * each + begin + pieces[each, stretch])
                expected += [*images]
        found = order.arranged(labels, np.random.default_rng(seed))
        assert found.tolist() == expected
    assert max(tries) > 1


def test_balanced_stretches_that_cannot_be_had_say_what_to_do():
    labels = np.arange(100) % 20
    with pytest.raises(ValueError, match=r"100 images of 20 classes could not .* at least 10"):
        BalancedDirichlet().arranged(labels, np.random.default_rng(0))
    assert len(BalancedDirichlet(shortest=0).arranged(labels, np.random.default_rng(0))) == 100


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=80),
    st.floats(0.01, 50),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_dirichlet_orders_show_each_image_once(labels, concentration, slots, seed):
    array = np.array(labels)
    for order in (SlottedDirichlet(concentration, slots), BalancedDirichlet(concentration, 0)):
        found = order.arranged(array, np.random.default_rng(seed))
        assert sorted(found.tolist()) == [*range(len(labels))]


def test_label_shift_has_a_favourite_class_in_each_stage():
    labels = np.random.default_rng(0).integers(5, size=20_000)
    found = LabelShift(ratio=4).arranged(labels, np.random.default_rng(1))
    stages = labels[found].reshape(5, 4000)
    shares = np.stack([np.bincount(stage, minlength=5) / 4000 for stage in stages])
    assert sorted(shares.argmax(axis=1).tolist()) == [0, 1, 2, 3, 4]
    assert np.abs(shares.max(axis=1) - 4 / 8).max() < 0.04
    assert np.abs(np.sort(shares)[:, :-1] - 1 / 8).max() < 0.03
    flat = labels[LabelShift(ratio=1).arranged(labels, np.random.default_rng(1))]
    assert order_index(flat) < 0.03
    # Every image of a class is as likely as any other.
    assert len(np.unique(found)) / len(found) == pytest.approx(1 - np.exp(-1), abs=0.02)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_long_tail_keeps_its_share_of_each_class(labels, share):
    array = np.array(labels)
    found = LongTail(share).arranged(array, np.random.default_rng(0))
    assert np.all(np.diff(found) > 0)  # the order stays, nothing comes twice
    classes = sorted(set(labels))
    for rank, each in enumerate(classes):
        part = share ** (rank / (len(classes) - 1)) if rank else 1.0
        kept = sum(labels[i] == each for i in found)
        assert kept == max(1, round(labels.count(each) * part))


def test_orders_follow_each_other():
    stream = Stream(Continual(part=1000), (LongTail(0.1), Sorted()))
    found = stream.positions(LABELS, [FOG])
    counts = np.bincount(found.label)
    assert counts[0] > 80
    assert counts[9] < 15
    assert np.all(np.diff(found.label) >= 0)
    assert stream.kind == "continual+long-tail+sorted"


def test_an_order_alone_is_one_within_a_continual_course():
    assert parse_stream("sorted:part=20") == Stream(Continual(part=20), (Sorted(),))
    assert parse_stream("continual") == Stream(Continual())


def test_every_kind_has_a_name_a_summary_and_parameters_of_its_own():
    assert all(kind.name == name and kind.summary for name, kind in STREAMS.items())
    assert len({kind.summary for kind in STREAMS.values()}) == len(STREAMS)
    in_course = {name for kind in COURSES.values() for name, _ in kind().settings}
    in_order = {name for kind in ORDERS.values() for name, _ in kind().settings}
    assert not in_course & in_order
    assert "seed" not in in_course | in_order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("continual+sortd", "'sortd' is not an order of labels; .* Did you mean 'sorted'?"),
        ("contnual", "'contnual' is not a course of domains; .* Did you mean 'continual'?"),
        ("sorted+continual", "'continual' is not an order"),
        ("continual:parts=3", "`parts` is not a parameter of 'continual', .* Did you mean 'part'?"),
        ("continual:part=0", "`part` must be at least 1, got 0"),
        ("continual:part=many", "`part` must be a whole number, got 'many'"),
        ("continual:part=1+sorted:part=2", "`part` is given twice"),
        ("recurring:rounds=1.5", "`rounds` must be a whole number, got 1.5"),
        ("dirichlet-slots:concentration=0", "`concentration` must be positive, got 0"),
        ("dirichlet-slots+dirichlet-balanced", "two orders with the same parameter"),
        ("long-tail:share=1.5", r"`share` must be in \(0, 1\], got 1.5"),
        ("label-shift:ratio=0.5", "`ratio` must be at least 1"),
        ("gradual:falling_first=2", "`falling_first` must be True or False"),
        ("continual:seed=-1", "`seed` must be at least 0, got -1"),
    ],
)
def test_text_that_is_not_a_stream(text, message):
    with pytest.raises(ValueError, match=message):
        parse_stream(text)


@pytest.mark.parametrize(
    ("text", "labels", "domains", "message"),
    [
        ("steady", LABELS, (FOG, CLEAN), "one domain for a steady stream, got 2"),
        ("continual", LABELS, (), "at least one domain"),
        ("continual:part=1201", LABELS, [FOG], "'fog' has 1,200 images; got 1201"),
        ("gradual", LABELS, (CLEAN, FOG), "several severities"),
        ("probes", LABELS, (FOG, NOISE), "`probe` must be the name .* fog, noise; got 'clean'"),
        ("continual", LABELS / 2, [FOG], "class numbers, 0 or greater"),
        ("continual", LABELS - 1, [FOG], "class numbers, 0 or greater"),
        ("continual", LABELS[:0], [FOG], "class numbers, 0 or greater"),
        ("continual", LABELS.reshape(2, -1), [FOG], "class numbers, 0 or greater"),
        ("continual", {FOG: LABELS}, [FOG, NOISE], "`labels` has none for 'noise'"),
    ],
)
def test_what_a_stream_cannot_be_made_of(text, labels, domains, message):
    with pytest.raises(ValueError, match=message):
        parse_stream(text).positions(labels, domains)


def test_what_comes_when():
    """Slowly, window by window."""
    found = parse_stream("gradual:part=130+sorted").positions(LABELS, SEVERITIES)
    timeline = found.timeline(100)
    ends = [*timeline.start[1:], len(found)]
    for row, (start, end) in enumerate(zip(timeline.start, ends, strict=True)):
        inside = range(start, end)
        for index in range(len(SEVERITIES)):
            share = sum(found.domain[i] == index for i in inside) / len(inside)
            assert timeline.domains[row, index] == pytest.approx(share)
        for each in range(10):
            share = sum(found.label[i] == each for i in inside) / len(inside)
            assert timeline.classes[row, each] == pytest.approx(share)
        strength = sum(SEVERITIES[found.domain[i]].severity for i in inside) / len(inside)
        assert timeline.strength[row] == pytest.approx(strength)
    assert np.allclose(timeline.domains.sum(axis=1), 1)
    assert np.allclose(timeline.classes.sum(axis=1), 1)


def test_the_order_index_is_that_of_its_formula():
    labels = np.random.default_rng(0).integers(4, size=150)

    def entropy(values):
        counts = Counter(values.tolist()).values()
        return -sum(n / len(values) * np.log(n / len(values)) for n in counts)

    groups = [labels[:64], labels[64:]]  # 22 images are less than half a group
    expected = np.mean([1 - entropy(group) / entropy(labels) for group in groups])
    assert order_index(labels) == pytest.approx(expected)
    assert order_index(np.zeros(10, dtype=np.int64)) == 0.0


def test_saved_positions_are_read_again_by_us_and_by_others(tmp_path: Path):
    stream = parse_stream("probes:part=40+dirichlet-slots")
    found = stream.positions(LABELS, (CLEAN, FOG))
    found.save(tmp_path / "stream.npz")
    again = load_positions(tmp_path / "stream.npz")
    assert again.stream == str(stream)
    assert again.domains == (CLEAN, FOG)
    assert all(np.array_equal(getattr(found, name), getattr(again, name)) for name in ARRAYS)
    with np.load(tmp_path / "stream.npz") as plain:
        assert plain["domains"].tolist() == ["clean", "fog"]
        assert plain["severities"].tolist() == [0, 5]
        assert np.array_equal(plain["image"], found.image)


def test_a_file_without_positions(tmp_path: Path):
    np.savez(tmp_path / "other.npz", image=np.arange(3))
    (tmp_path / "text.npz").write_text("not a file of arrays")
    np.save(tmp_path / "array.npz.npy", np.arange(3))
    for name in ("other.npz", "text.npz", "array.npz.npy"):
        with pytest.raises(DataError, match=re.escape(name)):
            load_positions(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_positions(tmp_path / "missing.npz")
