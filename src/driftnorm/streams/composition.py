"""A stream: a course of domains, orders of labels within its segments, and a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import counted
from driftnorm._internal.names import nearest
from driftnorm._internal.options import Options, options_text, read_joined
from driftnorm._internal.types import Integers
from driftnorm.streams.courses import (
    Continual,
    Course,
    Gradual,
    Mixed,
    Probes,
    Recurring,
    Segment,
    Steady,
)
from driftnorm.streams.dirichlet import BalancedDirichlet, SlottedDirichlet
from driftnorm.streams.kind import Domain, Kind
from driftnorm.streams.orders import LabelShift, LongTail, Order, Sorted
from driftnorm.streams.positions import Positions

AnyKind = TypeVar("AnyKind", bound=Kind)

COURSES: dict[str, type[Course]] = {
    kind.name: kind for kind in (Steady, Continual, Probes, Gradual, Mixed, Recurring)
}
ORDERS: dict[str, type[Order]] = {
    kind.name: kind for kind in (Sorted, BalancedDirichlet, SlottedDirichlet, LabelShift, LongTail)
}
STREAMS: dict[str, type[Kind]] = {**COURSES, **ORDERS}
"""Every kind by name, with a `summary`; an order alone is one within `continual`."""


@dataclass(frozen=True)
class Stream:
    """Which image of which domain comes when: a pure function of labels, domains and a seed.

    How many images make a batch, and when an adapter is reset, are not its matter.

    Attributes:
        course: Which domains follow each other.
        order: How labels come within a segment, one step after the other: a long tail can be put
            in Dirichlet order. Nothing is random order.
        seed: Of all that is drawn. An order does not change which images its segment draws.

    >>> stream = Stream(Continual(part=100), (Sorted(),), seed=3)
    >>> str(stream)
    'continual+sorted:part=100,seed=3'
    >>> found = stream.positions(np.arange(400) % 10, [Domain("clean"), Domain("fog", 5)])
    >>> found.domain[[0, 99, 100, 199]], found.label[[0, 99]]
    (array([0, 0, 1, 1]), array([0, 9]))
    """

    course: Course
    order: tuple[Order, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, 0)
        names = Counter(name for kind in self.kinds for name, _ in kind.settings)
        if double := [name for name, times in names.items() if times > 1]:
            raise ValueError(
                f"`order` must not hold two orders with the same parameter, here `{double[0]}`: "
                "the stream's settings could not tell them apart."
            )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The course and the orders."""
        return (self.course, *self.order)

    @property
    def kind(self) -> str:
        """Names of the course and the orders, such as ``continual+sorted``."""
        return "+".join(kind.name for kind in self.kinds)

    @property
    def settings(self) -> Options:
        """Every parameter but the seed, by name."""
        return tuple(sorted(pair for kind in self.kinds for pair in kind.settings))

    def __str__(self) -> str:
        return f"{self.kind}:{options_text((*self.settings, ('seed', self.seed)))}"

    @classmethod
    def of(cls, kind: str, settings: Options = (), seed: int = 0) -> Stream:
        """The stream with this `kind` and these `settings`; the others are the defaults."""
        names = kind.split("+")
        if names[0] in ORDERS:
            names.insert(0, Continual.name)
        given = dict(settings)
        course = _made(names[0], COURSES, given)
        order = tuple(_made(name, ORDERS, given) for name in names[1:])
        if given:
            name, known = (
                min(given),
                [name for each in (course, *order) for name, _ in each.settings],
            )
            raise ValueError(
                f"`{name}` is not a parameter of {kind!r}, which has {', '.join(known)}."
                f"{nearest(name, known)}"
            )
        return cls(course, order, seed)

    def positions(
        self,
        labels: NDArray[np.integer[Any]] | Mapping[Domain, NDArray[np.integer[Any]]],
        domains: Sequence[Domain],
    ) -> Positions:
        """What the stream shows.

        Args:
            labels: Class numbers of the images, which are the same under every domain; or those of
                each domain, where domains have images of their own.
            domains: In the order in which the course takes them. One that is listed twice is met
                twice.
        """
        known = tuple(dict.fromkeys(Domain(*domain) for domain in domains))
        if not known:
            raise ValueError("`domains` must hold at least one domain, got none.")
        if isinstance(labels, Mapping):
            if missing := [domain for domain in known if domain not in labels]:
                raise ValueError(
                    f"`labels` has none for {missing[0].name!r} of severity {missing[0].severity}, "
                    "which is one of the `domains`."
                )
            classes = {domain: _checked(labels[domain], domain) for domain in known}
        else:
            classes = dict.fromkeys(known, _checked(labels, known[0]))
        visits: Counter[Domain] = Counter()
        columns: list[NDArray[np.int64]] = []
        for place, segment in enumerate(self.course.segments([Domain(*d) for d in domains])):
            generator = np.random.default_rng([self.seed, segment.draw])
            image, source = self._drawn(segment, known, classes, generator)
            label = np.empty_like(image)
            for index in np.unique(source):
                label[source == index] = classes[known[index]][image[source == index]]
            for order in self.order:
                chosen = order.arranged(label, generator)
                image, source, label = image[chosen], source[chosen], label[chosen]
            earlier = np.array([visits[domain] for domain in known])[source]
            columns.append(np.stack([image, label, source, np.full_like(image, place), earlier]))
            visits.update(set(segment.domains))
        return Positions(str(self), known, *np.concatenate(columns, axis=1))

    def _drawn(
        self,
        segment: Segment,
        known: Sequence[Domain],
        classes: Mapping[Domain, Integers],
        generator: np.random.Generator,
    ) -> tuple[Integers, Integers]:
        """The images of a segment in random order, and the domain of each."""
        images, sources = [], []
        for domain in segment.domains:
            count = len(classes[domain])
            part = count if self.course.part == "all" else self.course.part
            if part > count:
                raise ValueError(
                    f"`part` must not be larger than a domain, and {domain.name!r} has "
                    f"{counted(count, 'image')}; got {part}. Take a smaller part, or `part=all`."
                )
            images.append(generator.permutation(count)[:part])
            sources.append(np.full(part, known.index(domain), dtype=np.int64))
        image, source = np.concatenate(images), np.concatenate(sources)
        if len(images) > 1:
            shuffled = generator.permutation(len(image))
            image, source = image[shuffled], source[shuffled]
        return image, source


def parse_stream(text: str) -> Stream:
    """Read what people write; `str` of a stream is the full form.

    >>> str(parse_stream("recurring:rounds=3+dirichlet-slots:slots=10,part=500"))
    'recurring+dirichlet-slots:concentration=0.1,part=500,rounds=3,slots=10,seed=0'
    """
    kind, options = read_joined(text, "+")
    settings = dict(options)
    seed = settings.pop("seed", 0)
    return Stream.of(kind, tuple(settings.items()), seed)


def _made(name: str, kinds: Mapping[str, type[AnyKind]], given: dict[str, Any]) -> AnyKind:
    """A kind with its parameters, which are taken out of `given`."""
    if name not in kinds:
        role = "a course of domains" if kinds is COURSES else "an order of labels"
        raise ValueError(
            f"{name!r} is not {role}; known are {', '.join(kinds)}. A stream is a course and any "
            f"orders, such as `continual+sorted`.{nearest(name, kinds)}"
        )
    own = {
        field.name: given.pop(field.name) for field in fields(kinds[name]) if field.name in given
    }
    return kinds[name](**own)


def _checked(labels: NDArray[np.integer[Any]], domain: Domain) -> Integers:
    found = np.asarray(labels)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu" or found.min() < 0:
        raise ValueError(
            f"`labels` must be class numbers, 0 or greater, one per image, got an array of shape "
            f"{found.shape} and type {found.dtype} for {domain.name!r}."
        )
    return found.astype(np.int64)
