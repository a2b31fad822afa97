"""The attribution methods, by the names that users type. One method a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from analyzer.errors import UnknownMethod
from analyzer.method import AttributionMethod
from analyzer.methods.all_at_once import AllAtOnce
from analyzer.methods.baselines import ConstantStep, FirstAgentStep, RandomStep
from analyzer.methods.judge import Judge
from analyzer.methods.signals import Signals

AUTO: Final = "auto"
"""Not a method: the judge if there is a model, signals if there is none or it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A method as the registry knows it."""

    build: Callable[[int], AttributionMethod]
    """Makes the method, given how many bytes of a run's text fit into a prompt."""
    needs_model: bool
    summary: str
    """One line for ``--help``."""


METHODS: Final[Mapping[str, Registered]] = {
    "signals": Registered(
        build=lambda _bytes: Signals(), needs_model=False, summary="evidence per step, no model, microseconds"
    ),
    "judge": Registered(
        build=lambda limit: Judge(max_bytes=limit),
        needs_model=True,
        summary="one call over the indexed run, with evidence and ranking",
    ),
    "all-at-once": Registered(
        build=lambda limit: AllAtOnce(max_bytes=limit),
        needs_model=True,
        summary="reference method: the whole log, one free-text answer (arXiv:2505.00212)",
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
}


def registered(name: str) -> Registered:
    """Look a method up.

    Raises:
        UnknownMethod: there is none of that name; the message lists those there are.
    """
    try:
        return METHODS[name]
    except KeyError:
        names = ", ".join((AUTO, *METHODS))
        raise UnknownMethod(f"unknown method {name!r}: expected one of {names}") from None


__all__ = ["AUTO", "METHODS", "Registered", "registered"]
