"""OpenInference spans of CrewAI, DSPy and LlamaIndex: delegation, modules, agents in events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.model import Span
from tests.factories import openinference, ordered, outline, span

SCOPE = "openinference.instrumentation.crewai"


def crew(number: int, kind: str, parent: int | None = 1, end: float | None = None, **attributes: Any) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["openinference.span.kind"] = kind
    return span(number, parent=parent, name="x", scope=SCOPE, attributes=named, end=end)


def kickoff(**more: Any) -> Span:
    agents = [{"role": "Ticket Clerk"}, {"role": "purser"}]
    return crew(1, "CHAIN", None, 999, crew_agents=json.dumps(agents), **more)


def manager(answer: str = "done") -> Span:
    return crew(2, "AGENT", 1, 900, graph__node__id="manager", input__value="x", output__value=answer)


def delegation(number: int, coworker: str, result: str, end: float | None = None) -> Span:
    given = json.dumps({"task": "count the seats", "context": "a ferry", "coworker": coworker})
    named = "Delegate work to coworker"
    return crew(number, "TOOL", 2, end, tool__name=named, input__value=given, output__value=result)


def test_a_delegated_coworkers_tools_and_answer_are_its_own() -> None:
    trajectory = ordered(
        kickoff(),
        manager(),
        delegation(3, ' "ticket clerk" ', "200 seats", 100),
        crew(4, "TOOL", 3, tool__name="look_up", output__value="200"),
        delegation(11, "purser", "6,840 euros"),
    )
    clerks = [("Ticket Clerk", "tool"), ("Ticket Clerk", "llm")]
    assert outline(trajectory) == [*clerks, ("purser", "llm"), ("manager", "llm")]
    assert [step.output for step in trajectory.steps[1:]] == ["200 seats", "6,840 euros", "done"]


def test_a_delegation_to_nobody_is_the_managers_failed_tool_call() -> None:
    refused = "Error executing tool. Coworker mentioned not found."
    trajectory = ordered(kickoff(), manager(), delegation(3, "captain", refused))
    assert outline(trajectory)[0][0] == "manager"


def test_a_reply_that_is_a_list_of_calls_asks_for_them() -> None:
    call = [{"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"id": 1}'}}]
    trajectory = ordered(kickoff(), manager(), crew(3, "LLM", 2, output__value=json.dumps(call)))
    assert trajectory.steps[0].output == 'call look_up({"id": 1})'


def test_a_template_whose_blanks_are_not_told_is_not_the_task() -> None:
    tasks = json.dumps([{"description": "Answer: {question}"}])
    prompt = json.dumps([{"role": "user", "content": "Answer: how many seats?"}])
    blank = ordered(kickoff(crew_tasks=tasks), manager(), crew(3, "LLM", 2, input__value=prompt))
    assert blank.task == "Answer: how many seats?"
    told = ordered(kickoff(crew_tasks=tasks, crew_inputs='{"question": "how many seats?"}'), manager())
    assert told.task == "how many seats?\nAnswer: {question}"


def test_a_coworkers_failure_stands_in_the_result() -> None:
    failure = "Error executing task with agent 'purser'. Error: HTTP 500"
    steps = ordered(kickoff(), manager(), delegation(3, "purser", failure)).steps
    assert (steps[0].agent, steps[0].status, steps[0].error) == ("purser", "error", failure)


def asked(number: int, parent: int) -> Span:
    return openinference(
        number,
        "LLM",
        parent=parent,
        framework="dspy",
        name="LM.__call__",
        attributes={"llm.output_messages.0.message.role": "assistant", "output.value": "4"},
    )


def module(number: int, name: str, parent: int | None) -> Span:
    return openinference(
        number, "CHAIN", parent=parent, framework="dspy", name=f"{name}.forward", end=100.0 - number
    )


def test_a_call_is_the_work_of_the_nearest_module_that_is_not_dspys_own() -> None:
    run = ordered(module(1, "Office", None), module(2, "Registrar", 1), module(3, "Predict", 2), asked(4, 3))
    assert [step.agent for step in run.steps] == ["Registrar"]


def test_a_call_within_another_frameworks_agent_is_that_agents() -> None:
    agent = openinference(
        2, "AGENT", framework="smolagents", attributes={"agent.name": "researcher"}, end=90.0
    )
    run = ordered(module(1, "Office", None), agent, module(3, "Predict", 2), asked(4, 3))
    assert [step.agent for step in run.steps] == ["researcher"]


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
