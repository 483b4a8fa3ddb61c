"""From measurements to advice.

Let I be the information in the predictions (spread - entropy, both as shares of their maximum)
and H the entropy, each with the data's statistics minus with the source's. Where I rises, adapting
mostly helps, on shuffled, varied images; on streams of one or two classes I rises as well, but
there H mostly rises with it. The thresholds below were set by hand with a ResNet-20 on corruptions
of CIFAR-10, and checked on the demo's digits; docs/diagnose-verdicts.md shows how often the
verdicts are right, also on other networks and data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from driftnorm._internal.counts import counted
from driftnorm.diagnosis.findings import DOUBTS, SMALL_BATCH, Finding
from driftnorm.diagnosis.inventory import Inventory
from driftnorm.diagnosis.trial import DryRun, Trial
from driftnorm.methods.bn_window import SMALL_BATCH as WINDOW_BELOW
from driftnorm.methods.spec import parse_method
from driftnorm.recipe import Recipe

Outcome = Literal["help", "little", "no need", "no help", "harm", "unclear", "mend"]

TELLS_MORE, TELLS_LESS = 0.02, -0.02
UNSURE, LOST = 0.06, 0.1
NEAR = 0.15  # deviations; clean test images of ResNet-20 are 0.12 from its training statistics
STRAY = 0.03  # deviations; a batch of 64 clean images strays by this much
WORTH = 0.05  # of accuracy; labels that cannot rule such a gain out do not rule adapting out
MANY_CLASSES = 100
WINDOWED = ("steady", "bn-window")  # what we advise for small batches, see docs/choosing.md
DEFAULT_RATE, RATE_OF_MANY, CAREFUL_RATE = 1e-3, 2.5e-4, 1e-4


@dataclass(frozen=True)
class Advice:
    """What to choose, and why."""

    topic: str
    choice: str
    reason: str


def decide(run: DryRun, findings: Sequence[Finding]) -> Outcome:
    """What adapting to these data will do."""
    kinds = {finding.kind for finding in findings}
    if any(finding.severe for finding in findings):
        return "mend"
    if kinds & set(DOUBTS):
        return "unclear"
    if run.trials[0].accuracy is not None:
        return _by_labels(run)
    if "class-order" in kinds:
        return "harm"
    source, adapted = run.trials[0], evidence(run)
    surer, tells = adapted.entropy - source.entropy, adapted.information - source.information
    if surer > LOST:  # on varied images, much less certain but more informative may be a gain
        return "unclear" if tells > TELLS_MORE else "harm"
    if tells <= TELLS_MORE and run.drift.mean < NEAR:
        return "no need"
    if tells <= TELLS_MORE:
        return "no help" if tells < TELLS_LESS else "little"
    return "unclear" if surer > UNSURE or "folder-order" in kinds else "help"


def evidence(run: DryRun) -> Trial:
    """The trial that a judgement without labels goes by.

    The most telling one without gradient: minimising entropy makes any network surer, right or
    wrong. Without one, the first that adapts.
    """
    plain = [t for t in run.trials[1:] if parse_method(t.method).recipe.loss is None]
    return max(plain or run.trials[1:2], key=lambda trial: trial.information)


def advise(
    run: DryRun, inventory: Inventory, findings: Sequence[Finding], outcome: Outcome
) -> tuple[Advice, ...]:
    """What to choose, topic by topic."""
    kinds = {finding.kind for finding in findings}
    if outcome == "mend" or kinds & set(DOUBTS):
        return ()
    advice = [_method(run, inventory, kinds, outcome)]
    if kinds & {"class-order", "folder-order"}:
        advice.append(
            Advice("order", "shuffle", "batches must be mixtures of what the stream holds")
        )
    if outcome in ("help", "unclear"):
        advice.append(_batch_size(run))
        if _rated(advice[0].choice):
            advice.append(_rate(run))
    return tuple(advice)


def _by_labels(run: DryRun) -> Outcome:
    gains = [trial.gain for trial in run.trials[1:] if trial.gain is not None]
    if any(gain.low > 0 for gain in gains):
        return "help"
    if run.drift.mean < NEAR:
        return "no need"
    if any(gain.low < 0 and gain.high > WORTH for gain in gains):
        return "unclear"  # too few labels to tell a gain from none
    return "no help" if all(gain.high < 0 for gain in gains) else "little"


def _method(run: DryRun, inventory: Inventory, kinds: set[str], outcome: Outcome) -> Advice:
    if outcome == "little":
        labelled = run.trials[0].accuracy is not None
        reason = "your labels show no gain" if labelled else "a gain would show only with labels"
        return Advice("method", "source", reason)
    if outcome in ("no need", "no help", "harm"):
        return Advice("method", "source", "keep the network as it is")
    batch, has_source = max(run.batch_sizes), not inventory.named("missing")
    small = batch * run.positions < WINDOW_BELOW and has_source
    so_far = "statistics of the stream so far"
    if run.trials[0].accuracy is not None and outcome == "help":
        best = max(run.trials[1:], key=lambda trial: trial.accuracy or 0.0)
        reason = "the most accurate on your labelled images"
        if small and not {trial.method for trial in run.trials} & {*WINDOWED}:
            reason += f" so far; for batches of {batch}, try `--methods {' '.join(WINDOWED)}` too"
        return Advice("method", best.method, reason)
    if small:
        reason = f"it counts images, since batches of {batch} say little on their own"
        return Advice("method", "steady", reason)
    alarmed = any(trial.alarms for trial in run.trials if trial.method == "gprebn")
    if alarmed or "class-order" in kinds or not any(layer.affine for layer in inventory.layers):
        reason = "no gradient that could lead astray"
        if has_source:
            reason += "; falls back to the source where that is best"
            return Advice("method", "steady", reason)
        return Advice("method", "bn:running=True", f"{reason}; {so_far}")
    if has_source and outcome == "unclear":
        return Advice("method", "steady", "it falls back to the source where that seems best")
    return Advice("method", "gprebn", f"affine parameters that follow the stream, and {so_far}")


def _batch_size(run: DryRun) -> Advice:
    used, stray = max(run.batch_sizes), run.drift.chance_of_batch(max(run.batch_sizes))
    if not run.drift.layers:
        return Advice("batch size", str(used), "there are no source statistics to compare with")
    enough = used * (stray / STRAY) ** 2
    size = 2 ** ceil(log2(min(max(enough, SMALL_BATCH), 512)))
    larger = f"; of {size}, by {run.drift.chance_of_batch(size):.3f}" if size != used else ""
    reason = (
        f"statistics of a batch of {used} stray by {stray:.3f} deviations by chance{larger}. "
        "Window statistics (steady, bn-window) need fewer."
    )
    return Advice("batch size", f"{size} or more", reason)


def _rated(method: str) -> bool:
    recipe: Recipe = parse_method(method).recipe
    return recipe.loss is not None


def _rate(run: DryRun) -> Advice:
    trained = next((trial for trial in run.trials if trial.moved > 0), None)
    many = run.classes >= MANY_CLASSES
    if trained is None:
        reason = "nothing was trained here; try it with `--methods gprebn`"
        return Advice("learning rate", f"{RATE_OF_MANY if many else DEFAULT_RATE:g}", reason)
    steps = len(run.batch_sizes)
    went = f"parameters moved by {trained.moved:.1%} of their norm in {counted(steps, 'batch')}"
    plain = evidence(run)
    if trained.alarms or trained.spread < plain.spread - 0.05:
        reason = f"{went}, and the predictions got narrower: a lower rate is safer"
        return Advice("learning rate", f"{CAREFUL_RATE:g}", reason)
    if many:
        reason = f"{run.classes} classes in batches of {max(run.batch_sizes)}: gradients are noisy"
        return Advice("learning rate", f"{RATE_OF_MANY:g}", f"{reason}; {went}")
    return Advice("learning rate", f"{DEFAULT_RATE:g}", f"{went}, and nothing got worse")
