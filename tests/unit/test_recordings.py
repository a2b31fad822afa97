"""Formats of recorded files, protobuf included, are recognised by content."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from analyzer.api.local import read_runs
from analyzer.cli.output import CommandFailed
from analyzer.cli.recorded_runs import load_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Outcome, OutcomeSource, StepKind
from tests.factories import TRACE, chat, span_id, workflow

MULTIPLY = {"id": "c1", "function": {"name": "multiply", "arguments": "[3, 48]"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 3 * 48?"},
    {"role": "assistant", "tool_calls": [MULTIPLY]},
    {"role": "tool", "tool_call_id": "c1", "content": "144"},
    {"role": "assistant", "content": "It is 154."},
]
DETAILS = "gen_ai.client.inference.operation.details"


def spans() -> bytes:
    return encode([workflow(), chat(2)])


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.trace_id, record.span_id = bytes.fromhex(TRACE), bytes.fromhex(span_id(2))
    record.event_name, record.time_unix_nano = DETAILS, 1
    said = record.attributes.add(key="gen_ai.output.messages")
    said.value.string_value = '[{"role": "assistant", "parts": [{"type": "text", "content": "85"}]}]'
    return request.SerializeToString()


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("pack", [bytes, framed, gzip.compress], ids=["bare", "framed", "gzip"])
def test_protobuf_spans_and_logs_are_told_apart(pack: object) -> None:
    assert callable(pack)
    assert read_recording(pack(spans())).requests == ((Signal.TRACES, spans()),)
    assert read_recording(pack(logs())).requests == ((Signal.LOGS, logs()),)


@pytest.mark.parametrize("data", [b"hello", b"\x0a\x02\x0a\x00"])
def test_bytes_that_hold_neither_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableInput, match="expected OTLP"):
        read_recording(data)


def test_protobuf_logs_give_a_run_its_words(tmp_path: Path) -> None:
    traces, details = tmp_path / "run.pb", tmp_path / "run.logs.pb"
    traces.write_bytes(spans())
    details.write_bytes(logs())
    assert [step.output for step in load_runs(traces, [])[0].trajectory.steps] == [""]
    assert [step.output for step in load_runs(traces, [details])[0].trajectory.steps] == ["85"]


def test_files_given_in_each_others_place_are_told(tmp_path: Path) -> None:
    traces, details = tmp_path / "run.pb", tmp_path / "run.logs.pb"
    traces.write_bytes(spans())
    details.write_bytes(logs())
    with pytest.raises(CommandFailed, match="give it with --logs"):
        load_runs(details, [])
    with pytest.raises(CommandFailed, match="holds no logs"):
        load_runs(traces, [traces])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MESSAGES),
        json.dumps({"messages": MESSAGES}),
        "\n".join(map(json.dumps, MESSAGES)),
        json.dumps({"messages": MESSAGES}) + "\n",
        yaml.safe_dump(MESSAGES),
    ],
    ids=["list", "messages", "lines", "line", "yaml list"],
)
def test_a_model_apis_messages_are_a_run_like_its_spans(text: str) -> None:
    recording = read_recording(text.encode())
    (run,) = rebuild(recording.traces)
    steps = [(one.agent, one.kind, one.target, one.output) for one in run.trajectory.steps]
    assert steps == [
        ("assistant", StepKind.LLM, None, "call multiply([3, 48])"),
        ("assistant", StepKind.TOOL, "multiply", "144"),
        ("assistant", StepKind.LLM, None, "It is 154."),
    ]
    assert (run.trajectory.task, run.trajectory.output) == ("What is 3 * 48?", "It is 154.")


ANSWER = {"choices": [{"index": 0, "message": {**MESSAGES[-1], "refusal": None}, "finish_reason": "stop"}]}
FIRST = {"choices": [{"index": 0, "message": MESSAGES[1], "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize(
    "documents",
    [
        [{"messages": MESSAGES[:1], "response": FIRST}, {"messages": MESSAGES[:-1], "response": ANSWER}],
        [{"request": {"messages": MESSAGES[:-1]}, "response": {"status": 200, "body": ANSWER}}],
        [{"messages": MESSAGES[:-1], **ANSWER}],
        [[{**one, "metadata": {"turn": 1}, "thread_id": "t"} for one in MESSAGES]],
    ],
    ids=["a proxy's log", "a batch", "one document", "messages with keys of a program"],
)
def test_requests_with_their_responses_are_a_run(documents: list[Any]) -> None:
    text = "\n".join(map(json.dumps, documents))
    (run,) = rebuild(read_recording(text.encode()).traces)
    assert [step.kind for step in run.trajectory.steps] == [StepKind.LLM, StepKind.TOOL, StepKind.LLM]
    assert (run.trajectory.task, run.trajectory.output) == ("What is 3 * 48?", "It is 154.")


def test_dialogues_one_a_line_are_runs_in_the_order_of_the_file() -> None:
    answers = [f"It is {number}." for number in range(9)]
    lines = [
        json.dumps({"messages": [*MESSAGES[:-1], {"role": "assistant", "content": one}]}) for one in answers
    ]
    runs = rebuild(read_recording("\n".join(lines).encode()).traces)
    assert [run.trajectory.output for run in runs] == answers
    assert not any(run.trajectory.is_recorded_conversation for run in runs)


def test_a_prompt_that_was_asked_several_times_has_all_its_answers() -> None:
    answers = [{"role": "assistant", "content": f"It is {number}."} for number in range(3)]
    lines = [{"messages": MESSAGES[:1], "choices": [{"message": one}]} for one in answers]
    runs = rebuild(read_recording("\n".join(map(json.dumps, lines)).encode()).traces)
    assert [run.trajectory.output for run in runs] == ["It is 0.", "It is 1.", "It is 2."]


@pytest.mark.parametrize("more", [{"mistake_agent": "assistant", "mistake_step": 1}, {"ground_truth": "144"}])
def test_messages_with_a_label_or_the_right_answer_are_a_conversation_log(more: dict[str, Any]) -> None:
    (read,) = read_recording(json.dumps({"messages": MESSAGES, **more}).encode()).conversations
    assert (read.label is not None) == ("mistake_agent" in more)
    assert (read.trajectory.reference is not None) == ("ground_truth" in more)


@pytest.mark.parametrize(
    "text",
    [json.dumps({"chat_history": MESSAGES}), "# a run\n---\n" + yaml.safe_dump({"history": MESSAGES})],
    ids=["chat_history", "yaml"],
)
def test_a_history_is_a_conversation_log_whose_entries_are_steps(text: str) -> None:
    (read,) = read_recording(text.encode()).conversations
    said = [(step.agent, step.kind, step.target, step.input, step.output) for step in read.trajectory.steps]
    assert said[2] == ("assistant", StepKind.TOOL, "multiply", "[3, 48]", "144")
    assert said[3] == ("assistant", StepKind.LLM, None, "", "It is 154.")
    assert read.trajectory.task == "What is 3 * 48?"


def test_an_agents_messages_are_no_failure_for_being_recorded() -> None:
    right = [*MESSAGES[:-1], {"role": "assistant", "content": "It is 144."}]
    (run,) = read_runs(json.dumps(right).encode())
    assert not run.trajectory.is_recorded_conversation


def test_a_line_that_a_dying_program_cut_short_is_left_out_with_a_warning() -> None:
    lines = [json.dumps(one) for one in MESSAGES]
    read = read_recording("\n".join([*lines, '{"role": "assist']).encode())
    (warning,) = read.warnings
    assert warning.startswith("line 5, the last one, is cut short and was left out: Unterminated string")
    assert read.requests == read_recording("\n".join(lines).encode()).requests


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\x00", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n", b"\x1e\n\x1e"],
    ids=["empty", "padding", "mark", "space", "separators"],
)
def test_a_text_of_nothing_is_refused_in_a_sentence(data: bytes) -> None:
    with pytest.raises(UnreadableInput, match=r"^is empty$"):
        read_recording(data)


def test_a_broken_line_before_others_is_an_error_with_its_number() -> None:
    lines = [json.dumps(MESSAGES[0]), '{"role": "assist', json.dumps(MESSAGES[1])]
    with pytest.raises(UnreadableInput, match="broken JSON: line 2: Unterminated"):
        read_recording("\n".join(lines).encode())


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"level": 30, "time": 1, "pid": 7, "name": "shop", "msg": "started"}, "the log of an application"),
        (
            {"levelname": "INFO", "name": "uvicorn.access", "message": "GET / 200"},
            "the log of an application",
        ),
        ({"name": "shop", "message": "started"}, "unknown format: JSON lines with the keys name, message"),
    ],
)
def test_the_log_of_an_application_is_no_conversation(record: dict[str, object], said: str) -> None:
    with pytest.raises(UnreadableInput, match=said):
        read_recording("\n".join([json.dumps(record)] * 3).encode())


def test_the_step_by_step_methods_own_fields_are_read() -> None:
    log = [{"agent_id": "planner", "message": "plan"}, {"agent_id": "writer", "message": "done"}]
    (read,) = read_recording(json.dumps(log).encode()).conversations
    assert [(step.agent, step.output) for step in read.trajectory.steps] == [
        ("planner", "plan"),
        ("writer", "done"),
    ]


def test_a_list_of_logs_is_not_taken_for_messages() -> None:
    logs = [{"history": MESSAGES, "name": name, "content": ""} for name in ("one", "two")]
    assert len(read_recording(json.dumps(logs).encode()).conversations) == 2


def test_a_conversation_that_names_nobody_is_refused_with_the_keys_it_may_have() -> None:
    log = {"history": [{"content": "x"}, {"who": "A", "content": "y"}]}
    with pytest.raises(UnreadableInput, match="no message says which agent it is from: expected one of"):
        read_recording(json.dumps(log).encode())


NO_LOGS = {
    "alias": ("history:\n- {role: A, content: &a [x]}\n- {role: B, content: *a}\n", "aliases"),
    "broken": ("history: [\n", "YAML that cannot be read"),
    "object": ("history:\n- !!python/object/apply:os.system ['true']\n", "the tag .*os.system"),
    "other": ("name: nothing of ours\n", "expected OTLP"),
    "lists": ("- " * 200_000, "more than 100 levels"),
    "flow": ("a: " + "[" * 200_000, "more than 100 levels"),
    "mappings": ("a: " + "{" * 200_000, "more than 100 levels"),
    "base 60": ("a: " + "1:" * 200_000 + "1", "expected OTLP"),
    "no key": ("? [a]\n: b\n", "expected OTLP"),
    "list as key": ("a:\n  ? [a]\n  : b\n", "a key that is not text"),
}


@pytest.mark.parametrize(("text", "said"), NO_LOGS.values(), ids=NO_LOGS)
def test_yaml_that_is_no_log_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UnreadableInput, match=said):
        read_recording(text.encode())


NESTED = "[" * 990 + "]" * 990


@pytest.mark.parametrize(
    "text",
    [
        f'{{"history": [{{"name": "A", "content": {NESTED}}}]}}',
        f'[{{"traceId": "a", "id": "b", "type": "SPAN", "startTime": "2026-11-01", "input": {NESTED}}}]',
        f'{{"resourceSpans": {NESTED}}}',
        f'{{"data": [{{"spans": {NESTED}}}]}}',
        "[" * 100_000,
    ],
    ids=["log", "Langfuse", "OTLP", "Jaeger", "lists"],
)
def test_deeply_nested_values_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UnreadableInput):
        read_recording(text.encode())


def observation(name: str, kind: str, second: int, **others: object) -> dict[str, object]:
    return {
        "id": name, "traceId": "0af76519-16cd-43dd-8448-eb211c80319c", "type": kind, "name": name,
        "startTime": f"2026-11-01T10:00:0{second}.000Z", "endTime": f"2026-11-01T10:00:0{second}.900Z",
        "parentObservationId": None, "metadata": {}, "level": "DEFAULT", **others,
    }  # fmt: skip


BELOW = {"parentObservationId": "planner"}
OBSERVATIONS = [
    observation("planner", "AGENT", 0, input={"question": "3 * 48?"}, endTime="2026-11-01T10:00:04Z"),
    observation("chat", "GENERATION", 1, **BELOW, output={"role": "assistant", "content": "154"}),
    observation("multiply", "TOOL", 2, **BELOW, level="ERROR", statusMessage="no such tool"),
]


@pytest.mark.parametrize(
    "document",
    [
        {"id": "t", "name": "sum", "input": "3 * 48?", "output": "154", "observations": OBSERVATIONS},
        {"trace": {"id": "t", "name": "sum"}, "observations": OBSERVATIONS},
        {"data": OBSERVATIONS, "meta": {"page": 1}},
        OBSERVATIONS,
    ],
    ids=["trace", "download", "page of observations", "list"],
)
def test_an_export_from_langfuse_is_read_like_its_spans(document: object) -> None:
    (run,) = rebuild(read_recording(json.dumps(document).encode()).traces)
    said = [(step.agent, step.kind, step.target, step.output, step.error) for step in run.trajectory.steps]
    assert said == [
        ("planner", StepKind.LLM, None, "154", ""),
        ("planner", StepKind.TOOL, "multiply", "", "no such tool"),
    ]


SCORES = [
    {"name": "thumbs", "value": 0, "dataType": "BOOLEAN", "stringValue": "False", "source": "ANNOTATION"},
    {"name": "grade", "value": 2, "dataType": "CATEGORICAL", "stringValue": "wrong", "observationId": "STEP"},
    {"name": "speed", "value": 0.4, "dataType": "NUMERIC", "observationId": None, "source": "EVAL"},
    {"name": "correct", "value": 1, "dataType": "NUMERIC", "observationId": "no such one"},
]


@pytest.mark.parametrize("place", ["trace", "document"])
def test_scores_of_an_export_from_langfuse_are_evaluations(place: str) -> None:
    step = next(one for one in OBSERVATIONS if one["type"] == "GENERATION")
    scores = json.loads(json.dumps(SCORES).replace("STEP", str(step["id"])))
    document: dict[str, Any] = {"trace": {"id": "t", "name": "n"}, "observations": OBSERVATIONS}
    (document["trace"] if place == "trace" else document)["scores"] = scores
    recorded = read_recording(json.dumps(document).encode())
    (run,) = rebuild(recorded.traces)
    trajectory = run.trajectory
    assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.FAILURE, OutcomeSource.USER)
    assert [each.failed_evaluations for each in trajectory.steps if each.failed_evaluations] == [("grade",)]


def test_observations_without_a_common_parent_get_their_trace_as_one() -> None:
    apart = [{**one, "parentObservationId": None} for one in OBSERVATIONS]
    document = {"id": "t", "name": "sum", "input": "3 * 48?", "output": "154", "observations": apart}
    (run,) = rebuild(read_recording(json.dumps(document).encode()).traces)
    assert (run.trajectory.task, run.trajectory.output) == ("3 * 48?", "154")


@pytest.mark.parametrize(
    "change", [{"startTime": "soon"}, {"startTime": None}, {"type": "GENERATION", "id": {}}]
)
def test_a_broken_export_from_langfuse_is_refused_in_a_sentence(change: dict[str, object]) -> None:
    document = {"observations": [{**OBSERVATIONS[0], **change}]}
    with pytest.raises(UnreadableInput, match=r"Langfuse|expected OTLP"):
        read_recording(json.dumps(document).encode())


def test_a_file_of_very_many_gzip_members_is_unpacked_in_linear_time() -> None:
    member, begun = gzip.compress(b"", mtime=0), time.process_time()
    assert unpack(member * 200_000 + gzip.compress(b"[]")) == b"[]"
    assert time.process_time() - begun < 4  # copying the rest for each member took 13 s


def test_a_file_with_base64_ids_is_read_and_wrong_lengths_are_told(tmp_path: Path) -> None:
    recorded = json.loads(to_json(Signal.TRACES, spans()))
    for one in recorded["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in {"traceId", "spanId", "parentSpanId"} & one.keys():
            one[name] = b64encode(bytes.fromhex(one[name])).decode()
    path = tmp_path / "run.json"
    path.write_text(json.dumps(recorded))
    assert load_runs(path, [])[0].trajectory.run_id == TRACE
    path.write_text(path.read_text().replace(b64encode(bytes.fromhex(TRACE)).decode(), f"{TRACE}00"))
    with pytest.raises(CommandFailed, match="spans have no valid id: expected hex"):
        load_runs(path, [])
