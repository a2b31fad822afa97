"""Which runs are runs of the same workflow, and why.

Two runs belong together if the same service ran them under the same name, and at least half of the agents
of the smaller one took part in the other: a run that broke off early has few agents, and its workflow's
other runs have them all. A name alone is not enough, because ``POST /chat`` may start any workflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from semconv.model import Trajectory
from semconv.record import record

LEAST_SHARED: Final = 0.5
"""Share of the smaller run's agents that the other run must have."""
_NAMED: Final = 4
"""Names listed in a reason."""


@record
class Shape:
    """The names by which a run is recognised."""

    service: str
    name: str
    """The workflow's name, or its root's, without parts that change from run to run."""
    agents: tuple[str, ...]
    """In order of first appearance."""
    edges: frozenset[tuple[str, str]]
    """Pairs of agents that followed one another."""


@record
class Kinship:
    """Whether two runs are of the same workflow."""

    is_same: bool
    reasons: tuple[str, ...]
    """The equal and the different parts, as prose."""


def shape_of(trajectory: Trajectory, service: str, name: str) -> Shape:
    """Return a run's shape."""
    order = [step.agent for step in trajectory.steps]
    return Shape(
        service=service,
        name=name,
        agents=tuple(dict.fromkeys(order)),
        edges=frozenset((one, other) for one, other in pairwise(order) if one != other),
    )


def kinship(one: Shape, other: Shape) -> Kinship:
    """Compare two runs' shapes."""
    shared = [agent for agent in one.agents if agent in other.agents]
    enough = has_shared_agents(one.agents, other.agents)
    reasons = (
        _equal("service", one.service, other.service),
        _equal("name", one.name, other.name),
        f"{len(shared)} of {len(one.agents)} and {len(other.agents)} agents in common{_listed(shared)}",
        f"{len(one.edges & other.edges)} of {len(one.edges | other.edges)} transitions in common",
    )
    is_same = (one.service, one.name) == (other.service, other.name) and enough
    return Kinship(is_same=is_same, reasons=reasons)


def has_shared_agents(one: Iterable[object], other: Iterable[object]) -> bool:
    """Return whether enough of the smaller run's agents, by name or digest, are in the other run."""
    ours, theirs = frozenset(one), frozenset(other)
    smaller = min(len(ours), len(theirs))
    return not smaller or len(ours & theirs) >= LEAST_SHARED * smaller


def _equal(what: str, one: str, other: str) -> str:
    if one == other:
        return f"same {what} {one!r}" if one else f"no {what} is recorded"
    return f"another {what}: {one!r} and {other!r}"


def _listed(names: list[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"
