"""Retry of a workflow that failed, with what the verdict says to do instead; as a decorator or as a function.

Whether a run failed is decided by a check that the caller trusts, or by the verdict. Verdicts can be wrong,
so a verdict causes a retry only through a gate measured on pilot runs (``blamespan experiment --retry --gate
FILE``): an intervention that breaks more good runs than it repairs bad ones is refused.

The course of a retry is a generator that asks for calls and verdicts, so it is the same with and without
asyncio.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

from analyzer.api.local import Source, attribute, attribute_async, read_run
from analyzer.experiment.retry_gate import GENERIC_HINT, INTERVENTIONS, Gate, RetryArm, Trigger, read_gate
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.whole_run import WholeRun
from analyzer.records.json_records import RunVerdict
from semconv.model import Status

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_WAYS: Final = tuple(each.value for each in INTERVENTIONS)
_FLAGS: Final = frozenset({Status.ATTRIBUTED.value, Status.SUSPECTED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAdvice:
    """Advice to a retried workflow."""

    text: str
    """Correction for the blamed agent's instructions, or for the task."""
    agent: str | None = None
    """The blamed agent; ``None`` if the advice is general."""
    step: int | None = None
    """The blamed step: a workflow that can go on from there keeps what came before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryGate:
    """Permission, measured on pilot runs, to intervene where the verdict says that a run failed."""

    way: RetryArm
    gate: Gate

    @classmethod
    def read(cls, path: str | PathLike[str], *, way: str = "fix") -> RetryGate:
        """Read the result of a pilot.

        Args:
            path: FILE of ``blamespan experiment --retry --gate FILE``.
            way: ``fix``, ``generic`` or ``blind``: how to retry.

        Raises:
            ValueError: the file holds no such gate.
            OSError: the file cannot be read.
        """
        if way not in _WAYS:
            raise ValueError(f"way: expected one of {', '.join(_WAYS)}, not {way!r}")
        document = json.loads(Path(path).read_bytes())
        try:
            found = document["gates"][way][Trigger.FLAGGED.value]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: expected the result of `blamespan experiment --retry`") from error
        return cls(way=RetryArm(way), gate=read_gate(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAttempt(Generic[T]):
    """One call of the workflow."""

    result: T
    advice: RetryAdvice | None = None
    """Advice that it got; ``None`` for the first call, and for a blind retry."""
    verdict: RunVerdict | None = None
    """The verdict on it; ``None`` if none was needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Generic[T]):
    """A workflow's result, and how it came about."""

    result: T
    attempts: tuple[RetryAttempt[T], ...]
    refused: str = ""
    """Reason for not retrying a run that failed or may have failed; else empty."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """Asks the caller to run the workflow."""

    advice: RetryAdvice | None = None


_Course = Generator["_Ask | WholeRun", Any, Retried[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class retry(Generic[T]):  # noqa: N801 - a decorator, like contextlib.suppress
    """Retry of a workflow with the verdict's fix: ``@retry(…)``, or ``retry(…).run(workflow, task)``.

    A retried workflow gets ``advice=RetryAdvice(…)``. With ``passed``, it is called again until it passes; if
    no attempt does, the first result is returned. With ``gate``, it is called once more if the verdict says
    that the run failed and the gate allows a retry; the second result is then returned. The workflow's
    exceptions are not caught.

    Raises:
        ValueError: fields exclude each other.
    """

    source: Callable[[T], Source]
    """Returns the recorded run behind a result: a trace, or with ``passed`` also the messages."""
    passed: Callable[[T], bool] | None = None
    """Returns whether a result is right. Use it only if it is reliable: nothing else checks the result."""
    gate: RetryGate | None = None
    """Permission measured on pilot runs. Exactly one of ``passed`` and ``gate`` is needed."""
    way: str = "fix"
    """With ``passed``: ``fix`` (the verdict's), ``generic`` (a fixed hint) or ``blind`` (no advice)."""
    times: int = 1
    """Most retries, with ``passed``."""
    parameter: str = "advice"
    """Keyword of the workflow that takes the advice."""
    method: str = "auto"
    """As for ``attribute``."""
    model: str | None = None
    """As for ``attribute``."""
    budget_usd: float | None = 0.50
    """Most dollars for a verdict."""
    told: Callable[[Retried[T]], object] | None = None
    """Called with the attempts when a workflow has ended."""

    def __post_init__(self) -> None:
        if (self.passed is None) == (self.gate is None):
            raise ValueError(
                "expected either passed (a check that you trust) or gate (measured on pilot runs)"
            )
        if self.gate is not None and (self.times != 1 or self.way != "fix"):
            raise ValueError("a gate allows one retry, as it was measured: expected neither times nor way")
        if self.way not in _WAYS or self.times < 1:
            raise ValueError(f"expected a way of {', '.join(_WAYS)}, and times of at least 1")

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, function: Callable[P, T]) -> Callable[P, T]: ...

    def __call__(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Decorate a workflow, which then returns the result chosen by ``run``."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                return (await self.run_async(function, *args, **kwargs)).result

            return awaited

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Any:
            return self.run(function, *args, **kwargs).result

        return called

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Retried[T]:
        """Run a workflow, and retry it if it failed; raises what the workflow raises."""
        course = self._course()
        answer: Any = None
        try:
            while True:
                asked = course.send(answer)
                if isinstance(asked, _Ask):
                    answer = function(*args, **self._with(kwargs, asked))
                else:
                    answer = attribute(asked, **self._how())
        except StopIteration as ended:
            return self._ended(ended)

    async def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Retried[T]:
        """Run an async workflow, and retry it if it failed; raises what the workflow raises."""
        course = self._course()
        answer: Any = None
        while True:
            try:
                asked = course.send(answer)
            except StopIteration as ended:
                return self._ended(ended)
            if isinstance(asked, _Ask):
                answer = await function(*args, **self._with(kwargs, asked))
            else:
                answer = await attribute_async(asked, **self._how())

    def _course(self) -> _Course[T]:
        first: T = yield _Ask()
        if self.passed is not None:
            return (yield from self._by_check(first, self.passed))
        assert self.gate is not None
        return (yield from self._by_verdict(first, self.gate))

    def _by_check(self, first: T, passed: Callable[[T], bool]) -> _Course[T]:
        attempts, result, advice = list[RetryAttempt[T]](), first, None
        while not passed(result):
            whole = None if len(attempts) == self.times else self._read(result)
            if whole is None or isinstance(whole, str):
                attempts.append(RetryAttempt(result=result, advice=advice))
                return Retried(result=first, attempts=tuple(attempts), refused=whole or "")
            verdict: RunVerdict = yield whole
            attempts.append(RetryAttempt(result=result, advice=advice, verdict=verdict))
            advice = _advice(RetryArm(self.way), verdict)
            result = yield _Ask(advice)
        attempts.append(RetryAttempt(result=result, advice=advice))
        return Retried(result=result, attempts=tuple(attempts))

    def _by_verdict(self, first: T, gate: RetryGate) -> _Course[T]:
        if not gate.gate.allows:
            return _untried(first, f"the gate of {gate.way} says {gate.gate.choice}: {_shares(gate.gate)}")
        whole = self._read(first)
        if isinstance(whole, str):
            return _untried(first, whole)
        if whole.trajectory.is_recorded_conversation:
            return _untried(first, "a conversation log does not say whether it failed: expected a trace")
        verdict: RunVerdict = yield whole
        attempt = RetryAttempt(result=first, verdict=verdict)
        if verdict.status not in _FLAGS:
            return Retried(result=first, attempts=(attempt,))
        advice = _advice(gate.way, verdict)
        second: T = yield _Ask(advice)
        return Retried(result=second, attempts=(attempt, RetryAttempt(result=second, advice=advice)))

    def _read(self, result: T) -> WholeRun | str:
        """Return the run behind a result, or why it cannot be read."""
        source = self.source(result)
        try:
            return source if isinstance(source, WholeRun) else read_run(source)
        except UnreadableInput as error:
            return f"the run cannot be read: {error}"

    def _with(self, kwargs: Any, ask: _Ask) -> Any:
        return kwargs if ask.advice is None else {**kwargs, self.parameter: ask.advice}

    def _how(self) -> Any:
        return {
            "method": self.method,
            "model": self.model,
            "budget_usd": self.budget_usd,
            "failed": self.passed is not None,
        }

    def _ended(self, ended: StopIteration) -> Retried[T]:
        found = cast("Retried[T]", ended.value)
        if found.refused:
            logger.warning("no retry", extra={"reason": found.refused})
        if self.told is not None:
            self.told(found)
        return found


def _advice(way: RetryArm, verdict: RunVerdict) -> RetryAdvice | None:
    if way is RetryArm.BLIND:
        return None
    if way is RetryArm.GENERIC or not verdict.fix:
        return RetryAdvice(text=GENERIC_HINT)
    return RetryAdvice(text=verdict.fix, agent=verdict.agent, step=verdict.step)


def _untried(first: T, refused: str) -> Retried[T]:
    return Retried(result=first, attempts=(RetryAttempt(result=first),), refused=refused)


def _shares(gate: Gate) -> str:
    low, high = gate.interval
    return (
        f"{gate.failed.rate:.0%} of the runs it would meet have failed, and it helps above"
        f" {gate.threshold:.0%} (gain {gate.gain:+.3f}, 95 % {low:+.3f} to {high:+.3f})"
    )
