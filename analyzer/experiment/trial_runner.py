"""Runner of single trials: opens one in the gateway, runs the workflow, and judges the outcome. Not pure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from analyzer.experiment.call_budget import Ledger, Spent
from analyzer.experiment.replay.canonical import Difference
from analyzer.experiment.replay.gateway_server import Gateway
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.replay.trial import CLIENT_GONE, Change, TrialReport
from analyzer.experiment.sequential import Draw, TrialResult
from analyzer.experiment.walk import MOST_TRIALS
from analyzer.experiment.workflow import TIMEOUT_S, Check, Ended, Workflow
from analyzer.inquiry.method import Clock
from semconv.attributes import TRIAL
from semconv.record import record

_EXTRA_S: Final = 60.0
"""Seconds that a trial's URL outlives the trial's time limit."""
_SEED: Final = "BLAMESPAN_SEED"
_NO_TELEMETRY: Final = "OTEL_SDK_DISABLED"
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"


@record
class Options:
    """Options for running trials."""

    most_trials: int = MOST_TRIALS
    parallel: int = 1
    timeout_s: float = TIMEOUT_S
    seed: int = 0
    """Seed of the first trial; each trial gets the next one in ``BLAMESPAN_SEED``, for workflows that use
    it."""


@record
class Parts:
    """The collaborators of an experiment."""

    gateway: Gateway
    workflow: Workflow
    check: Check
    ledger: Ledger
    clock: Clock
    resource: str = ""
    """The user's own ``OTEL_RESOURCE_ATTRIBUTES``."""
    must_announce: bool = False
    """Whether the workflow runs in a service, whose decorated tools learn of a trial only by ``rerun``."""
    issue: Callable[[], Awaitable[str]] | None = None
    """Issues the trial's id, which the store knows; without an id, the trial sends no telemetry."""
    telemetry: Callable[[str], Mapping[str, str]] | None = None
    """Returns the variables that lead a trial's spans elsewhere than to the service, given its id."""


@record
class Ran:
    """One completed trial."""

    trial: str
    """Its id in the gateway."""
    result: TrialResult
    report: TrialReport


class TrialRunner:
    """Runs the trials of one tape."""

    def __init__(self, tape: Tape, parts: Parts, options: Options) -> None:
        """Prepare trials; none is started."""
        self.completed = 0
        self._tape: Final = tape
        self._parts: Final = parts
        self._options: Final = options
        self._begun = 0

    async def __call__(self, change: Change | None, book: Callable[[Spent], None] | None = None) -> Ran:
        """Run one trial; without a change it replays the whole tape.

        Args:
            change: where the tape ends.
            book: gets the trial's usage, even if the trial is cancelled.

        Raises:
            OSError: the workflow cannot be started.
            CheckFailed: the check cannot be run.
        """
        gateway, limit = self._parts.gateway, self._options.timeout_s
        opened = gateway.open(
            self._tape, change, lifetime_s=limit + _EXTRA_S, must_announce=self._parts.must_announce
        )
        try:
            environment = {
                **gateway.environment(opened),
                **await self._telemetry(opened.trial),
                _SEED: str(self._options.seed + self._begun),
            }
            self._begun += 1
            ended = await self._parts.workflow(environment, limit)
            succeeded = not ended.timed_out and await self._parts.check(ended)
        finally:
            report = gateway.close(opened.trial)
            if book is not None:
                book(self._parts.ledger.of(opened.trial))
        self.completed += 1
        draws = self._parts.ledger.draws(opened.trial)
        return Ran(
            trial=opened.trial,
            result=_result(report, ended, change, draws, succeeded=succeeded),
            report=report,
        )

    async def _telemetry(self, trial: str) -> Mapping[str, str]:
        """Return the variables of the trial's OpenTelemetry SDK."""
        issued = await self._parts.issue() if self._parts.issue else ""
        marked = {_RESOURCE: ",".join(filter(None, (self._parts.resource, f"{TRIAL}={issued}")))}
        if self._parts.telemetry is not None:
            return {**self._parts.telemetry(trial), **(marked if issued else {})}
        # Without an id no store knows the trial, so its spans would count as production.
        return marked if issued else {_NO_TELEMETRY: "true"}


def _result(
    report: TrialReport, ended: Ended, change: Change | None, draws: tuple[Draw, ...], *, succeeded: bool
) -> TrialResult:
    return TrialResult(
        success=succeeded,
        invalid=_invalid(report, ended, change, succeeded=succeeded),
        crashed=_crashed(report, ended),
        draws=draws,
        served=report.served,
        masked=report.masked,
        live=report.live,
    )


def _crashed(report: TrialReport, ended: Ended) -> bool:
    is_refused = report.invalid or report.first_difference or report.live_failures
    return ended.code != 0 and not ended.timed_out and not is_refused


def _invalid(report: TrialReport, ended: Ended, change: Change | None, *, succeeded: bool) -> str:
    """Return why a trial says nothing about its arm; empty if it is valid.

    A failure or timeout while the upstream was healthy is the workflow's own; if live calls failed too, it
    may be the upstream's.
    """
    if report.invalid:
        return (
            report.invalid
            if not report.first_difference
            else f"{report.invalid}: {described(report.first_difference)}"
        )
    if change is None and report.missing:
        return _bypassed(report, ended)
    if change is None and report.tools_missing:
        return (
            f"the recorded results of {', '.join(report.tools_missing)} were never requested: the"
            f" tools really run, or the workflow takes another path{_exit(ended)}"
        )
    failures = dict(report.live_failures)
    if ended.timed_out:
        failures.pop(CLIENT_GONE, None)  # the calls that the time limit cut short
    if failures and not succeeded:
        listed = ", ".join(f"{reason}: {n}" for reason, n in sorted(failures.items()))
        return f"the upstream failed ({listed})"
    if change is not None and not report.changed:
        return f"the changed call was never asked for{_exit(ended)}"
    return ""


def _bypassed(report: TrialReport, ended: Ended) -> str:
    return (
        f"{len(report.missing)} of {report.calls} recorded calls never arrived: they bypass the gateway (a"
        f" provider or a URL fixed in the code), or the workflow takes another path{_exit(ended)}"
    )


def _exit(ended: Ended) -> str:
    if ended.timed_out:
        return "; the workflow ran into the time limit"
    last = ended.tail.strip().splitlines()[-1:] or [""]
    return f"; the workflow ended with {ended.code}: {last[0]}" if ended.code else ""


def described(difference: Difference | None) -> str | None:
    """Return a difference as text; ``None`` if there is none."""
    if difference is None:
        return None
    where = "no call is left" if difference.call is None else f"call {difference.call}"
    return (
        f"{where}, message {difference.message}: expected {difference.expected!r}, found {difference.found!r}"
    )


async def in_parallel(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Run ``count`` equal tasks; if one fails, or this is cancelled, end the others before returning."""
    tasks = [asyncio.create_task(work()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
