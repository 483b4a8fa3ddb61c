"""Is adapting doing harm? Judged without labels, by the source's predictions.

Evidence is gathered over images, not batches: a share of the stream is shown to the source as well,
whatever the batch size. Three things count as harm: predictions that have collapsed onto fewer
classes than the source's, predictions that carry clearly less `information` than the source's, and
parameters that have moved far. A change of the stream alone is never harm: both networks see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.parts.contract import check_counts, check_shares
from driftnorm.parts.evidence import information, spread_of
from driftnorm.parts.losses import softmax_entropy
from driftnorm.parts.neighbours import likeness, neighbour_sums

Policy: TypeAlias = Literal["warn", "reset", "freeze", "off"]
Remembered: TypeAlias = Mapping[str, Any]
_COUNTS = (
    *("images", "owed", "held", "hold", "since", "served", "differ", "disagreement"),
    *("pair_count", "pairs", "squares", "last", "p_entropy", "q_entropy"),
)


class Signals(NamedTuple):
    """What the predictions of a batch look like.

    Attributes:
        entropy: Mean entropy, as a share of its maximum.
        spread: Entropy of the predicted classes' shares, as a share of its maximum.
        labels: The predicted classes.
    """

    entropy: float
    spread: float
    labels: Tensor


@torch.no_grad()
def read_signals(logits: Tensor) -> Signals:
    """Entropy and class spread of predictions of shape ``(N, K)`` or ``(N, K, ...)``."""
    rows = logits.movedim(1, -1).flatten(0, -2) if logits.dim() > 2 else logits
    samples, classes = rows.shape
    # Of the labels, not of the probabilities: an unsure network is not a varied one.
    labels = rows.argmax(dim=1)
    marginal = torch.bincount(labels, minlength=classes) / samples
    entropies = torch.special.entr(rows.float().softmax(dim=1)).sum()
    entropy, spread = torch.stack([entropies, torch.special.entr(marginal).sum()]).tolist()
    # A batch smaller than the number of classes cannot show them all.
    most = math.log(max(min(samples, classes), 2))
    return Signals(entropy / samples / math.log(max(classes, 2)), spread / most, labels)


KINDS = ("collapse", "information", "distance")


class Alarm(NamedTuple):
    """The guard found harm.

    Attributes:
        batch: Batches answered before it since the start or the last `reset()`, bad ones aside.
        images: How many images the judgement rests on.
        kind: Index into `KINDS`: predictions collapsed onto few classes, carry less information
            than the source's, or the trained parameters are far from where they began.
        adapted: The adapted network's spread over classes, its information, or how far the
            parameters moved as a share of their norm.
        source: The source's, on the same images; 0 for the parameters.
        disagreement: The share of these images on which the two give different classes.
    """

    batch: int
    images: float
    kind: int
    adapted: float
    source: float
    disagreement: float

    @property
    def reason(self) -> str:
        """The alarm in words."""
        numbers = f"({self.adapted:.2f}, your network, unadapted: {self.source:.2f}"
        over = f"over {self.images:.0f} images, of which they disagree on {self.disagreement:.0%})"
        if KINDS[self.kind] == "distance":
            return f"parameters have moved by {self.adapted:.0%} of their norm"
        if KINDS[self.kind] == "collapse":
            return f"predictions collapse onto few classes: their spread in nats {numbers}; {over}"
        return f"predictions are less informative {numbers}; {over}"


class Evidence(NamedTuple):
    """What recent images show; both networks were run on them.

    Attributes:
        images: How many, weighted by how recent they are.
        adapted: Information of the adapted network's predictions.
        source: Of the source's.
        adapted_spread: Entropy of the adapted network's mean prediction.
        source_spread: Of the source's.
        disagreement: The share on which the two give different classes. Their accuracies on these
            images differ by no more than this.
        order: How alike neighbours are by the source's predictions: 0 shuffled, near 1 sorted by
            class. The predictions of a collapsed source do not count as ordered.
    """

    images: float
    adapted: float
    source: float
    adapted_spread: float
    source_spread: float
    disagreement: float
    order: float


@dataclass(frozen=True)
class Guard:
    """How the adapted network is compared with the source, and what to do about harm.

    Attributes:
        policy: ``"warn"``; ``"reset"`` (forget the stream, and keep adapting); ``"freeze"`` (forget
            it, let the source answer for ``hold`` images, then try again: the source still answers
            until there is enough evidence; if that fails soon, hold twice as long); ``"off"``. With
            reset and freeze the batch that raised the alarm is answered by the source and leaves no
            trace.
        share: Share of images shown to the source while nothing is suspicious. While evidence is
            scarce all are; while the source seems better, as many as the two disagree on, since
            no more can be harmed.
        memory: Images over which evidence is averaged.
        enough: Images needed before anything is judged.
        collapse: Alarm when the spread of the adapted predictions over classes is below this share
            of the source's.
        margin: Alarm when the information of the adapted predictions is this much below the
            source's.
        caution: That of `information`.
        distance: Alarm when the trained parameters have moved by more than this share of their own
            norm: training for certainty can hide the harm from the other two alarms.
        harmless: Neither of the first two alarms while the two networks disagree on at most this
            share of recent images: their accuracies on these cannot differ by more. Not for dense
            predictions, where a class that few positions have can be lost within that bound.
        hold: With freeze: images that the source answers after a first alarm.
    """

    policy: Policy = "warn"
    share: float = 1 / 32
    memory: float = 256.0
    enough: int = 48
    collapse: float = 0.5
    margin: float = 0.25
    caution: float = 3.0
    distance: float = 0.5
    harmless: float = 0.05
    hold: int = 256

    def __post_init__(self) -> None:
        if self.policy not in ("warn", "reset", "freeze", "off"):
            raise ValueError(
                f"`guard` must be 'warn', 'reset', 'freeze', 'off' or a Guard, got {self.policy!r}."
            )
        check_number("share", self.share, most=1)
        check_number("harmless", self.harmless, least=0, below=1)
        for name in ("memory", "enough", "hold"):
            check_number(name, getattr(self, name), least=1, most=math.inf)

    # ------------------------------------------------------------------ evidence

    def due(self, memory: Remembered, images: int) -> tuple[int, float]:
        """How many images of a batch to show to the source, and how many are owed after it.

        Small batches are shown whole, now and then; large ones in part.
        """
        known = memory.get("images", 0.0)
        if known < self.enough:
            return min(images, 64), 0.0
        doubt = memory["disagreement"] if memory.get("doubtful", False) else 0.0
        # The first images may be of one class: as many again are taken from a longer stretch.
        share = max(self.share, doubt, 1 / 8 if known < 2 * self.enough else 0.0)
        owed = memory.get("owed", 0.0) + share * images
        asked = min(images, 64, int(owed)) if owed >= min(images, 32) else 0
        return asked, owed - asked

    def counted(self, memory: Remembered, adapted: Tensor, source: Tensor) -> dict[str, Any]:
        """The memory after both networks have given these logits for the same images."""
        images = len(source)
        kept = (1 - 1 / self.memory) ** images
        adapted, source = adapted.detach().float(), source.detach().float()
        p, q = (F.softmax(each.movedim(1, -1), dim=-1) for each in (adapted, source))
        differ = (adapted.argmax(dim=1) != source.argmax(dim=1)).float().mean()
        means = q.flatten(1, -2).mean(dim=1) if q.dim() > 2 else q  # one row for each image
        new = {
            "images": float(images),
            "p": p.flatten(0, -2).mean(dim=0) * images,
            "q": q.flatten(0, -2).mean(dim=0) * images,
            "p_entropy": softmax_entropy(adapted).mean() * images,
            "q_entropy": softmax_entropy(source).mean() * images,
            "differ": differ * images,
            **neighbour_sums(memory.get("last", means[:0]), means),
        }
        sums = {name: value + kept * memory.get(name, 0.0) for name, value in new.items()}
        memory = {**memory, **sums, "last": means[-1:]}
        found = self.evidence(memory)
        assert found is not None
        trial = memory.get("trial", False) and found.images < self.enough
        seems = {"doubtful": found.source > found.adapted, "disagreement": found.disagreement}
        return {**memory, **seems, "trial": trial, "dense": source.dim() > 2}

    def evidence(self, memory: Remembered) -> Evidence | None:
        """What the memory amounts to; ``None`` before the source was run."""
        images = memory.get("images", 0.0)
        if not images:
            return None
        p, q = memory["p"] / images, memory["q"] / images
        pairs = float(memory["pairs"]) / max(memory["pair_count"], 1.0)
        return Evidence(
            images,
            information(p, memory["p_entropy"] / images, self.caution),
            information(q, memory["q_entropy"] / images, self.caution),
            spread_of(p),
            spread_of(q),
            min(1.0, float(memory["differ"]) / images),  # the sums may differ in the last bit
            likeness(pairs, float(memory["squares"]) / images, q),
        )

    # ------------------------------------------------------------------ judgement

    def alarm(self, memory: Remembered, moved: float = 0.0) -> Alarm | None:
        """What is wrong, if anything; ``moved``: how far the parameters are from the source."""
        found, batch = self.evidence(memory), memory.get("served", 0)
        if moved > self.distance:
            differ = math.nan if found is None else found.disagreement
            return Alarm(batch, 0.0 if found is None else found.images, 2, moved, 0.0, differ)
        if found is None or found.images < self.enough:
            return None
        if found.disagreement <= self.harmless and not memory.get("dense", False):
            return None
        if found.adapted_spread < self.collapse * found.source_spread:
            spreads = (found.adapted_spread, found.source_spread)
            return Alarm(batch, found.images, 0, *spreads, found.disagreement)
        if found.source - found.adapted > self.margin:
            known = (found.adapted, found.source)
            return Alarm(batch, found.images, 1, *known, found.disagreement)
        return None

    def raised(self, memory: Remembered, alarm: Alarm) -> dict[str, Any]:
        """The memory after an alarm that was acted on; the evidence is dropped."""
        alarms = (*memory.get("alarms", ()), alarm._asdict())
        soon = memory.get("since", math.inf) < 4 * memory.get("hold", 0)
        hold = 2 * memory["hold"] if soon else self.hold
        freezes = self.policy == "freeze"
        held = {"hold": hold, "held": hold if freezes else 0, "trial": freezes}
        return {"alarms": alarms, "since": 0, "served": memory.get("served", 0), **held}

    @staticmethod
    def kept(memory: Remembered) -> dict[str, Any]:
        """What survives a new start: alarms and counts, no evidence on a network that is gone."""
        names = ("alarms", "since", "served", "hold", "held", "trial")
        return {name: memory[name] for name in names if name in memory}

    @staticmethod
    def alarms(memory: Remembered) -> tuple[Alarm, ...]:
        """Every alarm that was raised."""
        return tuple(Alarm(**each) for each in memory.get("alarms", ()))

    @staticmethod
    def judge(memory: Remembered) -> None:
        """Raise ``ValueError`` if a saved memory cannot be a guard's."""
        check_counts(memory, _COUNTS)
        for name, most in (("differ", "images"), ("squares", "images"), ("pairs", "pair_count")):
            if not float(memory.get(name, 0.0)) <= 1.01 * float(memory.get(most, 0.0)) + 1e-6:
                raise ValueError(f"`{name}` must be at most `{most}`, got {float(memory[name])}.")
        if not memory.get("disagreement", 0.0) <= 1:
            raise ValueError(f"`disagreement` is a share, got {memory['disagreement']}.")
        for name in ("p", "q"):
            check_shares(memory, name)
            most = memory.get("images", 0.0) * math.log(max(len(memory.get(name, ())), 2))
            if not float(memory.get(f"{name}_entropy", 0.0)) <= 1.01 * most + 1e-6:
                raise ValueError(f"`{name}_entropy` must be at most {most}.")
        Guard.alarms(memory)
