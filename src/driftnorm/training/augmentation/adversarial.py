"""Adversarial training with projected gradient ascent.

Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR 2018. The
network learns from the worst images within an l_inf ball about the real ones, found from a random
start:
    x_0 = clip(x + U(-radius, radius)),
    x_{k+1} = clip(P(x_k + step * sign(grad CE(f(x_k), y)))),
where P projects onto |x' - x| <= radius and clip onto [0, 1]. CIFAR-10: radius 8/255, step 2/255,
10 steps. The attack sees the network as it trains, with the batch's own statistics, but its
passes leave the running statistics alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm.images.tensors import unit
from driftnorm.training.augmentation.standard import classification, mirror_and_crop
from driftnorm.training.batches import Batch


@contextlib.contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Lets batch norms use batch statistics without adding them to their running ones."""
    tracking = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True


def ascend(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    start: Tensor,
    *,
    radius: float,
    step: float,
    steps: int,
) -> Tensor:
    """Projected gradient ascent on the cross-entropy.

    Args:
        model: Takes images in [0, 1].
        images: The real images, centre of the ball.
        labels: Their classes.
        start: Where to begin, within the ball.
        radius: Of the l_inf ball.
        step: Length of one sign step.
        steps: How many.

    Returns:
        Images in [0, 1] within the ball.
    """
    low, high = (images - radius).clamp_(min=0), (images + radius).clamp_(max=1)
    found = start.clamp(low, high)
    with running_statistics_kept(model):
        for _ in range(steps):
            found.requires_grad_()
            # The sum and the mean have the same sign; the sum does not shrink with the batch.
            loss = F.cross_entropy(model(found), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, found)
            found = found.detach().add(gradient.sign(), alpha=step).clamp_(low, high)
    return found


@dataclasses.dataclass(frozen=True)
class Adversarial:
    """Standard augmentation, then training on adversarial images only.

    Attributes:
        radius: Of the l_inf ball, for images in [0, 1].
        step: Length of one step of the attack.
        steps: Steps of the attack.
        padding: Largest shift of the standard augmentation.
    """

    radius: float = 8 / 255
    step: float = 2 / 255
    steps: int = 10
    padding: int = 4

    def __post_init__(self) -> None:
        check_number("radius", self.radius, least=0, most=1)
        check_number("step", self.step, least=0, most=1)
        check_whole("steps", self.steps)
        check_whole("padding", self.padding, 0)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy on attacked images; `accuracy` is under attack too."""
        images = unit(mirror_and_crop(batch.images, batch.rng, self.padding))
        noise = batch.rng.uniform(-self.radius, self.radius, size=images.shape)
        start = images + torch.from_numpy(noise).to(images)
        found = ascend(
            model,
            images,
            batch.labels,
            start,
            radius=self.radius,
            step=self.step,
            steps=self.steps,
        )
        return classification(model(found), batch.labels)
