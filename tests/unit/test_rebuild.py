"""From requests to runs: information that the stages pass to each other."""

from __future__ import annotations

import pytest

from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.runs import is_stray
from collector_processor.rebuild.stages import MENDED, rebuild
from semconv.model import Completion, Event, Link, Span, SpanId, Trace, TraceId
from semconv.record import replace
from tests.factories import agent, chat, openinference, span, workflow
from tests.unit.dialects.test_generic import WEB

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


RUN = [agent(2, "planner", parent=None), chat(3, parent=2, answer="4")]
STRAYS = [
    pytest.param(
        span(5, name="tools/list", trace_id=OTHER, attributes={"mcp.method.name": "tools/list"}),
        id="a session",
    ),
    pytest.param(
        span(5, name="batch_write_to_db", trace_id=OTHER, scope="litellm", attributes={"service": "redis"}),
        id="a proxy's start-up",
    ),
    pytest.param(span(5, name="GET /", trace_id=OTHER, kind=2), id="a web request"),
]
UNREADABLE = [
    pytest.param(
        span(5, trace_id=OTHER, scope="newest", attributes={"gen_ai.thing": "x"}), id="an unknown dialect"
    ),
    pytest.param(
        openinference(5, "CHAIN", parent=None, trace_id=OTHER, error="no key"), id="a run without steps"
    ),
]


@pytest.mark.parametrize("stray", STRAYS)
def test_a_trace_that_shows_no_agent_is_no_run(stray: Span) -> None:
    (run,) = rebuild([encode([*RUN, stray])])
    assert run.trajectory.agents == ("planner",)


@pytest.mark.parametrize("stray", STRAYS[:2])
def test_a_runtimes_own_trace_is_no_run_by_itself(stray: Span) -> None:
    assert rebuild([encode([stray])], completion=Completion.ROOT_ENDED) == ()


HINT = {"usage": '{"input_tokens": 3, "output_tokens": 4}'}
HINTING = [
    pytest.param(
        span(5, name="GET /", attributes=HINT, links=(Link(trace_id=OTHER, span_id=SpanId("9" * 16)),)),
        id="linked",
    ),
    pytest.param(span(5, name="GET /", attributes=HINT), id="alone"),
]


@pytest.mark.parametrize("web", HINTING)
def test_a_web_trace_with_a_sign_of_a_model_call_is_no_run(web: Span) -> None:
    assert rebuild([encode([web])], completion=Completion.ROOT_ENDED) == ()
    (run,) = rebuild([encode([web, *(replace(each, trace_id=OTHER) for each in RUN)])])
    assert run.trajectory.agents == ("planner",)


@pytest.mark.parametrize(("name", "is_run"), [("http.request", False), ("gen_ai.choice", True)])
def test_of_logs_only_agents_make_a_trace_a_run(name: str, *, is_run: bool) -> None:
    logging = span(5, name="GET /", attributes=HINT, logs=(Event(name=name),))
    assert is_stray(Trace(spans=(logging,)), beside_runs=False) is not is_run


@pytest.mark.parametrize("stray", STRAYS)
def test_a_file_of_stray_traces_alone_says_why_it_has_no_steps(stray: Span) -> None:
    (run,) = rebuild([encode([stray])])
    assert run.trajectory.warnings[0].startswith("no steps")


@pytest.mark.parametrize("odd", UNREADABLE)
def test_a_run_whose_steps_cannot_be_read_stays_a_run(odd: Span) -> None:
    assert len(rebuild([encode([*RUN, odd])])) == 2
    assert len(rebuild([encode([odd])], completion=Completion.ROOT_ENDED)) == 1


def test_containers_alone_may_be_the_first_part_of_a_run_but_are_none_beside_others() -> None:
    container = span(5, name="x", trace_id=OTHER, attributes={"gen_ai.operation.name": "framework"})
    assert len(rebuild([encode([container])], completion=Completion.IDLE)) == 1
    assert len(rebuild([encode([*RUN, container])], completion=Completion.IDLE)) == 1


def test_an_ordinary_trace_that_only_hints_at_a_model_is_no_run() -> None:
    hinting = [span(n, attributes=attributes) for n, (_, attributes) in enumerate(WEB, start=1)]
    assert rebuild([encode(hinting)], completion=Completion.ROOT_ENDED) == ()
    assert len(rebuild([encode(hinting)])) == 1  # a file says why there are no steps
