"""Streams as objects: a course of domains and an order of labels, without torch.

    stream = Stream(Continual(part=1600), (Sorted(),), seed=0)
    positions = stream.positions(labels, [Domain("clean"), Domain("fog", 5)])

A stream says which image of which domain comes when. To add a kind: a class in `courses.py`,
`orders.py` or `dirichlet.py`, and its name in `composition.py`.
"""

from __future__ import annotations

from driftnorm.streams.composition import COURSES, ORDERS, STREAMS, Stream, parse_stream
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
from driftnorm.streams.kind import Domain
from driftnorm.streams.orders import LabelShift, LongTail, Order, Sorted
from driftnorm.streams.positions import Positions, load_positions
from driftnorm.streams.timeline import Timeline, mean_run, order_index

__all__ = [
    "COURSES",
    "ORDERS",
    "STREAMS",
    "BalancedDirichlet",
    "Continual",
    "Course",
    "Domain",
    "Gradual",
    "LabelShift",
    "LongTail",
    "Mixed",
    "Order",
    "Positions",
    "Probes",
    "Recurring",
    "Segment",
    "SlottedDirichlet",
    "Sorted",
    "Steady",
    "Stream",
    "Timeline",
    "load_positions",
    "mean_run",
    "order_index",
    "parse_stream",
]
