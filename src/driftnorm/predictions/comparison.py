"""The source's answers beside the adapted network's: on a sample, or on all that is labelled."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence

from driftnorm._internal.counts import counted
from driftnorm.bench.metrics import FEW_LABELS, counted_interval, is_guessing
from driftnorm.bench.samples import thumbnail
from driftnorm.diagnosis.advice import TELLS_LESS, TELLS_MORE
from driftnorm.images import Item
from driftnorm.predictions.answers_file import Answer, empty_bins, place_in_bin

# Without labels: every batch until this many images are compared, so that a short run is judged by
# more than one batch. The guard asks about as many in the first three.
# Then until one image in 200 is: those that the guard asks about anyway count, so that this asks
# about at most 0.5 % of the stream.
ENOUGH, SHARE = 96, 0.005
COMPARED_IMAGES = 32  # of a batch, at most
MOST_EXAMPLES = 12


@dataclasses.dataclass
class Comparison:
    """Sums over the images that both networks predicted; all of it fit for JSON.

    Attributes:
        images: How many; ``changed`` of them have another predicted class.
        entropy: Of the source, of the adapted network; shares of the maximum, summed.
        confidence: Likewise.
        predicted: How often the source, and the adapted network, gave each class (by number).
        classes: How many the network distinguishes.
        judged: Labelled ones; how many the source, and the adapted network, had right.
        both_right: How many of those both had right.
        source_bins: The source's answers to them by confidence, as `Tally.bins`.
        examples: Some of the changed ones, drawn from all of them.
    """

    images: int = 0
    changed: int = 0
    entropy: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    confidence: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    predicted: list[dict[str, int]] = dataclasses.field(default_factory=lambda: [{}, {}])
    classes: int = 2
    judged: list[int] = dataclasses.field(default_factory=lambda: [0, 0, 0])
    both_right: int = 0
    source_bins: list[list[float]] = dataclasses.field(default_factory=empty_bins)
    examples: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def wants(self, seen: int) -> bool:
        """Whether to show an unlabelled batch to the source, after this many images."""
        return self.images < max(ENOUGH, SHARE * seen)

    def add(
        self,
        shown: Sequence[tuple[Item, Answer, int | None]],
        before: Sequence[Answer],
        classes: Sequence[str],
    ) -> None:
        """Count images with the adapted network's answers and labels, and the source's answers."""
        self.classes = max(len(classes), 2)
        for (item, after, label), source in zip(shown, before, strict=True):
            if after.choice is None or source.choice is None:
                continue
            self.images += 1
            for given, choice in zip(self.predicted, (source.choice, after.choice), strict=True):
                given[str(choice)] = given.get(str(choice), 0) + 1
            self.entropy = [self.entropy[0] + source.entropy, self.entropy[1] + after.entropy]
            self.confidence = [
                self.confidence[0] + source.confidence,
                self.confidence[1] + after.confidence,
            ]
            if label is not None:
                right = (1, int(source.choice == label), int(after.choice == label))
                self.judged = [a + b for a, b in zip(self.judged, right, strict=True)]
                self.both_right += right[1] * right[2]
                place_in_bin(self.source_bins, source.confidence, source.choice == label)
            if after.choice != source.choice:
                self.changed += 1
                place = self._place_of_example()
                if place < MOST_EXAMPLES and item.pixels is not None:
                    about = {
                        "name": item.name,
                        "source": classes[source.choice],
                        "adapted": classes[after.choice],
                        "image": thumbnail(item.pixels),
                    }
                    if label is not None:
                        about["label"] = classes[label]
                    self.examples[place : place + 1] = [about]

    def _place_of_example(self) -> int:
        """Where the newest changed image goes, so that all had the same chance to be shown.

        Reservoir sampling, with a new generator for each: a resumed run shows the same ones.
        """
        if len(self.examples) < MOST_EXAMPLES:
            return len(self.examples)
        return random.Random(self.changed).randrange(self.changed)

    def verdict(self) -> str:
        """What adapting changed on the sample: what labels prove, or else what cannot be known."""
        entropy = [total / self.images for total in self.entropy]
        confidence = [100 * total / self.images for total in self.confidence]
        spread = [self._spread(given) for given in self.predicted]
        changed = (
            f"On {counted(self.images, 'image')} that were also shown to the source, "
            f"{100 * self.changed / self.images:.1f} % of the answers differ, so accuracy on "
            "them differs by at most as many points; mean entropy goes "
            f"from {entropy[0]:.3f} to {entropy[1]:.3f} and class spread from {spread[0]:.3f} to "
            f"{spread[1]:.3f} (shares of their maximum), mean confidence from "
            f"{confidence[0]:.1f} to {confidence[1]:.1f} %"
        )
        if self.judged[0]:
            return f"{self._judgement()} {changed}."
        # As `driftnorm diagnose` reads them: surer each, or more varied together.
        tells = (spread[1] - entropy[1]) - (spread[0] - entropy[0])
        how = "the predictions are about as informative as before: no sign that adapting helps"
        if tells > TELLS_MORE:
            how = (
                "the predictions are more informative, which on varied images speaks for adapting "
                "but is not proof"
            )
        elif tells < TELLS_LESS:
            how = "the predictions are less informative, which speaks against adapting"
        return f"{changed}: {how}."

    def _spread(self, given: Mapping[str, int]) -> float:
        """Entropy of the predicted classes' shares, as a share of its maximum."""
        shares = (count / self.images for count in given.values())
        return sum(share * math.log(1 / share) for share in shares) / math.log(self.classes)

    def _judgement(self) -> str:
        """The paired difference of the two accuracies, and whether chance could explain it."""
        count, source, adapted = self.judged
        won, lost = adapted - self.both_right, source - self.both_right
        gain, low, high = (100 * value for value in counted_interval(count, won, lost))
        finding = "Adapting makes no clear difference"
        if count < FEW_LABELS:
            return (
                f"Too few labels to judge: of {counted(count, 'labelled image')} that both "
                f"answered, the source has {source:,} right, the adapted network {adapted:,}."
            )
        if low > 0:
            finding = "Adapting helps"
        elif high < 0:
            finding = "Adapting hurts"
        guessing = is_guessing(source / count, self.classes)
        chance = " The source is near chance here." if guessing else ""
        return (
            f"{finding}: of {counted(count, 'labelled image')} that both answered, the source has "
            f"{100 * source / count:.1f} % right, the adapted network "
            f"{100 * adapted / count:.1f} % ({gain:+.1f} points, 95 % interval {low:+.1f} to "
            f"{high:+.1f}).{chance}"
        )
