"""Real frameworks, installed and run, which send OTLP to a real service.

With ``BLAMESPAN_REQUIRE_BACKENDS=true`` (as in ``.ci/run``) the gate's few are installed and played;
otherwise all that are marked ``live`` and installed, and the other tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.attributes import FAILURE_AGENT_NAME
from tests.backends.fixtures import REQUIRE
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, http_backend
from tests.e2e.line import starting
from tests.e2e.spans import Placed, placed
from tests.frameworks.catalogue import GATE, RunScript, catalogue
from tests.frameworks.install import install, python_of
from tests.frameworks.kit.story import CONCIERGE, PURSER, REGISTRAR, question
from tests.frameworks.play import play
from tests.frameworks.replaying import replay
from tests.frameworks.script import WRONG_ANSWER
from tests.frameworks.truth import decisive_step, differences, expected_steps
from tools.frameworks.framework_code import instrumenting_program, telemetry

PATIENCE_S = 300.0
"""Seconds for a verdict: a run whose top span never ends is analysed after a minute of silence."""
IS_GATE = os.environ.get(REQUIRE) == "true"
LIVE = {name: run for name, run in catalogue().items() if (name in GATE if IS_GATE else run.live)}


def test_at_least_three_frameworks_are_played_live() -> None:
    assert len({run.framework for run in LIVE.values() if run.framework != "none"}) >= 3
    assert all(catalogue()[name].live for name in GATE)


def interpreter(run: RunScript) -> Path:
    """Return the environment, installed if it is required; otherwise skip the test."""
    if IS_GATE:
        return install(run)
    found = python_of(run)
    if found is None:
        pytest.skip(f"not installed here; `python -m tests.frameworks.install {run.name}` does it")
    return found


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (name, variant)
        for name, run in LIVE.items()
        for variant in ("normal", "crash")
        if variant in run.variants
    ],
)
def test_a_live_run_is_read_as_it_happened_and_the_last_agent_is_blamed(
    name: str, variant: str, tmp_path: Path
) -> None:
    """A wrong answer is a failure by the user's own rule; a crash needs no rule."""
    run = LIVE[name]
    python = interpreter(run)
    rule = {"failure_pattern": WRONG_ANSWER} if variant == "normal" else {}
    with http_backend() as backend, starting(tmp_path) as start_line:
        line = start_line(forward_endpoint=backend.url, forward_protocol="http/protobuf", **rule)

        played = play(run, variant, python=python, endpoint=line.http)

        blame = wait_until(lambda: _blame(backend), what="a blame", timeout_s=PATIENCE_S)
        traces, logs = ([each.body for each in backend.of(signal)] for signal in (Signal.TRACES, Signal.LOGS))
        (found,) = [each for each in rebuild(traces, logs) if each.trajectory.steps]
        expected = expected_steps(run, played.truth)
        assert differences(expected, found.trajectory) == []
        assert question(variant) in found.trajectory.task
        decisive = decisive_step(expected, found.trajectory)
        assert decisive is not None
        assert blame.attributes[FAILURE_AGENT_NAME] == PURSER
        assert blame.parent_id == decisive.span_id
        (verdict,) = [each for each in line.runs() if each["status"] == "attributed"]
        assert verdict["run_id"] == found.trajectory.run_id


REPLAYED = "openai_agents_genai"


def test_a_streamed_run_is_replayed_from_its_own_trace_without_a_live_call() -> None:
    run = LIVE[REPLAYED]
    done = replay(run, "streaming", python=interpreter(run))
    assert done.report is not None
    assert (done.report.invalid, done.report.first_difference, done.failure) == ("", None, "")
    assert (done.report.served, done.live_calls) == (done.recorded, 0)


@pytest.mark.parametrize(
    "name", [name for name, run in LIVE.items() if "_story import" in run.script.read_text()]
)
def test_the_program_on_the_frameworks_page_runs_as_printed(name: str, tmp_path: Path) -> None:
    run = LIVE[name]
    python = interpreter(run)
    (own,) = [line for line in run.script.read_text().splitlines() if "_story import" in line]
    (tmp_path / "my_agents.py").write_text(own)
    (tmp_path / "telemetry.py").write_text(telemetry())
    program = tmp_path / "program.py"
    program.write_text(instrumenting_program(run.script))
    with http_backend() as backend:
        play(run, "normal", python=python, endpoint=backend.url, script=program)
        traces, logs = ([each.body for each in backend.of(signal)] for signal in (Signal.TRACES, Signal.LOGS))
    agents = {step.agent for each in rebuild(traces, logs) for step in each.trajectory.steps}
    assert agents >= {CONCIERGE, REGISTRAR, PURSER}


def _blame(backend: Backend) -> Placed | None:
    """Return the span with the blame, once it is in the backend."""
    spans = [one for request in backend.of(Signal.TRACES) for one in placed(request.body)]
    return next((one for one in spans if one.is_decisive), None)
