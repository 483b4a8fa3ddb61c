"""Flags that several commands share, each declared once; nothing here imports torch.

`docs/command-line.md` has the conventions: `--out` for what is written, a plural where several
values can be given, and spaces between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from cyclopts import Group, Parameter, Token, convert, validators

FIRST = Group.create_default_parameters()
"""Flags of no other group."""
NETWORK = Group("How the network is opened", sort_key=1)
TRAINING = Group("How the networks are trained", sort_key=1)
RARE = Group("Rarely needed", sort_key=2)


def _spaced(kind: Any, tokens: Sequence[Token]) -> Any:
    """Convert the values of a list, which have spaces between them."""
    # A path may contain a comma, and so may a method's options: gprebn:theta=0.5,momentum=0.1.
    values = [token.value for token in tokens if ":" not in token.value]
    if Path not in get_args(kind) and any("," in value for value in values):
        flag = tokens[0].keyword or ""
        right = " ".join(token.value.replace(",", " ") for token in tokens)
        raise ValueError(f"values have spaces between them: `{flag} {' '.join(right.split())}`.")
    return convert(kind, tokens)


SWITCH = Parameter(negative="")
"""On when given; there is no flag that turns it off."""

MANY = Parameter(consume_multiple=True, negative="", converter=_spaced)
"""Several values after one flag, with spaces between them."""

OUT = Parameter(alias="-o")
"""What a command writes, a file or a folder."""

SPREAD = Parameter(name="*")
"""The fields of a dataclass are flags of the command itself."""

Quiet: TypeAlias = Annotated[bool, SWITCH, Parameter(help="Print nothing but errors.")]
AsJson: TypeAlias = Annotated[
    bool, SWITCH, Parameter(name="--json", help="Print JSON; everything else goes to stderr.")
]
DryRun: TypeAlias = Annotated[
    bool, SWITCH, Parameter(help="Only print what would run, and how long it would take.")
]
Device: TypeAlias = Annotated[str, Parameter(help="Where to compute: cpu, cuda, mps.")]
Workers: TypeAlias = Annotated[
    int | None, Parameter(help="Processes, one thread each; default: one per core.")
]
Threads: TypeAlias = Annotated[
    int | None,
    Parameter(
        group=RARE,
        validator=validators.Number(gte=1),
        help="Threads per process; default: one per core.",
    ),
]
Hours: TypeAlias = Annotated[float | None, Parameter(validator=validators.Number(gt=0))]
"""A time budget."""
Settings: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--set", negative=(), show_default=False)
]
"""Words `name=value`, one per flag."""
Cache: TypeAlias = Annotated[str | None, Parameter(group=RARE, help="Folder for decoded images.")]
Frost: TypeAlias = Annotated[
    str | None,
    Parameter(
        group=RARE,
        help="Folder of frost's overlays, or `procedural` for a stand-in; default: "
        "$DRIFTNORM_FROST, or an installed package.",
    ),
]
