"""Files exported from backends show the same run in each form, and what each backend adds to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.model import Outcome, Span, SpanStatus, Status, StepKind, Trajectory
from tests.backend_exports import (
    DATADOG,
    EXPORTS,
    LANGSMITH,
    LOGFIRE,
    MLFLOW,
    OPENAI,
    PHOENIX,
    PRINTED,
    WEAVE,
    ZIPKIN,
    Export,
    Form,
    documents,
    lines,
    parquet,
    phoenix_csv,
    phoenix_frame,
    phoenix_parquet,
    whole,
)
from tests.tide_story import assert_right, told_steps

each_form = pytest.mark.parametrize(
    ("export", "form"),
    [
        pytest.param(export, form, id=f"{backend}, {name}")
        for backend, export in EXPORTS.items()
        for name, form in export.forms.items()
    ],
)


def run_of(told: Any) -> Trajectory:
    (run,) = read_runs(whole(told))
    return run.trajectory


def spans_of(data: bytes) -> list[Span]:
    return [span for body in read_recording(data).bodies(Signal.TRACES) for span in decode(body).spans]


@each_form
def test_each_form_shows_the_same_run(export: Export, form: Form) -> None:
    first, _, last = told_steps(form(export.told()), error=export.error)
    assert [(call.name, call.call_id) for call in first.calls] == [("tide_table", "call_1")]
    assert "the tide service cannot be reached" in last.input


@each_form
def test_a_run_whose_tool_answers_is_right(export: Export, form: Form) -> None:
    assert_right(form(export.right()))


@pytest.mark.parametrize(
    ("export", "field", "value"),
    [
        pytest.param(export, field, value, id=f"{backend}, {field}: {value}")
        for backend, export in EXPORTS.items()
        for field, values in export.wrong.items()
        for value in values
    ],
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(export: Export, field: str, value: object) -> None:
    told = export.told()
    spans = told["data"]["spans"] if export is MLFLOW else told
    spans[2][field] = value
    with pytest.raises(
        UnreadableInput, match=f"cannot be read as {export.format.partition(' (')[0]}: record [13][,:]"
    ) as raised:
        read_recording(whole(told))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["openai-agents.jsonl", "langsmith-runs.json"])
def test_two_traces_are_two_runs(name: str) -> None:
    told = documents(name)
    first = told[0] if isinstance(told[0], list) else told
    other = json.loads(json.dumps(first).replace("5b8efff7", "6c9f0008"))
    assert len(read_runs(whole([*first, *other]))) == 2


BESIDE_PHOENIX = {"id": "A", "name": "correctness", "annotator_kind": "HUMAN"}
BESIDE_LANGSMITH = {"id": "f", "key": "correctness", "score": 0, "feedback_source": {"type": "app"}}


def weave_feedback(**said: Any) -> dict[str, Any]:
    return {"summary": {"weave": {"status": "success", "feedback": [said]}}}


def langsmith_statistics(**said: Any) -> dict[str, Any]:
    return {"feedback_stats": {"correctness": {"n": 1, **said}}}


@pytest.mark.parametrize(
    ("export", "fields"),
    [
        pytest.param(LANGSMITH, langsmith_statistics(avg=0.0, values={}), id="LangSmith, statistics"),
        pytest.param(
            LANGSMITH, langsmith_statistics(avg=None, values={"incorrect": 1}), id="LangSmith, a label"
        ),
        pytest.param(LANGSMITH, {"feedback": [BESIDE_LANGSMITH]}, id="LangSmith, in the run"),
        pytest.param(
            WEAVE,
            weave_feedback(feedback_type="wandb.reaction.1", payload={"emoji": "👎"}),
            id="Weave, a reaction",
        ),
        pytest.param(
            WEAVE,
            weave_feedback(feedback_type="wandb.annotation.correctness", payload={"value": False}),
            id="Weave, an annotation",
        ),
        pytest.param(
            WEAVE,
            weave_feedback(feedback_type="wandb.runnable.judge", payload={"output": {"passed": False}}),
            id="Weave, a scorer",
        ),
        pytest.param(
            PHOENIX,
            {"span_annotations": [BESIDE_PHOENIX | {"result": {"label": "incorrect"}}]},
            id="Phoenix, REST",
        ),
        pytest.param(
            PHOENIX,
            {"spanAnnotations": [{"name": "correctness", "annotatorKind": "LLM", "score": 0}]},
            id="Phoenix, GraphQL",
        ),
        pytest.param(
            PHOENIX,
            {"eval.correctness.label": "incorrect", "eval.correctness.score": 0},
            id="Phoenix, a frame's evaluations",
        ),
    ],
)
def test_feedback_fails_a_run_that_reports_nothing(export: Export, fields: dict[str, Any]) -> None:
    told = export.right()
    told[0] |= fields
    assert attribute(whole(told)).status is Status.ATTRIBUTED


def test_feedback_may_stand_beside_what_it_is_about() -> None:
    runs, spans = LANGSMITH.right(), PHOENIX.right()
    on_run = BESIDE_LANGSMITH | {"value": None, "run_id": runs[0]["id"]}
    on_span = BESIDE_PHOENIX | {
        "span_id": spans[0]["context"]["span_id"],
        "result": {"label": "incorrect", "score": 0.0},
    }
    assert attribute(whole([*runs, on_run])).status is Status.ATTRIBUTED
    assert attribute(whole([*spans, on_span])).status is Status.ATTRIBUTED


# Agents --------------------------------------------------------------------


def datadog_clerk() -> Any:
    told = DATADOG.told()
    for span in told[1:]:
        span["parent_id"] = "77"
    return [*told, {**told[0], "span_id": "77", "parent_id": told[0]["span_id"], "name": "tide_clerk"}]


def mlflow_clerk() -> Any:
    told = MLFLOW.told()
    desk, *calls = told["data"]["spans"]
    clerk = {**desk, "name": "tide_clerk", "span_id": "AAAAAAAAAAk=", "parent_span_id": desk["span_id"]}
    for span in calls:
        span["parent_span_id"] = clerk["span_id"]
    told["data"]["spans"] = [desk, clerk, *calls]
    return told


def phoenix_clerk() -> Any:
    """Metadata names the agents of a graph."""
    told = PHOENIX.told()
    told[0]["attributes"]["agent.name"] = told[0]["name"] = "LangGraph"
    for span in told[2:]:
        span["attributes"]["metadata"] = json.dumps({"langgraph_node": "tide_clerk"})
    return told


def langsmith_clerk() -> Any:
    """Nodes of a graph are agents."""
    told = LANGSMITH.told()
    told[0]["name"] = "LangGraph"
    for run in told[1:]:
        is_clerk = run["name"] == "tide_table" or run["start_time"] >= told[4]["start_time"]
        node = "tide_clerk" if is_clerk else "desk"
        run["extra"]["metadata"] |= {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:1"}
    return told


def weave_clerk() -> Any:
    """The function around the calls is the agent."""
    told = WEAVE.told()
    for name in ("tide_clerk", "berth_clerk"):
        op_name = f"weave:///harbour/desk/op/{name}:v2"
        told.append({**told[0], "id": name, "parent_id": told[0]["id"], "op_name": op_name})
    for one in told[1:4]:
        one["parent_id"] = "tide_clerk"
    return [*told, {**told[1], "id": "other", "parent_id": "berth_clerk", "output": None}]


@pytest.mark.parametrize("told", [datadog_clerk, langsmith_clerk, mlflow_clerk, phoenix_clerk, weave_clerk])
def test_the_agent_whose_tool_failed_is_named(told: Callable[[], Any]) -> None:
    assert attribute(whole(told())).agent == "tide_clerk"


# Datadog -------------------------------------------------------------------


def test_an_error_of_datadog_may_be_in_flat_fields() -> None:
    told = DATADOG.told()
    del told[2]["meta"]["error"]
    told[2]["meta"] |= {"error.type": "TimeoutError", "error.message": "too late"}
    assert run_of(told).steps[1].error == "TimeoutError: too late"


# Logfire -------------------------------------------------------------------


def test_the_scope_of_logfires_own_spans_chooses_their_dialect() -> None:
    told = LOGFIRE.told()
    for row in told:
        row["otel_scope_name"] = "logfire.openai_agents"
    told[0] |= {"span_name": "Agent run: {name!r}", "attributes": {"name": "tide_clerk"}}
    told[2] |= {"span_name": "Function: {name}", "attributes": {"name": "tide_table", "input": "{}"}}
    assert [(step.agent, step.target) for step in run_of([told[0], told[2]]).steps] == [
        ("tide_clerk", "tide_table")
    ]


def test_spans_of_logfire_that_had_not_ended_and_copies_of_events_are_no_spans() -> None:
    told = LOGFIRE.told()
    told += [
        {**told[2], "span_id": f"{9 + at:016x}", "kind": kind}
        for at, kind in enumerate(("pending_span", "span_event"))
    ]
    assert len(run_of(told).steps) == 3


def test_an_exception_of_logfire_is_read_from_its_columns() -> None:
    told = LOGFIRE.told()
    told[2] |= {"otel_events": None, "exception_stacktrace": "Traceback …"}
    (event,) = spans_of(whole(told))[2].events
    assert dict(event.attributes) == {
        "exception.type": "ConnectionError",
        "exception.message": "the tide service cannot be reached",
        "exception.stacktrace": "Traceback …",
    }


# Weave ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "kind", "name"),
    [
        ("openai_agent_function", StepKind.TOOL, "tide_table"),
        ("langchain.Tool.tide_table", StepKind.TOOL, "tide_table"),
        ("anthropic.Messages.create", StepKind.LLM, None),
        ("litellm.completion", StepKind.LLM, None),
        ("google.genai.models.Models.generate_content", StepKind.LLM, None),
        ("tide_table", StepKind.TOOL, "tide_table"),
        ("completion_date", StepKind.TOOL, "completion_date"),
    ],
)
def test_the_name_of_an_operation_of_weave_says_what_it_is(op: str, kind: StepKind, name: str | None) -> None:
    told = WEAVE.told()[:3]
    told[2] |= {"op_name": op, "display_name": "tide_table" if op.startswith("openai_agent") else None}
    step = run_of(told).steps[1]
    assert (step.kind, step.target) == (kind, name)


def test_an_exception_of_weave_may_be_plain_text() -> None:
    told = WEAVE.told()
    told[2]["exception"] = "ConnectionError: down"
    assert run_of(told).steps[1].error == "ConnectionError: down"


# Zipkin --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "status", "message"),
    [
        ({"error": "timed out"}, SpanStatus.ERROR, "timed out"),
        ({"error": "true"}, SpanStatus.ERROR, ""),
        ({"error": ""}, SpanStatus.ERROR, ""),
        ({"error": "false"}, SpanStatus.UNSET, ""),
        ({"otel.status_code": "OK"}, SpanStatus.OK, ""),
        ({"otel.status_code": "ERROR", "otel.status_description": "gone"}, SpanStatus.ERROR, "gone"),
        ({}, SpanStatus.UNSET, ""),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_zipkins_error_tag_and_opentelemetrys_are_read(
    tags: dict[str, str], status: SpanStatus, message: str
) -> None:
    told = ZIPKIN.told()
    told[2]["tags"] = tags
    span = spans_of(whole(told))[2]
    assert (span.status, span.status_message) == (status, message)


@pytest.mark.parametrize(
    "value",
    [
        '{"exception": {"exception.message": "down"}}',
        '"exception": {"exception.message": "down"}',
        'exception|{"exception.message": "down"}|0',
    ],
    ids=["Python", "the specification", "the Collector"],
)
def test_an_annotation_of_zipkin_is_an_event_with_its_attributes(value: str) -> None:
    told = ZIPKIN.told()
    told[2]["annotations"] = [{"timestamp": 1_772_439_304_000_000, "value": value}]
    (event,) = spans_of(whole(told))[2].events
    assert (event.name, dict(event.attributes)) == ("exception", {"exception.message": "down"})
    assert event.time_ns == 1_772_439_304_000_000_000


def test_a_short_trace_id_is_padded_as_b3_says() -> None:
    told = [span | {"traceId": "a1b2c3d4e5f60708"} for span in ZIPKIN.told()]
    assert {span.trace_id for span in spans_of(whole(told))} == {"0000000000000000a1b2c3d4e5f60708"}


def test_the_halves_of_a_shared_span_are_one_below_the_other() -> None:
    told = ZIPKIN.told()
    half = {**told[2], "kind": "SERVER", "shared": True, "localEndpoint": {"serviceName": "tides"}}
    client, server = [span for span in spans_of(whole([*told, half])) if span.name == "tide_table"]
    assert server.parent_id == client.span_id
    assert server.resource.attributes == {"service.name": "tides"}


# OpenAI's Agents SDK -------------------------------------------------------


def test_a_handoff_names_the_agent_that_takes_over() -> None:
    trace, call, tool, last, desk = OPENAI.told()
    clerk = {**desk, "id": "span_clerk", "span_data": {**desk["span_data"], "name": "tide_clerk"}}
    clerk["started_at"] = call["ended_at"]
    given = {"type": "handoff", "from_agent": "harbour_desk", "to_agent": "tide_clerk"}
    handoff = {**call, "id": "span_handoff", "started_at": call["ended_at"], "span_data": given}
    for span in (tool, last):
        span["parent_id"] = clerk["id"]
    told = [trace, call, handoff, tool, last, clerk, desk]
    passed = run_of(told).steps[1]
    assert (passed.kind, passed.agent, passed.target) == (StepKind.HANDOFF, "harbour_desk", "tide_clerk")
    assert attribute(whole(told)).agent == "tide_clerk"


def test_a_guardrail_that_trips_blames_nobody() -> None:
    trace, call, _, _, desk = OPENAI.right()
    data = {"type": "guardrail", "name": "on_topic", "triggered": True}
    desk["error"] = {"message": "Guardrail tripwire triggered", "data": {"guardrail": "on_topic"}}
    assert_right(whole([trace, {**call, "id": "span_check", "span_data": data}, desk]))


def test_spans_of_the_sdks_own_turns_are_between_the_agent_and_its_calls() -> None:
    told = OPENAI.told()
    data = {"sdk_span_type": "turn", "turn": 1, "agent_name": "harbour_desk"}
    turn = {**told[4], "id": "span_turn", "parent_id": told[4]["id"]}
    turn["span_data"] = {"type": "custom", "name": "turn", "data": data}
    for span in told[1:4]:
        span["parent_id"] = turn["id"]
    assert len(run_of([*told, turn]).steps) == 3


def test_a_response_may_carry_its_texts() -> None:
    told = OPENAI.told()
    call = {"type": "function_call", "name": "tide_table", "arguments": "{}", "call_id": "call_1"}
    told[1]["span_data"] = {
        "type": "response",
        "response_id": "resp_1",
        "input": told[1]["span_data"]["input"],
        "response": {"output": [call]},
    }
    assert [each.name for each in run_of(told).steps[0].calls] == ["tide_table"]


# MLflow --------------------------------------------------------------------


@pytest.mark.parametrize("own_id", ["AAAAAAAAAAE=", None, ""])
def test_spans_of_mlflow_that_share_an_id_are_told_apart(own_id: str | None) -> None:
    told = MLFLOW.told()
    for span in told["data"]["spans"]:
        span["span_id"] = own_id
        span["parent_span_id"] = own_id if span["parent_span_id"] else None
    steps = run_of(told).steps
    assert [step.agent for step in steps] == ["harbour_desk"] * 3
    assert steps[1].error == "ConnectionError: the tide service cannot be reached"


def test_a_span_of_mlflow_that_was_written_twice_is_one() -> None:
    told = MLFLOW.told()
    told["data"]["spans"] *= 2
    assert len(run_of(told).steps) == 3


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"feedback": {"value": False}}, Outcome.FAILURE),
        ({"feedback": {"value": "no"}}, Outcome.FAILURE),
        ({"feedback": {"value": True}}, Outcome.SUCCESS),
        ({"feedback": {"value": False}, "valid": False}, None),
        ({"expectation": {"value": "15:40"}}, None),
    ],
    ids=["wrong", "a label", "right", "overridden", "an expectation"],
)
def test_feedback_in_mlflow_is_the_outcome(said: dict[str, Any], outcome: Outcome | None) -> None:
    told = MLFLOW.right()
    source = {"source_type": "HUMAN", "source_id": "jo"}
    told["info"]["assessments"] = [{"assessment_name": "correctness", "source": source, **said}]
    assert run_of(told).outcome is outcome


def test_feedback_in_mlflow_on_a_span_is_of_its_step() -> None:
    told = MLFLOW.right()
    own_id = base64.b64decode(told["data"]["spans"][2]["span_id"]).hex()
    said = {"assessment_name": "relevance", "source": {"source_type": "LLM_JUDGE", "source_id": "m"}}
    told["info"]["assessments"] = [said | {"feedback": {"value": "fail"}, "span_id": own_id}]
    assert [step.failed_evaluations for step in run_of(told).steps] == [(), ("relevance",), ()]


def any_value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool_value": value}
        case str():
            return {"string_value": value}
        case int():
            return {"int_value": str(value)}
        case list():
            return {"array_value": {"values": [any_value(each) for each in value]}}
        case dict():
            return {"kvlist_value": {"values": pairs(value)}}
        case _:
            return {}


def pairs(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in fields.items()]


def answered(told: dict[str, Any], **more: str) -> dict[str, Any]:
    """The trace as ``traces/batchGet`` answers it: attributes are values, not their JSON."""
    spans = [
        span
        | {
            "parent_span_id": span["parent_span_id"] or "",
            "attributes": pairs({name: json.loads(text) for name, text in span["attributes"].items()} | more),
            "events": [
                event | {"attributes": pairs(event["attributes"])} for event in span.get("events", [])
            ],
        }
        for span in told["data"]["spans"]
    ]
    return {"traces": [{"trace_info": told["info"], "spans": spans}]}


@pytest.mark.parametrize("made", [MLFLOW.told, MLFLOW.right], ids=["as it was", "right"])
def test_the_rest_api_of_mlflow_gives_the_same_run_as_the_file(made: Callable[[], dict[str, Any]]) -> None:
    of_file, of_answer = run_of(made()), run_of(answered(made()))
    assert [(step.agent, step.kind, step.output, step.error) for step in of_answer.steps] == [
        (step.agent, step.kind, step.output, step.error) for step in of_file.steps
    ]
    assert of_answer.task == of_file.task
    assert (of_answer.output, of_answer.outcome) == (of_file.output, of_file.outcome)


def test_what_mlflows_server_derives_from_genai_spans_hides_no_agent() -> None:
    sent = answered(MLFLOW.told(), **{"gen_ai.operation.name": "chat", "gen_ai.agent.name": "harbour"})
    assert {step.agent for step in run_of(sent).steps} == {"harbour"}


# Phoenix -------------------------------------------------------------------


def test_a_cell_with_moments_and_arrays_is_read() -> None:
    told = phoenix_frame(PHOENIX.told())
    told[2]["events"] = (
        "array([{'name': 'exception', 'timestamp': datetime.datetime(2026, 3, 2, tzinfo=<UTC>),"
        " 'attributes': {'exception.message': 'down', 'code': nan}}], dtype=object)"
    )
    assert "down" in run_of(told).steps[1].error


@pytest.mark.parametrize(
    ("rows", "value", "refusal"),
    [
        (10_000_000, "x", "more than 5,000,000 values"),
        (1_000, "x" * 1_000_000, "unpacks to more than 256 MiB"),
    ],
    ids=["many values", "long values"],
)
def test_parquet_of_one_repeated_value_is_refused(rows: int, value: str, refusal: str) -> None:
    """Ten million equal rows take a few kilobytes in a file."""
    pa = pytest.importorskip("pyarrow")
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))
    written = parquet(pa.table({"name": column}))
    assert len(written) < 100_000
    with pytest.raises(UnreadableInput, match=refusal):
        read_recording(written)


def test_damaged_parquet_is_refused_in_one_line() -> None:
    data = phoenix_parquet(PHOENIX.told())
    for cut in (5, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(UnreadableInput, match="Parquet") as raised:
            read_recording(data[:cut])
        assert "\n" not in str(raised.value)


def test_the_last_row_of_a_table_may_be_cut_short() -> None:
    read = read_recording(phoenix_csv(PHOENIX.told())[:-40].rpartition(b",")[0])
    assert read.warnings == ("row 4, the last one, is cut short and was left out",)


def test_a_table_of_something_else_is_described() -> None:
    with pytest.raises(UnreadableInput, match="unknown format: CSV with the keys date, amount, payee"):
        read_recording(b"date,amount,payee\n2026-01-02,3.50,Baker\n2026-01-03,4.00,Grocer\n")


def test_a_span_of_phoenix_that_was_sent_with_genai_attributes_is_read_by_those() -> None:
    sent = {
        "input.value": "added by Phoenix",
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "harbour",
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "sent"}]}]
        ),
    }
    told = {"data": [span | {"attributes": dict(sent)} for span in PHOENIX.told()]}
    assert {(step.agent, step.output) for step in run_of(told).steps} == {("harbour", "sent")}


# LangSmith -----------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        "GraphInterrupt((Interrupt(value='May I?', id='1'),))Traceback (most recent call last):\n …",
        "ParentCommand(Command(graph='__parent__', goto='clerk'))Traceback (most recent call last):\n …",
    ],
    ids=["waits", "hands over"],
)
def test_control_flow_of_langsmith_is_no_failure(error: str) -> None:
    told = LANGSMITH.right()
    told[3] |= {"status": "error", "error": error, "outputs": None}
    told[4]["outputs"] = {"messages": [{"type": "ai", "content": "I have asked."}]}
    assert attribute(whole(told)).agent is None


def test_runs_that_are_each_others_parent_are_read() -> None:
    told = LANGSMITH.told()
    for run, above in zip(told, [*told[1:], told[0]], strict=True):
        run |= {"parent_run_id": above["id"], "trace_id": None, "dotted_order": None}
    assert read_runs(whole(told))


# Spans that SDKs print -----------------------------------------------------


@pytest.fixture
def printed() -> list[ReadableSpan]:
    """Spans as the real SDK makes them: a failed call inside an agent, linked to an earlier span."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "harbour", "replicas": 2}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("harbour")
    with tracer.start_as_current_span("earlier") as earlier:
        pass
    link = Link(earlier.get_span_context(), {"why": "retry"})
    with (
        tracer.start_as_current_span("desk", attributes={"tags": ["a", "b"], "ratio": 0.5, "ok": True}),
        tracer.start_as_current_span("tide_table", kind=SpanKind.CLIENT, links=[link]) as called,
    ):
        called.add_event("waited", {"seconds": 3})
        called.record_exception(ConnectionError("down"))
        called.set_status(StatusCode.ERROR, "no tides")
    provider.shutdown()
    return list(kept.get_finished_spans())


def test_what_pythons_sdk_prints_is_read_whole(printed: list[ReadableSpan]) -> None:
    earlier, call, desk = spans_of("\n".join(span.to_json() for span in printed).encode())
    assert call.parent_id == desk.span_id
    assert (call.trace_id, desk.parent_id) == (desk.trace_id, None)
    assert int(call.span_id, 16) == printed[1].context.span_id
    assert call.kind == 3
    assert (call.status, call.status_message) == (SpanStatus.ERROR, "no tides")
    assert desk.attributes == {"tags": ("a", "b"), "ratio": 0.5, "ok": True}
    waited, exception = call.events
    assert waited.attributes == {"seconds": 3}
    assert exception.attributes["exception.message"] == "down"
    (link,) = call.links
    assert (link.span_id, link.attributes) == (earlier.span_id, {"why": "retry"})
    assert call.resource.attributes == {"service.name": "harbour", "replicas": 2}
    assert abs(call.start_ns - (printed[1].start_time or 0)) <= 1_000  # printed in microseconds
    assert desk.start_ns <= call.start_ns <= call.end_ns <= desk.end_ns


@pytest.mark.parametrize("indent", [None, 4], ids=["one a line", "several lines each"])
def test_each_way_of_printing_gives_the_same_spans(printed: list[ReadableSpan], indent: int | None) -> None:
    one_by_one = "\n".join(span.to_json(indent=indent) for span in printed).encode()
    assert spans_of(one_by_one) == spans_of(whole([json.loads(span.to_json()) for span in printed]))


def test_go_prints_zeros_for_no_parent() -> None:
    desk, *others = spans_of(lines(documents("go-stdouttrace.json")))
    assert desk.parent_id is None
    assert {span.parent_id for span in others} == {desk.span_id}
    (failed,) = [span for span in others if span.status is SpanStatus.ERROR]
    message = failed.events[0].attributes["exception.message"]
    assert message == "ConnectionError: the tide service cannot be reached"
    assert failed.scope.name == "harbour"
    assert failed.resource.attributes == {"service.name": "harbour"}


def test_messages_in_log_records_among_the_spans_are_joined_to_them() -> None:
    """``opentelemetry.instrumentation.openai_v2`` records messages as log records."""
    told = PRINTED.told()
    call = told[1]
    call["attributes"] = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "harbour_desk"}
    bodies = {
        "gen_ai.user.message": {"content": "When?"},
        "gen_ai.choice": {"message": {"content": "At 14:20."}},
    }
    logs = [
        {
            "body": body,
            "severity_number": 9,
            "severity_text": "INFO",
            "attributes": {"event.name": name},
            "timestamp": call["end_time"],
            "trace_id": call["context"]["trace_id"],
            "span_id": call["context"]["span_id"],
            "resource": call["resource"],
        }
        for name, body in bodies.items()
    ]
    (run,) = read_runs("\n".join(json.dumps(one, indent=4) for one in (*logs, *told)).encode())
    (step,) = [step for step in run.trajectory.steps if step.output == "At 14:20."]
    assert "When?" in step.input
