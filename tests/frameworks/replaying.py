"""Replays a framework's run: first against the scripted model, then against the tape of its trace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import NotReplayable, ReadTape
from analyzer.experiment.replay.trial import TrialReport
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from tests.e2e.backend import http_backend
from tests.frameworks.catalogue import RunScript
from tests.frameworks.kit.story import TOOL
from tests.frameworks.play import RunFailed, play, record

NOWHERE = "http://127.0.0.1:9"
"""Upstream of a fidelity trial: no server listens there, and no call should reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A framework's run and its replay."""

    recorded: int
    """Calls that were made upstream."""
    tape: ReadTape
    report: TrialReport | None = None
    live_calls: int = 0
    """Calls of the replay that reached the scripted model."""
    failure: str = ""
    """The replayed program's error, if any."""


def replay(run: RunScript, variant: str, *, python: Path) -> Replayed:
    """Record a run through OTLP, and run it again against its tape."""
    recorded = record(run, variant, python=python)
    happened = sum(each.kind == "llm" for each in recorded.played.truth.log)
    tape = _tape("\n".join(recorded.sent).encode())
    if isinstance(tape, NotReplayable):
        return Replayed(recorded=happened, tape=tape)
    return asyncio.run(_again(run, variant, python, tape, happened))


def _tape(data: bytes) -> ReadTape:
    recording = read_recording(data)
    runs = rebuild(recording.traces, recording.bodies(Signal.LOGS))
    return read_tape(max(runs, key=lambda found: len(found.trajectory.steps)))


async def _again(run: RunScript, variant: str, python: Path, tape: ReadTape, happened: int) -> Replayed:
    assert not isinstance(tape, NotReplayable)
    options = GatewayOptions(openai=NOWHERE, anthropic=NOWHERE, allow_tools=frozenset({TOOL}))
    async with serving(options) as gateway:
        opened = gateway.open(tape, lifetime_s=600)
        environ = gateway.environment(opened)
        requests, failure = 0, ""
        try:
            with http_backend() as backend:
                played = await asyncio.to_thread(
                    play, run, variant, python=python, endpoint=backend.url, model=environ
                )
            requests = len(played.requests)
        except RunFailed as error:
            failure = str(error)
        report = gateway.close(opened.trial)
    return Replayed(recorded=happened, tape=tape, report=report, live_calls=requests, failure=failure)
