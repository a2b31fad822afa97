"""Injection of faults into reruns of a passing run; faults proved by twins become labels. Not pure.

A fault is one corrupted answer of the tape (``fault_kinds``). Only the caller of this module can ask for one:
the gateway has no request, and no header, that changes an answer.

Twins are trials from the same prefix with and without a fault. A label is honest if the fault takes at least
50 points from the success rate, and the run passes again when the step is restored. The bound of the effect
is that of ``sequential.interval``, which is valid after any number of looks, so a twin may end as soon as it
is decided. Some failures without the fault are allowed: if only runs without any were kept, the labels of an
unreliable workflow would lie at its last steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from analyzer.experiment.captured import Capture, Telemetry
from analyzer.experiment.replay.matching import Match, Spoken
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Answer, RecordedCall, Tape
from analyzer.experiment.replay.trial import Change
from analyzer.experiment.sequential import Arm, Sampling, TrialResult, count, interval
from analyzer.experiment.trial_runner import Options, Parts, TrialRunner, in_parallel
from analyzer.lab.injection.fault_kinds import FaultKind, corrupted
from analyzer.recordings.otlp_file import trace_document
from collector_processor.core.runs import Run
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.stages import rebuild
from semconv.model import Trajectory
from semconv.record import record, replace

FEWEST: Final = 10
"""Trials without the fault before a label is kept."""
LEAST_EFFECT: Final = 0.5
"""Lower bound of the effect from which a label is honest."""
RESTORED: Final = 5
"""Further trials with the step restored: the twin's own trials were part of the choice."""
LEAST_RESTORED: Final = 4
"""Number of them that must pass."""


class Next(StrEnum):
    """The next trial of a twin."""

    RECORDED = "recorded"
    """With the recorded answer."""
    FAULTY = "faulty"
    RESTORE = "restore"
    """With the recorded answer again, to see whether restoring the step makes the run pass."""
    KEEP = "keep"
    DISCARD = "discard"


@record
class Twin:
    """Trials of one fault so far."""

    recorded: Arm
    faulty: Arm
    restored: Arm

    @property
    def effect(self) -> tuple[float, float]:
        """95 % interval of what the fault takes from the success rate."""
        return interval(self.faulty, self.recorded)


@record
class Course:
    """Next trials of a twin, or the reason for discarding it."""

    next: Next
    reason: str = ""


def course(twin: Twin, most: int) -> Course:
    """Return the next trial that a twin needs, or its result.

    Args:
        twin: its trials.
        most: valid trials per arm; from there on, it is discarded.
    """
    if reason := _dishonest(twin, most):
        return Course(next=Next.DISCARD, reason=reason)
    recorded, faulty = twin.recorded, twin.faulty
    if recorded.n >= FEWEST and twin.effect[0] >= LEAST_EFFECT:
        return Course(next=Next.RESTORE if twin.restored.n < RESTORED else Next.KEEP)
    if min(recorded.n, faulty.n) >= most:
        return Course(next=Next.DISCARD, reason="the effect is not clear")
    return Course(next=Next.FAULTY if faulty.n <= recorded.n and faulty.n < most else Next.RECORDED)


def _dishonest(twin: Twin, most: int) -> str:
    """Return why a twin makes no honest label; empty if it may still make one."""
    arms = (twin.recorded, twin.faulty, twin.restored)
    if (twin.recorded.n - twin.recorded.successes) * _ONE_OF > most:
        return "the run often fails without the fault"
    if max(arm.invalid for arm in arms) >= _MOST_INVALID:
        return f"invalid trials: {next(reason.text for arm in arms for reason in arm.reasons)}"
    if max(arm.copies for arm in arms) >= _MOST_COPIES * most:
        return "the model always gives the same answers, which count once"
    if twin.restored.n - twin.restored.successes > RESTORED - LEAST_RESTORED:
        return "restoring the step does not heal"
    is_seldom = twin.faulty.successes * _ONE_OF <= most
    return "" if is_seldom else "the run often passes with the fault"


_MOST_COPIES: Final = 2
"""Bound on trials that do not count, as a multiple of those that may."""
_MOST_INVALID: Final = 3
"""Invalid trials of one arm after which a twin is discarded."""
_ONE_OF: Final = 5
"""At most one in this many trials may fail without the fault, or pass with it."""


MOST_TRIALS: Final = 40
"""Maximum number of valid trials per arm of a twin; one that is always right needs 12."""


@record
class Fault:
    """One fault in one run."""

    kind: FaultKind
    call: RecordedCall
    answer: Answer
    """The corrupted answer."""


@record
class Failure:
    """A labelled failure: a rerun that failed because of a fault."""

    trajectory: Trajectory
    step: int
    agent: str
    document: dict[str, Any]
    """The line of the data set."""


@record
class Tried:
    """Result of one fault."""

    run_id: str
    fault: Fault
    twin: Twin
    reason: str = ""
    """Reason for making no label; empty if it makes one."""
    failure: Failure | None = None
    organic: tuple[Trajectory, ...] = ()
    """Runs that failed without the fault, among its trials."""


@record
class Injected:
    """Result for one passing run."""

    run_id: str
    refused: str = ""
    """Reason for trying no fault."""


@record
class Plan:
    """Faults to try, and the number of trials and labels."""

    kinds: Sequence[FaultKind] = tuple(FaultKind)
    most_trials: int = MOST_TRIALS
    most_labels: int = 3
    """Labels of one run; more would look alike."""
    seed: int = 0
    allow_tools: frozenset[str] = field(default_factory=frozenset)
    others: Sequence[Tape] = ()
    """Passing runs of the workflow, this one perhaps among them: their answers may replace its own."""


def faults_of(tape: Tape, plan: Plan) -> list[Fault]:
    """Return a fault of each kind at each call that has a place for it, in random order.

    The order is over calls and kinds alike, so that neither a step nor a kind is preferred.
    """
    faults: list[Fault] = []
    for call in tape.calls:
        for kind in plan.kinds:
            coin = random.Random(f"{plan.seed} {tape.run_id} {call.index} {kind}")  # noqa: S311 - no secret
            answer = None if call.step is None else corrupted(kind, tape, call, coin, plan.others)
            if answer is not None:
                faults.append(Fault(kind=kind, call=call, answer=answer))
    random.Random(f"{plan.seed} {tape.run_id}").shuffle(faults)  # noqa: S311 - no secret
    return faults


class Injector:
    """Injects faults into the reruns of one passing run."""

    def __init__(self, run: Run, tape: Tape, parts: Parts, options: Options, capture: Capture) -> None:
        """Prepare; nothing is started.

        Args:
            run: the passing run.
            tape: its tape.
            parts: the collaborators, whose telemetry goes to ``capture``.
            options: options for running trials.
            capture: receives the spans of trials.
        """
        self._run: Final = run
        self._tape: Final = tape
        self._parts: Final = parts
        self._options: Final = options
        self._capture: Final = capture
        self._trial: Final = TrialRunner(tape, parts, options)
        self._recorded: Final[dict[int, list[TrialResult]]] = {}
        """Trials with the recorded answers, shared by all faults of a call."""
        self._labels = 0
        self._have_labels: Final[set[int]] = set()
        """Calls that have a label."""

    async def run(self, plan: Plan, watch: Callable[[Tried], None]) -> Injected:
        """Try the run's faults, several at a time.

        Raises:
            OSError: the workflow cannot be started.
            CheckFailed: the check cannot be run.
        """
        if refused := await self._refusal():
            return Injected(run_id=self._tape.run_id, refused=refused)
        waiting = iter(faults_of(self._tape, plan))

        async def work() -> None:
            for fault in waiting:
                if self._labels >= plan.most_labels or self._ended():
                    return
                if fault.call.index in self._have_labels:
                    continue  # one label a step: otherwise the easiest step would get them all
                tried = await self._try(fault, plan)
                if self._ended() and tried.failure is None:
                    return  # the budget decided, not the fault
                if tried.failure is not None:
                    self._labels += 1
                    self._have_labels.add(fault.call.index)
                watch(tried)

        await in_parallel(work, self._options.parallel)
        return Injected(run_id=self._tape.run_id)

    def _ended(self) -> str:
        """Return why no further call is paid for, or nothing."""
        return self._parts.ledger.exhausted

    async def _refusal(self) -> str:
        """Run the trial without a fault; return why the run is of no use, or nothing."""
        ran = await self._trial(None)
        telemetry = self._capture.take(ran.trial)
        if ran.result.invalid:
            return f"the rerun without a fault: {ran.result.invalid}"
        if not ran.result.success:
            return "it does not pass the check with all recorded answers"
        if ran.report.undeclared:
            options = " ".join(f"--allow-tool {name}" for name in ran.report.undeclared)
            return f"the live model may call tools that would really run: {options}, if they only read"
        if not telemetry.spans:
            return (
                "the rerun sent no spans to OTEL_EXPORTER_OTLP_ENDPOINT (OTLP over HTTP), so its failures"
                " could not be kept"
            )
        return ""

    async def _try(self, fault: Fault, plan: Plan) -> Tried:
        faulty: list[TrialResult] = []
        restored: list[TrialResult] = []
        recorded = self._recorded.setdefault(fault.call.index, [])
        failed: Telemetry | None = None
        organic: list[Trajectory] = []
        while True:
            twin = Twin(recorded=_arm(recorded, faulty), faulty=_arm(faulty), restored=_arm(restored, faulty))
            found = course(twin, plan.most_trials)
            if found.next in {Next.KEEP, Next.DISCARD} or self._ended():
                break
            answer = fault.answer if found.next is Next.FAULTY else fault.call.answer
            ran = await self._trial(Change(call=fault.call.index, answer=answer))
            telemetry = self._capture.take(ran.trial)
            {Next.FAULTY: faulty, Next.RECORDED: recorded, Next.RESTORE: restored}[found.next].append(
                ran.result
            )
            if ran.result.success or ran.result.invalid:
                continue
            if found.next is Next.FAULTY:
                failed = failed or telemetry
            else:
                organic += self._rebuilt(telemetry)
        tried = Tried(
            run_id=self._tape.run_id, fault=fault, twin=twin, reason=found.reason, organic=tuple(organic)
        )
        if found.next is not Next.KEEP or failed is None:
            return tried
        return self._labelled(tried, failed, plan)

    def _rebuilt(self, telemetry: Telemetry) -> list[Trajectory]:
        """Return the run of a trial that failed by itself, if its spans show one."""
        try:
            runs = rebuild(telemetry.spans, telemetry.logs, reader=self._run.reader)
        except MalformedRequestError:
            return []
        return [run.trajectory for run in runs] if len(runs) == 1 else []

    def _labelled(self, tried: Tried, failed: Telemetry, plan: Plan) -> Tried:
        """Return the fault with its labelled failure, or with the reason why there is none."""
        reader = self._run.reader
        try:
            runs = rebuild(failed.spans, failed.logs, reader=reader)
            document = trace_document(failed.spans, failed.logs)
        except MalformedRequestError as error:
            return _without(tried, f"its spans cannot be read: {error}")
        if len(runs) != 1:
            return _without(tried, f"its spans are {len(runs)} runs, expected one")
        call = _place(runs[0], tried.fault, plan.allow_tools)
        if call is None or call.step is None:
            return _without(tried, "its spans do not show the corrupted answer")
        trajectory = runs[0].trajectory
        line = {
            "id": trajectory.run_id,
            "source": _service(runs[0]),
            "subset": tried.fault.kind.value,
            "question": trajectory.task,
            "label": {
                "agent": call.agent,
                "step": call.step,
                "category": tried.fault.kind.value,
                "weight": round(1.0 - tried.twin.faulty.rate, 4),
            },
            "injected": {"run_id": tried.run_id, "call": tried.fault.call.index, **twin_json(tried.twin)},
            **document,
        }
        failure = Failure(trajectory=trajectory, step=call.step, agent=call.agent, document=line)
        return replace(tried, failure=failure)


def twin_json(twin: Twin) -> dict[str, Any]:
    """Return the trials of a twin as JSON."""
    arms = {"recorded": twin.recorded, "faulty": twin.faulty, "restored": twin.restored}
    counted = {
        name: {"n": arm.n, "successes": arm.successes, "invalid": arm.invalid} for name, arm in arms.items()
    }
    return {**counted, "effect": list(twin.effect)}


def _without(tried: Tried, reason: str) -> Tried:
    return replace(tried, reason=reason)


def _arm(trials: Sequence[TrialResult], others: Iterable[TrialResult] = ()) -> Arm:
    sampling = Sampling()
    for trial in (*trials, *others):
        sampling.add(trial)
    return count(trials, sampling)


def _place(run: Run, fault: Fault, allow_tools: frozenset[str]) -> RecordedCall | None:
    """Return the call of a failed rerun that gave the corrupted answer to the recorded request."""
    tape = read_tape(run, allow_tools=allow_tools)
    if not isinstance(tape, Tape):
        return None
    key = Spoken(fault.call.messages, fault.call.kind).key(Match.MASKED)
    same = [call for call in tape.calls if _said(call.answer) == _said(fault.answer)]
    exact = [call for call in same if Spoken(call.messages, call.kind).key(Match.MASKED) == key]
    return next(iter(exact or same), None)


def _said(answer: Answer) -> tuple[str, tuple[tuple[str, str], ...]]:
    return answer.text.strip(), tuple((call.name, "".join(call.arguments.split())) for call in answer.calls)


def _service(run: Run) -> str:
    names = (span.resource.attributes.get("service.name") for span in run.trace.spans)
    return next((str(name) for name in names if name), "")
