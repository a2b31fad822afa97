"""The attribution methods, by the names that users type. One method a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from analyzer.errors import UnknownMethod
from analyzer.method import AttributionMethod
from analyzer.methods.all_at_once import AllAtOnce
from analyzer.methods.baselines import ConstantAgent, ConstantStep, FirstAgentStep, RandomStep
from analyzer.methods.binary_search import BinarySearch
from analyzer.methods.bisect import Bisect
from analyzer.methods.hybrid import Hybrid
from analyzer.methods.investigate import Investigate
from analyzer.methods.judge import Judge
from analyzer.methods.panel import Panel
from analyzer.methods.ranker import LearnedRanking
from analyzer.methods.signals import Signals
from analyzer.methods.step_by_step import StepByStep
from analyzer.methods.verify import Verify
from analyzer.methods.votes import Sampled

AUTO: Final = "auto"
"""Not a method: ``attribution.py`` decides between ranker, judge and signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A method as the registry knows it."""

    build: Callable[[int], AttributionMethod]
    """Makes the method, given how many bytes of a run's text fit into a prompt."""
    needs_model: bool
    summary: str
    """One line for ``--help``."""


MOST_VOTES: Final = 20
_COUNTS: Final = frozenset(str(count) for count in range(1, MOST_VOTES + 1))

METHODS: Final[Mapping[str, Registered]] = {
    "signals": Registered(
        build=lambda _bytes: Signals(), needs_model=False, summary="evidence per step, no model, microseconds"
    ),
    "ranker": Registered(
        build=lambda _bytes: LearnedRanking(),  # an ``Attributor`` that has a trained one hands it over
        needs_model=False,
        summary="learned from labelled runs of your own system (BLAMESPAN_RANKER), milliseconds",
    ),
    "judge": Registered(
        build=lambda limit: Judge(max_bytes=limit),
        needs_model=True,
        summary="one call over the indexed run, with evidence and ranking",
    ),
    "investigate": Registered(
        build=lambda limit: Investigate(max_bytes=limit),
        needs_model=True,
        summary="a reader with an influence graph and reading tools, up to 8 calls and 60k tokens",
    ),
    "verify": Registered(
        build=lambda limit: Verify(max_bytes=limit),
        needs_model=True,
        summary="judge and three criteria in up to two rounds, 4 to 8 calls (arXiv:2509.06822)",
    ),
    "bisect": Registered(
        build=lambda limit: Bisect(max_bytes=limit),
        needs_model=True,
        summary="noisy binary search over the steps, about 15 to 30 calls (arXiv:0910.4397)",
    ),
    "panel": Registered(
        build=lambda limit: Panel(max_bytes=limit),
        needs_model=True,
        summary="a plain and a counterfactual judge, an arbiter where they differ, 2 to 3 calls",
    ),
    "all-at-once": Registered(
        build=lambda limit: AllAtOnce(max_bytes=limit),
        needs_model=True,
        summary="reference method: the whole log, one free-text answer (arXiv:2505.00212)",
    ),
    "step-by-step": Registered(
        build=lambda limit: StepByStep(max_bytes=limit),
        needs_model=True,
        summary="reference method: asks of each step in turn (arXiv:2505.00212)",
    ),
    "binary-search": Registered(
        build=lambda limit: BinarySearch(max_bytes=limit),
        needs_model=True,
        summary="reference method: asks in which half, until one step is left (arXiv:2505.00212)",
    ),
    "hybrid": Registered(
        build=lambda limit: Hybrid(max_bytes=limit),
        needs_model=True,
        summary="reference method: all-at-once for the agent, step-by-step for its step",
    ),
    "random": Registered(
        build=lambda _bytes: RandomStep(), needs_model=False, summary="baseline: a step at random"
    ),
    "first-agent-step": Registered(
        build=lambda _bytes: FirstAgentStep(),
        needs_model=False,
        summary="baseline: the first step of an agent after step 0",
    ),
    "constant": Registered(
        build=lambda _bytes: ConstantStep(), needs_model=False, summary="baseline: always step 1"
    ),
    "constant-agent": Registered(
        build=lambda _bytes: ConstantAgent(),
        needs_model=False,
        summary="baseline: the first step of the agent most often to blame in the other folds",
    ),
}


def registered(name: str) -> Registered:
    """Look a method up; ``judge*3`` is the judge asked three times, and its verdicts pooled.

    Raises:
        UnknownMethod: there is none of that name; the message lists those there are.
    """
    base, star, count = name.partition("*")
    entry = METHODS.get(base)
    if entry is None or (star and not (entry.needs_model and count in _COUNTS)):
        names = ", ".join((AUTO, *METHODS))
        raise UnknownMethod(
            f"unknown method {name!r}: expected one of {names}; one that asks a model may be followed"
            f" by *2 to *{MOST_VOTES}, votes that are pooled"
        )
    return _voting(entry, int(count)) if star else entry


def _voting(entry: Registered, votes: int) -> Registered:
    return replace(entry, build=lambda limit: Sampled(method=entry.build(limit), samples=votes))


__all__ = ["AUTO", "METHODS", "MOST_VOTES", "Registered", "registered"]
