"""Runs read from records as files hold them, and what their steps show."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from analyzer.api.local import read_runs
from semconv.model import StepKind, Trajectory

TASK: Final = "When is high tide at Dover tomorrow?"
ANSWER: Final = "High tide at Dover is at 14:20 tomorrow."
ERROR: Final = "ConnectionError: the tide service cannot be reached"
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "tide_table", "arguments": "{}"}}
USER: Final = {"role": "user", "content": TASK}


def runs(*records: Any) -> list[Trajectory]:
    """Read records as a file of one document, or of a line for each."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        return [run.trajectory for run in read_runs(path)]


def run(*records: Any) -> Trajectory:
    """Read records as a file with one run."""
    (only,) = runs(*records)
    return only


def told(trajectory: Trajectory) -> list[tuple[str, str, str]]:
    """Return agent, kind and output of each step."""
    return [(step.agent, step.kind.value, step.output) for step in trajectory.steps]


def tools(trajectory: Trajectory) -> list[tuple[str, str, str, str]]:
    """Return agent, tool, result and error of each call."""
    calls = [step for step in trajectory.steps if step.kind in {StepKind.TOOL, StepKind.HANDOFF}]
    return [(step.agent, step.target or "", step.output, step.error) for step in calls]
