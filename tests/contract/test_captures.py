"""Every recorded run of a framework gives the expected steps; each deviation is explained.

A run is right if its steps are the expected ones in order. For a run marked partial, they must be a
subsequence that contains the decisive step. An expected agent whose name does not occur in the recording
matches any agent.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import pytest

from collector_processor.core.runs import Run
from tests.contract.recorded import SHARED, needs_shared, read, runs_in

pytestmark = needs_shared

CAPTURES = SHARED / "captures"
INDEX: dict[str, Any] = json.loads((CAPTURES / "INDEX.json").read_text()) if CAPTURES.is_dir() else {}

OURS = (
    "openai_agents-openinference",
    "langgraph-openinference",
    "autogen-openinference",
    "crewai-openinference",
    "smolagents-openinference",
    "langgraph-genai_official",
    "lg-crash",
    "oa-crash",
    "langfuse-sdk",
    "langgraph-traceloop",
    "openai_agents-otelv2",
    "openai_agents-traceloop",
    "pydantic_ai-v5",
    "agent_framework-handoff",
    "autogen-native",
    "ag2-native",
    "google_adk-native-spancontent",
    "strands-swarm",
)
"""Runs with stricter tests: a task, a decisive span, no warning."""

MISSES: dict[str, str] = {}
"""Runs whose steps differ from the label, with the reason."""


@dataclass(frozen=True)
class Capture:
    name: str
    expected: list[tuple[str, str]]
    run: Run

    @property
    def got(self) -> list[tuple[str, str]]:
        return [(step.agent, step.kind.value) for step in self.run.trajectory.steps]

    @property
    def is_hit(self) -> bool:
        if INDEX[self.name]["partial"]:
            rest = iter(self.expected)
            return self.has_decisive and all(any(_same(got, each) for each in rest) for got in self.got)
        return len(self.got) == len(self.expected) and all(map(_same, self.got, self.expected))

    @property
    def has_decisive(self) -> bool:
        entry = INDEX[self.name]
        agents = [
            step.agent
            for step in self.run.trajectory.steps
            if (step.trace_id, step.span_id)
            == (entry["gold_span"]["trace_id"], entry["gold_span"]["span_id"])
        ]
        return agents == [entry["gold_agent"]]


def _same(got: tuple[str, str], expected: tuple[str, str]) -> bool:
    return got[1] == expected[1] and expected[0] in {"*", got[0]}


@functools.cache
def capture(name: str) -> Capture:
    traces = CAPTURES / f"{name}.json"
    text = read(traces).decode()
    logs = CAPTURES / f"{name}.logs.json" if INDEX[name]["has_logs"] else None
    (run,) = runs_in(traces, logs)
    expected = [(who if who in text else "*", kind) for who, kind, _ in INDEX[name]["expected_steps"]]
    return Capture(name=name, expected=expected, run=run)


@pytest.mark.parametrize("name", OURS)
def test_the_steps_are_those_that_happened(name: str) -> None:
    found = capture(name)
    assert found.is_hit, f"\ngot      {found.got}\nexpected {found.expected}"


@pytest.mark.parametrize("name", OURS)
def test_the_decisive_span_is_a_step_of_the_right_agent(name: str) -> None:
    assert capture(name).has_decisive


@pytest.mark.parametrize("name", OURS)
def test_the_task_holds_the_question(name: str) -> None:
    assert INDEX[name]["question"] in capture(name).run.trajectory.task


@pytest.mark.parametrize("name", OURS)
def test_a_recording_that_is_sound_gives_no_warning(name: str) -> None:
    trajectory = capture(name).run.trajectory
    assert trajectory.warnings == ()
    assert trajectory.complete


def test_a_crash_is_seen_though_the_root_says_ok() -> None:
    trajectory = capture("oa-crash").run.trajectory
    assert trajectory.root_status == "ok"
    assert "500" in trajectory.root_error
    assert trajectory.output == ""


def test_a_wrong_answer_is_not_taken_for_an_error() -> None:
    trajectory = capture("openai_agents-openinference").run.trajectory
    assert trajectory.root_error == ""
    assert "$450" in trajectory.output


def test_the_table_of_misses_is_right() -> None:
    """Test all recordings of all dialects; a run that becomes right must leave the table."""
    table = {name: capture(name) for name in INDEX}
    lines = [
        f"{name:32} {'hit ' if each.is_hit else 'miss'} {len(each.got):2} of {len(each.expected):2} steps  "
        f"{MISSES.get(name, '')}"
        for name, each in table.items()
    ]
    print("\n".join(lines))
    assert {name for name, each in table.items() if not each.is_hit} == set(MISSES)
