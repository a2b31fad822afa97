"""A pinned run: a program runs again on its recorded answers, for the tests that ``pin`` writes. Not pure.

The calls before the decisive one are answered from the tape, the decisive one and all later ones by the live
model, of which none is asked unless the test allows it. Tools fail closed as in experiments: one whose result
is not on the tape does not run. A tape cannot name a program, an address or a file: these stand in the test.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.cli.experiment_runs import open_run
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import ANTHROPIC, OPENAI, GatewayOptions, LiveCall
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.replay.trial import Change, TrialReport
from analyzer.experiment.running.workflow import TIMEOUT_S, Command, Ended

_EXTRA_S: Final = 60.0
"""Seconds that the gateway's address outlives the program's time limit."""
_NO_TELEMETRY: Final = {"OTEL_SDK_DISABLED": "true"}
_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_NO_KEY: Final = "none-for-a-recorded-answer"
"""Clients refuse to start without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a program did on a tape."""

    output: str
    """Its standard output."""
    reached: bool
    """Whether it asked what it had asked when the tape was recorded, up to the decisive call."""
    difference: str
    """Where it first asked something else; empty if it did not."""
    live_calls: int
    """Calls that a live model answered."""

    def is_right(self, expected: str | None, check: Sequence[str]) -> bool:
        """Tell whether the output has a text, and a command that reads it exits with 0; each if given."""
        is_expected = expected is None or expected in self.output
        if not check or not is_expected:
            return is_expected
        ended = subprocess.run(check, input=self.output, text=True, check=False)  # noqa: S603 - the test's own
        return ended.returncode == 0


def read_pinned(file: Path, allow_tools: Sequence[str]) -> Tape:
    """Return the tape of a file with one run.

    Raises:
        CommandFailed: it has not one run.
        CannotReplay: the run cannot be played back.
    """
    run, _ = open_run(str(file), tenant=None)
    return tape_of(run, GatewayOptions(allow_tools=frozenset(allow_tools)))


def replay(
    tape: Path,
    command: Sequence[str],
    *,
    decisive: int | None,
    live_calls: int = 0,
    allow_tools: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> Replayed:
    """Run a program on a tape.

    Args:
        tape: the recorded run.
        command: the program and its arguments.
        decisive: number of the model call that is asked anew, from 0; ``None`` plays the whole tape.
        live_calls: most calls that a live model answers; its address is the user's own ``OPENAI_BASE_URL`` or
            ``ANTHROPIC_BASE_URL``, else the provider's.
        allow_tools: tools that only read, and may really run.
        timeout_s: seconds after which the program is ended.

    Raises:
        CannotReplay: the tape cannot be played back.
        OSError: the program cannot be started.
    """
    recorded = read_pinned(tape, allow_tools)
    return asyncio.run(_replay(recorded, command, decisive, live_calls, frozenset(allow_tools), timeout_s))


async def _replay(  # noqa: PLR0917 - the arguments of replay
    tape: Tape,
    command: Sequence[str],
    decisive: int | None,
    live_calls: int,
    allowed: frozenset[str],
    timeout_s: float,
) -> Replayed:
    left = live_calls

    async def reserve(_: LiveCall) -> str:
        nonlocal left
        left -= 1
        return "" if left >= 0 else f"all {live_calls} live calls that the test allows are used"

    options = GatewayOptions(
        openai=os.environ.get("OPENAI_BASE_URL") or OPENAI,
        anthropic=os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC,
        allow_tools=allowed,
        reserve=reserve,
    )
    change = None if decisive is None else Change(call=decisive)
    added = {**_NO_TELEMETRY, **{name: _NO_KEY for name in _KEYS if not os.environ.get(name)}}
    async with serving(options) as gateway:
        opened = gateway.open(tape, change, lifetime_s=timeout_s + _EXTRA_S)
        try:
            ended = await Command(arguments=command)({**gateway.environment(opened), **added}, timeout_s)
        finally:
            report = gateway.close(opened.trial)
    return _replayed(report, ended, decisive)


def _replayed(report: TrialReport, ended: Ended, decisive: int | None) -> Replayed:
    expected = report.calls if decisive is None else report.calls - 1
    return Replayed(
        output=ended.output,
        reached=report.served >= expected and report.first_difference is None,
        difference=_difference(report, ended),
        live_calls=report.live,
    )


def _difference(report: TrialReport, ended: Ended) -> str:
    found = report.first_difference
    if found is not None:
        at = (
            "no recorded call is left"
            if found.call is None
            else f"call {found.call}, message {found.message}"
        )
        return f"{at}: recorded {found.expected!r}, asked {found.found!r}"
    if report.missing:
        missing = ", ".join(map(str, report.missing))
        return f"never asked: calls {missing}; the program ended with {ended.code}: {ended.tail}"
    return report.invalid


__all__ = ["Replayed", "read_pinned", "replay"]
