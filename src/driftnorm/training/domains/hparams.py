"""DomainBed's hyper-parameters: defaults, ranges and the seeds of its random search.

Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021. Every hyper-parameter
is drawn from a generator of its own, seeded by DomainBed's name for it and by a hash of
(``hparams_seed``, ``trial_seed``): a configuration is never repeated over trials. ``hparams_seed``
0 stands for the defaults.

The names here are ours: ``lr``, ``weight_decay``, ``batch_size`` (images of each domain) and
``dropout``, and whatever else there is goes to the algorithm's constructor by that name. MixStyle
and SWAD are not in DomainBed; their authors searched the common four only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from driftnorm._internal.arguments import check_choice
from driftnorm.images.domains.splits import seed_hash

Number = int | float
Draw = Callable[[np.random.RandomState], Number]


@dataclasses.dataclass(frozen=True)
class Hparam:
    """One hyper-parameter.

    Attributes:
        default: What DomainBed takes for ``hparams_seed`` 0.
        domainbed_name: Seeds its draws.
        draw: Draws it.
    """

    default: Number
    domainbed_name: str
    draw: Draw


def _power(base: int, low: float, high: float) -> Draw:
    return lambda random: float(base ** random.uniform(low, high))


def _whole_power(base: int, low: float, high: float) -> Draw:
    return lambda random: int(base ** random.uniform(low, high))


def _uniform(low: float, high: float) -> Draw:
    return lambda random: float(random.uniform(low, high))


def _one_of(*values: float) -> Draw:
    return lambda random: float(random.choice(values))


def _always(value: Number) -> Draw:
    return lambda random: value


DROPOUT = Hparam(0.0, "resnet_dropout", _one_of(0.0, 0.1, 0.5))
LARGE_IMAGES = {
    "lr": Hparam(5e-5, "lr", _power(10, -5, -3.5)),
    "weight_decay": Hparam(0.0, "weight_decay", _power(10, -6, -2)),
    "batch_size": Hparam(32, "batch_size", _whole_power(2, 3, 5.5)),
    "dropout": DROPOUT,
}
DIGITS = {
    "lr": Hparam(1e-3, "lr", _power(10, -4.5, -2.5)),
    "weight_decay": Hparam(0.0, "weight_decay", _always(0.0)),
    "batch_size": Hparam(64, "batch_size", _whole_power(2, 3, 9)),
    "dropout": DROPOUT,
}
ARM_BATCH_SIZE = Hparam(8, "batch_size", _always(8))  # large images only

GAMMA = Hparam(1.0, "mmd_gamma", _power(10, -1, 1))
ALPHA = Hparam(0.2, "mixup_alpha", _power(10, -1, 1))
PUBLISHED_ALPHA = Hparam(0.2, "mixup_alpha", _power(10, -1, -1))  # DomainBed until 2023
OWN: dict[str, dict[str, Hparam]] = {
    "erm": {},
    "groupdro": {"eta": Hparam(1e-2, "groupdro_eta", _power(10, -3, -1))},
    "mixup": {"alpha": ALPHA},
    "coral": {"gamma": GAMMA},
    "mmd": {"gamma": GAMMA},
    "irm": {
        "penalty_weight": Hparam(100.0, "irm_lambda", _power(10, -1, 5)),
        "anneal_steps": Hparam(500, "irm_penalty_anneal_iters", _whole_power(10, 0, 4)),
    },
    "arm": {},
    "mtl": {"ema": Hparam(0.99, "mtl_ema", _one_of(0.5, 0.9, 0.99, 1.0))},
    "sagnet": {"w_adv": Hparam(0.1, "sag_w_adv", _power(10, -2, 1))},
    "rsc": {
        "f_drop": Hparam(1 / 3, "rsc_f_drop_factor", _uniform(0, 0.5)),
        "b_drop": Hparam(1 / 3, "rsc_b_drop_factor", _uniform(0, 0.5)),
    },
    "mixstyle": {},
    "swad": {},
}


def default_hparams(algorithm: str, digits: bool) -> dict[str, Number]:
    """DomainBed's defaults.

    Args:
        algorithm: Name of a training algorithm.
        digits: For the 28x28 images of RotatedMNIST and ColoredMNIST.

    Returns:
        ``lr``, ``weight_decay``, ``batch_size``, ``dropout``, and the algorithm's own arguments.
    """
    return {name: hparam.default for name, hparam in _space(algorithm, digits).items()}


def random_hparams(
    algorithm: str,
    digits: bool,
    hparams_seed: int,
    trial_seed: int,
    *,
    published_mixup: bool = False,
) -> dict[str, Number]:
    """One configuration of DomainBed's random search.

    Args:
        algorithm: Name of a training algorithm.
        digits: For the 28x28 images of RotatedMNIST and ColoredMNIST.
        hparams_seed: 0 for the defaults.
        trial_seed: That of the splits.
        published_mixup: Draw Mixup's alpha as for the published tables: a slip made it always 0.1.

    Returns:
        The same names as `default_hparams`.
    """
    if hparams_seed == 0:
        return default_hparams(algorithm, digits)
    space = _space(algorithm, digits)
    if published_mixup and "alpha" in space:
        space["alpha"] = PUBLISHED_ALPHA
    configuration = seed_hash(hparams_seed, trial_seed)
    return {
        name: hparam.draw(np.random.RandomState(seed_hash(configuration, hparam.domainbed_name)))
        for name, hparam in space.items()
    }


def _space(algorithm: str, digits: bool) -> dict[str, Hparam]:
    name = algorithm.lower()
    check_choice("algorithm", name, OWN)
    space = {**(DIGITS if digits else LARGE_IMAGES), **OWN[name]}
    if name == "arm" and not digits:
        space["batch_size"] = ARM_BATCH_SIZE
    return space
