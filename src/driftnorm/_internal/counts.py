"""Numbers with the noun that they count."""

from __future__ import annotations

_HISSING = ("s", "x", "ch", "sh")


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the singular for 1.

    >>> counted(1, "labelled image"), counted(2_000, "batch"), counted(0, "entry")
    ('1 labelled image', '2,000 batches', '0 entries')
    """
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def agreeing(number: int, singular: str, plural: str) -> str:
    """The word that agrees with a number.

    >>> f"{counted(1, 'image')} {agreeing(1, 'was', 'were')} left out"
    '1 image was left out'
    """
    return singular if number == 1 else plural


def _plural(noun: str) -> str:
    if noun.endswith(_HISSING):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
