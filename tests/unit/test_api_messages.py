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
    thought = {"type": "summary_text", "text": "no tool needed"}
    found = run(
        [
            USER,
            function_call("transfer_to_harbour_desk", "c1"),
            function_output("c1", '{"assistant": "Harbour Desk"}'),
            {"type": "reasoning", "id": "r1", "summary": [thought]},
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
    mcp = {"type": "mcp_call", "id": "m1", "name": "tides", "arguments": "{}", "output": None, "error": ERROR}
    code = {"type": "code_interpreter_call", "id": "i1", "code": "1 + 1", "status": "completed"}
    found = run(
        [
            USER,
            mcp,
            code | {"outputs": [{"type": "logs", "logs": "2"}]},
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
    patched = [{"type": "input_text", "text": "ok"}]
    found = run(
        [
            USER,
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": patched},
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


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def tool_use(name: str, call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def test_a_result_is_no_human_and_may_come_with_words_of_one() -> None:
    found = run(
        [
            USER,
            turn(
                "assistant",
                {"type": "thinking", "thinking": "hm"},
                tool_use("tide_table", "t1", port="Dover"),
            ),
            turn("user", tool_result("t1", [text("low 08:05")]), text("And the high one?")),
            {"role": "assistant", "content": ANSWER},
        ]
    )
    assert tools(found) == [("assistant", "tide_table", "low 08:05", "")]
    assert found.task == TASK
    assert "And the high one?" in found.steps[-1].input
    assert "hm" not in json.dumps(told(found))


def test_tools_that_anthropic_runs_stand_in_the_answer() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tide"}}
    page = {"type": "web_search_result", "title": "Tides", "encrypted_content": "QQ=="}
    refused = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    answer = turn(
        "assistant",
        search,
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]},
        {**search, "id": "s2"},
        {"type": "web_search_tool_result", "tool_use_id": "s2", "content": refused},
        text("High tide is ", citations=[]),
        text("at 14:20.", citations=[{"cited_text": "14:20"}]),
    )
    found = run({"system": [text("You are the clerk.")], "messages": [USER, answer]})
    assert [(agent, tool, bool(error)) for agent, tool, _, error in tools(found)] == [
        ("clerk", "web_search", False),
        ("clerk", "web_search", True),
    ]
    assert "QQ==" not in json.dumps(tools(found))
    assert found.output == "High tide is at 14:20."


def sdk(*blocks: dict[str, Any], within: str | None = None, by: str = "") -> dict[str, Any]:
    """A message of the Agent SDK: the model's, or else one with results for it."""
    return {"content": list(blocks), "parent_tool_use_id": within} | ({"model": by} if by else {"uuid": "u"})


def test_messages_of_the_agent_sdk_have_no_roles() -> None:
    task = {"id": "t1", "name": "Task", "input": {"subagent_type": "pilot", "prompt": "Ask."}}
    found = run(
        {"subtype": "init", "data": {"cwd": "/work"}},
        {"content": TASK, "uuid": "u1", "parent_tool_use_id": None},
        sdk(task, by="claude"),
        sdk({"id": "t2", "name": "tide_table", "input": {}}, within="t1", by="claude"),
        sdk({"tool_use_id": "t2", "content": ERROR, "is_error": True}, within="t1"),
        sdk({"text": "It is 14:20."}, within="t1", by="claude"),
        sdk({"tool_use_id": "t1", "content": "It is 14:20.", "is_error": None}),
        sdk({"text": ANSWER}, by="claude"),
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
        {"message": one, "message_id": at, "created_at": f"2026-05-14T09:30:0{at}+00:00"}
        for at, one in enumerate(messages)
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
    asks = {"role": "assistant", "content": None, "tool_calls": [call], "sender": "Triage"}
    result = {"role": "tool", "tool_call_id": "c1", "content": '{"assistant": "Desk"}'}
    found = run([USER, asks, result, {"role": "assistant", "content": ANSWER, "sender": "Desk"}])
    assert [step.agent for step in found.steps] == ["Triage", "Triage", "Desk"]


def test_an_answer_of_converse_stands_under_output() -> None:
    answer = {"message": {"role": "assistant", "content": [{"text": ANSWER}]}}
    asked = [{"role": "user", "content": [{"text": TASK}]}]
    found = run({"system": [{"text": "You are the clerk."}], "messages": asked, "output": answer})
    assert found.output == ANSWER


def spoken(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


@pytest.mark.parametrize("snake", [False, True])
def test_gemini_has_both_spellings_and_runs_code(*, snake: bool) -> None:
    call, result = ("function_call", "function_response") if snake else ("functionCall", "functionResponse")
    code, ran = (
        ("executable_code", "code_execution_result") if snake else ("executableCode", "codeExecutionResult")
    )
    contents = [
        spoken("user", {"text": TASK}),
        spoken("model", {"text": "hm", "thought": True}, {call: {"name": "tide_table", "args": {}}}),
        spoken("user", {result: {"name": "tide_table", "response": {"result": "14:20"}}}),
        spoken(
            "model",
            {code: {"language": "PYTHON", "code": "1/0"}},
            {ran: {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
        ),
    ]
    answer = {"candidates": [{"content": spoken("model", {"text": "High "}, {"text": "tide"})}]}
    found = run({"contents": contents, "response": answer})
    assert tools(found) == [
        ("assistant", "tide_table", "14:20", ""),
        ("assistant", "code_execution", "ZeroDivisionError", "ZeroDivisionError"),
    ]
    assert found.output == "High tide"


def adk(author: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"author": author, "invocation_id": "e1", "content": spoken("model", *parts), **more}


def adk_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function_call": {"id": name, "name": name, "args": arguments}}


def adk_result(name: str, **response: Any) -> dict[str, Any]:
    return {"function_response": {"id": name, "name": name, "response": response}}


def test_agents_of_an_adk_session_are_its_authors() -> None:
    events = [
        adk("user", {"text": TASK}),
        adk("coordinator", adk_call("transfer_to_agent", agent_name="harbour_desk")),
        adk("coordinator", adk_result("transfer_to_agent", result=None)),
        adk("harbour_desk", adk_call("tide_table")),
        adk("harbour_desk", adk_result("tide_table", error=ERROR)),
        adk("harbour_desk", {"text": "High"}, partial=True),
        adk("harbour_desk", {"text": ANSWER}),
    ]
    found = run({"app_name": "harbour", "user_id": "u", "id": "s1", "events": events})
    assert tools(found)[0][:2] == ("coordinator", "harbour_desk")
    assert tools(found)[1] == ("harbour_desk", "tide_table", ERROR, ERROR)
    assert [one[2] for one in told(found)][-1] == ANSWER
    assert "High" not in [one[2] for one in told(found)]


def test_an_error_of_adk_is_the_agents() -> None:
    failed = {"author": "clerk", "invocationId": "e1", "content": None, "errorCode": "429"}
    found = run([adk("user", {"text": TASK}), {**failed, "errorMessage": "RESOURCE_EXHAUSTED"}])
    assert [(step.agent, step.error) for step in found.steps] == [("clerk", "RESOURCE_EXHAUSTED")]
