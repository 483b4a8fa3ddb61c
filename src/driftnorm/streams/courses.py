"""Courses: which domains a stream goes through. A course is a list of segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.names import nearest
from driftnorm.streams.kind import Domain, Kind


class Segment(NamedTuple):
    """A stretch of a stream in which nothing changes but the images.

    Attributes:
        domains: Which domains its images are from; several are mixed, and one that is listed twice
            gives twice as many.
        draw: Which draw of images it shows; segments of one draw show the same.
    """

    domains: tuple[Domain, ...]
    draw: int


@dataclass(frozen=True)
class Course(Kind, ABC):
    """The domains of a stream, in time.

    Attributes:
        part: How many images of a domain a segment shows, drawn without replacement.
    """

    part: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        if self.part != "all":
            check_whole("part", self.part)

    @abstractmethod
    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """What follows what, from the domains in the order in which they were given."""


@dataclass(frozen=True)
class Steady(Course):
    """One domain from start to end: what an adapter meets that is reset before each shift."""

    name: ClassVar[str] = "steady"
    summary: ClassVar[str] = "one shift from start to end (an adapter is reset before each)"

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """The one domain."""
        if len(domains) != 1:
            raise ValueError(
                f"`domains` must hold one domain for a steady stream, got {len(domains)}: make one "
                "stream for each, or take `continual`."
            )
        return [Segment((domains[0],), 0)]


@dataclass(frozen=True)
class Continual(Course):
    """Every domain once, one after the other, in the order given; each draws images of its own."""

    name: ClassVar[str] = "continual"
    summary: ClassVar[str] = "shifts follow each other without notice"

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """One per domain; a domain that is listed twice is met twice."""
        return [Segment((domain,), place) for place, domain in enumerate(domains)]


@dataclass(frozen=True)
class Probes(Course):
    """After every domain a probe, which shows what was forgotten.

    Attributes:
        part: How many images of a domain a segment shows.
        probe: Name of the domain that comes back after each of the others.
    """

    name: ClassVar[str] = "probes"
    summary: ClassVar[str] = "shifts follow each other, with clean images after each"

    probe: str = "clean"

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """Domain, probe, domain, probe and so on."""
        probe = next((each for each in domains if each.name == self.probe), None)
        if probe is None:
            names = [each.name for each in domains]
            raise ValueError(
                f"`probe` must be the name of one of the domains, {', '.join(names)}; got "
                f"{self.probe!r}.{nearest(self.probe, names)} Images of {self.probe!r} must be "
                "among the data, or another domain the probe, as in "
                f"`probes:probe={names[0]}`."
            )
        others = [each for each in domains if each.name != self.probe]
        path = [each for other in others for each in (other, probe)]
        return [Segment((domain,), place) for place, domain in enumerate(path)]


@dataclass(frozen=True)
class Gradual(Course):
    """Every shift rises from its weakest severity to its strongest, and falls again.

    Attributes:
        part: How many images each severity shows.
        falling_first: Whether the first shift only falls from its strongest severity, as in CoTTA's
            code; otherwise it rises and falls like all others.
    """

    name: ClassVar[str] = "gradual"
    summary: ClassVar[str] = "the severity of each shift rises step by step, and falls again"

    falling_first: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.falling_first, bool):
            raise ValueError(f"`falling_first` must be True or False, got {self.falling_first!r}.")

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """Shifts in the order in which they are first named; their severities in any order."""
        path: list[Domain] = []
        for name in dict.fromkeys(domain.name for domain in domains):
            rising = sorted({each for each in domains if each.name == name})
            path += rising[::-1] if self.falling_first and not path else rising + rising[-2::-1]
        if len(path) <= len({domain.name for domain in domains}):
            raise ValueError(
                "`domains` must hold several severities of a shift for a gradual stream, such as "
                "fog 1 to fog 5; each name came with one severity only."
            )
        return [Segment((domain,), place) for place, domain in enumerate(path)]


@dataclass(frozen=True)
class Mixed(Course):
    """All domains at once, in one random order: neighbours are rarely of one domain."""

    name: ClassVar[str] = "mixed"
    summary: ClassVar[str] = "every image is from a random shift"

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """One segment."""
        return [Segment(tuple(domains), 0)]


@dataclass(frozen=True)
class Recurring(Course):
    """The same round of domains several times, with the same images in the same order.

    What differs between two visits of a domain is the state of the adapter alone.

    Attributes:
        part: How many images of a domain a segment shows.
        rounds: How often the round is run.
    """

    name: ClassVar[str] = "recurring"
    summary: ClassVar[str] = "the same round of shifts again and again"

    rounds: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("rounds", self.rounds)

    def segments(self, domains: Sequence[Domain]) -> list[Segment]:
        """The continual stream, repeated."""
        return [
            Segment((domain,), place)
            for _ in range(self.rounds)
            for place, domain in enumerate(domains)
        ]
