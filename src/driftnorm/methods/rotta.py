"""RoTTA: learn from a balanced memory, answer by a slow teacher (Yuan et al. 2023).

Formula:
    The memory holds ``bank`` images, equally many of each predicted class; those with a high
    ``sigmoid(age / bank) + H / ln K`` are dropped
    first. After every ``every`` images of the stream:
    ``loss = mean_i sigmoid(-age_i / bank) CE(teacher(x_i), student(view(x_i)))``, one step, and
    teacher <- ``decay`` teacher + (1 - ``decay``) student. Student and teacher normalise by their
    own running statistics, which start from the source's. The teacher answers, with statistics that
    a batch does not change: the prediction for an image does not depend on its batch.

The memory's images are part of the saved state. The official code passes the gradient only through
the batch's share of the statistics; here ``gradient`` decides.
"""

from typing_extensions import Unpack

from driftnorm.functional import GradientPath
from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import CrossEntropy, Weighted
from driftnorm.parts.memories import TimelyUncertain
from driftnorm.parts.statistics import Running
from driftnorm.parts.teachers import By, Taught, Teacher, View
from driftnorm.parts.updates import Descent
from driftnorm.parts.weights import Timely
from driftnorm.recipe import Optimising, Recipe, optimised


def rotta(
    *,
    bank: int = 64,
    every: int = 64,
    decay: float = 0.999,
    momentum: float = 0.05,
    gradient: GradientPath = "preserved",
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """A mean teacher, robust statistics and a category-balanced memory.

    Args:
        bank: Images that the memory holds.
        every: Images of the stream between lessons, whatever the batch size.
        decay: Decay of the teacher's average.
        momentum: Weight of a lesson in the running statistics.
        gradient: ``"preserved"`` (eq. 6) or ``"detached"``.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    teacher = Teacher(decay, own_statistics=True)
    recipe = Recipe(
        statistics=Running(momentum, start="source"),
        gradient=gradient,
        only=only,
        trainable="affine",
        memory=TimelyUncertain(bank, every, View()),
        loss=Weighted(CrossEntropy(to=Taught(teacher)), (Timely(bank),), per="batch"),
        update=(Descent(), teacher),
        answer=(By(teacher),),
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="rotta",
    build=rotta,
    paper="Yuan et al. 2023, arXiv 2303.13899",
    summary="learns from a class-balanced memory with a slow teacher, which answers",
    helps="streams ordered by class; small batches",
    hurts=(
        "streams of fewer than a few hundred images, since nothing changes before the first "
        "lesson; up to three passes per batch"
    ),
)
