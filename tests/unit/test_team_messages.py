"""Messages of pydantic-ai, AutoGen and AG2: answers, agents, and nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.message_runs import ANSWER, CALL, ERROR, TASK, run, told, tools


def request(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "request", "parts": list(parts), **more}


def answered(*parts: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 2}
    return {"kind": "response", "parts": list(parts), "model_name": "m", "usage": usage}


def tool_call(name: str, key: str, args: Any = "{}") -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": name, "args": args, "tool_call_id": key}


def tool_return(name: str, key: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"part_kind": "tool-return", "tool_name": name, "content": content, "tool_call_id": key, **more}


PROMPT = {"part_kind": "user-prompt", "content": TASK}


def test_an_output_tool_of_pydantic_ai_is_the_answer() -> None:
    found = run(
        [
            request({"part_kind": "system-prompt", "content": "You are the clerk."}, PROMPT),
            answered({"part_kind": "thinking", "content": "hm"}, tool_call("tide_table", "c1")),
            request(tool_return("tide_table", "c1", {"high": "14:20"}, outcome="success")),
            answered(tool_call("final_result", "c2", '{"response": "14:20"}')),
            request(tool_return("final_result", "c2", "Final result processed.")),
        ]
    )
    assert tools(found) == [("clerk", "tide_table", '{"high": "14:20"}', "")]
    assert found.output == "14:20"
    assert len(found.steps) == 3


@pytest.mark.parametrize("outcome", ["failed", "retried"])
def test_version_2_of_pydantic_ai_says_how_a_tool_ended(outcome: str) -> None:
    found = run(
        [
            request(PROMPT),
            answered(tool_call("tide_table", "c1", {})),
            request(tool_return("tide_table", "c1", ERROR, outcome=outcome)),
            answered({"part_kind": "text", "content": ANSWER}),
        ]
    )
    assert tools(found) == [("assistant", "tide_table", ERROR, ERROR)]


def autogen(source: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"source": source, "type": kind, "content": content, "models_usage": None, **more}


def asks(source: str, key: str, name: str) -> dict[str, Any]:
    return autogen(source, "ToolCallRequestEvent", [{"id": key, "name": name, "arguments": "{}"}])


def ran(source: str, key: str, name: str, content: str, *, is_error: bool = False) -> dict[str, Any]:
    result = {"call_id": key, "name": name, "content": content, "is_error": is_error}
    return autogen(source, "ToolCallExecutionEvent", [result])


THREAD = [
    autogen("user", "TextMessage", TASK),
    asks("triage", "c0", "transfer_to_harbour_desk"),
    ran("triage", "c0", "transfer_to_harbour_desk", "Transferred."),
    autogen("triage", "HandoffMessage", "Transferred.", target="harbour_desk"),
    autogen("harbour_desk", "ThoughtEvent", "hm"),
    asks("harbour_desk", "c1", "tide_table"),
    ran("harbour_desk", "c1", "tide_table", ERROR, is_error=True),
    autogen("harbour_desk", "ToolCallSummaryMessage", ERROR),
    autogen("harbour_desk", "TextMessage", ANSWER),
    autogen("critic", "StopMessage", "Approved. TERMINATE"),
]
STATE = {
    "type": "TeamState",
    "agent_states": {
        "triage": {"type": "ChatAgentContainerState", "agent_state": {}},
        "SwarmGroupChatManager": {"type": "SwarmManagerState", "message_thread": THREAD},
    },
}


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([THREAD], id="messages"),
        pytest.param([{"messages": THREAD, "stop_reason": "done"}], id="result"),
        pytest.param([*THREAD, {"messages": THREAD, "stop_reason": "done"}], id="stream"),
        pytest.param([STATE], id="team state"),
    ],
)
def test_a_team_of_autogen_has_its_agents_and_no_step_twice(records: list[Any]) -> None:
    found = run(*records)
    assert found.agents == ("triage", "harbour_desk", "critic")
    assert tools(found) == [
        ("triage", "harbour_desk", "Transferred.", ""),
        ("harbour_desk", "tide_table", ERROR, ERROR),
    ]
    assert [step.kind.value for step in found.steps] == ["llm", "handoff", "llm", "tool", "llm", "llm"]


def test_the_state_of_one_autogen_agent_holds_what_its_model_is_given() -> None:
    context = [
        {"type": "SystemMessage", "content": "Be brief."},
        {"type": "UserMessage", "source": "user", "content": TASK},
        {"type": "AssistantMessage", "source": "clerk", "thought": "hm", "content": THREAD[5]["content"]},
        {"type": "FunctionExecutionResultMessage", "content": THREAD[6]["content"]},
        {"type": "AssistantMessage", "source": "clerk", "thought": None, "content": ANSWER},
    ]
    found = run({"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": context}})
    assert tools(found) == [("clerk", "tide_table", ERROR, ERROR)]
    assert told(found)[-1] == ("clerk", "llm", ANSWER)


def test_the_summary_of_a_call_may_be_an_autogen_agents_answer() -> None:
    assert run([*THREAD[:3], autogen("triage", "ToolCallSummaryMessage", "14:20")]).output == "14:20"


def ag2(name: str, content: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "content": content, **more}


EXECUTED = ag2(
    "executor", ERROR, "tool", tool_responses=[{"tool_call_id": "c1", "role": "tool", "content": ERROR}]
)
GROUP = [
    ag2("user_proxy", TASK),
    ag2("harbour_desk", "", tool_calls=[CALL]),
    EXECUTED,
    ag2("harbour_desk", ANSWER),
    ag2("critic", "TERMINATE"),
]


def test_a_group_chat_of_ag2_is_read_once_and_has_its_speakers() -> None:
    """Each member's copy lacks nothing, but has another role for its own messages."""
    own = [{**one, "role": "assistant"} if one["name"] == "critic" else one for one in GROUP]
    found = run({"harbour_desk": GROUP, "critic": own, "executor": GROUP[:4]})
    assert found.agents == ("harbour_desk", "critic")
    assert tools(found) == [("harbour_desk", "tide_table", ERROR, "")]
    assert found.task == TASK


def test_chats_of_ag2_with_several_agents_follow_one_another() -> None:
    def chat(asked: str, answer: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": asked}, {"role": "user", "content": answer}]

    chats = {"pilot": chat(TASK, "It is 14:20."), "writer": chat("Write it.", ANSWER)}
    found = run({"chat_messages": chats})
    assert told(found) == [("pilot", "llm", "It is 14:20."), ("writer", "llm", ANSWER)]
    assert found.task == TASK


def test_calls_of_ag2_have_no_name_and_a_proxy_is_no_agent() -> None:
    """Of two that talk, the one that did not speak before asks; the one that only runs tools is a proxy."""
    chat = [
        ag2("executor", TASK, "assistant"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        EXECUTED,
        ag2("harbour_desk", ANSWER),
        ag2("executor", "", "assistant"),
    ]
    found = run({"harbour_desk": chat})
    assert found.agents == ("harbour_desk",)
    assert tools(found) == [("harbour_desk", "tide_table", ERROR, "")]
    assert (found.task, found.output) == (TASK, ANSWER)


def test_a_history_of_ag2_alone_is_checked_for_a_failure_first() -> None:
    works = json.loads(json.dumps(GROUP).replace(ERROR, "Dover, tomorrow: low 08:05, high 14:20"))
    assert told(run(GROUP)) == told(run({"critic": GROUP}))
    assert told(run(*GROUP)) == told(run(GROUP))
    assert tools(run(works)) == [("harbour_desk", "tide_table", "Dover, tomorrow: low 08:05, high 14:20", "")]
    assert not read_recording(json.dumps(GROUP).encode()).conversations


def test_code_that_a_proxy_of_ag2_ran_is_a_tool_that_may_fail() -> None:
    history = [
        ag2("user_proxy", "Plot it."),
        ag2("coder", "```python\n1/0\n```"),
        ag2("user_proxy", "exitcode: 1 (execution failed)\nCode output: ZeroDivisionError"),
        ag2("coder", "I cannot."),
    ]
    found = run({"chat_id": 1, "summary": "", "cost": {}, "chat_history": history})
    ((agent, tool, _, error),) = tools(found)
    assert (agent, tool) == ("coder", "code_execution")
    assert "ZeroDivisionError" in error


def test_a_team_blames_the_agent_whose_tool_failed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(THREAD[:-1]), encoding="utf-8")
    verdict = attribute(path)
    assert verdict.status in {Status.ATTRIBUTED, Status.SUSPECTED}
    assert verdict.agent == "harbour_desk"
