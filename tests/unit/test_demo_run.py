"""The demo fails as expected, and each of its spans agrees with the story."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from analyzer.cli.demo_run import (
    RIGHT_ANSWER,
    TASK,
    DemoExpectation,
    Message,
    Reply,
    ScriptedModel,
    multiply,
    play,
)
from analyzer.methods.without_model import judge_by_signals
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv import attributes as names
from semconv.model import Blame, Trace, Trajectory

LEAVES = ("chat ", "execute_tool ", "handoff ")


@pytest.fixture(scope="module")
def played() -> tuple[DemoExpectation, list[ReadableSpan]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    expectation = play(provider, latency_s=0)
    return expectation, sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def value(span: ReadableSpan, key: str) -> str:
    return str((span.attributes or {})[key])


def steps(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return [span for span in spans if span.name.startswith(LEAVES)]


def test_it_is_one_trace_under_one_root(played: tuple[DemoExpectation, list[ReadableSpan]]) -> None:
    expectation, spans = played
    assert {f"{span.context.trace_id:032x}" for span in spans if span.context} == {expectation.trace_id}
    roots = [span for span in spans if span.parent is None]
    assert [root.name for root in roots] == ["invoke_workflow solar-savings"]


def test_the_steps_are_as_the_story_goes(played: tuple[DemoExpectation, list[ReadableSpan]]) -> None:
    expectation, spans = played
    story = [(value(span, names.GEN_AI_AGENT_NAME), span.name) for span in steps(spans)]
    assert story == [
        ("planner", "chat scripted-1"),
        ("planner", "handoff planner to researcher"),
        ("researcher", "chat scripted-1"),
        ("researcher", "execute_tool solar_yield"),
        ("researcher", "execute_tool solar_yield"),
        ("researcher", "chat scripted-1"),
        ("researcher", "handoff researcher to calculator"),
        ("calculator", "chat scripted-1"),
        ("calculator", "execute_tool multiply"),
        ("calculator", "chat scripted-1"),
        ("calculator", "handoff calculator to writer"),
        ("writer", "chat scripted-1"),
    ]
    assert len(story) == expectation.step_count


def test_the_decisive_step_contradicts_the_tool_before_it(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    decisive = steps(spans)[expectation.step]
    assert value(decisive, names.GEN_AI_AGENT_NAME) == expectation.agent
    returned = value(steps(spans)[expectation.step - 1], names.GEN_AI_TOOL_CALL_RESULT)
    assert float(returned) == multiply([84, 0.41, 905, 0.31]) == float(RIGHT_ANSWER.replace(",", ""))
    (message,) = json.loads(value(decisive, names.GEN_AI_OUTPUT_MESSAGES))
    assert "9,266.14" in message["parts"][0]["content"]
    assert RIGHT_ANSWER not in message["parts"][0]["content"]


def test_before_the_decisive_step_nobody_states_the_wrong_figure(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    stated = ["9,266.14" in str(dict(span.attributes or {})) for span in steps(spans)]
    assert stated == [False] * expectation.step + [True] * (expectation.step_count - expectation.step)


def test_the_time_out_is_an_error_on_its_span_only_and_is_repaired(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    failed = [span for span in spans if span.status.status_code is StatusCode.ERROR]
    assert failed == [steps(spans)[expectation.repaired_step]]
    assert value(failed[0], names.ERROR_TYPE) == "TimeoutError"
    again = steps(spans)[expectation.repaired_step + 1]
    assert json.loads(value(again, names.GEN_AI_TOOL_CALL_RESULT))["kwh_per_kw_and_year"] == 905
    assert value(again, names.GEN_AI_TOOL_CALL_ID) == value(failed[0], names.GEN_AI_TOOL_CALL_ID)


def test_the_root_tells_task_answer_reference_and_outcome(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    root = spans[0]
    assert value(root, names.TASK_INPUT) == TASK
    assert value(root, names.TASK_OUTPUT) == expectation.answer
    assert value(root, names.TASK_REFERENCE) == RIGHT_ANSWER
    assert value(root, names.TASK_OUTCOME) == "failure"
    assert value(root, names.TASK_OUTCOME_SOURCE) == "reference"


def test_a_model_that_makes_no_mistake_succeeds() -> None:
    scripted = ScriptedModel(latency_s=0)

    def careful(messages: Sequence[Message]) -> Reply:
        reply = scripted(messages)
        return Reply(text=reply.text.replace("9,266.14", RIGHT_ANSWER), tool_calls=reply.tool_calls)

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    expectation = play(provider, chat=careful, latency_s=0)
    assert RIGHT_ANSWER in expectation.answer
    assert value(exporter.get_finished_spans()[-1], names.TASK_OUTCOME) == "success"


def read(spans: Sequence[ReadableSpan]) -> Trajectory:
    decoded = decode(encode_spans(spans).SerializeToString())
    return order(repair(Trace(spans=decoded.spans)))


def test_the_line_reads_the_steps_that_were_played(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    trajectory = read(spans)
    assert [step.name for step in trajectory.steps] == [span.name for span in steps(spans)]
    assert trajectory.agents == ("planner", "researcher", "calculator", "writer")
    assert (trajectory.task, trajectory.output) == (TASK, expectation.answer)
    assert (trajectory.reference, trajectory.outcome) == (RIGHT_ANSWER, "failure")
    assert trajectory.warnings == ()


def test_the_signals_find_the_decisive_step_and_not_the_repaired_one(
    played: tuple[DemoExpectation, list[ReadableSpan]],
) -> None:
    expectation, spans = played
    verdict = judge_by_signals(read(spans))
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == (expectation.agent, expectation.step)
    assert expectation.repaired_step not in [candidate.step for candidate in verdict.ranking[:3]]
