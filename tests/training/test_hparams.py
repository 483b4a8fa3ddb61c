"""DomainBed's hyper-parameters: golden draws, ranges, defaults."""

from __future__ import annotations

import hashlib
import inspect
import math

import numpy as np
import pytest

from driftnorm.training.domains.algorithms import ALGORITHMS
from driftnorm.training.domains.algorithms.coral import CORAL
from driftnorm.training.domains.algorithms.groupdro import GroupDRO
from driftnorm.training.domains.algorithms.irm import IRM
from driftnorm.training.domains.algorithms.mixup import Mixup
from driftnorm.training.domains.algorithms.mmd import MMD
from driftnorm.training.domains.algorithms.rsc import RSC
from driftnorm.training.domains.hparams import default_hparams, random_hparams

COMMON = ("lr", "weight_decay", "batch_size", "dropout")
TWELVE = (
    *("erm", "groupdro", "mixup", "coral", "mmd", "irm"),
    *("arm", "mtl", "sagnet", "rsc", "mixstyle", "swad"),
)
CLASSES = {**ALGORITHMS, **{c.name: c for c in (GroupDRO, Mixup, CORAL, MMD, IRM, RSC)}}


def test_golden_draws() -> None:
    assert random_hparams("erm", False, 1, 0) == {
        "batch_size": 39,
        "dropout": 0.5,
        "weight_decay": 0.00044832883881609976,
        "lr": 2.7028930742148706e-05,
    }
    assert random_hparams("erm", False, 2, 1) == {
        "batch_size": 18,
        "dropout": 0.5,
        "weight_decay": 3.539788355410888e-06,
        "lr": 0.0002692684204277505,
    }


def literal_generator(hparams_seed: int, trial_seed: int, name: str) -> np.random.RandomState:
    def hashed(*things: object) -> int:
        return int(hashlib.md5(str(things).encode()).hexdigest(), 16) % 2**31

    return np.random.RandomState(hashed(hashed(hparams_seed, trial_seed), name))


@pytest.mark.parametrize(
    ("algorithm", "key", "name", "draw"),
    [
        ("groupdro", "eta", "groupdro_eta", lambda r: 10 ** r.uniform(-3, -1)),
        ("mixup", "alpha", "mixup_alpha", lambda r: 10 ** r.uniform(-1, 1)),
        ("coral", "gamma", "mmd_gamma", lambda r: 10 ** r.uniform(-1, 1)),
        ("mmd", "gamma", "mmd_gamma", lambda r: 10 ** r.uniform(-1, 1)),
        ("irm", "penalty_weight", "irm_lambda", lambda r: 10 ** r.uniform(-1, 5)),
        ("irm", "anneal_steps", "irm_penalty_anneal_iters", lambda r: int(10 ** r.uniform(0, 4))),
        ("mtl", "ema", "mtl_ema", lambda r: r.choice([0.5, 0.9, 0.99, 1.0])),
        ("sagnet", "w_adv", "sag_w_adv", lambda r: 10 ** r.uniform(-2, 1)),
        ("rsc", "f_drop", "rsc_f_drop_factor", lambda r: r.uniform(0, 0.5)),
        ("rsc", "b_drop", "rsc_b_drop_factor", lambda r: r.uniform(0, 0.5)),
    ],
)
def test_own_draws_follow_the_seed_scheme(algorithm, key, name, draw) -> None:
    for seeds in ((1, 0), (5, 2), (19, 1)):
        for digits in (False, True):
            drawn = random_hparams(algorithm, digits, *seeds)
            assert set(drawn) == set(default_hparams(algorithm, digits))
            assert drawn[key] == draw(literal_generator(*seeds, name))


def test_common_draws_for_digits() -> None:
    for seed in range(1, 50):
        drawn = random_hparams("erm", True, seed, 0)
        assert drawn["lr"] == 10 ** literal_generator(seed, 0, "lr").uniform(-4.5, -2.5)
        size = 2 ** literal_generator(seed, 0, "batch_size").uniform(3, 9)
        assert drawn["batch_size"] == math.floor(size)
        assert isinstance(drawn["batch_size"], int)
        assert drawn["weight_decay"] == 0
        assert drawn["dropout"] in (0, 0.1, 0.5)


def test_defaults() -> None:
    large = {"lr": 5e-5, "weight_decay": 0, "batch_size": 32, "dropout": 0}
    small = {"lr": 1e-3, "weight_decay": 0, "batch_size": 64, "dropout": 0}
    own = {
        "groupdro": {"eta": 0.01},
        "mixup": {"alpha": 0.2},
        "coral": {"gamma": 1},
        "mmd": {"gamma": 1},
        "irm": {"penalty_weight": 100, "anneal_steps": 500},
        "mtl": {"ema": 0.99},
        "sagnet": {"w_adv": 0.1},
        "rsc": {"f_drop": 1 / 3, "b_drop": 1 / 3},
    }
    for name in TWELVE:
        batch = {"batch_size": 8} if name == "arm" else {}
        assert default_hparams(name, False) == {**large, **batch, **own.get(name, {})}
        assert default_hparams(name, True) == {**small, **own.get(name, {})}


def test_seed_zero_means_the_defaults() -> None:
    assert random_hparams("irm", False, 0, 2) == default_hparams("irm", False)


def test_arm_keeps_its_batch_on_large_images_only() -> None:
    assert {random_hparams("arm", False, seed, 0)["batch_size"] for seed in range(1, 9)} == {8}
    assert len({random_hparams("arm", True, seed, 0)["batch_size"] for seed in range(1, 9)}) > 1


def test_published_mixup_is_a_constant() -> None:
    for seed in range(1, 9):
        published = random_hparams("mixup", False, seed, 0, published_mixup=True)
        repaired = random_hparams("mixup", False, seed, 0)
        assert published.pop("alpha") == pytest.approx(0.1)
        assert 0.1 < repaired.pop("alpha") < 10
        assert published == repaired
    plain = random_hparams("irm", False, 3, 0)
    assert random_hparams("irm", False, 3, 0, published_mixup=True) == plain


@pytest.mark.parametrize("name", [n for n in CLASSES if n in TWELVE])
def test_constructors_take_what_is_drawn_and_default_to_it(name: str) -> None:
    arguments = inspect.signature(CLASSES[name].__init__).parameters
    for key, default in default_hparams(name, False).items():
        if key not in COMMON:
            assert arguments[key].default == default


def test_trials_do_not_repeat_configurations() -> None:
    rates = {random_hparams("erm", False, 1, trial)["lr"] for trial in range(3)}
    assert len(rates) == 3


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(ValueError, match=r"'corall'\. Did you mean 'coral'"):
        default_hparams("corall", False)
    assert default_hparams("CORAL", False) == default_hparams("coral", False)
