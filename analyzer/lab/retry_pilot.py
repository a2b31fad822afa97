"""Pilot of a retry: what each way of intervening recovers and disrupts, on recorded runs. Not pure.

Each recorded run is replayed up to the step that the verdict suspects. From there each arm has one trial, so
that all arms spend the same number of trials on the same runs, and runs are independent. Passing runs take
part too: what an intervention breaks there is its price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

from analyzer.experiment.call_budget import Ledger, Spent
from analyzer.experiment.candidates import beliefs_of_calls
from analyzer.experiment.replay.tape import CallKind, Tape
from analyzer.experiment.replay.trial import Change, Edit
from analyzer.experiment.retry_gate import (
    GENERIC_HINT,
    INTERVENTIONS,
    SURE,
    Gate,
    RetryArm,
    Share,
    Trigger,
    gate,
)
from analyzer.experiment.sequential import Reason, TrialResult, latest_reasons
from analyzer.experiment.trial_runner import Options, Parts, TrialRunner, in_parallel
from analyzer.lab.evaluation.significance import Paired, paired
from semconv.model import Ranked
from semconv.record import record

_UNEQUAL: Final = 0.1
"""Share of a blind retry's live calls per trial; an arm that differs by more does not cost the same."""


@record
class PilotRun:
    """One recorded run with its verdict."""

    name: str
    tape: Tape
    call: int
    """Call of the suspected step."""
    fix: str
    """The verdict's fix; empty without one."""
    is_flagged: bool
    """Whether the verdict takes the run as failed."""

    def change(self, arm: RetryArm) -> Change:
        """Return what a trial of this arm changes."""
        hint = {RetryArm.GENERIC: GENERIC_HINT, RetryArm.FIX: self.fix or GENERIC_HINT}.get(arm, "")
        answer = self.tape.calls[self.call].answer if arm is RetryArm.NONE else None
        return Change(call=self.call, answer=answer, edit=Edit(hint=hint))


@record
class Tried:
    """One pilot run with the trials of its arms."""

    run: PilotRun
    passed: bool = False
    """Whether the recorded run passes the check."""
    refused: str = ""
    """Reason for its lack of trials; empty if it has some."""
    trials: Mapping[RetryArm, TrialResult] = field(default_factory=dict)


@record
class ArmReport:
    """Results of one arm."""

    arm: RetryArm
    recovered: Share
    """Failed runs that passed."""
    disrupted: Share
    """Passing runs that failed."""
    spent: Spent
    trials: int
    invalid: int
    reasons: tuple[Reason, ...]
    costs_as_blind: bool
    """Whether a trial makes about as many live calls as one of blind retry."""


@record
class RetryPilot:
    """Result of a pilot."""

    tried: tuple[Tried, ...]
    arms: tuple[ArmReport, ...]
    gates: Mapping[RetryArm, Mapping[Trigger, Gate]]
    against_blind: Mapping[RetryArm, Paired]
    """Successes of blind retry (first) and of the arm (second), in the runs where both trials are valid."""
    without_fix: int
    """Runs whose verdict has no fix."""
    stopped: str
    """Reason for stopping before every run was tried; empty if all were."""


def suspected_call(tape: Tape, ranking: Sequence[Ranked]) -> int | None:
    """Return the index of the call at which to intervene; ``None`` if the run has no chat call."""
    beliefs = beliefs_of_calls(tape, ranking)
    found = [call.index for call in tape.calls if call.index in beliefs and call.kind is CallKind.CHAT]
    return max(found, key=lambda index: (beliefs[index], -index), default=None)


class Pilot:
    """Runs the trials of a pilot; the result holds whatever was done when it ends."""

    def __init__(self, parts: Callable[[PilotRun], Parts], ledger: Ledger, options: Options) -> None:
        """Prepare; nothing is started.

        Args:
            parts: the collaborators for a run, all with the same ledger.
            ledger: the budget.
            options: options for running trials.
        """
        self._parts: Final = parts
        self._ledger: Final = ledger
        self._options: Final = options
        self.tried: Final[list[Tried]] = []
        self._spent: Final[dict[RetryArm, Spent]] = {}

    async def run(self, runs: Sequence[PilotRun], watch: Callable[[Tried], None]) -> None:
        """Try the runs, several at a time.

        Raises:
            OSError: the workflow cannot be started.
            CheckFailed: the check cannot be run.
        """
        waiting = iter(runs)

        async def work() -> None:
            for run in waiting:
                tried = await self._try(run)
                if self._ledger.exhausted:
                    return
                self.tried.append(tried)
                watch(tried)

        await in_parallel(work, self._options.parallel)

    def result(self) -> RetryPilot:
        """Return what was measured so far."""
        tried = [each for each in self.tried if not each.refused]
        trials = {arm: [(each, each.trials[arm]) for each in tried] for arm in RetryArm}
        arms = tuple(self._report(arm, trials) for arm in RetryArm)
        by_arm = {report.arm: report for report in arms}
        return RetryPilot(
            tried=tuple(self.tried),
            arms=arms,
            gates={arm: _gates(by_arm[arm], tried) for arm in INTERVENTIONS},
            against_blind={arm: _paired(arm, tried) for arm in (RetryArm.GENERIC, RetryArm.FIX)},
            without_fix=sum(not each.run.fix for each in tried),
            stopped=self._ledger.exhausted,
        )

    async def _try(self, run: PilotRun) -> Tried:
        runner = TrialRunner(run.tape, self._parts(run), self._options)
        recorded = await runner(None)
        if recorded.result.invalid:
            return Tried(run=run, refused=f"the rerun without a change: {recorded.result.invalid}")
        if recorded.report.undeclared:
            options = " ".join(f"--allow-tool {name}" for name in recorded.report.undeclared)
            why = f"the live model may call tools that would really run: {options}, if they only read"
            return Tried(run=run, refused=why)
        trials = {}
        for arm in RetryArm:
            ran = await runner(run.change(arm), partial(self._book, arm))
            trials[arm] = ran.result
        return Tried(run=run, passed=recorded.result.success, trials=trials)

    def _book(self, arm: RetryArm, spent: Spent) -> None:
        self._spent[arm] = self._spent.get(arm, Spent()).plus(spent)

    def _report(
        self, arm: RetryArm, trials: Mapping[RetryArm, Sequence[tuple[Tried, TrialResult]]]
    ) -> ArmReport:
        valid = [(run, trial) for run, trial in trials[arm] if not trial.invalid]
        invalid = [trial.invalid for _, trial in trials[arm] if trial.invalid]
        calls, blind = (_calls(trials[retry_arm]) for retry_arm in (arm, RetryArm.BLIND))
        return ArmReport(
            arm=arm,
            recovered=_share(trial.success for run, trial in valid if not run.passed),
            disrupted=_share(not trial.success for run, trial in valid if run.passed),
            spent=self._spent.get(arm, Spent()),
            trials=len(trials[arm]),
            invalid=len(invalid),
            reasons=latest_reasons(invalid),
            costs_as_blind=abs(calls - blind) <= _UNEQUAL * blind,
        )


def _gates(report: ArmReport, tried: Sequence[Tried]) -> Mapping[Trigger, Gate]:
    """Return an arm's gates; the allowed error is divided over the arms, because any may be chosen."""
    sure = 1.0 - (1.0 - SURE) / len(INTERVENTIONS)
    failed = {
        Trigger.ALWAYS: _share(not each.passed for each in tried),
        Trigger.FLAGGED: _share(not each.passed for each in tried if each.run.is_flagged),
    }
    return {on: gate(share, report.recovered, report.disrupted, sure=sure) for on, share in failed.items()}


def _paired(arm: RetryArm, tried: Sequence[Tried]) -> Paired:
    both = [(each.trials[RetryArm.BLIND], each.trials[arm]) for each in tried]
    valid = [(blind, other) for blind, other in both if not blind.invalid and not other.invalid]
    return paired([blind.success for blind, _ in valid], [other.success for _, other in valid])


def _share(found: Iterable[bool]) -> Share:
    values = list(found)
    return Share(k=sum(values), n=len(values))


def _calls(trials: Sequence[tuple[Tried, TrialResult]]) -> float:
    """Return the live calls of a valid trial, on average."""
    live = [trial.live for _, trial in trials if not trial.invalid]
    return sum(live) / len(live) if live else 0.0
