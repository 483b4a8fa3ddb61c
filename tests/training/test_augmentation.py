"""Each recipe against a slow, obvious version of it, or against identities of its formula."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_pixels import from_pillow, pictures, pillow_operation, to_pillow
from torch import Tensor, nn

from driftnorm.images.tensors import unit
from driftnorm.models import Normalized
from driftnorm.training import RECIPES, Batch, ShuffledBatches, make_recipe, random_numbers
from driftnorm.training.augmentation.adversarial import Adversarial, ascend, running_statistics_kept
from driftnorm.training.augmentation.augmix import (
    AUGMIX_OPERATIONS,
    Augmix,
    augment_and_mix,
    jensen_shannon,
)
from driftnorm.training.augmentation.autoaugment import CIFAR10_POLICY, Autoaugment, apply_policy
from driftnorm.training.augmentation.blends import (
    Cutmix,
    Mixup,
    blend_images,
    mixed_classification,
    paste_box,
)
from driftnorm.training.augmentation.cutout import Cutout, mask_squares, mean_color
from driftnorm.training.augmentation.standard import Standard, mirror_and_crop, shift_and_mirror

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2, 0.25, 0.3)


class Recorder(nn.Module):
    """A classifier that remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        return self.head(torch.tanh(self.norm(x)).mean(dim=(2, 3)))


def model() -> Normalized:
    return Normalized(Recorder(), MEAN, STD).train()


def batch(seed: int = 0, size: int = 40) -> Batch:
    labels = torch.arange(size) % 4
    return Batch(pictures()[:size], labels, random_numbers(seed, "augmentation", 0))


def shown(network: Normalized, index: int = -1) -> Tensor:
    """The images in [0, 1] that the network got."""
    recorder = network.network
    assert isinstance(recorder, Recorder)
    return recorder.seen[index] * network.std + network.mean


# Standard


def test_shift_and_mirror_is_pad_cut_flip() -> None:
    images, rng = pictures((12, 9)), np.random.default_rng(0)
    number = len(images)
    mirrored = rng.random(number) < 0.5
    top, left = rng.integers(0, 9, (2, number))
    got = shift_and_mirror(images, mirrored, top, left, 4)
    for i, image in enumerate(images.numpy()):
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        cut = padded[:, top[i] : top[i] + 12, left[i] : left[i] + 9]
        expected = cut[:, :, ::-1] if mirrored[i] else cut
        assert np.array_equal(got[i].numpy(), expected)


def test_all_shifts_and_both_directions_occur() -> None:
    position = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    position[..., 4, 4] = 1  # the centre stays the centre when mirrored
    moved = mirror_and_crop(position.expand(4000, 1, 9, 9), np.random.default_rng(0))
    counts = moved.sum(dim=(0, 1))
    assert counts.sum() == 4000  # shifts of up to 4 never lose the centre
    assert counts.min() > 20  # of an expected 49 at each of 81 places
    edge = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    edge[..., :1] = 1
    kept = mirror_and_crop(edge.expand(4000, 1, 9, 9), np.random.default_rng(0), padding=0)
    assert 0.45 < kept[:, 0, 0, 0].float().mean() < 0.55


def test_unit_is_division_by_255_channels_last() -> None:
    images = pictures()
    got = unit(images)
    torch.testing.assert_close(got, images.float() / 255, rtol=0, atol=0)
    assert got.is_contiguous(memory_format=torch.channels_last)


# Cutout


@pytest.mark.parametrize("size", [16, 5, 64])
def test_cutout_masks_exactly_one_clipped_square(size: int) -> None:
    images = unit(pictures((20, 28)))
    fill = torch.tensor([2.0, 3.0, 4.0])
    got = mask_squares(images, np.random.default_rng(5), size, fill)
    replay = np.random.default_rng(5)
    y, x = replay.integers(0, 20, len(images)), replay.integers(0, 28, len(images))
    for i in range(len(images)):
        expected = images[i].clone()
        for row in range(20):
            for column in range(28):
                if (
                    -(size // 2) <= row - y[i] < size - size // 2
                    and -(size // 2) <= column - x[i] < size - size // 2
                ):
                    expected[:, row, column] = fill
        assert torch.equal(got[i], expected)


def test_cutout_masks_with_zeros_of_the_normalised_input() -> None:
    network = model()
    Cutout().losses(network, batch())
    recorder = network.network
    assert isinstance(recorder, Recorder)
    masked = (recorder.seen[0] == 0).all(dim=1).sum(dim=(1, 2))
    assert masked.min() >= 8 * 8  # a centre in the corner leaves a quarter
    assert masked.max() == 16 * 16
    assert torch.equal(mean_color(nn.Linear(1, 1), 3), torch.zeros(3))


# Mixup and CutMix


def test_mixup_is_a_convex_combination() -> None:
    images, partners = unit(pictures()), torch.arange(39, -1, -1)
    for weight in (0.0, 0.3, 1.0):
        expected = torch.stack(
            [weight * images[i] + (1 - weight) * images[partners[i]] for i in range(40)]
        )
        torch.testing.assert_close(blend_images(images, partners, weight), expected)


def test_mixed_labels_weigh_both_cross_entropies() -> None:
    logits, labels = torch.randn(40, 4), torch.arange(40) % 4
    partners = torch.randperm(40)
    soft = 0.3 * F.one_hot(labels, 4) + 0.7 * F.one_hot(labels[partners], 4)
    expected = -(soft * logits.log_softmax(dim=1)).sum(dim=1).mean()
    got = mixed_classification(logits, labels, partners, 0.3)
    torch.testing.assert_close(got["loss"], expected)
    alone = mixed_classification(logits, labels, partners, 1.0)
    torch.testing.assert_close(alone["loss"], F.cross_entropy(logits, labels))


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_cutmix_pastes_one_box_and_reports_the_part_that_is_left(weight: float) -> None:
    images, partners = torch.zeros(6, 3, 32, 32), torch.tensor([1, 2, 3, 4, 5, 0])
    images += torch.arange(1.0, 7.0).view(6, 1, 1, 1)  # every image its own value
    for seed in range(30):
        got, left = paste_box(images, partners, weight, np.random.default_rng(seed))
        own = got == images
        assert torch.equal(got[~own], images[partners][~own])
        assert math.isclose(left, own.float().mean().item(), abs_tol=1e-6)
        assert left >= weight - 1e-9  # clipping and whole pixels only make the box smaller
        rows, columns = (~own[0, 0]).any(dim=1), (~own[0, 0]).any(dim=0)
        assert int((~own[0, 0]).sum()) == int(rows.sum()) * int(columns.sum())
        for side in (rows, columns):  # one run without holes
            assert int(side.int().diff().abs().sum() + side[0].int() + side[-1].int()) in (0, 2)


def test_mixup_and_cutmix_use_the_weight_of_their_images() -> None:
    seen = {True: 0, False: 0}
    for seed in range(30):
        network, given = model(), batch(seed)
        losses = Cutmix().losses(network, given)
        replay = random_numbers(seed, "augmentation", 0)
        plain = unit(mirror_and_crop(given.images, replay))
        weight, partners = replay.beta(1, 1), torch.from_numpy(replay.permutation(40))
        mixed = bool(replay.random() < 0.5)
        left = 1.0
        if mixed:
            plain, left = paste_box(plain, partners, weight, replay)
        torch.testing.assert_close(shown(network), plain, rtol=0, atol=1e-5)
        expected = mixed_classification(network(plain), given.labels, partners, left)
        torch.testing.assert_close(losses["loss"], expected["loss"])
        seen[mixed] += 1
    assert min(seen.values()) > 5
    network, given = model(), batch()
    Mixup(alpha=0.4).losses(network, given)
    replay = random_numbers(0, "augmentation", 0)
    plain = unit(mirror_and_crop(given.images, replay))
    weight, partners = replay.beta(0.4, 0.4), torch.from_numpy(replay.permutation(40))
    expected_images = blend_images(plain, partners, weight)
    torch.testing.assert_close(shown(network), expected_images, rtol=0, atol=1e-5)


# AutoAugment


def test_the_policy_is_the_published_one(torchvision: object) -> None:
    from torchvision.transforms import AutoAugment, AutoAugmentPolicy

    theirs = AutoAugment(AutoAugmentPolicy.CIFAR10).policies
    assert len(theirs) == len(CIFAR10_POLICY) == 25
    for our_steps, their_steps in zip(CIFAR10_POLICY, theirs, strict=True):
        for (name, probability, level), theirs_step in zip(our_steps, their_steps, strict=True):
            assert name.replace("_", "") == theirs_step[0].lower()
            assert probability == theirs_step[1]
            assert theirs_step[2] in (None, level)  # they leave out levels that mean nothing


def test_autoaugment_is_the_policy_image_by_image() -> None:
    images = pictures().repeat(4, 1, 1, 1)
    black = torch.zeros(3, dtype=torch.uint8)
    got = apply_policy(images, np.random.default_rng(2), black)
    replay = np.random.default_rng(2)
    number = len(images)
    chosen = replay.integers(0, 25, number)
    coins, signs = [], []
    for _ in (0, 1):
        coins.append(replay.random(number))
        signs.append(replay.choice([-1.0, 1.0], number))
    expected = []
    for i, image in enumerate(images):
        picture = to_pillow(image)
        for position, (name, probability, level) in enumerate(CIFAR10_POLICY[chosen[i]]):
            if coins[position][i] < probability:
                picture = pillow_operation(picture, name, level, signs[position][i], "nearest")
        expected.append(from_pillow(picture))
    # Nothing but pixels on the edge of two may differ, see test_training_pixels.
    assert (got != torch.stack(expected)).float().mean() < 0.002
    assert (got != images).flatten(1).any(dim=1).float().mean() > 0.5


def test_autoaugment_ends_with_cutout_unless_told_otherwise() -> None:
    masked = []
    for recipe in (Autoaugment(), Autoaugment(cutout_size=0)):
        network = model()
        recipe.losses(network, batch())
        recorder = network.network
        assert isinstance(recorder, Recorder)
        masked.append((recorder.seen[0] == 0).all(dim=1).sum(dim=(1, 2)))
    assert masked[0].min() >= 64
    assert masked[1].min() == 0


# Adversarial training


def test_one_step_of_the_attack_is_the_literal_formula() -> None:
    network, images = model().eval(), unit(pictures()[:8])
    labels, noise = torch.arange(8) % 4, 0.02 * torch.randn(8, 3, 32, 32)
    start = (images + noise).clamp(0, 1)
    leaf = start.clone().requires_grad_()
    F.cross_entropy(network(leaf), labels).backward()
    assert leaf.grad is not None
    stepped = start + 0.01 * leaf.grad.sign()
    projected = torch.minimum(torch.maximum(stepped, images - 0.03), images + 0.03)
    got = ascend(network, images, labels, start, radius=0.03, step=0.01, steps=1)
    # The projection of the start is the start itself, up to noise beyond the radius.
    inside = (noise.abs() <= 0.03) & (start == images + noise)
    torch.testing.assert_close(got[inside], projected.clamp(0, 1)[inside], rtol=0, atol=1e-6)


def test_the_attack_stays_in_the_ball_raises_the_loss_and_leaves_the_network_alone() -> None:
    network, images, labels = model(), unit(pictures()), torch.arange(40) % 4
    before = {name: value.clone() for name, value in network.state_dict().items()}
    radius = 8 / 255
    start = images + radius * (2 * torch.rand_like(images) - 1)
    got = ascend(network, images, labels, start, radius=radius, step=2 / 255, steps=10)
    assert (got - images).abs().max() <= radius + 1e-6
    assert got.min() >= 0
    assert got.max() <= 1
    with running_statistics_kept(network):
        clean = F.cross_entropy(network(images), labels)
        attacked = F.cross_entropy(network(got), labels)
    assert attacked > clean
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    assert not got.requires_grad


def test_adversarial_training_learns_from_the_attacked_images_only() -> None:
    network, given = model(), batch()
    losses = Adversarial(steps=3).losses(network, given)
    recorder = network.network
    assert isinstance(recorder, Recorder)
    assert len(recorder.seen) == 4
    assert int(recorder.norm.num_batches_tracked) == 1  # the attack does not count
    plain = unit(mirror_and_crop(given.images, random_numbers(0, "augmentation", 0)))
    distance = (shown(network) - plain).abs().max()
    assert 7 / 255 < distance <= 8 / 255 + 1e-5
    losses["loss"].backward()
    assert recorder.head.weight.grad is not None


# AugMix


def test_jensen_shannon_is_its_formula() -> None:
    logits = tuple(3 * torch.randn(10, 4) for _ in range(3))
    p = np.stack([torch.softmax(view, 1).double().numpy() for view in logits])
    mean = p.mean(axis=0)
    expected = np.mean([(view * np.log(view / mean)).sum(axis=1).mean() for view in p])
    torch.testing.assert_close(jensen_shannon(logits).double(), torch.tensor(expected))
    same = (logits[0],) * 3
    assert abs(float(jensen_shannon(same))) < 1e-6
    sure = tuple(1e4 * F.one_hot(torch.tensor([k]), 3).float() for k in range(3))
    torch.testing.assert_close(jensen_shannon(sure), torch.tensor(math.log(3)))


def test_augmix_with_all_weight_on_the_image_is_the_image() -> None:
    images = pictures()
    got = augment_and_mix(images, Augmix(), np.random.default_rng(0), skip=1.0)
    assert torch.equal(got, unit(images))
    moved = augment_and_mix(images, Augmix(), np.random.default_rng(0), skip=0.0)
    assert not torch.allclose(moved, unit(images), atol=0.05)


@pytest.mark.parametrize("depth", [0, 2])
def test_augmix_is_its_chains_image_by_image(depth: int) -> None:
    images, settings = pictures(), Augmix(depth=depth)
    got = augment_and_mix(images, settings, np.random.default_rng(4))
    replay, number = np.random.default_rng(4), len(images)
    chain_weights, own = replay.dirichlet([1.0] * 3, number), replay.beta(1, 1, number)
    low, high = (1, 3) if depth == 0 else (2, 2)
    depths = replay.integers(low, high + 1, 3 * number)
    draws = [
        (
            replay.choice(AUGMIX_OPERATIONS, 3 * number),
            replay.uniform(0.1, 3.0, 3 * number),
            replay.choice([-1.0, 1.0], 3 * number),
        )
        for _ in range(depths.max())
    ]
    expected = []
    for i, image in enumerate(images):
        mixture = np.zeros((3, 32, 32))
        for chain in range(3):
            which, picture = chain * number + i, to_pillow(image)
            for names, levels, signs in draws[: depths[which]]:
                picture = pillow_operation(
                    picture, names[which], levels[which], signs[which], "bilinear", span=32 / 3
                )
            mixture += chain_weights[i, chain] * from_pillow(picture).numpy() / 255
        expected.append(own[i] * image.numpy() / 255 + (1 - own[i]) * mixture)
    difference = np.abs(got.numpy() - np.stack(expected))
    # An operation may widen the difference of 1 that rounding made in the one before it.
    assert (difference > 1.5 / 255).mean() < 0.01
    assert difference.mean() < 0.1 / 255


def test_augmix_adds_the_divergence_of_one_joint_pass() -> None:
    network, given = model(), batch()
    losses = Augmix().losses(network, given)
    recorder = network.network
    assert isinstance(recorder, Recorder)
    assert [len(x) for x in recorder.seen] == [120]
    replay = random_numbers(0, "augmentation", 0)
    plain = mirror_and_crop(given.images, replay)
    views = [unit(plain), *(augment_and_mix(plain, Augmix(), replay) for _ in range(2))]
    torch.testing.assert_close(shown(network), torch.cat(views), rtol=0, atol=1e-5)
    logits = network(torch.cat(views)).chunk(3)
    expected = F.cross_entropy(logits[0], given.labels) + 12 * jensen_shannon(logits)
    torch.testing.assert_close(losses["loss"], expected)


def test_augmix_without_consistency_trains_on_the_mixtures() -> None:
    network, given = model(), batch()
    losses = Augmix(js_weight=0).losses(network, given)
    recorder = network.network
    assert isinstance(recorder, Recorder)
    assert [len(x) for x in recorder.seen] == [40]
    assert "js" not in losses


# All of them


def test_the_defaults_are_the_papers() -> None:
    assert dataclasses.asdict(Standard()) == {"padding": 4}
    assert dataclasses.asdict(Cutout()) == {"size": 16, "padding": 4}
    assert dataclasses.asdict(Mixup()) == {"alpha": 1, "padding": 4}
    assert dataclasses.asdict(Cutmix()) == {"alpha": 1, "probability": 0.5, "padding": 4}
    attack = {"radius": 8 / 255, "step": 2 / 255, "steps": 10, "padding": 4}
    assert dataclasses.asdict(Adversarial()) == attack
    mixture = {"width": 3, "depth": 0, "severity": 3, "alpha": 1, "js_weight": 12, "padding": 4}
    assert dataclasses.asdict(Augmix()) == mixture


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_function_of_its_batch(name: str) -> None:
    images, labels = pictures(), torch.arange(40) % 4
    source = ShuffledBatches(images, labels, 16, seed=3)
    stored, results = images.clone(), []
    network = model()
    for step in (5, 5, 6):
        loss = make_recipe(name).losses(network, source(step))["loss"]
        results.append(float(loss.detach()))
        assert loss.requires_grad
    assert results[0] == results[1]
    assert results[1] != results[2]
    assert torch.equal(images, stored)


def test_recipes_from_text() -> None:
    assert make_recipe("mixup", ["alpha=0.2"]) == Mixup(alpha=0.2)
    assert make_recipe("augmix", ["width=1", "severity=1"]) == Augmix(width=1, severity=1.0)
    with pytest.raises(ValueError, match=r"no recipe 'augmx'.*'augmix'"):
        make_recipe("augmx")
    with pytest.raises(ValueError, match=r"'mixup' has no setting 'beta'; it has alpha=1, padding"):
        make_recipe("mixup", ["beta=1"])
    with pytest.raises(ValueError, match=r"`width` must be a whole number, got 1\.5"):
        make_recipe("augmix", ["width=1.5"])
    for text in ("nan", "inf"):
        with pytest.raises(ValueError, match=f"`alpha` must be a number, got '{text}'"):
            make_recipe("mixup", [f"alpha={text}"])


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("standard", "padding=-1", "`padding` must be at least 0, got -1"),
        ("cutout", "size=0", "`size` must be at least 1, got 0"),
        ("mixup", "alpha=0", "`alpha` must be at least 0.001, got 0"),
        ("cutmix", "probability=1.5", "`probability` must be from 0 to 1, got 1.5"),
        ("autoaugment", "cutout_size=-1", "`cutout_size` must be at least 0"),
        ("adversarial", "steps=0", "`steps` must be at least 1"),
        ("augmix", "severity=11", "`severity` must be from 0.1 to 10, got 11"),
        ("augmix", "width=0", "`width` must be at least 1"),
    ],
)
def test_senseless_settings_are_refused(name: str, setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_recipe(name, [setting])
