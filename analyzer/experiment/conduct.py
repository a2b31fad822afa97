"""Conducts one experiment: a fidelity trial, then the walk's trials, several at a time. Not pure.

Whatever ends it (a proof, the budget, Ctrl-C), the result holds everything learned so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from analyzer.experiment.call_budget import Spent
from analyzer.experiment.candidates import ArmKey, Candidate, Fix, Suspects, may_go_live
from analyzer.experiment.findings import Experiment, Fidelity, Finding, finding
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.sequential import Decision, TrialResult, latest_reasons
from analyzer.experiment.trial_runner import Options, Parts, Ran, TrialRunner, described
from analyzer.experiment.walk import Walk
from analyzer.experiment.workflow import CheckFailed

_MOST_INVALID_IN_ROW: Final = 6
"""Consecutive invalid trials that end the experiment: further trials would not say more."""
_HARMLESS: Final = "that only reads or hands over"


Watch = Callable[["Conductor"], None]
"""Called after each trial."""
Keep = Callable[[ArmKey | None, Ran], None]
"""Keeps the trace of a trial, given its arm; ``None`` for the rerun without a change."""


class Conductor:
    """Runs one experiment; ``stop`` ends it early."""

    def __init__(  # noqa: PLR0917 - the first three define the experiment
        self,
        tape: Tape,
        suspects: Suspects,
        fix: Fix,
        parts: Parts,
        options: Options,
        keep: Keep | None = None,
    ) -> None:
        """Create an experiment with at least one suspect; ``keep`` is called with each completed trial."""
        self._keep: Final = keep or (lambda _arm, _ran: None)
        self.tape: Final = tape
        self.fix: Final = fix
        self.walk = Walk(suspects.candidates, most_trials=options.most_trials)
        self._valid = 0
        self._run_trial: Final = TrialRunner(tape, parts, options)
        self.fidelity: Fidelity | None = None
        self._changes: Final = suspects.changes
        self._parts: Final = parts
        self._options: Final = options
        self._spent: Final[dict[ArmKey, Spent]] = {}
        self._invalid_in_row = 0
        self._invalid: Final[list[str]] = []
        """Reasons why trials of arms were invalid, in the order in which they ended."""
        self._undeclared: Mapping[str, int] = {}
        self._stopped = ""
        self._left_out = (
            f"; not tried: {suspects.others} less suspect steps (--step N tries one of them)"
            if suspects.others
            else ""
        )
        self._is_interrupted = False
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._began = parts.clock()

    @property
    def trials(self) -> int:
        """Completed trials."""
        return self._run_trial.completed

    @property
    def spent(self) -> Spent:
        """The usage of all live calls."""
        return self._parts.ledger.total

    def stop(self, reason: str) -> None:
        """Begin no further trial and end those that run."""
        self._is_interrupted = True
        self._stopped = self._stopped or reason
        for task in self._tasks:
            task.cancel()

    async def run(self, watch: Watch) -> Experiment:
        """Run the experiment to its end.

        Raises:
            OSError: the workflow cannot be started, not even once.
            CheckFailed: the check cannot be run, not even once.
        """
        verdict = await self._fidelity(watch)
        if verdict is not None:
            return verdict
        await self._walk(watch)
        return self._concluded()

    async def _fidelity(self, watch: Watch) -> Experiment | None:
        """Run the fidelity trial, without a change; return the result if it ends the experiment."""
        held: list[TrialResult] = []

        async def one() -> None:
            ran = await self._run_trial(None)
            self._keep(None, ran)
            report = ran.report
            self.fidelity = Fidelity(
                calls=report.calls,
                served=report.served,
                masked=report.masked,
                first_difference=described(report.first_difference),
            )
            self._undeclared = report.undeclared
            held.append(ran.result)

        await self._guarded(one())
        watch(self)
        if not held:
            return self._ended(Decision.UNDECIDED, self._stopped or "stopped before the first trial")
        (result,) = held
        if result.invalid:
            return self._ended(Decision.NOT_REPLAYABLE, f"the rerun without a change: {result.invalid}")
        if result.success:
            return self._ended(
                Decision.UNDECIDED,
                "the run passes the check with all recorded answers: there is no failure to explain",
                passes=True,
            )
        return self._without_undeclared()

    def _without_undeclared(self) -> Experiment | None:
        """Leave out the steps after which the model could call a tool that would really run."""
        if not self._undeclared:
            return None
        tools = ", ".join(f"`{name}`" for name in self._undeclared)
        options = " ".join(f"--allow-tool {name}" for name in self._undeclared)
        why = f"the live model may call {tools}, which would really run: {options}, if {_HARMLESS}"
        every = self.walk.candidates
        candidates = may_go_live(every, self.fix, self._undeclared)
        if not candidates:
            return self._ended(Decision.NOT_REPLAYABLE, why)
        self.walk = Walk(candidates, most_trials=self._options.most_trials)
        left_out = ", ".join(
            str(each.step) for each in every if each.call not in {c.call for c in candidates}
        )
        self._left_out += f"; not tried: step {left_out}, because {why}" if left_out else ""
        return None

    async def _walk(self, watch: Watch) -> None:
        while True:
            while len(self._tasks) < self._options.parallel and self._goes_on():
                key = self.walk.begin()
                if key is None:
                    break
                self._tasks.add(asyncio.create_task(self._one(key, watch)))
            if not self._tasks:
                return
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._tasks.difference_update(done)
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    await self._give_up()
                    raise error
            if self.walk.is_decided:
                await self._give_up()

    def _goes_on(self) -> bool:
        if self._parts.ledger.exhausted:
            self._stopped = self._stopped or self._parts.ledger.exhausted
        if self._invalid_in_row >= _MOST_INVALID_IN_ROW:
            self._stopped = (
                self._stopped or f"{self._invalid_in_row} invalid trials in a row: {self._invalid[-1]}"
            )
        return not self._stopped

    async def _give_up(self) -> None:
        """Stop the running trials; their results do not count."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _guarded(self, trial: Awaitable[None]) -> None:
        """Run one trial that ``stop`` can stop."""
        task = asyncio.ensure_future(trial)
        self._tasks.add(task)
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            task.cancel()
            self._tasks.discard(task)

    async def _one(self, key: ArmKey, watch: Watch) -> None:
        result: TrialResult | None = None
        try:
            ran = await self._run_trial(self._changes[key], partial(self._book, key))
            self._keep(key, ran)
            result = ran.result
            if self._parts.ledger.exhausted and result.invalid:
                result = None  # refused because the budget is used up: says nothing about the arm
        except OSError as error:  # the workflow started before; the results are kept
            result = TrialResult(invalid=f"the workflow cannot be started: {error.strerror or error}")
        except CheckFailed as error:  # the check worked before; the results are kept
            self._stopped = self._stopped or str(error)
        finally:
            self.walk.end(key, result)
        if result is not None:
            self._valid += not result.invalid
            self._invalid_in_row = self._invalid_in_row + 1 if result.invalid else 0
            self._invalid.extend(filter(None, (result.invalid,)))
        watch(self)

    def _book(self, key: ArmKey, spent: Spent) -> None:
        self._spent[key] = self._spent.get(key, Spent()).plus(spent)

    def _concluded(self) -> Experiment:
        if proved := self.walk.proved:
            found = self._finding(proved[0])
            return self._ended(Decision.PROVED, found.reason, decisive=found)
        tried = self.walk.tried
        if len(self.walk.candidates) == 1 and tried:
            found = self._finding(tried[0])
            passes = self.walk.passes(tried[0])
            decision = Decision.UNDECIDED if passes else self.walk.decision(tried[0])
            reason = f"the control passes: {found.reason}" if passes else found.reason
            return self._ended(decision, reason, decisive=found, passes=passes)
        refuted = [c for c in self.walk.candidates if self.walk.decision(c) is Decision.REFUTED]
        if len(refuted) == len(self.walk.candidates):
            return self._ended(
                Decision.REFUTED, f"no step's change heals the run: all {len(refuted)} are refuted"
            )
        why = self._stopped or "the trials do not point to one step"
        return self._ended(
            Decision.UNDECIDED,
            f"{why}; {len(refuted)} of {len(self.walk.candidates)} steps are refuted{self._dropped()}",
        )

    def _dropped(self) -> str:
        """Say of how many steps a proof has become improbable."""
        reasons = [reason for each in self.walk.candidates if (reason := self.walk.why_dropped(each))]
        return f", {len(reasons)} dropped: {reasons[0]}" if reasons else ""

    def _finding(self, candidate: Candidate) -> Finding:
        keys = {candidate.control, candidate.treatment, candidate.resampled}
        spent = Spent()
        for key in keys:
            spent = spent.plus(self._spent.get(key, Spent()))
        return finding(self.walk, candidate, self.fix, spent, self._stopped)

    def _ended(
        self, decision: Decision, reason: str, *, decisive: Finding | None = None, passes: bool = False
    ) -> Experiment:
        return Experiment(
            run_id=self.tape.run_id,
            fix=self.fix,
            fidelity=self.fidelity,
            findings=tuple(self._finding(candidate) for candidate in self.walk.tried),
            decision=decision,
            reason=reason + self._left_out,
            spent=self.spent,
            duration_s=self._parts.clock() - self._began,
            trials=self.trials,
            decisive=decisive,
            control_passes=passes,
            valid=self._valid,
            invalid=len(self._invalid),
            reasons=latest_reasons(self._invalid),
            copies=self.walk.copies,
            is_interrupted=self._is_interrupted,
        )
