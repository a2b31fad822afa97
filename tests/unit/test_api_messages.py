"""Messages of models' APIs: variants of each, agents, and what is not said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.message_runs import ANSWER, ERROR, TASK, USER, run, runs, told, tools


def function_call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "name": name, "call_id": call_id, "arguments": arguments}


def function_output(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


def test_the_agent_that_took_over_speaks_after_a_handoff_of_the_agents_sdk() -> None:
    found = run(
        [
            USER,
            function_call("transfer_to_harbour_desk", "c1"),
            function_output("c1", '{"assistant": "Harbour Desk"}'),
            {
                "type": "reasoning",
                "id": "r1",
                "summary": [{"type": "summary_text", "text": "no tool needed"}],
            },
            function_call("tide_table", "c2"),
            function_output("c2", ERROR),
            said(ANSWER),
        ]
    )
    assert tools(found)[0][:2] == ("assistant", "Harbour Desk")
    assert tools(found)[1][:3] == ("Harbour Desk", "tide_table", ERROR)
    assert told(found)[-1] == ("Harbour Desk", "llm", ANSWER)
    assert "no tool needed" not in json.dumps(told(found))


@pytest.mark.parametrize(
    "result", ['{"assistant": "B", "at": 1}', '{"assistant":', '["assistant"]', "assistant"]
)
def test_other_results_hand_nothing_over(result: str) -> None:
    found = run([USER, function_call("look", "c1"), function_output("c1", result), said(ANSWER)])
    assert {step.agent for step in found.steps} == {"assistant"}


def test_tools_that_openai_runs_have_call_and_result_in_one_item() -> None:
    found = run(
        [
            USER,
            {
                "type": "mcp_call",
                "id": "m1",
                "name": "tides",
                "arguments": "{}",
                "output": None,
                "error": ERROR,
            },
            {
                "type": "code_interpreter_call",
                "id": "i1",
                "code": "1 + 1",
                "status": "completed",
                "outputs": [{"type": "logs", "logs": "2"}],
            },
            {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"query": "tide"}},
            said(ANSWER),
        ]
    )
    assert tools(found) == [
        ("assistant", "tides", ERROR, ERROR),
        ("assistant", "code_interpreter", "2", ""),
    ]
    assert "call web_search" in found.steps[-2].output or any("web_search" in one[2] for one in told(found))


def test_outputs_of_custom_tools_and_shells_belong_to_their_calls() -> None:
    shell = [{"stdout": "1 failed", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]
    found = run(
        [
            USER,
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
            {
                "type": "custom_tool_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "ok"}],
            },
            {"type": "shell_call", "call_id": "c2", "action": {"commands": ["make test"]}},
            {"type": "shell_call_output", "call_id": "c2", "output": shell},
            said("Done."),
        ]
    )
    assert tools(found) == [("assistant", "patch", "ok", ""), ("assistant", "shell", "1 failed", "1 failed")]


def response(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"resp_{number}", "object": "response", "model": "m", "output": [said(ANSWER)], **more}


def test_responses_that_name_the_one_before_are_one_run() -> None:
    asks = response(
        1, input=TASK, output=[function_call("tide_table", "c1")], instructions="You are the clerk."
    )
    answers = response(2, input=[function_output("c1", ERROR)], previous_response_id="resp_1")
    found = run(asks, answers)
    assert [step.agent for step in found.steps] == ["clerk", "clerk", "clerk"]
    assert tools(found) == [("clerk", "tide_table", ERROR, "")]


def test_requests_that_repeat_the_dialogue_are_one_run() -> None:
    first = [USER, function_call("tide_table", "c1")]
    found = run(
        response(1, input=first[:1], output=first[1:]),
        response(2, input=[*first, function_output("c1", ERROR)]),
    )
    assert len(tools(found)) == 1


def test_responses_without_a_connection_are_runs_of_their_own() -> None:
    found = runs(response(1, input="One?"), response(2, input="Two?"))
    assert {one.task for one in found} == {"One?", "Two?"}


def test_a_response_that_failed_is_a_failed_call_of_the_model() -> None:
    found = run(response(1, input=TASK, output=[], error={"code": "server_error", "message": "Overloaded"}))
    assert [step.error for step in found.steps] == ["server_error: Overloaded"]


def test_items_of_a_conversation_are_listed_newest_first() -> None:
    items = [{**USER, "type": "message", "content": [{"type": "input_text", "text": TASK}]}]
    items += [function_call("tide_table", "c1"), function_output("c1", ERROR), said(ANSWER)]
    assert run({"object": "list", "data": items[::-1]}).output == ANSWER


def test_a_run_state_of_the_agents_sdk_names_the_agents() -> None:
    items = [
        ("Triage", function_call("transfer_to_desk", "c1")),
        ("Triage", function_output("c1", '{"assistant": "Desk"}')),
        ("Desk", said(ANSWER)),
    ]
    generated = [{"type": "x", "raw_item": item, "agent": {"name": agent}} for agent, item in items]
    found = run({"original_input": TASK, "generated_items": generated, "current_agent": {"name": "Desk"}})
    assert [step.agent for step in found.steps] == ["Triage", "Triage", "Desk"]


def tool_use(name: str, call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def test_a_result_is_no_human_and_may_come_with_words_of_one() -> None:
    found = run(
        [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    tool_use("tide_table", "t1", port="Dover"),
                ],
            },
            {
                "role": "user",
                "content": [
                    tool_result("t1", [{"type": "text", "text": "low 08:05"}]),
                    {"type": "text", "text": "And the high one?"},
                ],
            },
            {"role": "assistant", "content": ANSWER},
        ]
    )
    assert tools(found) == [("assistant", "tide_table", "low 08:05", "")]
    assert found.task == TASK
    assert "And the high one?" in found.steps[-1].input
    assert "hm" not in json.dumps(told(found))


def test_tools_that_anthropic_runs_stand_in_the_answer() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tide"}}
    page = {
        "type": "web_search_result",
        "title": "Tides",
        "url": "https://t.example",
        "encrypted_content": "QQ==",
    }
    refused = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    cited = [
        {"type": "text", "text": "High tide is ", "citations": []},
        {"type": "text", "text": "at 14:20.", "citations": [{"cited_text": "14:20"}]},
    ]
    found = run(
        {
            "system": [{"type": "text", "text": "You are the clerk."}],
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        search,
                        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]},
                        {**search, "id": "s2"},
                        {"type": "web_search_tool_result", "tool_use_id": "s2", "content": refused},
                        *cited,
                    ],
                },
            ],
        }
    )
    assert [(agent, tool, bool(error)) for agent, tool, _, error in tools(found)] == [
        ("clerk", "web_search", False),
        ("clerk", "web_search", True),
    ]
    assert "QQ==" not in json.dumps(tools(found))
    assert found.output == "High tide is at 14:20."


def test_messages_of_the_agent_sdk_have_no_roles() -> None:
    found = run(
        {"subtype": "init", "data": {"cwd": "/work"}},
        {"content": TASK, "uuid": "u1", "parent_tool_use_id": None},
        {
            "content": [{"id": "t1", "name": "Task", "input": {"subagent_type": "pilot", "prompt": "Ask."}}],
            "model": "claude",
            "parent_tool_use_id": None,
        },
        {
            "content": [{"id": "t2", "name": "tide_table", "input": {}}],
            "model": "claude",
            "parent_tool_use_id": "t1",
        },
        {
            "content": [{"tool_use_id": "t2", "content": ERROR, "is_error": True}],
            "uuid": "u2",
            "parent_tool_use_id": "t1",
        },
        {"content": [{"text": "It is 14:20."}], "model": "claude", "parent_tool_use_id": "t1"},
        {
            "content": [{"tool_use_id": "t1", "content": "It is 14:20.", "is_error": None}],
            "uuid": "u3",
            "parent_tool_use_id": None,
        },
        {"content": [{"text": ANSWER}], "model": "claude", "parent_tool_use_id": None},
        {"subtype": "success", "is_error": False, "result": ANSWER, "session_id": "s"},
    )
    assert ("pilot", "tide_table", ERROR, ERROR) in tools(found)
    assert (found.task, found.output) == (TASK, ANSWER)
    assert told(found)[-1] == ("claude", "llm", ANSWER)


def test_a_strands_session_keeps_each_message_with_its_number() -> None:
    asked = {"toolUse": {"toolUseId": "t1", "name": "tide_table", "input": {"port": "Dover"}}}
    answered = {"toolResult": {"toolUseId": "t1", "status": "error", "content": [{"text": ERROR}]}}
    messages = [
        {"role": "user", "content": [{"text": TASK}]},
        {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, asked]},
        {"role": "user", "content": [answered]},
        {"role": "assistant", "content": [{"text": ANSWER}]},
    ]
    kept = [
        {
            "message": one,
            "message_id": place,
            "redact_message": None,
            "created_at": f"2026-05-14T09:30:0{place}+00:00",
        }
        for place, one in enumerate(messages)
    ]
    found = run(*kept)
    assert tools(found) == [("assistant", "tide_table", ERROR, ERROR)]
    assert told(run(messages)) == told(found)


def test_requests_that_repeat_the_dialogue_are_one_run_of_any_api() -> None:
    asked = [{"role": "user", "content": [{"text": TASK}]}]
    first = {"messages": asked}
    second = {"messages": [*asked, {"role": "assistant", "content": [{"text": ANSWER}]}, *asked]}
    answer = {"message": {"role": "assistant", "content": [{"text": "Again."}]}}
    found = run({**first, "output": {"message": second["messages"][1]}}, {**second, "output": answer})
    assert [one[2] for one in told(found)] == [ANSWER, "Again."]


def test_swarm_names_the_agent_that_sends() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "transfer_to_desk", "arguments": "{}"}}
    found = run(
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call], "sender": "Triage"},
            {
                "role": "tool",
                "tool_call_id": "c1",
                "tool_name": "transfer_to_desk",
                "content": '{"assistant": "Desk"}',
            },
            {"role": "assistant", "content": ANSWER, "sender": "Desk"},
        ]
    )
    assert [step.agent for step in found.steps] == ["Triage", "Triage", "Desk"]


def test_an_answer_of_converse_stands_under_output() -> None:
    answer = {"message": {"role": "assistant", "content": [{"text": ANSWER}]}}
    asked = [{"role": "user", "content": [{"text": TASK}]}]
    assert (
        run({"system": [{"text": "You are the clerk."}], "messages": asked, "output": answer}).output
        == ANSWER
    )


@pytest.mark.parametrize("snake", [False, True])
def test_gemini_has_both_spellings_and_runs_code(*, snake: bool) -> None:
    call, result = ("function_call", "function_response") if snake else ("functionCall", "functionResponse")
    code, ran = (
        ("executable_code", "code_execution_result") if snake else ("executableCode", "codeExecutionResult")
    )
    found = run(
        {
            "contents": [
                {"role": "user", "parts": [{"text": TASK}]},
                {
                    "role": "model",
                    "parts": [{"text": "hm", "thought": True}, {call: {"name": "tide_table", "args": {}}}],
                },
                {
                    "role": "user",
                    "parts": [{result: {"name": "tide_table", "response": {"result": "14:20"}}}],
                },
                {
                    "role": "model",
                    "parts": [
                        {code: {"language": "PYTHON", "code": "1/0"}},
                        {ran: {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
                    ],
                },
            ],
            "response": {
                "candidates": [{"content": {"role": "model", "parts": [{"text": "High "}, {"text": "tide"}]}}]
            },
        }
    )
    assert tools(found) == [
        ("assistant", "tide_table", "14:20", ""),
        ("assistant", "code_execution", "ZeroDivisionError", "ZeroDivisionError"),
    ]
    assert found.output == "High tide"


def adk(author: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "author": author,
        "invocation_id": "e1",
        "content": {"role": "model", "parts": list(parts)},
        **more,
    }


def test_agents_of_an_adk_session_are_its_authors() -> None:
    found = run(
        {
            "app_name": "harbour",
            "user_id": "u",
            "id": "s1",
            "events": [
                adk("user", {"text": TASK}),
                adk(
                    "coordinator",
                    {
                        "function_call": {
                            "id": "f1",
                            "name": "transfer_to_agent",
                            "args": {"agent_name": "harbour_desk"},
                        }
                    },
                ),
                adk(
                    "coordinator",
                    {
                        "function_response": {
                            "id": "f1",
                            "name": "transfer_to_agent",
                            "response": {"result": None},
                        }
                    },
                ),
                adk("harbour_desk", {"function_call": {"id": "f2", "name": "tide_table", "args": {}}}),
                adk(
                    "harbour_desk",
                    {"function_response": {"id": "f2", "name": "tide_table", "response": {"error": ERROR}}},
                ),
                adk("harbour_desk", {"text": "High"}, partial=True),
                adk("harbour_desk", {"text": ANSWER}),
            ],
        }
    )
    assert tools(found)[0][:2] == ("coordinator", "harbour_desk")
    assert tools(found)[1] == ("harbour_desk", "tide_table", ERROR, ERROR)
    assert [one[2] for one in told(found)][-1] == ANSWER
    assert "High" not in [one[2] for one in told(found)]


def test_an_error_of_adk_is_the_agents() -> None:
    found = run(
        [
            adk("user", {"text": TASK}),
            {
                "author": "clerk",
                "invocationId": "e1",
                "content": None,
                "errorCode": "429",
                "errorMessage": "RESOURCE_EXHAUSTED",
            },
        ]
    )
    assert [(step.agent, step.error) for step in found.steps] == [("clerk", "RESOURCE_EXHAUSTED")]
