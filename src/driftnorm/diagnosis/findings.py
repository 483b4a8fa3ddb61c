"""What to warn about: each finding with its evidence and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftnorm._internal.counts import agreeing, counted
from driftnorm.diagnosis.inventory import Inventory
from driftnorm.diagnosis.order import FOLDERS, LABELS
from driftnorm.diagnosis.trial import DryRun, Looks
from driftnorm.methods import methods_without_batch_norm
from driftnorm.models.normalized import doubt_of_constants

FEW_IMAGES = 64
SMALL_BATCH = 8  # predictions; below this, statistics of the batch alone are mostly noise
NARROW = 0.6  # as the guard's: predictions that spread over so little are suspicious
# With one of these no measurement can be trusted, though it may be sound.
DOUBTS = ("normalisation", "few-images")
ORDERS = ("class-order", "folder-order")
# Between what a missed division by sigma does (0.23 and less) and what fog does (0.42).
SCALE_LOW, SCALE_HIGH, SAME_FOR_ALL = 0.33, 3.0, 0.3
# Pictures in [0, 1] have a deviation of 0.2 to 0.4, normalised ones of about 1; less is pale.
PALE, PALE_NORMALISED = 0.15, 0.5


@dataclass(frozen=True)
class Finding:
    """Something that the user should know.

    Attributes:
        kind: One word for programs.
        severe: Whether nothing else can be trusted until it is fixed.
        text: What, by what evidence, and what to do.
    """

    kind: str
    severe: bool
    text: str


def find(inventory: Inventory, run: DryRun, normalizes: bool) -> tuple[Finding, ...]:
    """All findings, the severe ones first.

    Args:
        inventory: Of the network.
        run: What was measured.
        normalizes: Whether the network normalises its input itself, and so takes it in [0, 1].
    """
    constants = [*_of_constants(inventory)]
    found = [
        *constants,
        *(f for f in _of_input(run, normalizes) if f.kind not in {each.kind for each in constants}),
        *_of_statistics(inventory),
        *_of_safety(inventory, run),
        *_of_amount(run),
        *_of_classes(run),
    ]
    return tuple(sorted(found, key=lambda finding: not finding.severe))


def find_cost_of_order(ordered: DryRun, shuffled: DryRun) -> Finding:
    """What the order of the images costs, from the same trials on shuffled ones.

    Args:
        ordered: What was measured on the images as they come.
        shuffled: What was measured on as many shuffled ones.
    """
    after = max(shuffled.trials[1:], key=lambda trial: trial.accuracy or trial.information)
    before = next(trial for trial in ordered.trials if trial.method == after.method)
    if before.accuracy is not None and after.accuracy is not None:
        source = shuffled.trials[0].accuracy or 0.0
        costs = (
            f"{after.method} is right on {before.accuracy:.1%} of the labelled images as they "
            f"come, and on {after.accuracy:.1%} of shuffled ones (the source on {source:.1%})"
        )
    else:
        first = ordered.trials[0].method
        costs = (
            f"{after.method} answers {before.agreement[first]:.1%} of the images as the source "
            f"does as they come, and {after.agreement[first]:.1%} of shuffled ones"
        )
    return Finding("order-cost", False, f"what the order costs: {costs}.")


def _of_constants(inventory: Inventory) -> Iterator[Finding]:
    means, deviations = ([pair[i] for pair in inventory.input_constants] for i in (0, 1))
    doubt = doubt_of_constants(means, deviations)
    if doubt is not None:
        yield Finding("normalisation", True, doubt)


def _of_input(run: DryRun, normalizes: bool) -> Iterator[Finding]:
    looks = run.looks
    wrong = _wrong_range(looks, normalizes)
    if wrong:
        yield Finding("input-scale", True, wrong)
    elif run.drift.layers:
        first = run.drift.layers[0]
        odd = not SCALE_LOW <= first.scale <= SCALE_HIGH
        if odd and first.scale_spread < SAME_FOR_ALL:
            pale = first.scale < 1 and _is_pale(looks)
            yield Finding(
                "contrast" if pale else "normalisation",
                False,
                f"the pictures have little contrast (deviation {looks.contrast:.2g}), and all "
                f"channels of the first batch-norm layer (`{first.name}`) vary {first.scale:.2g} "
                "times as much as in training."
                if pale
                else f"all channels of the first batch-norm layer (`{first.name}`) vary "
                f"{first.scale:.2g} times as much as in training: unless the pictures have such a "
                "contrast, the mean and standard deviation of the normalisation are not those of "
                "the training.",
            )
    if run.broken:
        yield Finding(
            "broken-images",
            False,
            f"{counted(run.broken, 'image')} with NaN or infinite values "
            f"{agreeing(run.broken, 'was', 'were')} left out.",
        )


def _is_pale(looks: Looks) -> bool:
    return looks.contrast < (PALE if looks.lowest >= 0 else PALE_NORMALISED)


def _wrong_range(looks: Looks, normalizes: bool) -> str | None:
    reach = f"its values go from {looks.lowest:.3g} to {looks.highest:.3g}"
    if looks.highest > 20:
        return (
            f"the input has the wrong scale: {reach}, as if they were bytes; divide images by 255."
        )
    if not normalizes:
        return None
    if looks.lowest < -0.01 or looks.highest > 1.01:
        return (
            f"the input has the wrong scale: {reach}, as if images were normalised already; this "
            "network normalises by itself and takes them in [0, 1]."
        )
    if looks.highest < 0.02:
        return (
            f"the input has the wrong scale: {reach}, as if images were divided by 255 twice, or "
            "are black."
        )
    return None


def _of_statistics(inventory: Inventory) -> Iterator[Finding]:
    if not inventory.layers:
        yield Finding(
            "no-batch-norm",
            True,
            f"the network has no batch norm (its norms: {inventory.norms}); only methods that "
            f"need none work on it: {', '.join(methods_without_batch_norm())}.",
        )
    initial = inventory.named("initial")
    if initial:
        yield Finding(
            "untrained",
            len(initial) == len(inventory.layers),
            f"{_some(initial)} {_have(initial)} the statistics of an untrained network (means 0, "
            "variances 1): were the weights loaded?",
        )
    missing = inventory.named("missing")
    if missing:
        yield Finding(
            "no-statistics",
            False,
            f"{_some(missing)} {_have(missing)} no statistics of the training and normalise by "
            "each batch; methods that mix with the source's (bn-prior, alpha-bn, theta < 1) cannot "
            "be used.",
        )


def _of_safety(inventory: Inventory, run: DryRun) -> Iterator[Finding]:
    if inventory.active_dropout:
        yield Finding(
            "training-mode",
            False,
            f"dropout was left active ({_some(inventory.active_dropout)}): call `.eval()` on the "
            "network. It was diagnosed in evaluation mode.",
        )
    if inventory.instance_norms:
        yield Finding(
            "instance-norm",
            False,
            f"{_some(inventory.instance_norms)} normalise each image by itself (InstanceNorm); "
            "driftnorm leaves such layers alone.",
        )
    if not run.repeatable:
        yield Finding(
            "random",
            False,
            "the network predicts the same images differently each time, even in evaluation mode: "
            "something in its forward draws random numbers; `seed=` makes an adapter repeatable.",
        )


def _of_amount(run: DryRun) -> Iterator[Finding]:
    if run.images < FEW_IMAGES:
        yield Finding(
            "few-images",
            False,
            f"{counted(run.images, 'image')} {agreeing(run.images, 'is', 'are')} too few to judge "
            f"by{_by_chance(run)}; use a few hundred.",
        )
    if max(run.batch_sizes) * run.positions < SMALL_BATCH:
        yield Finding(
            "small-batch",
            False,
            f"statistics of a batch of {max(run.batch_sizes)} alone are mostly noise: use larger "
            "batches, or window statistics (steady, bn-window).",
        )


def _of_classes(run: DryRun) -> Iterator[Finding]:
    ordered = [who for who, serial in run.serial.items() if serial.ordered]
    if ordered == [FOLDERS]:
        yield Finding(
            "folder-order",
            False,
            f"the images come folder by folder (excess {run.serial[FOLDERS].excess:.2f}; 0 is "
            "shuffled, 1 is sorted): if folders are classes, statistics of such batches mislead, "
            "so shuffle the images (`--shuffle` on the command line).",
        )
    elif ordered:
        whose = "true" if LABELS in ordered else "predicted"
        excess = max(run.serial[who].excess for who in ordered if who != FOLDERS)
        yield Finding(
            "class-order",
            False,
            f"the stream is ordered by class: the {whose} class of an image is that of the one "
            f"before far too often (excess {excess:.2f}; 0 is shuffled, 1 is sorted). Statistics "
            "of such batches mislead: shuffle the images (`--shuffle` on the command line).",
        )
    source = run.trials[0]
    if source.spread < NARROW and run.images >= FEW_IMAGES:
        yield Finding(
            "narrow",
            False,
            "without adaptation, the predictions crowd onto few of the "
            f"{counted(run.classes, 'class')} "
            f"(spread {source.spread:.2f} of 1). Either the shift causes this, and adapting "
            "helps, or the images really are of few classes, and adapting does harm. Look at some "
            "of them.",
        )
    for trial in run.trials:
        if trial.alarms:
            alarms = "an alarm" if trial.alarms == 1 else f"{counted(trial.alarms, 'alarm')}"
            yield Finding("alarm", False, f"the guard raised {alarms} for {trial.method}.")


def _by_chance(run: DryRun) -> str:
    if not run.drift.layers:
        return ""
    return f" (chance alone moves the statistics by {run.drift.chance:.2f} deviations)"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{counted(len(names), 'layer')} ({shown}, ...)"


def _have(names: Sequence[str]) -> str:
    return agreeing(len(names), "has", "have")
