"""The result of a backtest: its numbers, as JSON and in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.experiment.backtest.plan import PassingState, Plan, RunState, Verdict
from analyzer.experiment.call_budget import Spent
from analyzer.experiment.sequential import Arm
from analyzer.inquiry.intervals import binomial_at_most
from analyzer.inquiry.present import counted
from analyzer.records.proof_records import Report
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


_HEADS: Final = {
    Verdict.FIXED: "Fixed (proved)",
    Verdict.NO_LONGER_FAILS: "No longer fails",
    Verdict.NOT_FIXED: "Not fixed",
    Verdict.MOVED: "Not fixed: another agent is blamed now",
    Verdict.UNDECIDED: "Undecided",
    Verdict.NOT_REPLAYABLE: "Not replayable",
}
_COLUMNS: Final = ("run", "agent", "today", "yesterday", "masked", "what is said of it")
_REASONS: Final = {
    Verdict.FIXED: "today's request succeeds more often than yesterday's; alpha 5 % over all looks and runs",
    Verdict.NO_LONGER_FAILS: "no proof: too few trials with different answers",
    Verdict.UNDECIDED: "the trials do not decide: --trials allows more",
    Verdict.NOT_REPLAYABLE: "more than half of the failed runs do not play on their tapes: see the table",
}


def progress(plan: Plan, trials: int, spent: Spent) -> str:
    """Return the state of a backtest on one line."""
    today, yesterday = _both(plan.failed)
    return f"trial {trials}: today {_rate(today)}, yesterday {_rate(yesterday)}; {_usage(spent)}"


def report(found: Backtest) -> Report:
    """Return the result with a row for each run."""
    return Report(head=_head(found), lines=tuple(_lines(found)), columns=_COLUMNS, rows=tuple(_rows(found)))


def _head(found: Backtest) -> str:
    today, _ = _both(found.played)
    broken = f"; {counted(found.broken, 'passing run')} broke" if found.broken else ""
    return f"{_HEADS[found.verdict]}: {_rate(today)} today{broken}" if today.n else _HEADS[found.verdict]


def _lines(found: Backtest) -> Iterator[str]:
    today, yesterday = _both(found.played)
    if yesterday.n:
        yield f"today {_rate(today)}, yesterday's request {_rate(yesterday)} (success of trials)"
    yield _why(found)
    if lost := len(found.failed) - len(found.played):
        yield f"{lost} of {counted(len(found.failed), 'failed run')} not replayable"
    if moved := sum(state.moved for state in found.failed):
        judged = sum(state.judged for state in found.failed)
        yield f"blame moved to another agent in {moved} of {judged} failed trials"
    if found.passing:
        yield _of_passing(found)
    if invalid := today.invalid + yesterday.invalid:
        arms = (arm for state in found.played for arm in (state.today, state.yesterday))
        why = next((arm.reasons[0].text for arm in arms if arm.reasons), "")
        yield f"{counted(invalid, 'trial')} invalid, which count against a fix; one: {why}"
    if copies := today.copies + yesterday.copies:
        yield f"{counted(copies, 'trial')} not counted: they repeat another one's answers"
    yield f"{counted(found.trials, 'trial')}, {_usage(found.spent)}"


def _why(found: Backtest) -> str:
    if found.stopped:
        return f"stopped: {found.stopped}"
    if found.verdict is Verdict.UNDECIDED and all(state.passes for state in found.played):
        return "yesterday's request succeeds too: the failure does not come back, so no fix can be shown"
    is_same = not any(state.is_compared for state in found.played)
    if found.verdict is Verdict.NO_LONGER_FAILS and is_same:
        return (
            "no proof: the decisive request is as it was recorded, so luck on a retry would look the same;"
            " --baseline COMMAND compares with yesterday's program"
        )
    failing = counted(sum(not state.passes for state in found.played), "run")
    return _REASONS.get(found.verdict) or f"today's program still fails in {failing}"


def _of_passing(found: Backtest) -> str:
    n = found.held + found.broken
    said = f"{found.broken} of {n} passing runs broken"
    if n:
        said += f" (at most {100 * most_broken(found.broken, n):.0f} %)"
    lost = len(found.passing) - n
    return f"{said}; {lost} not replayable or not finished" if lost else said


def _rows(found: Backtest) -> Iterator[tuple[str, ...]]:
    for state in found.failed:
        same = "the same request" if state.today.n else ""
        yesterday = _rate(state.yesterday) if state.is_compared else same
        arms = ("", "") if state.refused else (_rate(state.today), yesterday)
        yield (state.run_id, state.blamed, *arms, str(state.masked), _said(state))
    for passing in found.passing:
        said = passing.refused and f"not replayable: {passing.refused}"
        yield (passing.run_id, "", _rate(passing.today), "", "", said or _said_of_passing(passing))


def _said(state: RunState) -> str:
    if state.refused:
        return f"not replayable: {state.refused}"
    moved = f"; another agent blamed in {state.moved} of {state.judged}" if state.moved else ""
    return ("passes" if state.passes else "fails" if state.today.n else "not tried") + moved


def _said_of_passing(state: PassingState) -> str:
    if state.is_broken:
        return "passed, and is broken"
    return "passed, and still does" if state.is_done else "passed, and was not decided"


def _both(states: tuple[RunState, ...]) -> tuple[Arm, Arm]:
    return added([state.today for state in states]), added([state.yesterday for state in states])


def _rate(arm: Arm) -> str:
    return f"{arm.successes} of {arm.n}"


def _usage(spent: Spent) -> str:
    cost = "at an unknown price" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"
    return f"{counted(spent.calls, 'live call')}, {cost}"
