"""Spatter and the parts of its water against slow code written from their definitions."""

import itertools
import math

import numpy as np
import pytest
from test_references import HEIGHT, WIDTH, blurred, check_against, inside, picture

from driftnorm.shifts._common import Draws
from driftnorm.shifts._water import chamfer_distances, equalise, find_edges, water_relief


def mud(x, wet, sigma):
    cover = blurred(wet.astype(float), sigma)
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    return x * (1 - cover) + np.array([63, 42, 20]) * cover


def window_sum(plane, weights):
    result = np.zeros(plane.shape)
    for row, column in np.ndindex(*plane.shape):
        for a, b in itertools.product(range(3), repeat=2):
            there = inside(row + a - 1, HEIGHT, "mirror"), inside(column + b - 1, WIDTH, "mirror")
            result[row, column] += weights[a][b] * plane[there]
    return result


def gradient(layer, row, column):
    def at(a, b):
        return int(layer[inside(row + a, HEIGHT, "nearest"), inside(column + b, WIDTH, "nearest")])

    across = sum(w * (at(a, 1) - at(a, -1)) for a, w in ((-1, 1), (0, 2), (1, 1)))
    down = sum(w * (at(1, b) - at(-1, b)) for b, w in ((-1, 1), (0, 2), (1, 1)))
    return across, down


def edges_of(layer):
    gradients = {place: gradient(layer, *place) for place in np.ndindex(HEIGHT, WIDTH)}
    strength = {place: abs(a) + abs(d) for place, (a, d) in gradients.items()}
    candidates = set()
    for (row, column), (across, down) in gradients.items():
        angle = math.degrees(math.atan2(abs(down), abs(across)))
        if angle < 22.5:
            first, second, strict = (0, -1), (0, 1), False
        elif angle > 67.5:
            first, second, strict = (-1, 0), (1, 0), False
        else:
            side = -1 if (across < 0) != (down < 0) else 1
            first, second, strict = (-1, -side), (1, side), True
        own = strength[row, column]
        before = strength.get((row + first[0], column + first[1]), 0)
        after = strength.get((row + second[0], column + second[1]), 0)
        if own > 50 and own > before and (own > after if strict else own >= after):
            candidates.add((row, column))
    waiting = [place for place in candidates if strength[place] > 150]
    found = set(waiting)
    while waiting:
        row, column = waiting.pop()
        for a, b in itertools.product((-1, 0, 1), repeat=2):
            near = row + a, column + b
            if near in candidates and near not in found:
                found.add(near)
                waiting.append(near)
    return found


def distances_to(edges):
    """Shortest paths of straight, diagonal and knight's steps, relaxed until nothing changes."""
    moves = [(a, b) for a, b in itertools.product(range(-2, 3), repeat=2) if (a, b) != (0, 0)]
    lengths = {1: 1.0, 2: 1.4, 5: 2.1969}
    distance = np.full((HEIGHT, WIDTH), 1e6)
    for place in edges:
        distance[place] = 0
    while True:
        before = distance.copy()
        for row, column in np.ndindex(HEIGHT, WIDTH):
            for a, b in moves:
                inside_picture = 0 <= row + a < HEIGHT and 0 <= column + b < WIDTH
                if inside_picture and a * a + b * b in lengths:
                    there = distance[row + a, column + b] + lengths[a * a + b * b]
                    distance[row, column] = min(distance[row, column], there)
        if np.array_equal(before, distance):
            return np.minimum(distance, 20)


def equalised(levels):
    lowest = levels.min()
    counted = levels.size - (levels == lowest).sum()
    if counted == 0:
        return levels
    # OpenCV counts in single precision, which decides ties.
    scale = np.float32(255) / np.float32(counted)
    sums = [((levels <= v) & (levels > lowest)).sum() for v in range(256)]
    table = {v: round(float(np.float32(number) * scale)) for v, number in enumerate(sums)}
    return np.vectorize(table.get)(levels)


def spatter(x, draws, scale, mean, deviation, sigma, threshold, amount, is_mud):
    layer = blurred(draws.normal(HEIGHT, WIDTH)[0].astype(float) * deviation + mean, sigma)
    layer = np.where(layer < threshold, 0, layer)
    if is_mud:
        return mud(x, layer > threshold, amount)
    layer = np.floor(layer * 255) % 256
    ones = np.ones((3, 3))
    levels = np.floor(window_sum(distances_to(edges_of(layer)), ones) / 9).astype(int)
    light = window_sum(equalised(levels), [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = layer * np.rint(window_sum(np.clip(light, 0, 255), ones) / 9)
    return x + amount * (relief / max(relief.max(), 1))[..., None] * np.array([175, 238, 238])


@pytest.mark.parametrize("scale", ["cifar", "imagenet"])
@pytest.mark.parametrize("index", range(4))
def test_matches_the_definition(scale, index) -> None:
    check_against(spatter, "spatter", scale, picture(), index)


@pytest.fixture(scope="module")
def layers() -> np.ndarray:
    """Blots with soft rims, so that weak edges hang on strong ones."""
    noise = Draws(3, range(6), "blots", 1).normal(HEIGHT, WIDTH)
    soft = np.stack([blurred(plane.astype(float), 1.3) for plane in noise])
    return np.clip(128 + soft * 60, 0, 255).astype(np.uint8)


def test_edges(layers) -> None:
    found = find_edges(layers, 50, 150)
    for layer, edges in zip(layers, found, strict=True):
        assert set(zip(*np.nonzero(edges), strict=True)) == edges_of(layer)
    assert 0.05 < found.mean() < 0.5
    # More than the strong crests alone and fewer than all crests: hysteresis has work to do.
    assert find_edges(layers, 150, 150).sum() < found.sum() < find_edges(layers, 50, 50).sum()


def test_distances() -> None:
    lots = Draws(3, range(6), "distances", 1).uniform(0, 1, HEIGHT, WIDTH)
    edges = lots < np.array([0.0, 0.004, 0.01, 0.03, 0.1, 0.5])[:, None, None]
    for some, distances in zip(edges, chamfer_distances(edges), strict=True):
        expected = distances_to(set(zip(*np.nonzero(some), strict=True)))
        np.testing.assert_allclose(distances, expected, atol=1e-4)


def test_equalise(layers) -> None:
    flat = np.full_like(layers[:1], 17)
    levels = np.concatenate([layers, layers // 40, flat])
    for some, result in zip(levels, equalise(levels), strict=True):
        np.testing.assert_array_equal(result, equalised(some.astype(int)))


def test_dry_layer_has_no_relief() -> None:
    np.testing.assert_array_equal(water_relief(np.zeros((2, 9, 11), np.uint8)), 0)
