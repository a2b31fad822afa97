"""The story of ``examples/files``: a desk asks for the tide; its tool fails, and it answers anyway."""

from __future__ import annotations

from analyzer.api.local import attribute, read_runs
from semconv.model import Status, Step, StepKind

TASK = "When is high tide at Dover tomorrow?"
ERROR = "ConnectionError: the tide service cannot be reached"


def told_steps(data: bytes, *, error: str = ERROR) -> tuple[Step, Step, Step]:
    """Return the steps of the only run of a file, after checking that they tell the story."""
    (run,) = read_runs(data)
    first, tool, last = run.trajectory.steps
    assert {step.agent for step in run.trajectory.steps} == {"harbour_desk"}
    assert (tool.kind, tool.target, tool.input) == (StepKind.TOOL, "tide_table", '{"port": "Dover"}')
    assert tool.error == error
    assert run.trajectory.task == TASK
    assert last.output == "High tide at Dover is at 14:20 tomorrow."
    return first, tool, last


def assert_right(data: bytes) -> None:
    """Check that the run of a file is no failure and accuses no agent."""
    verdict = attribute(data)
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)
