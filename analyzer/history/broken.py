"""What a run breaks of what its workflow always does: ranked to explain a failure, or to accuse. Pure.

The earliest of the strong ones is taken for the fault: what comes after it are its consequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from analyzer.history.facts import Facts
from analyzer.history.invariants import Broken, Held, Invariant, Kind, Run, check
from analyzer.history.mining import Mined
from analyzer.history.wording import rule, seen
from semconv.record import record, replace

LEAST_EVIDENCE: Final = 1.0
"""Log-odds below which what a run breaks says nothing: a limit that every fourth good run might exceed."""
TENTATIVE: Final = 3.0
"""Log-odds of what is tentative: of good runs that break nothing else, 1 to 6 % break it
(``python -m benchmarks.accuracy.invariants``)."""
_STRONG: Final = 0.8
"""Share of the strongest evidence from which an earlier one is taken for the fault."""


@record
class Violation:
    """An invariant that a run breaks."""

    held: Held
    broken: Broken
    evidence: float
    """Log-odds that the run is no other good run."""
    text: str
    """What known runs did and what this one does, without a full stop."""

    @property
    def step(self) -> int:
        """The step that breaks it."""
        return self.broken.step


def violations(facts: Facts, mined: Mined) -> tuple[Violation, ...]:
    """Return what a run breaks, the supposed fault first."""
    found = _violations(facts, mined, mined.held)
    found = found or [replace(one, evidence=TENTATIVE) for one in _violations(facts, mined, mined.tentative)]
    least = _STRONG * max((each.evidence for each in found), default=0.0)
    first = min((each.step for each in found if each.evidence >= least), default=0)
    return tuple(sorted(found, key=lambda one: (one.step != first, -one.evidence, one.step)))


def accusations(facts: Facts, mined: Mined) -> tuple[Violation, ...]:
    """Return what a run breaks of the invariants that may accuse it, the strongest first."""
    found = _violations(facts, mined, [one for one in mined.held if mined.accuses(one)])
    return tuple(sorted(found, key=lambda one: (-one.evidence, one.step)))


def _violations(facts: Facts, mined: Mined, held: Iterable[Held]) -> list[Violation]:
    run = Run(facts)
    found = [(one, broken) for one in held if isinstance(broken := check(one.invariant, run), Broken)]
    missing = {one.invariant.tool for one, _ in found if one.invariant.kind is Kind.HAPPENS}
    return [
        Violation(
            held=one,
            broken=broken,
            evidence=mined.evidence(one),
            text=f"in {one.support} of {one.support + one.broken} {mined.basis} runs"
            f" {rule(one.invariant)}; {seen(one.invariant, broken, facts)}",
        )
        for one, broken in found
        if mined.evidence(one) >= LEAST_EVIDENCE and not _is_implied(one.invariant, missing)
    ]


def _is_implied(one: Invariant, missing: set[str]) -> bool:
    """Return whether an order is broken only because one of its tools is not called at all."""
    return {Kind.AFTER: one.other, Kind.LEADS: one.tool}.get(one.kind) in missing


__all__ = ["Violation", "accusations", "violations"]
