"""Real frameworks, installed and run, sending over live OTLP into a real service.

Only ``BLAMESPAN_REQUIRE_BACKENDS=true`` (as in ``.ci/run``) installs anything;
else what has been installed is played, and the rest is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild import rebuild
from semconv.attributes import FAILURE_AGENT_NAME
from tests.backends.fixtures import REQUIRE
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, Request, http_backend
from tests.e2e.line import starting
from tests.e2e.spans import placed
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.install import install, python_of
from tests.frameworks.kit.story import PURSER, question
from tests.frameworks.play import play
from tests.frameworks.script import WRONG_ANSWER
from tests.frameworks.truth import decisive_step, differences, expected_steps

LIVE = {name: run for name, run in catalogue().items() if run.live}


def interpreter(run: RunScript) -> Path:
    """The environment's, installed if it must be there; else the test is skipped."""
    if os.environ.get(REQUIRE) == "true":
        return install(run)
    found = python_of(run)
    if found is None:
        pytest.skip(f"not installed here; `python -m tests.frameworks.install {run.name}` does it")
    return found


@pytest.mark.parametrize("name", LIVE)
def test_a_live_run_is_read_as_it_happened_and_the_last_agent_is_blamed(name: str, tmp_path: Path) -> None:
    run = LIVE[name]
    python = interpreter(run)
    with http_backend() as backend, starting(tmp_path) as start_line:
        line = start_line(
            forward_endpoint=backend.url, forward_protocol="http/protobuf", failure_pattern=WRONG_ANSWER
        )

        played = play(run, "normal", python=python, endpoint=line.http)

        sent = wait_until(lambda: _told(backend), what=f"a verdict; log:\n{line.server.tail()}")
        expected = expected_steps(run, played.truth.log)
        rebuilt = rebuild([request.body for request in sent], [each.body for each in backend.of(Signal.LOGS)])
        (found,) = [each for each in rebuilt if each.trajectory.steps]
        assert differences(expected, found.trajectory) == []
        assert question("normal") in found.trajectory.task
        decisive = decisive_step(expected, found.trajectory)
        assert decisive is not None
        blame = next(one for request in sent for one in placed(request.body) if one.is_decisive)
        assert blame.attributes[FAILURE_AGENT_NAME] == PURSER
        assert blame.parent_id == decisive.span_id
        (verdict,) = [each for each in line.runs() if each["status"] == "attributed"]
        assert verdict["run_id"] == found.trajectory.run_id


def _told(backend: Backend) -> list[Request] | None:
    """What reached the backend, once the blame did."""
    sent = backend.of(Signal.TRACES)
    return sent if any(one.is_decisive for request in sent for one in placed(request.body)) else None
