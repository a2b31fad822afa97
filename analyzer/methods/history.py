"""Method ``history``: compares a failed run with other runs of its workflow. Source: this project.

By itself it names the step whose elements stand out among the failing runs
(``analyzer/history/spectrum.py``), and abstains if none does: a wrong value in an ordinary step leaves no
trace in a spectrum. So ``auto`` pools it with signals or a ranker, which read the values
(``with_history``); where nothing stands out, their verdict stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Protocol

from analyzer.history.broken import Violation
from analyzer.history.invariants import Kind
from analyzer.history.spectrum import LEAST_PASSING, MOST_EVIDENCE, Comparison, Increase
from analyzer.inquiry.method import Inquiry, answered
from analyzer.inquiry.posterior import LogShares, Opinion, pool, ranked, relative, temper
from analyzer.inquiry.verdict import FailureMode
from analyzer.methods.without_model import at_most
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Evidence,
    Ranked,
    Status,
    Trajectory,
    Verdict,
    agent_in_prose,
)

_RANKED: Final = 5
WEIGHT: Final = 2.0
"""Exponent of the history in the pool. Signals have a strong opinion on every step by its position, the
history on few steps; chosen on the example systems (``benchmarks.history`` at commit 8382596b, seeds other
than those shown)."""
_PRIOR: Final = 0.1
"""Odds that a run which reported nothing failed; nothing is known of a workflow beforehand."""
_QUOTES: Final = 2
_MODES: Final = {
    Kind.STANDS: FailureMode.WRONG_TOOL_USE,
    Kind.AMONG: FailureMode.WRONG_TOOL_USE,
    Kind.EQUALS: FailureMode.WRONG_TOOL_USE,
    Kind.NEEDS: FailureMode.UNVERIFIED_RESULT,
    Kind.AFTER: FailureMode.UNVERIFIED_RESULT,
    Kind.HAPPENS: FailureMode.INCOMPLETE_WORK,
    Kind.LEADS: FailureMode.INCOMPLETE_WORK,
    Kind.WHEN: FailureMode.INCOMPLETE_WORK,
    Kind.WHEN_NOT: FailureMode.IGNORED_RESULT,
    Kind.SOURCED: FailureMode.UNSUPPORTED_CLAIM,
    Kind.WORDS: FailureMode.UNSUPPORTED_CLAIM,
    Kind.TIMES: FailureMode.LOOP,
}
MOST_CONFIDENT: Final = 0.9
"""Highest confidence: what goes along with failures need not cause them."""


class Past(Protocol):
    """The other runs of a run's workflow."""

    def compare(self, trajectory: Trajectory) -> Comparison | None:
        """Compare a failed run with them; ``None`` if no run of its workflow is known."""
        ...


_NO_PAST: Final = (
    "no other run of this workflow is known: give several recorded runs to `blamespan attribute` at once"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Names the step that distinguishes a failed run from passing ones."""

    past: Past | None = None
    name: str = "history"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        comparison = None if self.past is None else self.past.compare(trajectory)
        if comparison is None:
            return answered(Abstention(status=Status.ERROR, reason=_NO_PAST))
        return answered(judge_by_history(trajectory, comparison))


def judge_by_history(trajectory: Trajectory, comparison: Comparison) -> Verdict:
    """Judge a run by its workflow's history alone."""
    if not trajectory.steps:
        return Abstention(status=Status.ERROR, reason="the run has no steps to blame")
    candidates = ranked(shares_of(comparison), trajectory, _RANKED)
    if not comparison.is_any:
        return Abstention(status=Status.UNDETERMINED, reason=_nothing(comparison), ranking=candidates)
    first = candidates[0]
    blame = Blame(
        agent=first.agent,
        step=first.step,
        reason=reason_of(comparison, first),
        confidence=first.probability,
        evidence=_quotes(comparison, first.step),
        ranking=candidates,
    )
    return at_most(MOST_CONFIDENT, blame)


def shares_of(comparison: Comparison) -> LogShares:
    """Return the history's opinion as it enters the pool."""
    return temper(comparison.shares(), 1 / WEIGHT)


def pooled_with(attribution: Attribution, trajectory: Trajectory, comparison: Comparison) -> Attribution:
    """Return an attribution pooled with the history of the run's workflow; unchanged if nothing stands out.

    The opinion behind the verdict is taken from its ranking, which gives only five steps a probability of
    their own; on the example systems, this made no difference to any verdict.
    """
    verdict = _blame_of(attribution.verdict)
    if verdict is None or not comparison.is_any:
        return attribution
    pooled = with_history(verdict, relative(verdict.ranking, trajectory), trajectory, comparison)
    return replace(attribution, verdict=pooled, method=f"{attribution.method}+history")


def _blame_of(verdict: Verdict) -> Blame | None:
    """Return the blame, or the first candidate of a verdict that was withheld as too uncertain."""
    if isinstance(verdict, Blame):
        return verdict
    if verdict.status is not Status.UNDETERMINED or not verdict.ranking:
        return None
    first = verdict.ranking[0]
    return Blame(
        agent=first.agent,
        step=first.step,
        reason="Too little evidence by itself.",
        confidence=first.probability,
        ranking=verdict.ranking,
    )


def with_history(verdict: Blame, shares: LogShares, trajectory: Trajectory, comparison: Comparison) -> Blame:
    """Pool a verdict with the history of the run's workflow; unchanged if nothing stands out.

    Args:
        verdict: the verdict without it.
        shares: the log-probabilities behind the verdict.
        trajectory: the run.
        comparison: of the run with others.
    """
    if not comparison.is_any:
        return verdict
    pooled = pool([Opinion(shares=shares), Opinion(shares=shares_of(comparison))])
    candidates = ranked(pooled, trajectory, _RANKED)
    first = candidates[0]
    is_own = any(increase.element.step == first.step for increase in comparison.increases)
    is_own = is_own or any(violation.step == first.step for violation in comparison.broken)
    if first.step == verdict.step:
        reason = f"{verdict.reason} {reason_of(comparison, first)}" if is_own else verdict.reason
        merged = replace(verdict, reason=reason, confidence=first.probability, ranking=candidates)
        return at_most(MOST_CONFIDENT, merged)
    named = f"step {verdict.step} of {agent_in_prose(verdict.agent)}"
    blame = Blame(
        agent=first.agent,
        step=first.step,
        reason=f"{reason_of(comparison, first)} (without other runs: {named}: {verdict.reason})",
        confidence=first.probability,
        ranking=candidates,
    )
    return at_most(MOST_CONFIDENT, blame)


def reason_of(comparison: Comparison, first: Ranked) -> str:
    """Return why the history blames a step, as a sentence."""
    broken = [_as_sentence(violation) for violation in comparison.broken if violation.step == first.step]
    own = [increase for increase in comparison.increases if increase.element.step == first.step]
    if broken and not any(increase.shown.failed > 1 for increase in own):
        return broken[0]
    if not own:
        return _nothing(comparison)
    strongest = own[0]
    beside = f"Step {first.step}: {agent_in_prose(first.agent)} {_evidence(strongest)}."
    return f"{broken[0]} {beside}" if broken else beside


def _as_sentence(broken: Violation) -> str:
    return f"{broken.text[:1].upper()}{broken.text[1:]} (step {broken.step})."


def suspected(trajectory: Trajectory, comparison: Comparison) -> Blame | None:
    """Return the suspected failure of a run that reports none; ``None`` if nothing that it breaks accuses it.

    Whether it is accused takes invariants that good runs hardly break; which step did it, all of them.
    """
    if not comparison.accusing or not trajectory.steps:
        return None
    strongest = comparison.accusing[0]
    odds = _PRIOR * math.exp(min(strongest.evidence, MOST_EVIDENCE))
    probability = round(odds / (1 + odds), 4)
    shown = ranked(comparison.shares(), trajectory, _RANKED)
    ranking = tuple(replace(one, probability=round(one.probability * probability, 4)) for one in shown)
    first = ranking[0]
    reason = reason_of(comparison, first)
    if strongest.step != first.step:
        reason = f"{reason} {_as_sentence(strongest)}"
    return Blame(
        agent=first.agent,
        step=first.step,
        reason=reason,
        confidence=first.probability,
        mode=_MODES.get(strongest.held.invariant.kind, FailureMode.OTHER).value,
        evidence=_quotes(comparison, first.step),
        ranking=ranking,
        status=Status.SUSPECTED,
        failed_probability=probability,
    )


def _quotes(comparison: Comparison, step: int) -> tuple[Evidence, ...]:
    arguments = (violation.broken.argument for violation in comparison.broken if violation.step == step)
    quotes = dict.fromkeys(one.literal for one in arguments if one is not None and one.literal)
    return tuple(Evidence(step=step, quote=quote) for quote in list(quotes)[:_QUOTES])


def _evidence(increase: Increase) -> str:
    shown, reached, interval = increase.shown, increase.reached, increase.interval
    return (
        f"{increase.element.text}, as {_runs(shown.failed)} that failed and {shown.passed} that passed;"
        f" of the runs that get there, {reached.failed} of {reached.n} failed"
        f" (Increase {increase.value:+.2f}, 95 % interval {interval.low:+.2f} to {interval.high:+.2f})"
    )


def _runs(n: int) -> str:
    return f"{n} run{'' if n == 1 else 's'}"


def _nothing(comparison: Comparison) -> str:
    before = comparison.runs
    known = f"{_runs(before.passed)} that passed and {before.failed} that failed"
    if before.passed < LEAST_PASSING:
        return f"Of this workflow only {known} are known; {LEAST_PASSING} that passed are needed."
    return f"No step distinguishes this run from the others of its workflow ({known})."
