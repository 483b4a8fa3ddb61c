"""The diagnosis as data, its sentence, and its tables."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import counted
from driftnorm.adapter._checks import check_labelled, normalizes_input
from driftnorm.diagnosis.advice import Advice, Outcome, advise, decide, evidence
from driftnorm.diagnosis.findings import DOUBTS, Finding, find
from driftnorm.diagnosis.inventory import Inventory, take_inventory
from driftnorm.diagnosis.trial import METHODS, Batch, DryRun, dry_run
from driftnorm.methods.spec import parse_method
from driftnorm.views.table import Column, Table


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What was found about a network and images.

    Attributes:
        inventory: The batch-norm layers.
        run: What was measured: drift, and each method's trial.
        findings: Warnings, the severe ones first.
        outcome: What adapting will do: ``"help"``; help a ``"little"``; ``"no need"`` (the data are
            as in training); ``"no help"`` (they are not, but statistics do not mend it);
            ``"harm"``; ``"unclear"``; ``"mend"`` something first.
        advice: What to choose, and why.
    """

    inventory: Inventory
    run: DryRun
    findings: tuple[Finding, ...]
    outcome: Outcome
    advice: tuple[Advice, ...]

    def __repr__(self) -> str:
        advice = "".join(f"\n  {each.topic}: {each.choice} ({each.reason})" for each in self.advice)
        return f"Diagnosis: {self.verdict()}{advice}"

    def verdict(self) -> str:
        """The answer in one sentence."""
        if self.outcome == "mend":
            first = self.findings[0]
            answer = "Nothing to adapt" if first.kind == "no-batch-norm" else _ANSWERS["mend"]
            return f"{answer}: {first.text}"
        reason = next((f.text for f in self.findings if f.kind in (*DOUBTS, "folder-order")), "")
        if self.outcome == "unclear" and reason:
            return f"Unclear: {reason}"
        if self.outcome == "unclear" and self.run.trials[0].accuracy is not None:
            return f"Unclear with so few labelled images: {self._evidence()}."
        return f"{_ANSWERS[self.outcome]}: {self._evidence()}."

    def _evidence(self) -> str:
        if self.outcome == "harm" and any(f.kind == "class-order" for f in self.findings):
            return "they come ordered by class, which misleads statistics; shuffle them first"
        source, drift = self.run.trials[0], self.run.drift.mean
        where = "there are no source statistics to compare with"
        if not math.isnan(drift):
            where = f"statistics are {drift:.2f} deviations from the source's"
        best = max(self.run.trials[1:], key=lambda trial: trial.accuracy or 0.0)
        if source.accuracy is not None and best.accuracy is not None and best.gain is not None:
            low, high = 100 * best.gain.low, 100 * best.gain.high
            return (
                f"{where}, and {best.method} is right on {best.accuracy:.1%} of the labelled "
                f"images, the source on {source.accuracy:.1%} (difference {low:+.1f} to "
                f"{high:+.1f} points)"
            )
        adapted = evidence(self.run)
        return (
            f"{where}; with the data's own, entropy goes from {source.entropy:.2f} to "
            f"{adapted.entropy:.2f} and class spread from {source.spread:.2f} to "
            f"{adapted.spread:.2f} (shares of their maximum)"
        )

    def to_json(self) -> str:
        """Everything, as JSON; what is not a number is null."""
        facts = {
            "verdict": self.verdict(),
            "outcome": self.outcome,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "advice": [dataclasses.asdict(advice) for advice in self.advice],
            "inventory": dataclasses.asdict(self.inventory),
            "drift_mean": self.run.drift.mean,
            "drift_chance": self.run.drift.chance,
            **dataclasses.asdict(self.run),
        }
        return json.dumps(_plain(facts), allow_nan=False)

    def tables(self, most_layers: int | None = None) -> tuple[Table, ...]:
        """The methods, the agreement between them, the layers (only the most drifted), theta."""
        thetas = (self._thetas(),) if self.run.thetas else ()
        return (self._methods(), self._agreement(), self._layers(most_layers), *thetas)

    def _methods(self) -> Table:
        labelled = self.run.trials[0].accuracy is not None
        columns = [
            Column("method"),
            Column("entropy", decimals=3),
            Column("spread", decimals=3),
            Column("classes", decimals=0, spare=3),
            Column("alarms", decimals=0, spare=2),
            Column("moved, %", decimals=2, spare=1),
        ]
        rows: list[tuple[str | float | None, ...]] = [
            (t.method, t.entropy, t.spread, t.predicted, t.alarms, 100 * t.moved)
            for t in self.run.trials
        ]
        if labelled:
            columns += [Column("accuracy, %", "highest"), Column("gain"), Column("95 %")]
            for index, trial in enumerate(self.run.trials):
                gain = trial.gain
                score = None if trial.accuracy is None else 100 * trial.accuracy
                margin = (
                    None if gain is None else f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
                )
                rows[index] += (score, None if gain is None else 100 * gain.value, margin)
        note = (
            f"{counted(self.run.images, 'image')} in "
            f"{counted(len(self.run.batch_sizes), 'batch')} of up to "
            f"{max(self.run.batch_sizes)}; entropy of the predictions and spread of the predicted "
            "classes as shares of their maximum; each image predicted when it arrived."
        )
        return Table("What adapting changes", tuple(columns), tuple(rows), note)

    def _agreement(self) -> Table:
        names = [trial.method for trial in self.run.trials]
        rows: list[tuple[str | float | None, ...]] = [
            (trial.method, *(100 * trial.agreement[name] for name in names))
            for trial in self.run.trials
        ]
        columns = (Column("method"), *map(Column, names))
        note = (
            "The accuracies of two methods on these images differ by at most the share on which "
            "they disagree: 90 % in the row of a method under source means at most 10 points "
            "better or worse than your network, unadapted."
        )
        return Table("Images with the same predicted class, in %", columns, tuple(rows), note)

    def _thetas(self) -> Table:
        rows = tuple((f"{theta:g}", worth) for theta, worth in self.run.thetas.items())
        note = (
            "Statistics mixed from the source's (0) and the data's (1). J = (H(mean p) - 4 mean "
            "H(p)) / (H(mean p) + 1/2), over all images, without labels: high where predictions "
            "are sure of each image and varied over all. `theta=auto` of gprebn and bn answers by "
            "the highest. Images that come class by class make large theta look better than it is."
        )
        return Table("How much of the data's statistics", _THETA_COLUMNS, rows, note)

    def _layers(self, most: int | None) -> Table:
        drift = {layer.name: layer for layer in self.run.drift.layers}
        layers = self.inventory.layers
        title = "Batch-norm layers"
        if most is not None and len(layers) > most:
            worst = sorted(drift.values(), key=lambda layer: -layer.mean)[:most]
            kept = {layer.name for layer in worst} or {layer.name for layer in layers[:most]}
            layers = tuple(layer for layer in layers if layer.name in kept)
            title += f", the {len(layers)} most drifted of {len(self.inventory.layers)}"
        columns = (
            Column("layer"),
            Column("kind", align="left", spare=1),
            Column("channels", decimals=0, spare=3),
            Column("affine", align="left", spare=2),
            Column("statistics", align="left", spare=4),
            Column("distance", decimals=3),
            Column("largest", decimals=2),
            Column("by chance", decimals=3, spare=5),
        )
        rows: list[tuple[str | float | None, ...]] = []
        for layer in layers:
            far = drift.get(layer.name)
            affine = "frozen" if layer.frozen else "yes" if layer.affine else "no"
            distances = (None, None, None) if far is None else (far.mean, far.largest, far.chance)
            rows.append(
                (layer.name, layer.kind, layer.channels, affine, layer.statistics, *distances)
            )
        note = (
            f"{self.inventory.summary()} Distance of the data's statistics from the source's: per "
            "channel the Wasserstein "
            "distance of Gaussians, sqrt((difference of means)² + (difference of deviations)²) / "
            "deviation in training; mean and largest over channels; and what this few images give "
            "by chance."
        )
        return Table(title, columns, tuple(rows), note)


_THETA_COLUMNS = (Column("theta"), Column("J", "highest", decimals=3))

_ANSWERS: dict[Outcome, str] = {
    "help": "Adaptation will help, if the images are as varied as they seem",
    "little": "Adaptation makes little difference",
    "no need": "No need to adapt",
    "no help": "The data have drifted, but adapting batch norm is not likely to help",
    "harm": "Do not adapt to these images as they come",
    "unclear": "Unclear without labels on some images",
    "mend": "No verdict yet",
}


def diagnose(
    network: nn.Module,
    batches: Iterable[Tensor | Batch],
    *,
    methods: Sequence[str] = METHODS,
    most_batches: int = 20,
    folders: Sequence[str] = (),
) -> Diagnosis:
    """Finds out whether adapting a network to images will help.

    Args:
        network: Never changed; takes the batches as they are.
        batches: Batches of images (N, C, H, W), or pairs of images and labels (class numbers, -1
            where unknown; they are counted with, and never shown to a method). Read once.
        methods: What to try beside the network as it is, which is always shown (so "source" adds
            nothing); with options as in "bn:running=True".
        most_batches: At most this many batches are read.
        folders: Of each image, if known, to see whether the images come folder by folder; read at
            the end, so it may grow as the batches are read.

    Returns:
        Inventory, drift, trials, findings and advice.
    """
    check_whole("most_batches", most_batches)
    tried = tuple(name for name in dict.fromkeys(methods) if name != "source")
    if not tried:
        raise ValueError("`methods` must name at least one method to try besides the source.")
    for name in tried:
        if parse_method(name).recipe.needs_fit:
            raise ValueError(
                f"`methods`: {name!r} must first see images like those that the network was "
                "trained on, and a diagnosis has none: leave it out."
            )
    if isinstance(batches, Tensor):
        raise TypeError(
            "`batches` must be several batches, got one tensor; pass a data loader, or "
            "`batches.split(64)`."
        )
    inventory = take_inventory(network)
    pairs = (_pair(batch) for batch in batches)
    run = dry_run(network, pairs, tried, most_batches, folders)
    findings = find(inventory, run, normalizes_input(network))
    outcome = decide(run, findings)
    return Diagnosis(inventory, run, findings, outcome, advise(run, inventory, findings, outcome))


def _pair(batch: object) -> Batch:
    """Images and their labels, or images alone."""
    if isinstance(batch, tuple) and len(batch) == 2 and batch[1] is None:
        batch = batch[0]
    return (batch, None) if isinstance(batch, Tensor) else check_labelled(batch, "batches")


def _plain(value: Any) -> Any:
    """Without NaN and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
