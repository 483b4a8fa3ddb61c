"""Numbers with the nouns that they count, and that no message counts in another way."""

import ast
import re
from pathlib import Path

import pytest

from driftnorm._internal.counts import agreeing, counted

ROOT = Path(__file__).parents[2]
NOUNS = """
    alarms? batch(es)? byte(s)? cells? channels? class(es)? comparisons? corruptions? domains?
    entr(y|ies) evaluations? files? images? labels? layers? measurements? methods? pictures?
    predictions? problems? process(es)? rounds? rows? runs? samples? seeds? settings? streams?
    targets? trainings? trials?"""
# What is counted stands next to its number, or one adjective away.
COUNT = re.compile(
    rf" ((batch-norm|labelled|other|more|unreadable) )*({'|'.join(NOUNS.split())})\b"
)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "image", "0 images"),
        (1, "image", "1 image"),
        (2, "labelled image", "2 labelled images"),
        (1_000, "batch", "1,000 batches"),
        (3, "class", "3 classes"),
        (2, "entry", "2 entries"),
        (1, "entry", "1 entry"),
        (2, "day", "2 days"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_a_verb_agrees_with_its_number() -> None:
    assert [agreeing(n, "is", "are") for n in (0, 1, 2)] == ["are", "is", "are"]


def counts_by_hand(source: str) -> list[str]:
    """F-strings of a module that put a noun behind a number themselves."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            what = ast.unparse(value.value)
            number = re.match(r"len\(|sum\(|\w*count\b|images$|rows$", what)
            if number and COUNT.match(text.value):
                found.append(f"line {node.lineno}: {{{what}}}{text.value!s}")
    return found


@pytest.mark.parametrize("folder", ["src/driftnorm", "docs/tools"])
def test_messages_count_in_one_way(folder: str) -> None:
    by_hand = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text()
        if found := counts_by_hand(source):
            by_hand[str(path)] = found
        # "image(s)" in a string, not str(s) in code
        strings = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
        guesses = [s for s in strings if isinstance(s, str) and re.search(r"[a-z]\((e?s)\)", s)]
        assert not guesses, f"{path}: say counted(...): {guesses}"
    assert not by_hand, by_hand


def test_a_count_by_hand_is_noticed() -> None:
    assert counts_by_hand("f'{len(x)} images'")
    assert counts_by_hand("f'{count:,} labelled images'")
    assert not counts_by_hand("f'{len(x)} of them'")
