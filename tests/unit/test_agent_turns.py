"""Sessions that tools keep in shapes of their own, which all tell one story."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from semconv.model import Status, StepKind
from tests.message_runs import ANSWER, ERROR, TASK

ARGUMENTS = {"port": "Dover"}
RIGHT = "14:20"


def iso(number: int) -> str:
    return f"2026-01-01T00:00:0{number}.000Z"


def said(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "created": 1_767_225_600, "content": list(parts)}


def goose(error: str) -> list[Any]:
    value = {"status": "success", "value": [{"type": "text", "text": RIGHT}]}
    return [
        {"working_dir": "/harbour", "description": "Tide", "message_count": 4},
        said("user", {"type": "text", "text": TASK}),
        said(
            "assistant",
            {
                "type": "toolRequest",
                "id": "c1",
                "toolCall": {"status": "success", "value": {"name": "tide_table", "arguments": ARGUMENTS}},
            },
        ),
        said(
            "user",
            {
                "type": "toolResponse",
                "id": "c1",
                "toolResult": {"status": "error", "error": error} if error else value,
            },
        ),
        said("assistant", {"type": "text", "text": ANSWER}),
    ]


def goose_export(error: str) -> list[Any]:
    turns = goose("")[1:]
    result = {"content": [{"type": "text", "text": error or RIGHT}], "isError": bool(error)}
    turns[2]["content"][0]["toolResult"] = {"status": "success", "value": result}
    return [{"id": "1", "name": "Tide", "conversation": turns}]


def copilot(error: str) -> list[Any]:
    done = (
        {"success": False, "error": {"message": error}}
        if error
        else {"success": True, "result": {"content": RIGHT}}
    )
    called = {"toolCallId": "c1", "toolName": "tide_table", "arguments": ARGUMENTS}
    events: list[tuple[str, Any]] = [
        ("session.start", {"sessionId": "s", "copilotVersion": "1.0.20"}),
        ("user.message", {"content": TASK}),
        ("assistant.message", {"content": "", "toolRequests": [{"toolCallId": "c1", "name": "tide_table"}]}),
        ("tool.execution_start", called),
        ("tool.execution_complete", {"toolCallId": "c1", **done}),
        ("assistant.message", {"content": ANSWER, "toolRequests": []}),
    ]
    return [
        {"type": kind, "data": data, "id": f"e{place}", "timestamp": iso(place)}
        for place, (kind, data) in enumerate(events)
    ]


def cursor(error: str) -> list[Any]:
    result = {"error": {"errorMessage": error}} if error else {"success": {"content": RIGHT}}
    events: list[Any] = [
        {"type": "system", "subtype": "init", "model": "GPT-5"},
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": TASK}]}},
        {
            "type": "tool_call",
            "subtype": "started",
            "call_id": "c1",
            "tool_call": {"tide_tableToolCall": {"args": ARGUMENTS}},
        },
        {
            "type": "tool_call",
            "subtype": "completed",
            "call_id": "c1",
            "tool_call": {"tide_tableToolCall": {"args": ARGUMENTS, "result": result}},
        },
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
        },
        {"type": "result", "subtype": "success", "is_error": False, "result": ANSWER},
    ]
    return [{**one, "session_id": "s"} for one in events]


def cline(error: str) -> list[Any]:
    call = (
        "<thinking>A table is needed.</thinking>\n<use_mcp_tool>\n<server_name>harbour</server_name>\n"
        f"<tool_name>tide_table</tool_name>\n<arguments>\n{json.dumps(ARGUMENTS)}\n</arguments>\n</use_mcp_tool>"
    )
    result = (
        f"The tool execution failed with the following error:\n<error>\n{error}\n</error>" if error else RIGHT
    )
    answer = f"<attempt_completion>\n<result>{ANSWER}</result>\n</attempt_completion>"
    return [
        {
            "role": role,
            "content": [{"type": "text", "text": text} for text in texts],
        }
        for role, texts in [
            ("user", [f"<task>\n{TASK}\n</task>", "<environment_details>\n# Tabs\n</environment_details>"]),
            ("assistant", [call]),
            ("user", ["[use_mcp_tool for 'harbour'] Result:", result]),
            ("assistant", [answer]),
        ]
    ]


def letta(error: str) -> list[Any]:
    call = {"name": "tide_table", "arguments": json.dumps(ARGUMENTS), "tool_call_id": "c1"}
    status = "error" if error else "success"
    found: list[dict[str, Any]] = [
        {"message_type": "user_message", "content": TASK},
        {"message_type": "reasoning_message", "reasoning": "A table is needed."},
        {"message_type": "tool_call_message", "tool_call": call},
        {
            "message_type": "tool_return_message",
            "tool_return": error or RIGHT,
            "status": status,
            "tool_call_id": "c1",
        },
        {"message_type": "assistant_message", "content": ANSWER},
    ]
    return [{"id": f"m{place}", "date": iso(place), **one} for place, one in enumerate(found)][::-1]


def atif(error: str) -> list[Any]:
    calls = [{"tool_call_id": "c1", "function_name": "tide_table", "arguments": ARGUMENTS}]
    results = [{"source_call_id": "c1", "content": error or RIGHT}]
    steps = [
        {"step_id": 1, "source": "user", "message": TASK},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": results},
        },
        {"step_id": 3, "source": "agent", "message": ANSWER},
    ]
    return [{"schema_version": "ATIF-v1.5", "agent": {"name": "harbour_desk"}, "steps": steps}]


def dify(error: str) -> list[Any]:
    result = f"tool invoke error: {error}" if error else RIGHT
    thought = {
        "tool": "tide_table",
        "tool_input": json.dumps({"tide_table": ARGUMENTS}),
        "observation": json.dumps({"tide_table": result}),
    }
    message = {
        "id": "m1",
        "conversation_id": "c",
        "query": TASK,
        "answer": ANSWER,
        "created_at": 1_767_225_600,
        "agent_thoughts": [thought, {"tool": "", "thought": ANSWER}],
    }
    return [{"limit": 20, "has_more": False, "data": [message]}]


def flowise(error: str) -> list[Any]:
    used = {"tool": "tide_table", "toolInput": ARGUMENTS, "toolOutput": error or RIGHT}
    turn = {"agentName": "harbour_desk", "messages": [ANSWER], "usedTools": [used]}
    return [
        {"id": "1", "role": "userMessage", "content": TASK, "createdDate": iso(0)},
        {"id": "2", "role": "apiMessage", "content": ANSWER, "createdDate": iso(1), "agentReasoning": [turn]},
    ]


def ag_ui(error: str) -> list[Any]:
    arguments = json.dumps(ARGUMENTS)
    return [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": TASK}]},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "tide_table"},
        *(
            {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": one}
            for one in (arguments[:5], arguments[5:])
        ),
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c1", "content": error or RIGHT},
        {"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"},
        *(
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": one}
            for one in (ANSWER[:9], ANSWER[9:])
        ),
        {"type": "TEXT_MESSAGE_END", "messageId": "m2"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]


def workflow(error: str) -> list[Any]:
    def text(found: str) -> list[Any]:
        return [{"block_type": "text", "text": found}]

    call = {"tool_name": "tide_table", "tool_kwargs": ARGUMENTS, "tool_id": "c1"}
    output = {"blocks": text(error or RIGHT), "is_error": bool(error)}
    events: list[tuple[str, Any]] = [
        (
            "AgentInput",
            {"input": [{"role": "user", "blocks": text(TASK)}], "current_agent_name": "harbour_desk"},
        ),
        (
            "AgentOutput",
            {"response": {"blocks": []}, "tool_calls": [call], "current_agent_name": "harbour_desk"},
        ),
        ("ToolCall", call),
        ("ToolCallResult", {**call, "tool_output": output}),
        (
            "AgentOutput",
            {"response": {"blocks": text(ANSWER)}, "tool_calls": [], "current_agent_name": "harbour_desk"},
        ),
    ]
    module = "llama_index.core.agent.workflow.workflow_events"
    return [
        {"__is_pydantic": True, "value": value, "qualified_name": f"{module}.{name}"}
        for name, value in events
    ]


def react(error: str) -> list[Any]:
    trajectory = {
        "thought_0": "A table is needed.",
        "tool_name_0": "tide_table",
        "tool_args_0": ARGUMENTS,
        "observation_0": f"Execution error in tide_table: {error}" if error else RIGHT,
        "tool_name_1": "finish",
        "observation_1": "Completed.",
    }
    return [{"question": TASK, "trajectory": trajectory, "reasoning": "x", "answer": ANSWER}]


def n8n(error: str) -> list[Any]:
    def ran(number: int, kind: str, item: Any, **more: Any) -> list[Any]:
        return [{"startTime": 1_767_225_600_000 + number, "data": {kind: [[{"json": item}]]}, **more}]

    given = {"inputOverride": {"ai_tool": [[{"json": {"query": ARGUMENTS}}]]}}
    failed = {"error": {"message": error, "name": "NodeApiError"}} if error else {}
    data = {
        "harbour_desk": ran(2, "main", {"output": ANSWER}),
        "tide_table": ran(1, "ai_tool", {"response": RIGHT}, **given, **failed),
        "Chat": ran(0, "main", {"chatInput": TASK}),
    }
    nodes = [
        {"name": "harbour_desk", "type": "@n8n/n8n-nodes-langchain.agent"},
        {"name": "tide_table", "type": "n8n-nodes-base.httpRequestTool"},
    ]
    return [{"id": "7", "data": {"resultData": {"runData": data}}, "workflowData": {"nodes": nodes}}]


TOOLS: list[Callable[[str], list[Any]]] = [
    *(goose, goose_export, copilot, cursor, cline, letta, atif, dify, flowise, ag_ui, workflow, react, n8n)
]
NAMED = frozenset({atif, flowise, workflow, n8n})
"""Shapes that record the agent's name."""
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)


def written(records: list[Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in records).encode()


@each_tool
def test_a_session_tells_the_story(tool: Callable[[str], list[Any]]) -> None:
    data = written(tool(ERROR))
    (run,) = read_runs(data)
    steps = run.trajectory.steps
    agent = "harbour_desk" if tool in NAMED else "assistant"
    assert {step.agent for step in steps} == {agent}
    (call,) = [step for step in steps if step.kind is StepKind.TOOL]
    assert (call.target, json.loads(call.input)) == ("tide_table", ARGUMENTS)
    assert ERROR in call.error + call.output
    assert (run.trajectory.task, run.trajectory.output) == (TASK, ANSWER)
    assert attribute(data).agent == agent


@each_tool
def test_a_right_session_accuses_no_agent(tool: Callable[[str], list[Any]]) -> None:
    data = written(tool(""))
    assert attribute(data).status is Status.NO_FAILURE
    (run,) = read_runs(data)
    assert [step.output for step in run.trajectory.steps if step.kind is StepKind.TOOL] == [RIGHT]


@pytest.mark.parametrize("tool", [goose, copilot, cursor, letta, flowise], ids=lambda tool: tool.__name__)
def test_messages_may_stand_in_a_document(tool: Callable[[str], list[Any]]) -> None:
    data = written([{"messages": tool(ERROR)}])
    (run,) = read_runs(data)
    assert [step.target for step in run.trajectory.steps if step.kind is StepKind.TOOL] == ["tide_table"]


def test_a_task_in_tags_does_not_make_a_session_of_cline() -> None:
    """Prompts are often written with tags: calls in blocks of the API must not be lost."""
    call = {"type": "tool_use", "id": "c1", "name": "tide_table", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": ERROR, "is_error": True}
    messages = [
        {"role": "user", "content": f"<task>{TASK}</task>"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]
    (run,) = read_runs(json.dumps(messages).encode())
    assert [step.target for step in run.trajectory.steps if step.kind is StepKind.TOOL] == ["tide_table"]


def test_a_chat_of_two_under_a_key_of_its_own_is_no_record_of_a_failure() -> None:
    turns = [
        {"role": "user", "content": [{"kind": "say", "text": TASK}]},
        {"role": "assistant", "content": [{"kind": "say", "text": ANSWER}]},
    ]
    assert attribute(json.dumps({"conversation": turns}).encode()).status is Status.NO_FAILURE


CHAT = [("User", TASK), ("Planner", "I ask Reader."), ("Reader", RIGHT), ("Planner", ANSWER)]
LOOK_ALIKES: dict[str, list[Any]] = {
    "a chat of a team beside the keys of Agno": [
        {
            "run_id": "1",
            "agent_name": "Planner",
            "messages": [{"role": name, "content": text} for name, text in CHAT],
        }
    ],
    "messages that bear the names of several agents": [
        {
            "run_id": "1",
            "team_name": "desk",
            "messages": [
                {"role": "user" if name == "User" else "assistant", "name": name, "content": text}
                for name, text in CHAT
            ],
        }
    ],
    "messages with a type": [
        {"id": number, "message_type": "text", "sender": name, "content": text}
        for number, (name, text) in enumerate(CHAT)
    ],
    "answers beside a conversation's id": [
        {"agent": name, "content": text, "query": TASK, "answer": text, "conversation_id": "1"}
        for name, text in CHAT
    ],
    "calls beside the text of their message": [
        {
            "type": "message",
            "session_id": "1",
            "agent": name,
            "content": text,
            "tool_call": {"name": "tide_table", "arguments": ARGUMENTS},
        }
        for name, text in CHAT
    ],
}


@pytest.mark.parametrize("records", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_log_that_shares_a_few_keys_with_a_tools_session_keeps_its_speakers(records: list[Any]) -> None:
    (run,) = read_runs(written(records))
    assert {"Planner", "Reader"} <= {step.agent for step in run.trajectory.steps}


@pytest.mark.parametrize(
    "records",
    [
        [{"type": "RUN_STARTED", "id": 1}, {"type": "RUN_ERROR", "message": "The pod crashed."}],
        [{"type": "tool_call", "subtype": "completed", "session_id": "1", "tool_call": {"crane": "up"}}] * 3,
        [{"trajectory": {"tool_name_0": 5, "tool_args_0": 7}}],
        [{"value": "up", "qualified_name": "app.AgentOutput"}],
        [{"schema_version": "ATIF-v1.5", "steps": [{"source": "robot", "message": "up"}]}],
        [
            {"type": "RUN_STARTED", "runId": "42", "job": "nightly"},
            {"type": "RUN_ERROR", "message": "The disk is full."},
        ],
        [{"type": "text", "content": {"sender": "Ann", "recipient": "Bob", "content": "Lunch?"}}] * 2,
        [{"type": "USER", "text": "logged in"}, {"type": "AI", "text": "score 0.3"}],
        [{"messageType": "USER", "text": "Hello"}, {"messageType": "ASSISTANT", "text": "I am her PA."}],
        [{"data": [{"id": "1", "query": "Reset?", "answer": "Click.", "conversation_id": "c"}]}],
    ],
    ids=[
        "jobs",
        "machines",
        "paths of drills",
        "values of an application",
        "steps of a robot",
        "jobs with ids",
        "notes of people",
        "events of users",
        "messages of people",
        "questions and answers",
    ],
)
def test_records_of_no_agent_are_described(records: list[Any]) -> None:
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_runs(written(records))


def test_a_file_that_cline_wrote_may_hold_code_with_tags() -> None:
    code = "<path>\n<p>tide</p>\n<b>unclosed"
    call = f"<write_to_file>\n<path>a.html</path>\n<content>{code}</content>\n</write_to_file>"
    turns = cline("")
    turns[1]["content"][0]["text"] = call
    turns[2]["content"][0]["text"] = "[write_to_file for 'a.html'] Result:"
    (run,) = read_runs(written(turns))
    (step,) = [step for step in run.trajectory.steps if step.kind is StepKind.TOOL]
    assert (step.target, json.loads(step.input)) == ("write_to_file", {"path": "a.html", "content": code})


@pytest.mark.parametrize(
    "text",
    [
        "<thinking>" * 40_000,
        "<read_file>\n<path>" * 20_000 + "x",
        "<read_file>\n<path>x" * 20_000 + "</read_file>x" * 20_000,
        "<read_file>\n"
        + "".join(f"<a{chr(97 + n % 26)}{'b' * (n % 37)}>" for n in range(20_000))
        + "\n</read_file>",
    ],
    ids=["thoughts", "calls", "ends", "fields"],
)
def test_unclosed_tags_of_cline_take_linear_time(text: str) -> None:
    """In quadratic time each of them takes more than a minute."""
    turns = cline("")
    turns[1]["content"][0]["text"] = text
    begun = time.process_time()
    assert read_runs(written(turns))
    assert time.process_time() - begun < 20


def test_a_stream_of_letta_ends_with_no_message() -> None:
    ends = [{"message_type": "stop_reason", "stop_reason": "end_turn"}, {"message_type": "usage_statistics"}]
    streamed, listed = (read_runs(written(one))[0] for one in ([*letta(ERROR)[::-1], *ends], letta(ERROR)))
    assert [step.output for step in streamed.trajectory.steps] == [
        step.output for step in listed.trajectory.steps
    ]


def test_a_thought_of_dify_may_use_several_tools() -> None:
    (page,) = dify(ERROR)
    thought = page["data"][0]["agent_thoughts"][0]
    given = {"ferry": {"to": "Calais"}, "tide_table": ARGUMENTS}
    got = {"ferry": "06:00", **json.loads(thought["observation"])}
    thought |= {"tool": "ferry;tide_table", "tool_input": json.dumps(given), "observation": json.dumps(got)}
    (run,) = read_runs(written([page]))
    calls = [step for step in run.trajectory.steps if step.kind is StepKind.TOOL]
    assert [(step.target, json.loads(step.input)) for step in calls] == list(given.items())
    assert [bool(step.error) for step in calls] == [False, True]


def test_chunks_of_ag_ui_stand_for_starts_and_ends() -> None:
    arguments = json.dumps(ARGUMENTS)
    given = {"messages": [{"id": "1", "role": "user", "content": TASK}]}
    call = {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "tide_table"}
    events: list[dict[str, Any]] = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": given},
        {**call, "delta": arguments[:5]},
        {"type": "TOOL_CALL_CHUNK", "delta": arguments[5:]},
        {**call, "toolCallId": "c2", "delta": arguments},
        {"type": "TOOL_CALL_RESULT", "messageId": "m1", "toolCallId": "c1", "content": RIGHT},
        {"type": "TOOL_CALL_RESULT", "messageId": "m2", "toolCallId": "c2", "content": RIGHT},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m3", "delta": ANSWER[:4]},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": ANSWER[4:]},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    (run,) = read_runs(written(events))
    calls = [step for step in run.trajectory.steps if step.kind is StepKind.TOOL]
    assert [(step.target, json.loads(step.input), step.output) for step in calls] == [
        ("tide_table", ARGUMENTS, RIGHT)
    ] * 2
    assert (run.trajectory.task, run.trajectory.output) == (TASK, ANSWER)


def test_what_goose_shows_to_the_person_alone_is_no_result() -> None:
    turns = goose("")
    result = turns[3]["content"][0]["toolResult"]
    result["value"] = [
        {"type": "text", "text": text, "annotations": {"audience": [hearer]}}
        for hearer, text in (("assistant", RIGHT), ("user", f"Tide: {RIGHT}"))
    ]
    (run,) = read_runs(written(turns))
    assert [step.output for step in run.trajectory.steps if step.kind is StepKind.TOOL] == [RIGHT]
