"""Programs of four frameworks that nobody prepared, and one without, are read as they ran, with spans or not.

Each has three agents: a researcher with a tool, an analyst, and a writer. The frameworks' environment is
installed in the gate, and Node with it; elsewhere programs whose framework is missing are skipped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.recorded_runs import load_runs
from tests.frameworks.catalogue import EXAMPLES, NODE_EXAMPLES, catalogue
from tests.frameworks.test_live import interpreter
from tools.references.run_sessions import PLAIN, PROGRAMS, Program, play

STEPS = [
    ("researcher", "llm"),
    ("researcher", "tool"),
    ("researcher", "llm"),
    ("analyst", "llm"),
    ("writer", "llm"),
]
STORIES = [
    ("sum", "north", ("suspected", "analyst", 3)),
    ("sound", "north", ("no_failure", None, None)),
    ("sound", "west", ("suspected", "researcher", 1)),
]
"""How the model answers, the region that is asked for (the tool knows only the north), and the verdict."""


def found_in(program: Program, *, has_spans: bool) -> Path:
    if program is PLAIN and not has_spans:
        return Path(sys.executable).parent
    run = catalogue()[NODE_EXAMPLES] if program.command.startswith("node") else EXAMPLES
    return interpreter(run).parent


@pytest.mark.parametrize(
    ("has_spans", "case"),
    [(False, STORIES[0]), *((True, story) for story in STORIES)],  # each takes seconds of the gate
    ids=["without spans", "wrong sum", "sound", "tool error"],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.command)
def test_steps_and_verdict_are_right(
    program: Program, has_spans: bool, case: tuple[str, str, tuple[Any, ...]], tmp_path: Path
) -> None:
    story, region, wanted = case
    command = (program.with_spans if has_spans else "") or program.command
    options = f"--format json --save run.json {'' if has_spans else '--no-instrument'}"
    # The SDK would send its traces to OpenAI.
    tracing = {} if has_spans else {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
    place = found_in(program, has_spans=has_spans)
    out, told = play(f"{options} -- {command}", place, tmp_path, story, REGION=region, **tracing)
    (verdict,) = map(json.loads, out.splitlines())
    assert (verdict["status"], verdict["agent"], verdict["step"]) == wanted, told
    (run,) = load_runs(tmp_path / "run.json", [])
    assert [(step.agent, step.kind.value) for step in run.trajectory.steps] == STEPS
    assert {step.trace_id for step in run.trajectory.steps} == {run.trajectory.root_trace_id}
