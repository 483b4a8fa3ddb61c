"""CoTTA: learn from a slow teacher, forget a little at random (Wang et al. 2022).

Formula:
    loss = CE(teacher, student); teacher <- 0.999 teacher + 0.001 student, after the step; then each
    weight of the student returns to the source with probability ``restore``. Where the source's
    mean confidence is below ``confidence``, the teacher's answer is the mean over ``views`` views.
    The teacher answers.

Views here are shifts, mirrors, brightness and noise, not the paper's stronger ones.
"""

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import CrossEntropy
from driftnorm.parts.statistics import Batch
from driftnorm.parts.teachers import By, Taught, Teacher
from driftnorm.parts.updates import Descent, Restore
from driftnorm.recipe import Optimising, Recipe, Trainable, optimised


def cotta(
    *,
    decay: float = 0.999,
    restore: float = 0.01,
    views: int = 8,
    confidence: float = 0.92,
    trainable: Trainable = "all",
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """A mean teacher with stochastic restore.

    Args:
        decay: Decay of the teacher's average, in [0, 1].
        restore: Probability that a weight returns to the source, per step.
        views: Views that the teacher averages over where the source is unsure (the paper: 32).
        confidence: Mean confidence of the source below which views are taken: 0.92 for CIFAR-10,
            0.72 for CIFAR-100, 0.1 for ImageNet in the official code.
        trainable: ``"all"``, or ``"affine"`` for much less memory.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    teacher = Teacher(decay)
    taught = Taught(teacher, views, confidence)
    recipe = Recipe(
        statistics=Batch(),
        only=only,
        trainable=trainable,
        loss=CrossEntropy(to=taught),
        update=(Descent(), teacher, Restore(restore)),
        answer=(By(teacher, live=taught),),
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="cotta",
    build=cotta,
    paper="Wang et al. 2022, arXiv 2203.13591",
    summary="labels and answers by a slow teacher, stochastic restore; trains all parameters",
    helps="long continual streams",
    hurts=(
        "small or class-ordered batches; expensive, since every view costs a pass and all "
        "parameters are trained"
    ),
)
