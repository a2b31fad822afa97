"""Registry of the attribution methods, by the names that users type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from analyzer.inquiry.errors import UnknownMethod
from analyzer.inquiry.method import AttributionMethod
from analyzer.lab.published import (
    PUBLISHED,
    AllAtOnce,
    AsPublished,
    BinarySearch,
    ConstantAgent,
    ConstantStep,
    Fidelity,
    FirstAgentStep,
    Hybrid,
    RandomStep,
    StepByStep,
)
from analyzer.methods.bisect import Bisect
from analyzer.methods.history import History
from analyzer.methods.investigate import Investigate
from analyzer.methods.judge import Judge
from analyzer.methods.pooling import Sampled
from analyzer.methods.verify import Verify
from analyzer.methods.without_model import LearnedRanking, Signals

AUTO: Final = "auto"
"""Not a method: with it, ``attribution.py`` chooses between ranker, judge and signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A method's entry in the registry."""

    build: Callable[[int, str], AttributionMethod]
    """Builds the method, given the bytes of a run's text that fit into a prompt, and the marker."""
    needs_model: bool


Build: TypeAlias = Callable[..., AttributionMethod]


def _asking(method: Build) -> Registered:
    return Registered(build=lambda limit, marker: method(max_bytes=limit, marker=marker), needs_model=True)


def _plain(method: Build) -> Registered:
    """Return the entry of a method that renders runs without structure, and so needs no marker."""
    return Registered(build=lambda limit, _marker: method(max_bytes=limit), needs_model=True)


def _silent(method: Build) -> Registered:
    return Registered(build=lambda _bytes, _marker: method(), needs_model=False)


MOST_VOTES: Final = 20
_COUNTS: Final = frozenset(str(count) for count in range(1, MOST_VOTES + 1))

METHODS: Final[Mapping[str, Registered]] = {
    "signals": _silent(Signals),
    "ranker": _silent(LearnedRanking),  # an ``Attributor`` with a trained ranker passes it on
    "history": _silent(History),  # an ``Attributor`` that knows other runs passes them on
    "judge": _asking(Judge),
    "investigate": _asking(Investigate),
    "verify": _asking(Verify),
    "bisect": _asking(Bisect),
    "all-at-once": _plain(AllAtOnce),
    "step-by-step": _plain(StepByStep),
    "binary-search": _plain(BinarySearch),
    "hybrid": _plain(Hybrid),
    "random": _silent(RandomStep),
    "first-agent-step": _silent(FirstAgentStep),
    "constant": _silent(ConstantStep),
    "constant-agent": _silent(ConstantAgent),
}


_REFERENCES: Final[Mapping[str, Build]] = {
    "all-at-once": partial(AllAtOnce, fidelity=Fidelity.PUBLISHED),
    "step-by-step": StepByStep,
    "binary-search": BinarySearch,
    "hybrid": partial(Hybrid, fidelity=Fidelity.PUBLISHED),
}
"""Methods that ``PUBLISHED`` may follow."""


def registered(name: str) -> Registered:
    """Look up a method; ``judge*3`` is the judge asked three times with its verdicts pooled.

    Raises:
        UnknownMethod: no method has that name; the message lists the known ones.
    """
    base, star, count = name.partition("*")
    base, at, published = base.partition("@")
    entry = METHODS.get(base)
    if entry is None or (star and not (entry.needs_model and count in _COUNTS)):
        names = ", ".join((AUTO, *METHODS))
        raise UnknownMethod(
            f"unknown method {name!r}: expected one of {names}; one that asks a model may be followed"
            f" by *2 to *{MOST_VOTES}, votes that are pooled"
        )
    if at:
        if at + published != PUBLISHED or base not in _REFERENCES:
            known = ", ".join(_REFERENCES)
            raise UnknownMethod(f"method {name!r}: only {known} may be followed by {PUBLISHED}")
        method = _REFERENCES[base]
        entry = replace(entry, build=lambda limit, _marker: AsPublished(method=method(max_bytes=limit)))
    if not star:
        return entry
    one, votes = entry.build, int(count)
    return replace(entry, build=lambda limit, marker: Sampled(method=one(limit, marker), samples=votes))
