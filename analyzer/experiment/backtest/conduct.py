"""Conducts a backtest: runs the trials that its plan chooses, several at a time. Not pure.

Whatever ends it (a verdict, the budget, Ctrl-C), the plan holds all trials that completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from analyzer.experiment.backtest.findings import Backtest, finished
from analyzer.experiment.backtest.plan import Outcome, Plan, Side
from analyzer.experiment.call_budget import Spent
from analyzer.experiment.replay.canonical import SYSTEM
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.replay.trial import Change, Edit
from analyzer.experiment.trial_runner import Options, Parts, Ran, TrialRunner
from analyzer.experiment.workflow import Ended, Workflow
from semconv.record import record, replace

_RUN: Final = "BLAMESPAN_RUN"
_TASK: Final = "BLAMESPAN_TASK"

Judge = Callable[[str, Ran], Awaitable[str]]
"""Returns the agent that a failed trial's own verdict blames, given the run that was replayed; empty if the
trial did not fail, or cannot be judged."""
Watch = Callable[["Conductor"], None]
"""Called after each trial."""


@record
class Replay:
    """A run to replay, and the call at which its tape ends."""

    tape: Tape
    call: int
    task: str = ""
    """What the run was asked: the program finds it in ``BLAMESPAN_TASK``."""


class Conductor:
    """Runs one backtest; ``stop`` ends it early."""

    def __init__(
        self,
        plan: Plan,
        replays: Mapping[str, Replay],
        programs: Mapping[Side, Parts],
        options: Options,
        judge: Judge,
    ) -> None:
        """Prepare trials; none is started.

        Args:
            plan: which run and arm is next.
            replays: the runs that can be replayed, by their ids.
            programs: the program of each arm, with one gateway and ledger; without a baseline today's twice.
            options: time limit, seed and number of trials at the same time.
            judge: called with each trial that ended.
        """
        self.plan: Final = plan
        self._programs: Final = programs
        self._replays: Final = replays
        self._options: Final = options
        self._judge: Final = judge
        self._runners: Final[dict[tuple[str, Side], TrialRunner]] = {}
        self._differs: Final[dict[str, tuple[str, ...]]] = {}
        """What is visibly new in the decisive request of each run."""
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._ledger: Final = programs[Side.TODAY].ledger
        self.stopped = ""
        self.trials = 0

    @property
    def spent(self) -> Spent:
        """The usage of all live calls."""
        return self._ledger.total

    def stop(self, reason: str) -> None:
        """Begin no further trial and end those that run."""
        self.stopped = self.stopped or reason
        for task in self._tasks:
            task.cancel()

    async def run(self, watch: Watch) -> Backtest:
        """Run the trials to the plan's end.

        Raises:
            OSError: a program cannot be started.
            CheckFailed: the check cannot be run.
        """
        try:
            while self._begin(watch):
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                self._tasks.difference_update(done)
                for task in done:
                    if not task.cancelled():
                        task.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return finished(self.plan, self.spent, self.trials, self.stopped)

    def _begin(self, watch: Watch) -> bool:
        """Begin as many trials as may run at the same time; return whether any runs."""
        self.stopped = self.stopped or self._ledger.exhausted
        while not self.stopped and len(self._tasks) < self._options.parallel:
            key = self.plan.begin()
            if key is None:
                break
            self._tasks.add(asyncio.create_task(self._one(key, watch)))
        return bool(self._tasks)

    async def _one(self, key: tuple[str, Side], watch: Watch) -> None:
        outcome: Outcome | None = None
        try:
            ran = await self._runner(key)(self._change(key))
            is_refused = self._ledger.exhausted and ran.result.invalid  # for want of budget: says nothing
            if not is_refused:
                outcome = await self._outcome(key, ran)
        finally:
            self.plan.end(key, outcome)
        self.trials += outcome is not None
        watch(self)

    async def _outcome(self, key: tuple[str, Side], ran: Ran) -> Outcome:
        run, side = key
        if side is Side.TODAY and ran.result.invalid and ran.result.crashed:
            ran = replace(ran, result=replace(ran.result, invalid=""))  # a program that crashes has failed
        blamed = await self._judge(run, ran)
        if side is Side.YESTERDAY:
            return Outcome(result=ran.result)
        differs = () if ran.result.invalid else ran.report.differs
        if differs:
            self._differs.setdefault(run, differs)
        return Outcome(result=ran.result, differs=bool(differs), blamed=blamed)

    def _runner(self, key: tuple[str, Side]) -> TrialRunner:
        run, side = key
        if key not in self._runners:
            replay, parts = self._replays[run], self._programs[side]
            told = {_RUN: run, _TASK: replay.task}
            asked = replace(parts, workflow=_told(parts.workflow, told))
            self._runners[key] = TrialRunner(replay.tape, asked, self._options)
        return self._runners[key]

    def _change(self, key: tuple[str, Side]) -> Change:
        """Return where the tape ends: the call is asked as the program asks it, or as it was recorded."""
        run, side = key
        replay = self._replays[run]
        if side is Side.TODAY or self.plan.has_baseline:
            return Change(call=replay.call)
        return Change(call=replay.call, edit=recorded_request(replay, self._differs.get(run, ())))


def _told(workflow: Workflow, variables: Mapping[str, str]) -> Workflow:
    """Return a workflow that also finds these variables in its environment."""

    async def run(environment: Mapping[str, str], timeout_s: float) -> Ended:
        return await workflow({**environment, **variables}, timeout_s)

    return run


def recorded_request(replay: Replay, differs: tuple[str, ...]) -> Edit:
    """Return the edit that turns a request with the recorded conversation into the recorded one.

    Args:
        replay: the run.
        differs: what is to be as recorded, from ``TrialReport.differs``.
    """
    call = replay.tape.calls[replay.call]
    instructions = "\n\n".join(message.text for message in call.messages if message.role == SYSTEM)
    return Edit(
        system=instructions if "instructions" in differs else "",
        model=call.answer.model if "model" in differs else "",
    )
