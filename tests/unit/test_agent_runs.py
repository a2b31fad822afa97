"""Runs that platforms, chat programs and stores keep in shapes of their own, which all tell one story."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from semconv.model import Status, StepKind
from tests.message_runs import ANSWER, ERROR, TASK, tools

ARGUMENTS = {"port": "Dover"}
GIVEN = json.dumps(ARGUMENTS)
RIGHT = "14:20"
DESK = "harbour_desk"
CALL = {"id": "c1", "type": "function", "function": {"name": "tide_table", "arguments": GIVEN}}


def assistants(error: str) -> list[Any]:
    def message(number: int, role: str, text: str, at: int) -> dict[str, Any]:
        said = [{"type": "text", "text": {"value": text, "annotations": []}}]
        own = {"role": role, "content": said, "assistant_id": "asst_1" if role == "assistant" else None}
        return {"id": f"msg_{number}", "object": "thread.message", "created_at": at, **own}

    called = {**CALL, "function": {**CALL["function"], "output": error or RIGHT}}  # type: ignore[dict-item]
    step = {"id": "step_1", "object": "thread.run.step", "created_at": 3, "assistant_id": "asst_1"}
    return [
        {"id": "asst_1", "object": "assistant", "name": DESK},
        {"object": "list", "data": [message(2, "assistant", ANSWER, 3), message(1, "user", TASK, 1)]},
        {"id": "run_1", "object": "thread.run", "created_at": 2, "status": "completed", "last_error": None},
        {**step, "step_details": {"type": "tool_calls", "tool_calls": [called]}},
    ]


def ag2(error: str) -> list[Any]:
    def event(kind: str, sender: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "content": {"uuid": "1", "sender": sender, "recipient": "manager", **fields}}

    done = {"call_id": "c1", "content": "", "is_exec_success": not error}
    answers = [{"tool_call_id": "c1", "role": "tool", "content": error or RIGHT}]
    return [
        event("text", "user", content=TASK),
        {"type": "select_speaker", "content": {"uuid": "2", "agents": [DESK]}},
        event("tool_call", DESK, content=None, tool_calls=[CALL]),
        {"type": "executed_function", "content": {"uuid": "3", **done}},
        event("tool_response", "_Group_Tool_Executor", content="", tool_responses=answers),
        event("text", DESK, content=ANSWER),
        {"type": "run_completion", "content": {"uuid": "4", "summary": ANSWER}},
    ]


def bedrock_agent(error: str) -> list[Any]:
    def traced(kind: str, **held: Any) -> dict[str, Any]:
        return {"trace": {"agentId": "A1", "collaboratorName": DESK, "trace": {kind: held}}}

    asked = json.dumps({"system": "x", "messages": [{"role": "user", "content": TASK}]})
    parameters = [{"name": "port", "type": "string", "value": "Dover"}]
    call = {"actionGroupName": "tides", "function": "tide_table", "parameters": parameters}
    result = {"type": "ACTION_GROUP", "actionGroupInvocationOutput": {"text": error or RIGHT}}
    kind = "orchestrationTrace"
    return [
        traced(kind, modelInvocationInput={"traceId": "1", "text": asked}),
        traced(kind, rationale={"traceId": "1", "text": "A table is needed."}),
        traced(kind, invocationInput={"traceId": "1", "actionGroupInvocationInput": call}),
        traced(kind, observation={"traceId": "1", **result}),
        traced(kind, observation={"traceId": "2", "type": "FINISH", "finalResponse": {"text": ANSWER}}),
        {"chunk": {"bytes": ANSWER}},
    ]


def mistral(error: str) -> list[Any]:
    entries = [
        {"type": "message.input", "role": "user", "content": TASK},
        {"type": "function.call", "tool_call_id": "c1", "name": "tide_table", "arguments": GIVEN},
        {"type": "function.result", "tool_call_id": "c1", "result": error or RIGHT},
        {"type": "message.output", "role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]
    return [{"object": "conversation.history", "conversation_id": "c", "entries": entries}]


def langchain4j(error: str) -> list[Any]:
    return [
        {"type": "USER", "contents": [{"type": "TEXT", "text": TASK}]},
        {"type": "AI", "toolExecutionRequests": [{"id": "c1", "name": "tide_table", "arguments": GIVEN}]},
        {"type": "TOOL_EXECUTION_RESULT", "id": "c1", "toolName": "tide_table", "text": error or RIGHT},
        {"type": "AI", "text": ANSWER},
    ]


def spring_ai(error: str) -> list[Any]:
    result = {"id": "c1", "name": "tide_table", "responseData": error or RIGHT}
    return [
        {"messageType": "USER", "text": TASK, "media": []},
        {
            "messageType": "ASSISTANT",
            "text": "",
            "toolCalls": [{"name": "tide_table", "arguments": GIVEN, "id": "c1"}],
        },
        {"messageType": "TOOL", "text": "", "responses": [result]},
        {"messageType": "ASSISTANT", "text": ANSWER, "toolCalls": []},
    ]


def vs_code(error: str) -> list[Any]:
    rounds = [
        {"id": "1", "response": "", "toolCalls": [{"id": "c1", "name": "tide_table", "arguments": GIVEN}]},
        {"id": "2", "response": ANSWER, "toolCalls": []},
    ]
    results = {"c1": {"content": [{"value": f"ERROR: {error}" if error else RIGHT}]}}
    request = {
        "message": {"text": TASK, "parts": []},
        "response": [{"kind": "toolInvocationSerialized"}, {"value": ANSWER}],
        "result": {"metadata": {"toolCallRounds": rounds, "toolCallResults": results}},
    }
    return [{"version": 3, "responderUsername": "GitHub Copilot", "requests": [request]}]


def vs_code_log(error: str) -> list[Any]:
    session: dict[str, Any] = vs_code(error)[0]
    request: dict[str, Any] = session["requests"][0]
    return [
        {"kind": 0, "v": {**session, "requests": []}},
        {"kind": 2, "k": ["requests"], "v": [{**request, "response": [{"value": "?"}], "result": {"x": 1}}]},
        {"kind": 2, "k": ["requests", 0, "response"], "i": 0, "v": request["response"]},
        {"kind": 3, "k": ["requests", 0, "result", "x"]},
        {"kind": 1, "k": ["requests", 0, "result"], "v": request["result"]},
    ]


def libre_chat(error: str) -> list[Any]:
    call = {"id": "c1", "name": "tide_table", "args": GIVEN, "output": error or RIGHT}
    parts = [{"type": "tool_call", "tool_call": call}, {"type": "text", "text": ANSWER}]
    answer = {"messageId": "2", "sender": DESK, "isCreatedByUser": False, "text": "", "content": parts}
    first = {"messageId": "1", "sender": "User", "isCreatedByUser": True, "text": TASK}
    return [{"endpoint": "agents", "messages": [{**first, "children": [answer]}]}]


def open_webui(error: str) -> list[Any]:
    fields = {"id": "c1", "name": "tide_table", "arguments": GIVEN, "result": json.dumps(error or RIGHT)}
    shown = " ".join(f'{key}="{value.replace(chr(34), "&quot;")}"' for key, value in fields.items())
    called = f'<details type="tool_calls" done="true" {shown}>\n<summary>Tool Executed</summary>\n</details>'
    messages = [{"role": "user", "content": TASK}, {"role": "assistant", "content": f"{called}\n{ANSWER}"}]
    return [{"id": "1", "title": "Tide", "chat": {"title": "Tide", "messages": messages}}]


def continue_dev(error: str) -> list[Any]:
    state = {"toolCallId": "c1", "status": "errored" if error else "done"}
    turns: list[dict[str, Any]] = [
        {"message": {"role": "user", "content": TASK}},
        {"message": {"role": "assistant", "content": "", "toolCalls": [CALL]}, "toolCallStates": [state]},
        {"message": {"role": "tool", "content": error or RIGHT, "toolCallId": "c1"}},
        {"message": {"role": "assistant", "content": ANSWER}},
    ]
    return [{"sessionId": "s", "history": [{**turn, "contextItems": []} for turn in turns]}]


def zed(error: str) -> list[Any]:
    result = {"is_error": bool(error), "content": {"Text": error or RIGHT}}
    called = {"ToolUse": {"id": "c1", "name": "tide_table", "input": ARGUMENTS}}
    turns = [
        {"User": {"id": "1", "content": [{"Text": TASK}]}},
        {"Agent": {"content": [{"Thinking": {"text": "x"}}, called], "tool_results": {"c1": result}}},
        {"Agent": {"content": [{"Text": ANSWER}], "tool_results": {}}},
    ]
    return [{"title": "Tide", "version": "0.3.0", "messages": turns}]


def share_gpt(error: str) -> list[Any]:
    turns = [
        ("human", TASK),
        ("function_call", json.dumps({"name": "tide_table", "arguments": ARGUMENTS})),
        ("observation", error or RIGHT),
        ("gpt", ANSWER),
    ]
    return [{"conversations": [{"from": sender, "value": text} for sender, text in turns]}]


def hermes(error: str) -> list[Any]:
    (one,) = share_gpt(error)
    one["conversations"][1] = {
        "from": "gpt",
        "value": f"<tool_call>{one['conversations'][1]['value']}</tool_call>",
    }
    one["conversations"][2]["from"] = "tool"
    return [one]


def amp(error: str) -> list[Any]:
    done = {"status": "error", "error": {"message": error}} if error else {"status": "done", "result": RIGHT}
    turns = [
        ("user", {"type": "text", "text": TASK}),
        ("assistant", {"type": "tool_use", "id": "c1", "name": "tide_table", "input": ARGUMENTS}),
        ("user", {"type": "tool_result", "toolUseID": "c1", "run": done}),
        ("assistant", {"type": "text", "text": ANSWER}),
    ]
    return [{"v": 30, "messages": [{"role": role, "content": [part]} for role, part in turns]}]


def kimi(error: str) -> list[Any]:
    return [
        {"role": "_checkpoint", "id": 0},
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": [{"type": "think", "think": "x"}], "tool_calls": [CALL]},
        {"role": "_usage", "token_count": 12},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": error or RIGHT}]},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]


def evaluation_set(error: str) -> list[Any]:
    response = {"error": error} if error else {"result": RIGHT}
    events = [
        {"function_call": {"id": "c1", "name": "tide_table", "args": ARGUMENTS}},
        {"function_response": {"id": "c1", "name": "tide_table", "response": response}},
    ]
    turn = {
        "user_content": {"role": "user", "parts": [{"text": TASK}]},
        "final_response": {"role": "model", "parts": [{"text": ANSWER}]},
        "intermediate_data": {
            "invocation_events": [{"author": DESK, "content": {"parts": [part]}} for part in events]
        },
    }
    return [{"eval_set_id": "1", "eval_cases": [{"eval_id": "1", "conversation": [turn]}]}]


def evaluation_set_of_uses(error: str) -> list[Any]:
    (found,) = evaluation_set(error)
    (turn,) = found["eval_cases"][0]["conversation"]
    call, result = (one["content"]["parts"][0] for one in turn["intermediate_data"]["invocation_events"])
    turn["intermediate_data"] = {
        "tool_uses": [call["function_call"]],
        "tool_responses": [result["function_response"]],
    }
    return [found]


def prompt_layer(error: str) -> list[Any]:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": TASK}]},
        {"role": "assistant", "content": [], "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": error or RIGHT}]},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]
    template = {"type": "chat", "tools": [], "messages": messages}
    return [
        {"success": True, "request_id": 1, "prompt_blueprint": {"prompt_template": template, "metadata": {}}}
    ]


def lambda_answer(error: str) -> list[Any]:
    (found,) = prompt_layer(error)
    return [{"statusCode": 200, "body": json.dumps(found["prompt_blueprint"]["prompt_template"])}]


def dify_nodes(error: str) -> list[Any]:
    done = {"status": "succeeded", "error": None}
    ended = {"status": "failed", "error": error, "outputs": None} if error else {"outputs": {"text": RIGHT}}
    nodes: list[dict[str, Any]] = [
        {"node_type": "start", "title": "Start", "inputs": {"sys.query": TASK}, **done},
        {"node_type": "tool", "title": "tide_table", "inputs": ARGUMENTS, **done, **ended},
        {"node_type": "llm", "title": DESK, "inputs": {}, "outputs": {"text": ANSWER}, **done},
    ]
    numbered = [{"index": place, "node_id": f"node {place}", **one} for place, one in enumerate(nodes)]
    return numbered[::-1]


def dify_stream(error: str) -> list[Any]:
    answer, tool, start = dify_nodes(error)
    begun = {"event": "workflow_started", "data": {"id": "w", "inputs": start["inputs"]}}
    done = [{"event": "node_finished", "data": one} for one in (tool, answer)]
    return [begun, {"event": "node_started", "data": {"id": "1"}}, *done, {"event": "workflow_finished"}]


def made_items(error: str) -> list[Any]:
    said = [{"type": "output_text", "text": ANSWER}]
    raw = [
        {"type": "function_call", "call_id": "c1", "name": "tide_table", "arguments": GIVEN},
        {"type": "function_call_output", "call_id": "c1", "output": error or RIGHT},
        {"type": "message", "role": "assistant", "content": said},
    ]
    items = [{"type": "item", "agent": {"name": DESK}, "raw_item": one} for one in raw]
    return [{"input": TASK, "new_items": items, "raw_responses": [], "final_output": ANSWER}]


def run_state(error: str) -> list[Any]:
    """Return a state as the SDK in TypeScript writes it."""
    (held,) = made_items(error)
    text = json.dumps(held["new_items"]).replace("raw_item", "rawItem").replace("call_id", "callId")
    items = json.loads(text.replace("function_call_output", "function_call_result"))
    asked = [{"type": "message", "role": "user", "content": TASK}]
    return [{"$schemaVersion": "1.0", "originalInput": asked, "generatedItems": items}]


def mastra_steps(error: str) -> list[Any]:
    own = {"toolCallId": "c1", "toolName": "tide_table"}
    call = {"type": "tool-call", "payload": {**own, "args": ARGUMENTS}}
    result = {"type": "tool-result", "payload": {**own, "result": error or RIGHT, "isError": bool(error)}}
    first = {"text": "", "toolCalls": [call], "toolResults": [result]}
    asked = [{"role": "user", "content": TASK}]
    return [{"messages": asked, "steps": [first, {"text": ANSWER, "toolCalls": []}], "text": ANSWER}]


SHAPES: list[Callable[[str], list[Any]]] = [
    *(assistants, ag2, bedrock_agent, mistral, langchain4j, spring_ai, vs_code, vs_code_log, libre_chat),
    *(open_webui, continue_dev, zed, share_gpt, hermes, amp, kimi, evaluation_set, evaluation_set_of_uses),
    *(prompt_layer, lambda_answer, made_items, run_state, mastra_steps),
]
NAMED = frozenset({assistants, ag2, bedrock_agent, libre_chat, evaluation_set, made_items, run_state})
"""Shapes that record the agent's name."""
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def written(records: list[Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in records).encode()


@each_shape
def test_a_run_tells_the_story(shape: Callable[[str], list[Any]]) -> None:
    data = written(shape(ERROR))
    (run,) = read_runs(data)
    agent = DESK if shape in NAMED else "agent" if shape is evaluation_set_of_uses else "assistant"
    assert {step.agent for step in run.trajectory.steps} == {agent}
    (call,) = [step for step in run.trajectory.steps if step.kind is StepKind.TOOL]
    assert (call.target, json.loads(call.input)) == ("tide_table", ARGUMENTS)
    assert ERROR in call.error + call.output
    assert (run.trajectory.task, run.trajectory.output) == (TASK, ANSWER)
    assert attribute(data).agent == agent


@each_shape
def test_a_right_run_accuses_no_agent(shape: Callable[[str], list[Any]]) -> None:
    data = written(shape(""))
    (run,) = read_runs(data)
    assert [step.output for step in run.trajectory.steps if step.kind is StepKind.TOOL] == [RIGHT]
    assert attribute(data).status is Status.NO_FAILURE


@pytest.mark.parametrize("shape", [dify_nodes, dify_stream])
def test_the_nodes_of_a_workflow_tell_the_story(shape: Callable[[str], list[Any]]) -> None:
    def whole(error: str) -> bytes:
        return json.dumps({"data": shape(error)}).encode()

    (run,) = read_runs(whole(ERROR))
    _, call, answer = run.trajectory.steps
    assert (call.target, json.loads(call.input), call.error) == ("tide_table", ARGUMENTS, ERROR)
    assert (answer.agent, answer.output, run.trajectory.task) == (DESK, ANSWER, TASK)
    assert attribute(whole(ERROR)).agent == DESK
    assert attribute(whole("")).status is Status.NO_FAILURE


@pytest.mark.parametrize(
    "events", [[{"event": []}, {"event": {}}], [{"event": ["node_finished"], "data": {}}]]
)
def test_events_without_a_name_are_no_workflow(events: list[Any]) -> None:
    with pytest.raises(UnreadableInput):
        read_runs(json.dumps(events).encode())


def test_a_node_without_a_kind_tells_nothing() -> None:
    nodes = dify_nodes("")
    kinds: list[Any] = [[], {"llm": 1}, None]
    strange = [{**nodes[0], "index": 7, "node_type": kind} for kind in kinds]
    (run,) = read_runs(json.dumps({"data": [*strange, *nodes]}).encode())
    assert run.trajectory.steps[-1].output == ANSWER
    assert len(run.trajectory.steps) == 3


# --- spans ---


def row(number: int, name: str, attributes: dict[str, str], error: str = "") -> dict[str, Any]:
    return {
        "timestamp": f"2026-05-01T10:00:0{number}.000000000Z",
        "trace_id": "5b8efff798038103d269b633813fc60c",
        "span_id": f"{number:016x}",
        "parent_span_id": f"{number - 1:016x}" if number > 1 else "",
        "duration_nano": 900_000_000,
        "name": name,
        "status_code_string": "Error" if error else "Unset",
        "status_message": error,
        "attributes_string": attributes,
        "attributes_number": {},
        "attributes_bool": {},
        "resources_string": {"service.name": "harbour"},
    }


def signoz(error: str) -> list[Any]:
    answered = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}])
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": DESK,
        "gen_ai.output.messages": answered,
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "tide_table"}
    tool |= {} if error else {"gen_ai.tool.call.result": RIGHT}
    return [row(1, f"invoke_agent {DESK}", agent), row(2, "execute_tool tide_table", tool, error)]


def signoz_query(error: str) -> list[Any]:
    found = [{"timestamp": one["timestamp"], "data": one} for one in signoz(error)]
    return [{"status": "success", "data": {"resultType": "", "result": [{"queryName": "A", "list": found}]}}]


def signoz_waterfall(error: str) -> list[Any]:
    spans = [
        {
            "traceId": one["trace_id"],
            "spanId": one["span_id"],
            "parentSpanId": one["parent_span_id"],
            "timestamp": 1_777_629_600_000 + place,
            "durationNano": one["duration_nano"],
            "kind": 1,
            "name": one["name"],
            "tagMap": one["attributes_string"],
            "serviceName": "harbour",
            "statusCodeString": one["status_code_string"],
            "statusMessage": one["status_message"],
        }
        for place, one in enumerate(signoz(error))
    ]
    return [{"status": "success", "data": {"totalSpansCount": 2, "spans": spans}}]


def x_ray(error: str) -> list[Any]:
    agent, tool = (
        {
            "id": one["span_id"],
            "name": one["name"],
            "metadata": {"default": one["attributes_string"]},
            "start_time": 1_777_629_600.0 + place,
            "end_time": 1_777_629_600.9 + place,
        }
        for place, one in enumerate(signoz(error))
    )
    tool["annotations"] = {"gen_ai_tool_name": tool["metadata"]["default"].pop("gen_ai.tool.name")}
    if error:
        tool |= {"fault": True, "cause": {"exceptions": [{"type": "Error", "message": error}]}}
    document = json.dumps({**agent, "subsegments": [tool]})
    trace = {"Id": "1-5b8efff7-98038103d269b633813fc60c", "Segments": [{"Id": "1", "Document": document}]}
    return [{"Traces": [trace], "UnprocessedTraceIds": []}]


@pytest.mark.parametrize(
    "store", [signoz, signoz_query, signoz_waterfall, x_ray], ids=lambda one: one.__name__
)
def test_a_stores_rows_tell_the_story(store: Callable[[str], list[Any]]) -> None:
    data = written(store(ERROR))
    (run,) = read_runs(data)
    assert run.trajectory.run_id == "5b8efff798038103d269b633813fc60c"
    assert [one[:2] for one in tools(run.trajectory)] == [(DESK, "tide_table")]
    assert ERROR in "".join(tools(run.trajectory)[0])
    assert attribute(data).agent == DESK
    assert attribute(written(store(""))).status is Status.NO_FAILURE


# --- what is special to one of them ---


def test_a_run_of_assistants_that_failed_is_its_assistants_step() -> None:
    failed = {"code": "rate_limit_exceeded", "message": "You exceeded your quota"}
    message, run = assistants("")[1]["data"][1], assistants("")[2]
    verdict = attribute(
        written([message, {**run, "assistant_id": "asst_1", "last_error": failed, "failed_at": 9}])
    )
    assert verdict.agent == "asst_1"
    assert "rate_limit_exceeded: You exceeded your quota" in verdict.reason


def test_threads_of_assistants_are_runs_of_their_own() -> None:
    one, other = (
        [{**each, "thread_id": thread, "id": f"{thread} {each['id']}"} for each in [*page["data"], run, step]]
        for thread, (_, page, run, step) in (("t1", assistants("")), ("t2", assistants(ERROR)))
    )
    assert len(read_runs(written([*one, *other]))) == 2


def test_what_a_collaborator_of_bedrock_does_is_inside_the_call_of_it() -> None:
    asked, _, *called, finished, _ = bedrock_agent(ERROR)
    call = {"agentCollaboratorName": DESK, "input": {"type": "TEXT", "text": TASK}}
    got = {"agentCollaboratorName": DESK, "output": {"type": "TEXT", "text": ANSWER}}

    def of_lead(**held: Any) -> dict[str, Any]:
        return {"trace": {"agentId": "lead", "trace": {"orchestrationTrace": held}}}

    events = [
        {"trace": {"agentId": "lead", "trace": asked["trace"]["trace"]}},
        of_lead(invocationInput={"traceId": "9", "agentCollaboratorInvocationInput": call}),
        *called,
        finished,
        of_lead(observation={"traceId": "9", "agentCollaboratorInvocationOutput": got}),
        of_lead(observation={"traceId": "9", "finalResponse": {"text": ANSWER}}),
    ]
    (run,) = read_runs(written(events))
    steps = run.trajectory.steps
    assert [(one.agent, one.target) for one in steps if one.target == "tide_table"] == [(DESK, "tide_table")]
    assert (steps[0].agent, steps[-1].agent, run.trajectory.output) == ("lead", "lead", ANSWER)
    assert attribute(written(events)).agent == DESK


@pytest.mark.parametrize("state", ["failed", "TASK_STATE_FAILED"])
def test_a_failed_task_of_a2a_accuses_its_agent_and_a_right_one_does_not(state: str) -> None:
    def task(state: str, text: str) -> bytes:
        said = {"role": "agent", "parts": [{"kind": "text", "text": text}]}
        history = [{"role": "user", "parts": [{"kind": "text", "text": TASK}]}]
        status = {"state": state, "message": said}
        return json.dumps(
            {"jsonrpc": "2.0", "result": {"contextId": "c", "status": status, "history": history}}
        ).encode()

    assert attribute(task(state, ERROR)).agent == "assistant"
    assert attribute(task("completed", ANSWER)).status is Status.NO_FAILURE
    (run,) = read_runs(task("completed", ANSWER))
    assert (run.trajectory.task, run.trajectory.output) == (TASK, ANSWER)


def test_a_chat_whose_texts_stand_under_unknown_keys_is_refused() -> None:
    """Without its texts, a right one would be judged by who spoke alone."""
    turns = [
        {"role": role, "says": {"it": text}, "content": ""}
        for role, text in (("user", TASK), ("desk", ANSWER))
    ]
    with pytest.raises(UnreadableInput, match="no message has a text"):
        read_runs(json.dumps(turns).encode())


def test_an_answer_that_was_cut_off_before_its_first_word_is_a_step() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    (run,) = read_runs(
        json.dumps({"object": "response", "id": "r", "input": TASK, "output": [], **cut}).encode()
    )
    assert [step.agent for step in run.trajectory.steps] == ["assistant"]


def test_a_stream_of_assistants_says_each_thing_once() -> None:
    _, page, run, step = assistants(ERROR)
    answer, question = page["data"]
    begun = {**step, "status": "in_progress", "step_details": {"type": "tool_calls", "tool_calls": []}}
    delta = {"id": answer["id"], "object": "thread.message.delta", "delta": {"content": []}}
    events = [question, run, begun, step, {**answer, "content": []}, delta, answer, run]
    (streamed,) = read_runs("".join(f"event: e\ndata: {json.dumps(one)}\n\n" for one in events).encode())
    (listed,) = read_runs(written([question, run, step, answer]))
    assert [step.output for step in streamed.trajectory.steps] == [
        step.output for step in listed.trajectory.steps
    ]


def test_the_result_of_a_call_in_continue_may_stand_in_its_state_alone() -> None:
    (session,) = continue_dev(ERROR)
    del session["history"][2]
    session["history"][1]["toolCallStates"][0]["output"] = [{"name": "x", "content": ERROR}]
    (run,) = read_runs(written([session]))
    assert [one[1:] for one in tools(run.trajectory)] == [("tide_table", ERROR, ERROR)]


def test_results_are_read_without_what_programs_put_around_them() -> None:
    (code,) = vs_code("")
    results = code["requests"][0]["result"]["metadata"]["toolCallResults"]
    leaves = [{"type": 2, "text": RIGHT[:2]}, {"type": 2, "text": RIGHT[2:]}]
    results["c1"]["content"] = [{"value": {"node": {"type": 1, "children": leaves}}}]
    (talk,) = hermes("")
    talk["conversations"][2]["value"] = f"<tool_response>\n{RIGHT}\n</tool_response>"
    (chat,) = open_webui("")
    thought = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n> x < y\n</details>\n'
    chat["chat"]["messages"][1]["content"] = thought + chat["chat"]["messages"][1]["content"]
    for one in (code, talk, chat):
        (run,) = read_runs(written([one]))
        steps = run.trajectory.steps
        assert [step.output for step in steps if step.kind is StepKind.TOOL] == [RIGHT]
        assert not any("<details" in step.output for step in steps)


def test_the_result_of_an_evaluation_and_a_list_of_traces_are_read() -> None:
    events = [
        {"author": "user", "actions": {}, "content": {"role": "user", "parts": [{"text": TASK}]}},
        {"author": DESK, "actions": {}, "content": {"role": "model", "parts": [{"text": ANSWER}]}},
    ]
    result = {"eval_id": "1", "session_details": {"id": "s", "events": events}}
    (run,) = read_runs(written([{"eval_set_id": "1", "eval_case_results": [result]}]))
    assert (run.trajectory.task, run.trajectory.output) == (TASK, ANSWER)
    assert attribute(json.dumps(x_ray(ERROR)[0]["Traces"]).encode()).agent == DESK


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (open_webui, '<details type="tool_calls" ' * 40_000),
        (open_webui, '<details type="tool_calls">' + "a" * 500_000),
        (hermes, "<tool_call>" * 80_000),
    ],
    ids=["elements", "a long element", "calls"],
)
def test_unclosed_calls_take_linear_time(shape: Callable[[str], list[Any]], text: str) -> None:
    """In quadratic time each of them takes minutes."""
    data = json.dumps(shape(ERROR)).replace(json.dumps(ANSWER)[1:-1], json.dumps(text)[1:-1])
    begun = time.process_time()
    assert read_runs(data.encode())
    assert time.process_time() - begun < 20
