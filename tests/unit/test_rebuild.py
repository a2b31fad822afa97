"""Requests → runs: what the stages have to tell each other."""

from __future__ import annotations

from collector_processor.encode import encode
from collector_processor.rebuild import MENDED, rebuild
from semconv.model import Completion, TraceId
from tests.factories import agent, chat, workflow

OTHER = TraceId("b" * 32)


def test_spans_of_all_requests_are_one_run_and_keep_why_they_were_released() -> None:
    bodies = [encode([chat(3, parent=2, answer="4")]), encode([agent(2, "planner"), workflow(1)])]
    (run,) = rebuild(bodies, completion=Completion.MAX_AGE)
    assert [(step.agent, step.output) for step in run.trajectory.steps] == [("planner", "4")]
    assert run.trace.completion is Completion.MAX_AGE


def test_text_that_had_to_be_replaced_is_said_on_its_trace_and_on_no_other() -> None:
    broken = encode([agent(2, "planner", parent=None), chat(3, parent=2, answer="xyz")]).replace(
        b"xyz", b"\xff\xfe\xfd"
    )
    whole = encode([agent(2, "planner", parent=None, trace_id=OTHER), chat(3, parent=2, trace_id=OTHER)])
    warnings = {run.trajectory.run_id: run.trajectory.warnings for run in rebuild([broken, whole])}
    assert MENDED in warnings.pop(next(run_id for run_id in warnings if run_id != OTHER))
    assert warnings == {OTHER: ()}


def test_a_trace_without_any_time_is_said_to_be_so() -> None:
    timeless = [agent(2, "planner", parent=None, start=-1.76e12, end=-1.76e12)]
    (run,) = rebuild([encode(timeless)])
    assert run.trajectory.warnings == ("zero or negative time put in order (1)",)
