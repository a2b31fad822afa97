"""LlamaIndex's OpenInference spans: agents in events, private methods, internal data instead of texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Span
from tests.factories import openinference, ordered, outline

QUESTION = "How many seats has the Marianne? current_agent_name='mallory')"


def llama(number: int, kind: str, name: str, parent: int | None = 1, **more: str | float) -> Span:
    end = more.pop("end", number * 10 + 5)
    attributes = {key.replace("__", "."): value for key, value in more.items()}
    told: Any = {"framework": "llama_index", "name": name, "end": float(end), "attributes": attributes}
    return openinference(number, kind, parent=parent, **told)


def workflow() -> Span:
    given = '{"init_state": {"is_running": false}, "start_event": "AgentWorkflowStartEvent()"}'
    got = "StopEvent(result=AgentOutput(response=ChatMessage(role=..."
    return llama(1, "CHAIN", "AgentWorkflow.run", None, end=900, input__value=given, output__value=got)


def stepping(number: int, agent: str) -> Span:
    event = f"AgentSetup(input=[ChatMessage(text={QUESTION!r})], current_agent_name='{agent}')"
    given = json.dumps({"ctx": "<Context>", "ev": event})
    return llama(number, "CHAIN", "AgentWorkflow.run_agent_step", end=number * 10 + 50, input__value=given)


def calling(number: int, name: str) -> Span:
    event = f"ToolCall(tool_name={name!r}, tool_kwargs={{}}, tool_id='c')"
    return llama(number, "CHAIN", "AgentWorkflow.call_tool", end=99, input__value=json.dumps({"ev": event}))


def asking(number: int, parent: int, tool: str) -> Span:
    said = "llm.output_messages.0.message"
    requested = {
        f"{said}.role": "assistant",
        f"{said}.tool_calls.0.tool_call.function.name": tool,
        f"{said}.tool_calls.0.tool_call.function.arguments": '{"to_agent": "purser"}',
    }
    return llama(number, "LLM", "OpenAILike.achat", parent, **requested)


def call(number: int, parent: int, answer: str) -> Span:
    texts = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }
    return llama(number, "LLM", "OpenAILike.achat", parent, **texts)


def tool(number: int, name: str, given: dict[str, object], result: str, parent: int = 1) -> Span:
    output = {"blocks": [{"text": result}], "tool_name": name, "raw_output": result, "is_error": False}
    texts = {
        "tool.name": name,
        "input.value": json.dumps({"kwargs": {**given, "ctx": "<Context>"}}),
        "output.value": json.dumps(output),
    }
    return llama(number, "TOOL", "FunctionTool.acall", parent, **texts)


def test_the_agent_is_the_one_whose_step_it_is() -> None:
    run = ordered(
        workflow(),
        stepping(2, "clerk"),
        llama(3, "LLM", "OpenAILike._prepare_chat_with_tools", 2, output__value='{"messages": []}'),
        asking(4, 2, "handoff"),
        calling(8, "handoff"),
        tool(9, "handoff", {"to_agent": "purser", "reason": "sums"}, "Agent purser takes over.", 8),
        stepping(11, "purser"),
        call(12, 11, "85"),
    )
    assert outline(run) == [("clerk", "llm"), ("clerk", "handoff"), ("purser", "llm")]
    assert run.steps[1].target == "purser"


def test_the_wiring_of_a_workflow_is_neither_task_nor_answer() -> None:
    run = ordered(workflow(), stepping(2, "clerk"), call(3, 2, "85"))
    assert run.task == QUESTION
    assert run.output == "85"


def test_a_tool_is_shown_with_what_the_model_wrote_and_what_it_gave() -> None:
    run = ordered(workflow(), tool(2, "look_up", {"name": "Marianne"}, "The Marianne has 85 seats."))
    assert (run.steps[0].input, run.steps[0].output) == ('{"name": "Marianne"}', "The Marianne has 85 seats.")


@pytest.mark.parametrize("event", ["[[[", '{"ev": 7}', '{"ev": "current_agent_name="}', "null"])
def test_an_event_that_names_nobody_leaves_the_agent_unknown(event: str) -> None:
    run = ordered(workflow(), llama(2, "CHAIN", "Flow.step", end=90, input__value=event), call(3, 2, "85"))
    assert outline(run) == [("unknown", "llm")]
