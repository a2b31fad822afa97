"""A pinned run: a program runs again on its recorded answers, for the tests that ``pin`` writes. Not pure.

The calls before the decisive one are answered from the tape. The decisive one and all later ones are answered
from a second tape, if the test names one, or by the live model, which is not asked unless the test allows it.
Tools fail closed as in experiments: one whose result is on no tape does not run. A tape cannot name a
program, an address or a file: these stand in the test.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.api.pinning import NO_RULES, NotPinned, Rules, blame_in, read_rules
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.run_report import runs_of
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import ANTHROPIC, OPENAI, GatewayOptions, LiveCall
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.matching import Spoken, TapeIndex, Waiting
from analyzer.experiment.replay.tape import Matching, Tape
from analyzer.experiment.replay.trial import Change, TrialReport
from analyzer.experiment.workflow import TIMEOUT_S, Command, Ended
from analyzer.programs.child import TEXTS
from analyzer.programs.recording_gateway import RecordingGateway, recording
from collector_processor.core.runs import Run
from semconv.record import replace

_EXTRA_S: Final = 60.0
"""Seconds that the gateway's address outlives the program's time limit."""
_NO_TELEMETRY: Final = {"OTEL_SDK_DISABLED": "true"}
_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_NO_KEY: Final = "none-for-a-recorded-answer"
"""Clients refuse to start without a key."""
_TRIAL: Final = "pinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a program did on a tape."""

    output: str
    """Its standard output."""
    reached: bool
    """Whether it asked what it had asked when the tape was recorded, up to the decisive call, and after it
    only what the second tape holds, if there is one."""
    difference: str
    """Where it first asked something else; empty if it did not."""
    live_calls: int
    """Calls that a live model answered."""
    blame: str | None = None
    """Who broke the run and why, as ``blame_in`` says; ``None`` also if it was not to be judged."""

    def is_right(self, expected: str | None, check: Sequence[str]) -> bool:
        """Tell whether the output has a text, and a command that reads it exits with 0; each if given."""
        is_expected = expected is None or expected in self.output
        if not check or not is_expected:
            return is_expected
        ended = subprocess.run(check, input=self.output, text=True, check=False)  # noqa: S603 - the test's own
        return ended.returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    tape: Tape
    rest: Tape | None
    command: Sequence[str]
    decisive: int | None
    live_calls: int
    allowed: frozenset[str]
    judges: bool
    timeout_s: float

    @property
    def lifetime_s(self) -> float:
        return self.timeout_s + _EXTRA_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    report: TrialReport
    rest: TrialReport | None
    ended: Ended
    runs: Sequence[Run]
    """What was seen of the program, if its run is to be judged."""


def read_pinned(file: Path, allow_tools: Iterable[str]) -> Tape:
    """Return the tape of a file with one run.

    Raises:
        CommandFailed: it has not one run.
        CannotReplay: the run cannot be played back.
    """
    run, _ = open_run(str(file), tenant=None)
    return tape_of(run, GatewayOptions(allow_tools=frozenset(allow_tools)))


def replay(  # noqa: PLR0913 - the written tests call it by names
    tape: Path,
    command: Sequence[str],
    *,
    decisive: int | None,
    rest: Path | None = None,
    live_calls: int = 0,
    allow_tools: Sequence[str] = (),
    judges: bool = False,
    rules: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Replayed:
    """Run a program on a tape.

    Up to the decisive call, instructions may have changed since the recording (``Matching.CONVERSATION``): a
    fix often is such a change. On a second tape, and on a tape that is played whole, they may not.

    Args:
        tape: the recorded run.
        command: the program and its arguments.
        decisive: number of the model call that is asked anew, from 0; ``None`` plays the whole tape.
        rest: the run whose answers follow, from the decisive call on; no model is live then.
        live_calls: most calls that a live model answers; its address is the user's own ``OPENAI_BASE_URL`` or
            ``ANTHROPIC_BASE_URL``, else the provider's.
        allow_tools: tools that only read, and may really run.
        judges: whether to judge the run, and so to record the program's telemetry and model calls.
        rules: the file with what the workflow's passing runs always did, to judge by too.
        timeout_s: seconds after which the program is ended.

    Raises:
        CannotReplay: the tape cannot be played back.
        NotPinned: the rules cannot be read.
        OSError: the program cannot be started, or a file not read.
    """
    first = read_pinned(tape, allow_tools)
    second = None if rest is None else read_pinned(rest, allow_tools)
    known = NO_RULES if rules is None else _read_rules(rules)
    plan = _Plan(
        tape=first if decisive is None else _for_changed_program(first, second),
        rest=None if second is None or decisive is None else _after(first, decisive, second),
        command=command,
        decisive=decisive,
        live_calls=live_calls,
        allowed=frozenset(allow_tools),
        judges=judges,
        timeout_s=timeout_s,
    )
    played = asyncio.run(_replay(plan))
    report, ended = played.report, played.ended
    expected = report.calls if decisive is None else report.calls - 1
    has_strayed = report.first_difference is not None or bool(played.rest and played.rest.invalid)
    return Replayed(
        output=ended.output,
        reached=report.served >= expected and not has_strayed,
        difference=_difference(report, played.rest, ended),
        live_calls=0 if played.rest else report.live,
        blame=blame_in(played.runs, crashed=ended.code != 0, rules=known) if judges else None,
    )


def _read_rules(file: Path) -> Rules:
    try:
        return read_rules(file.read_text(encoding="utf-8"))
    except (NotPinned, UnicodeDecodeError) as error:
        raise NotPinned(f"{file}: {error}") from error


def _for_changed_program(tape: Tape, rest: Tape | None) -> Tape:
    """Return the tape with the tools' results of both tapes; instructions may have changed since."""
    tools = (*tape.tools, *(rest.tools if rest else ()))
    return replace(tape, tools=tools, matching=Matching.CONVERSATION)


def _after(tape: Tape, decisive: int, rest: Tape) -> Tape:
    """Return a second tape without the calls that the first one answers: they are never the nearest then."""
    left = Waiting(TapeIndex(rest.calls, Matching.CONVERSATION))
    for call in tape.before(decisive):
        found = left.find(Spoken(call.messages, call.kind))
        if found is not None:
            left.take(found.call.index)
    return replace(rest, calls=tuple(call for call in rest.calls if call.index in left))


async def _replay(plan: _Plan) -> _Played:
    options = GatewayOptions(
        openai=os.environ.get("OPENAI_BASE_URL") or OPENAI,
        anthropic=os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC,
        allow_tools=plan.allowed,
        reserve=_Allowance(0 if plan.rest else plan.live_calls).reserve,
    )
    async with AsyncExitStack() as stack:
        behind, second = None, None
        if plan.rest is not None:
            # The second tape stands where the live model would: in a gateway behind the first one.
            behind = await stack.enter_async_context(serving(options))
            second = behind.open(plan.rest, lifetime_s=plan.lifetime_s)
            options = GatewayOptions(
                openai=second.base_url, anthropic=second.root_url, allow_tools=plan.allowed
            )
        gateway = await stack.enter_async_context(serving(options))
        change = None if plan.decisive is None else Change(call=plan.decisive)
        opened = gateway.open(plan.tape, change, lifetime_s=plan.lifetime_s)
        environment = {**gateway.environment(opened), **_NO_TELEMETRY}
        watch = await stack.enter_async_context(_watching(environment)) if plan.judges else None
        added = {name: _NO_KEY for name in _KEYS if not os.environ.get(name)}
        command = Command(arguments=plan.command, environment=added)
        ended = await command(watch.environment if watch else environment, plan.timeout_s)
        return _Played(
            report=gateway.close(opened.trial),
            rest=behind.close(second.trial) if behind and second else None,
            ended=ended,
            runs=watch.runs(str(command)) if watch else (),
        )


class _Allowance:
    """The live calls that the test allows."""

    def __init__(self, calls: int) -> None:
        self._calls: Final = calls
        self._left = calls

    async def reserve(self, _: LiveCall) -> str:
        self._left -= 1
        return "" if self._left >= 0 else f"all {self._calls} live calls that the test allows are used"


class _Watch:
    """What a program says of itself by OpenTelemetry, and its model calls."""

    def __init__(self, capture: Capture, recorder: RecordingGateway, environment: Mapping[str, str]) -> None:
        self._capture: Final = capture
        self._recorder: Final = recorder
        own = capture.environment(_TRIAL)
        self.environment: Final = {**environment, **TEXTS, **own, **recorder.environment()}

    def runs(self, program: str) -> Sequence[Run]:
        """Return the runs that a program's telemetry and calls show."""
        seen = self._capture.take(_TRIAL)
        return runs_of(seen.spans, seen.logs, self._recorder.calls, program)


@asynccontextmanager
async def _watching(environment: Mapping[str, str]) -> AsyncIterator[_Watch]:
    async with capturing() as capture, recording(environment, by_proxy=False) as recorder:
        yield _Watch(capture, recorder, environment)


def _difference(report: TrialReport, rest: TrialReport | None, ended: Ended) -> str:
    difference = report.first_difference or (rest.first_difference if rest else None)
    if difference is not None:
        which = "" if report.first_difference else "on the second tape, "
        at = (
            "no recorded call is left"
            if difference.call is None
            else f"call {difference.call}, message {difference.message}"
        )
        return f"{which}{at}: recorded {difference.expected!r}, asked {difference.found!r}"
    if report.missing:
        missing = ", ".join(map(str, report.missing))
        return f"never asked: calls {missing}; the program ended with {ended.code}: {ended.tail}"
    return report.invalid or (rest.invalid if rest else "")


__all__ = ["Replayed", "read_pinned", "replay"]
