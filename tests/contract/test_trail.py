"""TRAIL's 74 real traces (OpenInference, smolagents): no crash, no warning, the annotated spans are steps.

Source: TRAIL, arXiv:2505.08638.
"""

from __future__ import annotations

import functools
import gzip
import json
from typing import Any

import pytest

from collector_processor.core.runs import Run
from semconv.model import SpanStatus
from tests.contract.recorded import SHARED, needs_shared, runs_in

pytestmark = needs_shared

TRACES = SHARED / "datasets" / "trail_otlp"
ROWS = SHARED / "datasets" / "trail.dev.jsonl.gz"


@functools.cache
def rebuilt() -> dict[str, tuple[Run, ...]]:
    return {path.name.partition(".")[0]: runs_in(path) for path in sorted(TRACES.iterdir())}


@functools.cache
def rows() -> dict[str, Any]:
    lines = gzip.decompress(ROWS.read_bytes()).decode().splitlines()
    return {row["id"].rpartition("/")[2]: row for row in map(json.loads, lines)}


@pytest.mark.whole
def test_each_trace_is_one_run_without_warnings() -> None:
    assert len(rebuilt()) == 74
    for runs in rebuilt().values():
        (run,) = runs
        assert run.trajectory.warnings == ()
        assert run.trajectory.complete
        assert run.trajectory.task


def test_annotated_errors_are_steps() -> None:
    """What is missing are final-answer tools that worked: they pass the answer on, and are no steps. The
    annotators put errors of the answer there (an empty or unverified one); the model call that wrote the
    answer is a step, and the one to blame.
    """
    missing = [
        (trace_id, span_id)
        for trace_id, row in rows().items()
        for span_id in (error["span_id"] for error in row["meta"]["errors"])
        if span_id not in {step.span_id for run in rebuilt()[trace_id] for step in run.trajectory.steps}
    ]
    count = sum(len(row["meta"]["errors"]) for row in rows().values())
    print(f"{count - len(missing)} of {count} annotated errors are steps")
    assert len(missing) / count <= 0.05
    for trace_id, span_id in missing:
        (span,) = [each for run in rebuilt()[trace_id] for each in run.trace.spans if each.span_id == span_id]
        assert span.attributes["tool.name"] == "final_answer"
        assert span.status is SpanStatus.OK


def test_the_managed_agent_has_its_own_name_not_its_class() -> None:
    agents = {step.agent for runs in rebuilt().values() for step in runs[0].trajectory.steps}
    assert agents == {"CodeAgent", "search_agent", "unknown"}
