"""The trials of a backtest: which run and which arm is next, and what the trials so far say. Pure.

Each failed run has two arms from the same prefix. *Today* asks the decisive call as the program asks it now;
*yesterday* asks it as it was recorded, or as the old program asks it. A run has the second arm only if the
two can differ: otherwise a failure that does not come back would look like a fix.

All runs together answer one question, so alpha is spent once. Under "in no run does today succeed more often
than yesterday", the e-process of ``sequential`` has an expectation of at most 1 in each run, at any stopping
time; the trials of different runs are independent, so the product over the runs has it too, and exceeds
1/alpha with probability at most alpha (Ville's inequality), whatever run and arm gets the next trial. Adding
up the successes of all runs would not be valid: runs fail at different rates. "This run still fails" is one
statement for each run, so there alpha is divided by the number of runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from analyzer.experiment.sequential import (
    ALPHA,
    CLEAR_EFFECT,
    REFUTING_ALPHA,
    Arm,
    Sampling,
    TrialResult,
    count,
    log_evidence_of_healing,
    log_evidence_of_no_effect,
    log_evidence_of_passing,
    unlike,
)
from semconv.record import record, replace

MOST_TRIALS: Final = 20
"""Default maximum of valid trials of each arm of a run."""
_MOST_COPIES: Final = 3
"""Repeated answers after which an arm gets no more trials: its model always says the same."""
_MOST_INVALID: Final = 2
"""Invalid trials without a valid one after which a run is not replayable."""
_PASSING_TRIALS: Final = 3
"""Trials of a passing run whose first one fails; two failures are more than a model's bad luck."""


class Side(StrEnum):
    """An arm of a run."""

    TODAY = "today"
    YESTERDAY = "yesterday"


class Verdict(StrEnum):
    """What a backtest says of the failed runs, strongest first."""

    FIXED = "fixed"
    """Today beats yesterday by the sequential test, and passes more often than not in every run."""
    NO_LONGER_FAILS = "no_longer_fails"
    """Today passes, but nothing shows that it does because of the change."""
    NOT_FIXED = "not_fixed"
    MOVED = "moved"
    """Still fails, and most failed trials now blame another agent."""
    UNDECIDED = "undecided"
    NOT_REPLAYABLE = "not_replayable"


@record
class Outcome:
    """What one trial says."""

    result: TrialResult
    differs: bool = False
    """Whether the decisive request is visibly another than the recorded one; only of today's trials."""
    blamed: str = ""
    """The agent that a failed trial's own verdict blames; empty if its spans do not say."""


@record
class RunState:
    """One failed run with its trials so far."""

    run_id: str
    blamed: str
    """The agent that the recorded run's verdict blames."""
    today: Arm
    yesterday: Arm
    is_compared: bool
    """Whether the second arm can differ from the first."""
    masked: int = 0
    """Most calls of a trial that were served although instructions or volatile parts differ."""
    judged: int = 0
    """Failed trials of today with a verdict of their own."""
    moved: int = 0
    """Those of them that blame another agent than the recorded run."""
    refused: str = ""
    """Why the run is not replayable; empty if it is."""

    @property
    def passes(self) -> bool:
        """Whether more than half of today's trials passed; an invalid one did not."""
        return self.today.successes * 2 > self.today.n + self.today.invalid

    @property
    def strict(self) -> tuple[Arm, Arm]:
        """Yesterday's and today's arm with invalid trials counted against a fix.

        Invalid trials are no accident of chance: today's program may ask for what the provider refuses. Left
        out, a fix that works in every second trial would look like one that always works.
        """
        old, new = self.yesterday, self.today
        return (
            replace(old, n=old.n + old.invalid, successes=old.successes + old.invalid),
            replace(new, n=new.n + new.invalid),
        )


@record
class PassingState:
    """One run that passed when it was recorded."""

    run_id: str
    today: Arm
    refused: str = ""
    """Why the run is not replayable; empty if it is."""

    @property
    def is_broken(self) -> bool:
        """Whether at least two trials failed."""
        return self.today.n - self.today.successes >= 2

    @property
    def is_done(self) -> bool:
        """Whether the run needs no further trial."""
        failed = self.today.n - self.today.successes
        return bool(self.refused) or self.is_broken or self.today.successes > failed


class Plan:
    """State of a backtest: trials go in, the next trial comes out."""

    def __init__(
        self,
        failed: Sequence[tuple[str, str]],
        passing: Sequence[str] = (),
        refused: Mapping[str, str] | None = None,
        *,
        has_baseline: bool = False,
        most_trials: int = MOST_TRIALS,
        alpha: float = ALPHA,
    ) -> None:
        """Create a plan.

        Args:
            failed: the id of each failed run, with the agent its verdict blames; at least one.
            passing: the ids of runs that passed.
            refused: why some of these runs cannot be replayed at all.
            has_baseline: whether yesterday's program runs beside today's, so that all runs have two arms.
            most_trials: of each arm of a run.
            alpha: bound on the probability of ``FIXED`` although today succeeds no more often in any run.
        """
        self._blamed: Final = dict(failed)
        self._failed: Final = tuple(self._blamed)
        self._passing: Final = tuple(dict.fromkeys(passing))
        self._refused: Final = refused or {}
        self.has_baseline: Final = has_baseline
        self._most: Final = most_trials
        self._alpha: Final = alpha
        self._outcomes: Final[dict[tuple[str, Side], list[Outcome]]] = {
            (run, side): [] for run in (*self._failed, *self._passing) for side in Side
        }
        self._pending: Final[Counter[tuple[str, Side]]] = Counter()
        self._sampling: Final = Sampling()
        self._decided: Verdict | None = self._decision()

    def begin(self) -> tuple[str, Side] | None:
        """Start the next trial and return its run and arm; ``None`` if no trial can be begun now."""
        states = {} if self._decided is not None else {run: self.run(run) for run in self._failed}
        free = [(run, side) for run, state in states.items() for side in self._wanting(state)]
        free.extend((run, Side.TODAY) for run in self._passing if self._wants_passing(run))
        key = min(free, key=self._begun, default=None)
        if key is not None:
            self._pending[key] += 1
        return key

    def end(self, key: tuple[str, Side], outcome: Outcome | None) -> None:
        """Take a trial's outcome; ``None`` if it was cancelled."""
        self._pending[key] -= 1
        if outcome is not None:
            self._outcomes[key].append(outcome)
            self._sampling.add(outcome.result)
            self._decided = self._decided or self._decision()

    @property
    def failed(self) -> tuple[RunState, ...]:
        """The failed runs, in the given order."""
        return tuple(map(self.run, self._failed))

    @property
    def passing(self) -> tuple[PassingState, ...]:
        """The passing runs, in the given order."""
        return tuple(map(self._passing_run, self._passing))

    def _passing_run(self, run: str) -> PassingState:
        """Return a passing run; equal answers count each: they say nothing of luck, but are what it does."""
        seen = [outcome.result for outcome in self._outcomes[run, Side.TODAY]]
        valid = [result for result in seen if not result.invalid]
        invalid = [result.invalid for result in seen if result.invalid]
        lost = invalid[-1] if len(invalid) >= _MOST_INVALID else ""
        return PassingState(
            run_id=run,
            today=Arm(n=len(valid), successes=sum(each.success for each in valid), invalid=len(invalid)),
            refused=self._refused.get(run) or lost,
        )

    def run(self, run: str) -> RunState:
        """Return one failed run."""
        seen = self._outcomes[run, Side.TODAY]
        judged = [outcome.blamed for outcome in seen if outcome.blamed and not outcome.result.success]
        today, yesterday = self._arm(run, Side.TODAY), self._arm(run, Side.YESTERDAY)
        return RunState(
            run_id=run,
            blamed=self._blamed[run],
            today=today,
            yesterday=yesterday,
            is_compared=self.has_baseline or any(outcome.differs for outcome in seen),
            masked=max((outcome.result.masked for outcome in seen), default=0),
            judged=len(judged),
            moved=sum(agent != self._blamed[run] for agent in judged),
            refused=self._refused.get(run) or _refused(today, yesterday),
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict on the failed runs, of all trials so far."""
        if self._decided is not None:
            return self._decided
        played = [state for state in self.failed if not state.refused]
        hopeless = [state for state in played if self._always_fails(state)]
        if hopeless:
            return _of_failing(hopeless)
        if not all(state.passes for state in played):
            return Verdict.UNDECIDED
        pairs = _pairs(played)
        is_clear = len(pairs) * 2 < len(played) or _effect(pairs) >= CLEAR_EFFECT
        return Verdict.NO_LONGER_FAILS if is_clear else Verdict.UNDECIDED

    def _always_fails(self, state: RunState) -> bool:
        """Say whether no trial passed, and more would not say more."""
        is_exhausted = state.today.n >= self._most or state.today.copies >= _MOST_COPIES
        return is_exhausted and not state.today.successes

    def _decision(self) -> Verdict | None:
        """Return the verdict that further trials do not change; ``None`` while they may decide."""
        states = self.failed
        played = [state for state in states if not state.refused]
        if len(played) * 2 < len(states):
            return Verdict.NOT_REPLAYABLE
        failing = [state for state in played if self._still_fails(state, len(states))]
        if failing:
            return _of_failing(failing)
        if not all(state.today.n for state in played):
            return None
        compared = [state for state in played if state.is_compared]
        if len(compared) * 2 < len(played):
            return self._without_comparison(played)
        return self._compared(states, played)

    def _compared(self, states: Sequence[RunState], played: Sequence[RunState]) -> Verdict | None:
        pairs = _pairs(played)
        strict = [state.strict for state in _paired(played)]
        is_clear = _effect(strict) >= CLEAR_EFFECT and all(state.passes for state in played)
        if is_clear and sum(map(_log_evidence, states)) >= -math.log(self._alpha):
            return Verdict.FIXED
        none = sum(log_evidence_of_no_effect(*pair) for pair in pairs)
        if not pairs or none < -math.log(REFUTING_ALPHA):
            return None
        if all(state.passes for state in played):  # the failure does not come back, whoever asks
            return Verdict.UNDECIDED
        return None if any(state.passes for state in played) else _of_failing(played)

    def _without_comparison(self, played: Sequence[RunState]) -> Verdict | None:
        """End with enough passes; a rule for stopping, which claims nothing of the change."""
        every = Arm(n=sum(s.today.n for s in played), successes=sum(s.today.successes for s in played))
        is_enough = log_evidence_of_passing(every) >= -math.log(self._alpha)
        passes = is_enough and all(state.passes for state in played)
        return Verdict.NO_LONGER_FAILS if passes else None

    def _still_fails(self, state: RunState, runs: int) -> bool:
        failures = Arm(n=state.today.n, successes=state.today.n - state.today.successes)
        return failures.n > 0 and log_evidence_of_passing(failures) >= -math.log(self._alpha / runs)

    def _wanting(self, state: RunState) -> list[Side]:
        """Return the arms that may get a trial; whether there is a second one, the first trial says."""
        if state.refused:
            return []
        if not self.has_baseline and not state.today.n:
            return [] if self._pending[state.run_id, Side.TODAY] else [Side.TODAY]
        sides = list(Side) if state.is_compared else [Side.TODAY]
        return [side for side in sides if self._has_room(state.run_id, side)]

    def _wants_passing(self, run: str) -> bool:
        is_under_way = self._pending[run, Side.TODAY] > 0
        begun = len(self._outcomes[run, Side.TODAY])
        return not is_under_way and not self._passing_run(run).is_done and begun < _PASSING_TRIALS

    def _has_room(self, run: str, side: Side) -> bool:
        arm = self._arm(run, side)
        under_way = self._pending[run, side]
        return (
            arm.n + under_way < self._most
            and arm.copies < _MOST_COPIES
            and arm.invalid <= arm.n + _MOST_INVALID
        )

    def _begun(self, key: tuple[str, Side]) -> int:
        return len(self._outcomes[key]) + self._pending[key]

    def _arm(self, run: str, side: Side) -> Arm:
        return count((outcome.result for outcome in self._outcomes[run, side]), self._sampling)


def _refused(today: Arm, yesterday: Arm) -> str:
    for arm in (today, yesterday):
        if not arm.n and arm.invalid >= _MOST_INVALID:
            return arm.reasons[0].text
    return unlike(yesterday, today) if yesterday.n else ""


def _of_failing(failing: Sequence[RunState]) -> Verdict:
    moved = all(state.moved * 2 > state.today.n - state.today.successes for state in failing)
    return Verdict.MOVED if moved else Verdict.NOT_FIXED


def _log_evidence(state: RunState) -> float:
    """Return the logarithm of a run's factor in the product over runs.

    What speaks against a fix also counts in a run that got lost, or whose second arm has no trial yet: the
    product would not be bounded without such runs.
    """
    if not state.is_compared:
        return 0.0
    evidence = log_evidence_of_healing(*state.strict)
    return min(0.0, evidence) if state.refused else evidence


def _paired(states: Sequence[RunState]) -> list[RunState]:
    """Return the runs that have trials of both arms."""
    return [state for state in states if state.is_compared and state.yesterday.n and state.today.n]


def _pairs(states: Sequence[RunState]) -> list[tuple[Arm, Arm]]:
    """Return yesterday's and today's arm of the runs that have both."""
    return [(state.yesterday, state.today) for state in _paired(states)]


def _effect(pairs: Sequence[tuple[Arm, Arm]]) -> float:
    """Return the mean rise of the success rate over the runs with both arms."""
    return sum(today.rate - yesterday.rate for yesterday, today in pairs) / len(pairs) if pairs else 0.0
