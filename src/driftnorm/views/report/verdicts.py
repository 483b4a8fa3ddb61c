"""One sentence that says what the numbers mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

from driftnorm.views.report.gather import Run
from driftnorm.views.report.groups import Group

Outcome: TypeAlias = Literal["helps", "hurts", "unclear", "unknown"]

__all__ = ["best_method", "group_verdict", "overall_verdict", "run_verdict"]


def best_method(group: Group) -> str | None:
    """The method with the lowest mean error, the reference only if there is no other."""
    errors = {m: e for m in group.methods if (e := group.error(m)) is not None}
    others = {m: e for m, e in errors.items() if m != group.reference} or errors
    return min(others, key=lambda method: others[method]) if others else None


def outcome(group: Group) -> Outcome:
    """What the best method's paired interval against the unadapted network says."""
    best = best_method(group)
    if best is None or group.reference != "source" or best == "source":
        return "unknown"
    change = group.change(best)
    if change is None:
        return "unknown"
    if change.high < 0:
        return "helps"
    return "hurts" if change.low > 0 else "unclear"


def group_verdict(group: Group) -> str:
    """What one comparison shows."""
    best = best_method(group)
    if best is None:
        return f"{group.title}: no stream was met by every method yet, so there is no verdict."
    error, found = group.error(best), outcome(group)
    if found == "unknown":
        return f"{group.title}: {best} has the lowest mean error, {error:.1f} %."
    change, base = group.change(best), group.error(group.reference)
    assert change is not None
    numbers = (
        f"{error:.1f} % mean error against {base:.1f} % unadapted "
        f"({change.value:+.1f} points, 95 % interval {change.low:+.1f} to {change.high:+.1f})"
    )
    tried = [method for method in group.methods if method != group.reference]
    several = f" of {len(tried)} methods by these labels" if len(tried) > 1 else ""
    openings = {
        "helps": f"Adapting helps on {group.title}: {best} is the best{several}, with",
        "hurts": f"Adapting hurts on {group.title}: even the best method, {best}, has",
        "unclear": f"Adapting makes no clear difference on {group.title}: {best} has",
    }
    return f"{openings[found]} {numbers}{_harm(group, tried) if found == 'helps' else ''}."


def _harm(group: Group, tried: Sequence[str]) -> str:
    """How many of the methods that one may have chosen do worse than no adaptation."""
    changes = [change for method in tried if (change := group.change(method)) is not None]
    worse = sum(change.low > 0 for change in changes)
    return f"; {worse} of the {len(tried)} {'does' if worse == 1 else 'do'} harm" if worse else ""


def run_verdict(run: Run) -> str:
    """The run's own sentence, or what its numbers say."""
    record = run.record
    if isinstance(record.get("verdict"), str):
        return str(record["verdict"])
    method = record.get("method", "the adapted network")
    images, changed = record.get("images"), record.get("changed")
    if isinstance(images, int) and isinstance(changed, int) and images > 0:
        share = f"{changed:,} of {images:,} predictions ({100 * changed / images:.1f} %)"
        return f"{run.name}: {method} changed {share}."
    if isinstance(images, int):
        return f"{run.name}: {method} gave {images:,} predictions."
    return f"{run.name}: {method}."


def overall_verdict(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    """The sentence at the head of the page."""
    if len(groups) == 1:
        return group_verdict(groups[0])
    if not groups and len(runs) == 1:
        return run_verdict(runs[0])
    if not groups:
        return f"{len(runs)} runs; each has its own verdict below."
    found = Counter(outcome(group) for group in groups)
    best, times = Counter(best_method(group) for group in groups).most_common(1)[0]
    texts: dict[Outcome, str] = {
        "helps": "helps in {}",
        "hurts": "hurts in {}",
        "unclear": "makes no clear difference in {}",
        "unknown": "cannot be judged in {}",
    }
    parts = [texts[key].format(found[key]) for key in texts if found[key]]
    shown = times > 1 and best is not None
    more = f"; {best} is the best method in {times}" if shown else ""
    return f"Adapting {', '.join(parts)} of {len(groups)} comparisons{more}."
