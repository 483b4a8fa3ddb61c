"""One sentence that says what the numbers mean for a decision.

It is about the method that one would run, names clear harm first, and says if the network itself is
near chance, so that nothing can be concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from driftnorm._internal.counts import agreeing, counted
from driftnorm.bench.metrics import FEW_LABELS, is_guessing
from driftnorm.views.compare import near_chance
from driftnorm.views.report.groups import Group
from driftnorm.views.report.measure import ACCURACY, ERROR, Measure
from driftnorm.views.report.run_record import Run

Outcome: TypeAlias = Literal["hurts", "helps", "unclear", "unknown"]

USUAL = "steady"
"""The default method of `driftnorm.adapt`."""
_NAMED = 3  # methods that are named one by one
_SLIGHT = 0.1  # points; below this even a certain loss is not worth a headline


def best_method(group: Group) -> str | None:
    """The method with the lowest mean error, the reference only if there is no other."""
    errors = {m: e for m in group.methods if (e := group.error(m)) is not None}
    others = {m: e for m, e in errors.items() if m != group.reference} or errors
    return min(others, key=lambda method: others[method]) if others else None


def usual_method(group: Group) -> str | None:
    """The method that one would run: the default where it was measured, else the best."""
    return USUAL if group.error(USUAL) is not None else best_method(group)


def outcome(group: Group, method: str | None) -> Outcome:
    """What a method's paired interval against the unadapted network says."""
    if method is None or group.reference != "source" or method == "source":
        return "unknown"
    change = group.change(method)
    if change is None:
        return "unknown"
    if change.high < 0:
        return "helps"
    return "hurts" if change.low > 0 else "unclear"


def _harms(group: Group, method: str) -> bool:
    change = group.change(method)
    return outcome(group, method) == "hurts" and change is not None and change.value >= _SLIGHT


def is_near_chance(group: Group) -> bool:
    """Whether the unadapted network is hardly better than chance."""
    answered = [row for method in group.methods for row in group.of(method)]
    return near_chance(group.of("source"), answered)


def group_verdict(group: Group, measure: Measure = ERROR) -> str:
    """What one comparison shows."""
    method, best = usual_method(group), best_method(group)
    if method is None or best is None:
        return f"{group.title}: no stream has rows of every method yet, so there is no verdict."
    found = outcome(group, method)
    if found == "unknown":
        end = measure.best
        return (
            f"{group.title}: {best} has the {end} mean {measure.name}, "
            f"{measure.mean(group.of(best)):.1f} %."
        )
    change = group.change(method)
    assert change is not None
    tried = [m for m in group.methods if m != group.reference]
    who = method
    if method != USUAL and len(tried) > 1:
        who = f"{method}, the best of {counted(len(tried), 'method')} by these labels,"
    doing = {
        "helps": "helps",
        "hurts": "does clear harm",
        "unclear": "makes no clear difference",
    }[found]
    source, own = (measure.mean(group.of(m)) for m in ("source", method))
    gain = measure.change(change)
    numbers = (
        f"{source:.1f} % → {own:.1f} % {measure.name} ({gain.value:+.1f} points, 95 % interval "
        f"{gain.low:+.1f} to {gain.high:+.1f})"
    )
    lead = ""
    if is_near_chance(group):
        lead = "Your network, unadapted, is near chance here, so little can be concluded. "
    harmful = [m for m in tried if m != method and _harms(group, m)]
    if harmful and found != "hurts":
        lead += f"Clear harm by {_names(harmful)}. "
    rest = f"; so {agreeing(len(harmful), 'does', 'do')} {_names(harmful)}" if harmful else ""
    rest = rest if found == "hurts" else ""
    if best != method and outcome(group, best) == "helps":
        rest += (
            f"; the best of {counted(len(tried), 'method')} by these labels is {best}, "
            f"{measure.mean(group.of(best)):.1f} %"
        )
    return f"{lead}{who} {doing} on {group.title}: {numbers}{rest}."


def _names(methods: Sequence[str]) -> str:
    """Such as ``tent, pl and 2 more``."""
    shown = [*methods[:_NAMED]]
    if len(methods) > _NAMED:
        shown.append(f"{len(methods) - _NAMED} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def run_verdict(run: Run, measure: Measure = ACCURACY) -> str:
    """The run in one sentence: by its labels, by what it changed, or its own verdict."""
    record = run.record
    method = record.get("method") or "the adapted network"
    labelled = _labelled(record, method, measure)
    if labelled:
        return labelled
    seen, changed = record.get("compared"), record.get("compared_changed")
    if seen and changed is not None:
        return (
            f"{100 * changed / seen:.0f} % of the predictions differ from those of your network, "
            f"unadapted, with {method} ({changed:,} of {counted(seen, 'image')} that both "
            "predicted); without enough labels, it is unknown which are right."
        )
    if "verdict" in record:
        return str(record["verdict"])
    images, changed = record.get("images"), record.get("changed")
    if images and changed is not None:
        share = f"{changed:,} of {counted(images, 'prediction')} ({100 * changed / images:.1f} %)"
        return f"{run.name}: {method} changed {share}."
    if images is not None:
        return f"{run.name}: {method} gave {counted(images, 'prediction')}."
    return f"{run.name}: {method}."


def _labelled(record: dict[str, Any], method: str, measure: Measure) -> str:
    """Such as ``27 % → 79 % right on 1,000 labelled images, with gprebn``; or nothing."""
    count = record.get("sample", 0)
    source, adapted = (record.get(f"sample_accuracy_{who}") for who in ("source", "adapted"))
    if count < FEW_LABELS or source is None or adapted is None:
        return ""
    before, after = measure.of(1 - source), measure.of(1 - adapted)
    digits = 0 if abs(after - before) >= 2 else 1
    word = "right" if measure.name == "accuracy" else "wrong"
    lead, gain = "", record.get("sample_gain")
    if gain is not None and gain.high < 0:
        lead = "Clear harm: "
    elif gain is not None and gain.low <= 0:
        lead = "No clear difference: "
    guessing = is_guessing(source, len(record.get("classes", ())))
    chance = " Your network, unadapted, is near chance here." if guessing else ""
    return (
        f"{lead}{before:.{digits}f} % → {after:.{digits}f} % {word} on "
        f"{counted(count, 'labelled image')}, with {method}.{chance}"
    )


def overall_verdict(
    groups: Sequence[Group], runs: Sequence[Run], measure: Measure | None = None
) -> str:
    """The sentence at the top of the page."""
    if len(groups) == 1:
        return group_verdict(groups[0], measure or ERROR)
    if not groups and len(runs) == 1:
        return run_verdict(runs[0], measure or ACCURACY)
    if not groups:
        return f"{counted(len(runs), 'run')}; each has its own verdict below."
    found = Counter(outcome(group, usual_method(group)) for group in groups)
    best, times = Counter(best_method(group) for group in groups).most_common(1)[0]
    texts: dict[Outcome, str] = {
        "hurts": "does clear harm in {}",
        "helps": "helps in {}",
        "unclear": "makes no clear difference in {}",
        "unknown": "cannot be judged in {}",
    }
    parts = [texts[key].format(found[key]) for key in texts if found[key]]
    more = f"; {best} is the best method in {times}" if times > 1 and best is not None else ""
    harm = Counter(m for group in groups for m in group.methods if _harms(group, m))
    usual = {usual_method(group) for group in groups}
    others = [f"{method} in {times}" for method, times in harm.most_common() if method not in usual]
    lead = f"Clear harm by {_names(others)}. " if others else ""
    guessing = sum(map(is_near_chance, groups))
    chance = f"; the network itself is near chance in {guessing}" if guessing else ""
    return (
        f"{lead}Adapting {', '.join(parts)} of {counted(len(groups), 'comparison')}{more}{chance}."
    )
