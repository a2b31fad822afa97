"""Registry of the attribution methods, by the names that users type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from analyzer.inquiry.errors import UnknownMethod
from analyzer.inquiry.method import AttributionMethod
from analyzer.lab.baselines import ConstantAgent, ConstantStep, FirstAgentStep, RandomStep
from analyzer.lab.published import (
    PUBLISHED,
    AllAtOnce,
    AsPublished,
    BinarySearch,
    Fidelity,
    Hybrid,
    StepByStep,
)
from analyzer.methods.bisect import Bisect
from analyzer.methods.history import History
from analyzer.methods.investigate import Investigate
from analyzer.methods.judge import Judge
from analyzer.methods.verify import Verify
from analyzer.methods.votes import Sampled
from analyzer.methods.without_model import LearnedRanking, Signals

AUTO: Final = "auto"
"""Not a method: with it, ``attribution.py`` chooses between ranker, judge and signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A method's entry in the registry."""

    build: Callable[[int, str], AttributionMethod]
    """Builds the method, given the bytes of a run's text that fit into a prompt, and the marker."""
    needs_model: bool
    summary: str
    """One line for ``--help``."""


Build: TypeAlias = Callable[..., AttributionMethod]


def _asking(method: Build, summary: str) -> Registered:
    return Registered(
        build=lambda limit, marker: method(max_bytes=limit, marker=marker), needs_model=True, summary=summary
    )


def _plain(method: Build, summary: str) -> Registered:
    """Return the entry of a method that renders runs without structure, and so needs no marker."""
    return Registered(build=lambda limit, _marker: method(max_bytes=limit), needs_model=True, summary=summary)


def _silent(method: Build, summary: str) -> Registered:
    return Registered(build=lambda _bytes, _marker: method(), needs_model=False, summary=summary)


MOST_VOTES: Final = 20
_COUNTS: Final = frozenset(str(count) for count in range(1, MOST_VOTES + 1))

METHODS: Final[Mapping[str, Registered]] = {
    "signals": _silent(Signals, "evidence per step, no model, microseconds"),
    "ranker": _silent(  # an ``Attributor`` with a trained ranker passes it on
        LearnedRanking, "learned from labelled runs of your own system (BLAMESPAN_RANKER), milliseconds"
    ),
    "history": _silent(  # an ``Attributor`` that knows other runs passes them on
        History, "what other runs of the same workflow did differently, milliseconds"
    ),
    "judge": _asking(Judge, "one call over the indexed run, with evidence and ranking"),
    "investigate": _asking(
        Investigate, "a reader with an influence graph and reading tools, up to 8 calls and 60k tokens"
    ),
    "verify": _asking(
        Verify, "judge and three criteria in up to two rounds, 4 to 8 calls (arXiv:2509.06822)"
    ),
    "bisect": _asking(Bisect, "noisy binary search over the steps, about 15 to 30 calls (arXiv:0910.4397)"),
    "all-at-once": _plain(
        AllAtOnce, "reference method: the whole log, one free-text answer (arXiv:2505.00212)"
    ),
    "step-by-step": _plain(StepByStep, "reference method: asks of each step in turn (arXiv:2505.00212)"),
    "binary-search": _plain(
        BinarySearch, "reference method: asks in which half, until one step is left (arXiv:2505.00212)"
    ),
    "hybrid": _plain(Hybrid, "reference method: all-at-once for the agent, step-by-step for its step"),
    "random": _silent(RandomStep, "baseline: a step at random"),
    "first-agent-step": _silent(FirstAgentStep, "baseline: the first step of an agent after step 0"),
    "constant": _silent(ConstantStep, "baseline: always step 1"),
    "constant-agent": _silent(
        ConstantAgent, "baseline: the first step of the agent most often to blame in the other folds"
    ),
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
