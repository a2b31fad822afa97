"""Each search that docs/backends/jaeger.md shows, asked of a real Jaeger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from semconv.instrument import agent, llm, run
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import wait_until
from tests.docs.jaeger_searches import searches
from tests.e2e.in_jaeger import look, trace_ids
from tests.e2e.line import Line, StartLine, starting
from tests.e2e.test_line_jaeger import agents, play_through, settings_for
from tests.e2e.traffic import CARRIERS, DEMO_SPANS

FOUND: Final = {
    "blamed traces": {"failed"},
    "what one agent broke": {"failed"},
    "one kind of failure": {"failed"},
    "one step": {"failed"},
    "verdicts of one method": {"failed"},
    "all that blamespan wrote": {"failed", "passed"},
    "runs that passed": {"passed"},
    "runs on which it could not decide": set[str](),
}
"""Of a run that failed at step 9 by the calculator, and one that passed: which each search finds."""


@pytest.fixture
def start_line(tmp_path: Path) -> Iterator[StartLine]:
    with starting(tmp_path) as start:
        yield start


def play_a_run_that_passes(service: str, line: Line) -> str:
    """Let one agent do its task, and return the run's id, which is its trace's, once there is a verdict."""
    with (
        agents(service, line.grpc) as (provider, memory),
        run("sum", task="2 + 2?", capture="SPAN_ONLY", tracer_provider=provider) as attempt,
    ):
        with agent("clerk"), llm("gpt-4o", messages="2 + 2?") as call:
            call.output("4")
        attempt.output("4")
        attempt.outcome("success", source="evaluator")
    (root,) = (span for span in memory.get_finished_spans() if span.parent is None)
    run_id = f"{root.context.trace_id:032x}"
    assert line.verdict(run_id)["status"] == "no_failure"
    return run_id


def test_every_search_of_the_page_finds_what_it_says(jaeger: RunningJaeger, start_line: StartLine) -> None:
    service = f"solar-{uuid4().hex}"
    line = start_line(**settings_for(jaeger, "grpc"))
    failed = play_through(service, line.grpc).trace_id
    look(jaeger, failed, spans=DEMO_SPANS + CARRIERS)
    passed = play_a_run_that_passes(f"calm-{uuid4().hex}", line)
    wait_until(lambda: "passed" in found(jaeger, {"blamespan.carrier": "true"}, failed=failed, passed=passed),
               what="the carrier of the run that passed")  # fmt: skip

    answers = {one.find: found(jaeger, one.tags, failed=failed, passed=passed) for one in searches()}

    assert answers == FOUND


def found(jaeger: RunningJaeger, tags: dict[str, str], **traces: str) -> set[str]:
    services = jaeger.query.services()
    ids = {each for service in services for each in trace_ids(jaeger.query.find_traces(service, tags=tags))}
    return {name for name, trace_id in traces.items() if trace_id in ids}
