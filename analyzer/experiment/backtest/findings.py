"""The result of a backtest, and what its numbers say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from analyzer.experiment.backtest.plan import PassingState, Plan, RunState, Verdict
from analyzer.experiment.call_budget import Spent
from analyzer.experiment.sequential import Arm
from analyzer.inquiry.intervals import binomial_at_most
from semconv.record import record

_CONFIDENCE: Final = 0.95
_HALVINGS: Final = 40
FAILED_CODE: Final = 1
UNDECIDED_CODE: Final = 3


@record
class Backtest:
    """What all trials of a backtest say."""

    verdict: Verdict
    failed: tuple[RunState, ...]
    passing: tuple[PassingState, ...]
    spent: Spent
    trials: int
    stopped: str = ""
    """Why it ended before its trials decided; empty if they did, or if none was left."""

    @property
    def played(self) -> tuple[RunState, ...]:
        """The failed runs that could be replayed."""
        return tuple(state for state in self.failed if not state.refused)

    @property
    def held(self) -> int:
        """The passing runs that still pass."""
        return sum(state.is_done and not state.is_broken and not state.refused for state in self.passing)

    @property
    def broken(self) -> int:
        """The passing runs that no longer pass."""
        return sum(state.is_broken for state in self.passing)

    @property
    def code(self) -> int:
        """Exit code: 0 fixed, 1 not fixed or a passing run broke or blame moved, 3 anything else.

        A fix beside which more than half of the passing runs could not be tried is no success yet.
        """
        if self.broken or self.verdict in {Verdict.NOT_FIXED, Verdict.MOVED}:
            return FAILED_CODE
        is_open = (self.held + self.broken) * 2 < len(self.passing)
        return 0 if self.verdict is Verdict.FIXED and not is_open else UNDECIDED_CODE


def finished(plan: Plan, spent: Spent, trials: int, stopped: str) -> Backtest:
    """Return the result of a plan whose trials have ended."""
    return Backtest(
        verdict=plan.verdict,
        failed=plan.failed,
        passing=plan.passing,
        spent=spent,
        trials=trials,
        stopped=stopped,
    )


def most_broken(broken: int, n: int) -> float:
    """Return the upper 95 % bound of the share of passing runs that break (Clopper & Pearson 1934)."""
    if broken >= n:
        return 1.0
    low, high = broken / n, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_likely = binomial_at_most(broken, n, middle) > 1 - _CONFIDENCE
        low, high = (middle, high) if is_likely else (low, middle)
    return high


def added(arms: list[Arm]) -> Arm:
    """Return the sum of arms, to be shown; no test adds runs up."""
    return Arm(
        n=sum(arm.n for arm in arms),
        successes=sum(arm.successes for arm in arms),
        invalid=sum(arm.invalid for arm in arms),
        copies=sum(arm.copies for arm in arms),
    )


def to_json(found: Backtest) -> dict[str, Any]:
    """Return the result as one JSON object."""
    return {
        "verdict": found.verdict.value,
        "runs": [_run_json(state) for state in found.failed],
        "not_replayable": len(found.failed) - len(found.played),
        "passing": {
            "runs": [_passing_json(state) for state in found.passing],
            "held": found.held,
            "broken": found.broken,
            "not_replayable": len(found.passing) - found.held - found.broken,
            "most_broken": round(most_broken(found.broken, found.held + found.broken), 4),
        },
        "trials": found.trials,
        "live_calls": found.spent.calls,
        "cost_usd": found.spent.cost_usd,
        "stopped": found.stopped,
        "exit_code": found.code,
    }


def _run_json(state: RunState) -> dict[str, Any]:
    return {
        "run_id": state.run_id,
        "agent": state.blamed,
        "compared": state.is_compared,
        "today": _arm_json(state.today),
        "yesterday": _arm_json(state.yesterday) if state.is_compared else None,
        "masked": state.masked,
        "judged": state.judged,
        "moved": state.moved,
        "not_replayable": state.refused,
    }


def _passing_json(state: PassingState) -> dict[str, Any]:
    return {
        "run_id": state.run_id,
        "today": _arm_json(state.today),
        "broken": state.is_broken,
        "not_replayable": state.refused,
    }


def _arm_json(arm: Arm) -> Mapping[str, int]:
    return {"n": arm.n, "successes": arm.successes, "invalid": arm.invalid, "copies": arm.copies}
