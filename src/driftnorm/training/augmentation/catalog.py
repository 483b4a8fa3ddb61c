"""The training recipes by name. A new one is a frozen dataclass with `losses`, and a line here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from driftnorm._internal.options import read_options
from driftnorm.models.architectures import unknown_name
from driftnorm.training.augmentation.adversarial import Adversarial
from driftnorm.training.augmentation.augmix import Augmix
from driftnorm.training.augmentation.autoaugment import Autoaugment
from driftnorm.training.augmentation.blends import Cutmix, Mixup
from driftnorm.training.augmentation.cutout import Cutout
from driftnorm.training.augmentation.standard import Standard
from driftnorm.training.batches import Batch


class TrainingRecipe(Protocol):
    """What the losses of a batch are; its fields are its settings, its papers' the defaults."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Under `loss` what is minimised, beside it what is worth watching."""
        ...


RECIPES: dict[str, type[TrainingRecipe]] = {
    "standard": Standard,
    "cutout": Cutout,
    "mixup": Mixup,
    "cutmix": Cutmix,
    "autoaugment": Autoaugment,
    "adversarial": Adversarial,
    "augmix": Augmix,
}


def make_recipe(name: str, settings: Iterable[str] = ()) -> TrainingRecipe:
    """Builds a recipe from its name and from settings of the form "alpha=0.2"."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    kind, values = RECIPES[name], dict(read_options(settings))
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    for key in values:
        if key not in defaults:
            raise ValueError(
                f"recipe {name!r} has no setting {key!r}; it has "
                f"{', '.join(f'{k}={v:g}' for k, v in defaults.items())}."
            )
    return kind(**values)
