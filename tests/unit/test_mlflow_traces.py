"""MLflow's traces of both versions, as documents and as rows, with their assessments."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Outcome
from tests.tide_story import assert_right, told_steps

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "mlflow-trace.json"


def trace() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return found


def right() -> dict[str, Any]:
    """The example as it would be if the tool had answered."""
    told, result = trace(), "High water at Dover: 14:20 tomorrow"
    _, _, tool, last = told["data"]["spans"]
    tool |= {"status": {"code": "STATUS_CODE_OK", "message": ""}, "events": []}
    tool["attributes"]["mlflow.spanOutputs"] = json.dumps(result)
    given = json.loads(last["attributes"]["mlflow.spanInputs"])
    given["messages"][2]["content"] = result
    last["attributes"]["mlflow.spanInputs"] = json.dumps(given)
    return told


def _hex(text: str | None) -> str | None:
    return text and "0x" + base64.b64decode(text).hex()


def version_2(told: dict[str, Any]) -> dict[str, Any]:
    spans = [
        {
            "name": span["name"],
            "context": {"span_id": _hex(span["span_id"]), "trace_id": _hex(span["trace_id"])},
            "parent_id": _hex(span["parent_span_id"]),
            "start_time": span["start_time_unix_nano"],
            "end_time": span["end_time_unix_nano"],
            "status_code": span["status"]["code"].removeprefix("STATUS_CODE_"),
            "status_message": span["status"]["message"],
            "attributes": span["attributes"],
            "events": [
                {
                    "name": one["name"],
                    "timestamp": one["time_unix_nano"] // 1000,
                    "attributes": one["attributes"],
                }
                for one in span["events"]
            ],
        }
        for span in told["data"]["spans"]
    ]
    return {"info": {"request_id": "tr-1", "request_metadata": {}}, "data": {"spans": spans}}


def row(told: dict[str, Any]) -> dict[str, Any]:
    whole = json.dumps(told)
    return {
        "trace_id": "tr-1",
        "trace": whole,
        "state": "OK",
        "spans": told["data"]["spans"],
        "assessments": [],
    }


def old_row(told: dict[str, Any]) -> dict[str, Any]:
    """A frame before version 3: the whole trace is an object, which JSON does not hold."""
    return {
        "request_id": "tr-1",
        "trace": "Trace(request_id=tr-1)",
        "spans": version_2(told)["data"]["spans"],
    }


FORMS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "version 3": lambda told: json.dumps(told).encode(),
    "version 2": lambda told: json.dumps(version_2(told)).encode(),
    "the artifact": lambda told: json.dumps(told["data"]).encode(),
    "spans": lambda told: json.dumps(told["data"]["spans"]).encode(),
    "a frame": lambda told: json.dumps([row(told)]).encode(),
    "a frame's columns": lambda told: json.dumps(
        {name: {"0": one} for name, one in row(told).items()}
    ).encode(),
    "an old frame": lambda told: json.dumps([old_row(told)]).encode(),
    "the API's answer": lambda told: json.dumps({"traces": [told], "next_page_token": None}).encode(),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_each_form_shows_the_same_run(form: Callable[[dict[str, Any]], bytes]) -> None:
    first, _, _ = told_steps(form(trace()))
    assert [call.name for call in first.calls] == ["tide_table"]


@each_form
def test_a_run_whose_tool_answers_is_right(form: Callable[[dict[str, Any]], bytes]) -> None:
    assert_right(form(right()))


def test_the_agent_whose_tool_failed_is_named() -> None:
    told = trace()
    desk, *calls = told["data"]["spans"]
    clerk = {**desk, "name": "tide_clerk", "span_id": "AAAAAAAAAAk=", "parent_span_id": desk["span_id"]}
    for span in calls:
        span["parent_span_id"] = clerk["span_id"]
    told["data"]["spans"] = [desk, clerk, *calls]
    assert attribute(json.dumps(told).encode()).agent == "tide_clerk"


@pytest.mark.parametrize("own_id", ["AAAAAAAAAAE=", None, ""])
def test_spans_that_share_an_id_are_told_apart(own_id: str | None) -> None:
    told = trace()
    for span in told["data"]["spans"]:
        span["span_id"] = own_id
        span["parent_span_id"] = own_id if span["parent_span_id"] else None
    (run,) = read_runs(json.dumps(told).encode())
    assert [step.agent for step in run.trajectory.steps] == ["harbour_desk"] * 3
    assert run.trajectory.steps[1].error == "ConnectionError: the tide service cannot be reached"


def test_a_span_written_twice_is_one() -> None:
    told = trace()
    told["data"]["spans"] *= 2
    (run,) = read_runs(json.dumps(told).encode())
    assert len(run.trajectory.steps) == 3


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
def test_feedback_is_the_outcome(said: dict[str, Any], outcome: Outcome | None) -> None:
    told = right()
    source = {"source_type": "HUMAN", "source_id": "jo"}
    told["info"]["assessments"] = [{"assessment_name": "correctness", "source": source, **said}]
    (run,) = read_runs(json.dumps(told).encode())
    assert run.trajectory.outcome is outcome


def test_feedback_on_a_span_is_of_its_step() -> None:
    told = right()
    own_id = base64.b64decode(told["data"]["spans"][2]["span_id"]).hex()
    source = {"source_type": "LLM_JUDGE", "source_id": "m"}
    said = {
        "assessment_name": "relevance",
        "source": source,
        "feedback": {"value": "fail"},
        "span_id": own_id,
    }
    told["info"]["assessments"] = [said]
    (run,) = read_runs(json.dumps(told).encode())
    assert [step.failed_evaluations for step in run.trajectory.steps] == [(), ("relevance",), ()]


@pytest.mark.parametrize(
    ("field", "value"), [("start_time_unix_nano", "soon"), ("events", 3), ("status", "OK")]
)
def test_a_value_of_the_wrong_type_is_named_in_one_line(field: str, value: object) -> None:
    told = trace()
    told["data"]["spans"][1][field] = value
    with pytest.raises(UnreadableInput, match="cannot be read as MLflow traces: ") as raised:
        read_recording(json.dumps(told).encode())
    assert "\n" not in str(raised.value)


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


def pairs(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in fields.items()]


def answered(told: dict[str, Any], **more: str) -> dict[str, Any]:
    """The trace as ``traces/batchGet`` answers it: attributes are values, not their JSON."""
    spans = [
        {
            **{name: span[name] for name in ("trace_id", "span_id", "name", "status")},
            "parent_span_id": span["parent_span_id"] or "",
            "start_time_unix_nano": span["start_time_unix_nano"],
            "end_time_unix_nano": span["end_time_unix_nano"],
            "attributes": pairs({name: json.loads(text) for name, text in span["attributes"].items()} | more),
            "events": [
                {
                    "name": event["name"],
                    "time_unix_nano": event["time_unix_nano"],
                    "attributes": pairs(event["attributes"]),
                }
                for event in span.get("events", [])
            ],
        }
        for span in told["data"]["spans"]
    ]
    return {"traces": [{"trace_info": told["info"], "spans": spans}]}


@pytest.mark.parametrize("made", [trace, right])
def test_the_rest_api_gives_the_same_run_as_the_file(made: Callable[[], dict[str, Any]]) -> None:
    of_file, of_answer = (
        read_runs(json.dumps(document).encode())[0].trajectory for document in (made(), answered(made()))
    )
    assert [(step.agent, step.kind, step.output, step.error) for step in of_answer.steps] == [
        (step.agent, step.kind, step.output, step.error) for step in of_file.steps
    ]
    assert (of_answer.task, of_answer.output, of_answer.outcome) == (
        of_file.task,
        of_file.output,
        of_file.outcome,
    )


def test_what_the_server_derives_from_genai_spans_hides_no_agent() -> None:
    sent = answered(trace(), **{"gen_ai.operation.name": "chat", "gen_ai.agent.name": "harbour"})
    found = read_runs(json.dumps(sent).encode())[0].trajectory
    assert {step.agent for step in found.steps} == {"harbour"}
