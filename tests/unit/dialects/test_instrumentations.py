"""Laminar, LiteLLM's callback and OpenLIT, which instrument frameworks of others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.dialects.conventions.laminar import BROWSER_USE
from semconv.model import Span, TraceId
from semconv.record import replace
from tests.factories import TRACE, ordered, outline, span


def laminar(  # noqa: PLR0917 - the order of a trace's columns
    number: int, kind: str, name: str, parent: int | None, given: Any = None, got: Any = None, **more: Any
) -> Span:
    texts = {"lmnr.span.input": given, "lmnr.span.output": got}
    attributes = {key: json.dumps(value) for key, value in texts.items() if value is not None}
    attributes["lmnr.span.type"] = kind
    return span(number, parent=parent, name=name, scope="lmnr", attributes=attributes, **more)


def test_calls_and_tools_are_steps_and_functions_may_name_the_agent() -> None:
    asked = [{"role": "user", "content": "How many?"}]
    trajectory = ordered(
        laminar(1, "DEFAULT", "agent.run", None, {"task": "How many?"}, "Three", end=900),
        laminar(2, "DEFAULT", "browser_scout", 1, end=800),
        laminar(3, "LLM", "ainvoke", 2, asked, {"role": "assistant", "content": "Look."}),
        laminar(4, "TOOL", "click", 2, {"index": 3}, "clicked"),
    )
    assert outline(trajectory) == [("browser_scout", "llm"), ("browser_scout", "tool")]
    assert (trajectory.task, trajectory.output) == ("How many?", "Three")
    assert trajectory.steps[0].input == "user: How many?"
    assert (trajectory.steps[1].target, trajectory.steps[1].output) == ("click", "clicked")


def browser_use(result: str | None = None, request: str = "\nHow many seats?\n</user_request>") -> list[Span]:
    """Return a run as browser-use 0.13.14 writes it: calls' texts under ``gen_ai.``."""
    asked = [
        {"role": "system", "content": "You accomplish the task in <user_request>.\n<intro>"},
        {"role": "user", "content": f"<user_request>{request}\n<agent_history>"},
    ]
    said = [{"finish_reason": "stop", "message": {"role": "assistant", "content": '{"memory": "m"}'}}]
    messages = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}
    call = laminar(3, "LLM", "openai.chat", 2)
    done = {"action": "done", "params": {"text": "58 seats.", "success": True}}
    return [
        laminar(1, "DEFAULT", "agent.run", None, end=900),
        laminar(2, "DEFAULT", "agent.step", 1, end=100),
        replace(call, attributes={**call.attributes, **messages}),
        laminar(4, "TOOL", "navigate", 2, {"action": "navigate"}, {"is_done": False, "error": result}),
        laminar(5, "DEFAULT", "agent.step", 1, start=110, end=200),
        laminar(6, "TOOL", "done", 5, done, {"is_done": True, "error": None}, start=120),
    ]


def test_browser_use_has_one_agent_a_task_in_its_prompt_and_an_answer_in_its_last_action() -> None:
    trajectory = ordered(*browser_use())
    assert outline(trajectory) == [(BROWSER_USE, "llm"), (BROWSER_USE, "tool"), (BROWSER_USE, "tool")]
    assert (trajectory.task, trajectory.output) == ("How many seats?", "58 seats.")
    assert trajectory.steps[0].output == '{"memory": "m"}'
    assert not any(step.error for step in trajectory.steps)


def test_a_request_without_an_end_is_searched_once() -> None:
    begun = time.process_time()
    assert ordered(*browser_use(request=" " * 3_000)).output == "58 seats."
    assert time.process_time() - begun < 1


def test_an_action_fails_if_its_result_says_so() -> None:
    trajectory = ordered(*browser_use("Navigation failed: net::ERR_NAME_NOT_RESOLVED"))
    assert [step.error for step in trajectory.steps] == [
        "",
        "Navigation failed: net::ERR_NAME_NOT_RESOLVED",
        "",
    ]


OVER = {"litellm.call_id": "call-1", "gen_ai.operation.name": "chat", "llm.request.type": "chat"}


def raw(number: int, question: str, answer: str) -> Span:
    return span(
        number,
        parent=1,
        name="raw_gen_ai_request",
        scope="litellm",
        attributes={
            "llm.openai.messages": str([{"role": "user", "content": question}]),
            "llm.openai.choices": str([{"message": {"role": "assistant", "content": answer}}]),
        },
    )


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"gen_ai.agent.name": "registrar"}, id="by the convention"),
        pytest.param(
            {"traceloop.span.kind": "agent", "traceloop.entity.name": "registrar"}, id="by a decorator"
        ),
    ],
)
def test_calls_written_over_an_agents_span_are_that_agents(own: dict[str, str]) -> None:
    agent = span(1, parent=None, name="turn", scope="office", attributes=own | OVER, end=90.0)
    run = ordered(agent, raw(2, "How many seats?", "let me see"), raw(3, "And now?", "twelve"))
    assert [(step.agent, step.output) for step in run.steps] == [
        ("registrar", "let me see"),
        ("registrar", "twelve"),
    ]


OTHER = TraceId("b" * 32)


def requested(number: int, said: object, trace_id: TraceId = TRACE) -> Span:
    """A call by a client of the proxy, with the client's metadata."""
    messages = [{"role": "assistant", "parts": [{"type": "text", "content": "twelve"}]}]
    attributes = OVER | {
        "metadata.requester_metadata": said if isinstance(said, str) else str(said),
        "gen_ai.output.messages": json.dumps(messages),
    }
    return span(number, name="litellm_request", scope="litellm", attributes=attributes, trace_id=trace_id)


@pytest.mark.parametrize("write", [json.dumps, repr])
def test_calls_through_the_proxy_are_joined_by_what_their_caller_said(write: Callable[[Any], str]) -> None:
    told = [write({"session_id": "s1", "agent": agent}) for agent in ("registrar", "purser")]
    (run,) = rebuild([encode([requested(1, told[0]), requested(2, told[1], OTHER)])])
    assert outline(run.trajectory) == [("registrar", "llm"), ("purser", "llm")]


def test_a_session_without_agents_may_be_a_chat_of_many_days() -> None:
    said = {"session_id": "s1"}
    assert len(rebuild([encode([requested(1, said), requested(2, said, OTHER)])])) == 2


AGENTS = "openlit.instrumentation.openai_agents"
ANSWER = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "85 seats"}]}])


def openlit(number: int, operation: str, parent: int | None, scope: str = AGENTS, **attributes: Any) -> Span:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named["gen_ai.operation.name"] = operation
    return span(number, name=operation, parent=parent, scope=scope, attributes=named)


def call(number: int, parent: int) -> Span:
    told = {"gen_ai__output__messages": ANSWER}
    return openlit(number, "chat", parent, "openlit.instrumentation.openai", **told)


def agent(number: int, name: str, parent: int | None = 1, **attributes: Any) -> Span:
    return openlit(number, "invoke_agent", parent, gen_ai__agent__name=name, **attributes)


def test_an_agent_with_a_source_is_the_handoff_to_it() -> None:
    steps = ordered(
        openlit(1, "invoke_workflow", None),
        agent(2, "desk"),
        call(3, 2),
        agent(4, "clerk", 2, gen_ai__agent__source="desk"),
        agent(5, "clerk"),
        call(6, 5),
    )
    assert outline(steps) == [("desk", "llm"), ("desk", "handoff"), ("clerk", "llm")]
    assert steps.steps[1].target == "clerk"


def test_an_agent_without_a_name_is_a_turn_or_a_method() -> None:
    turn = openlit(3, "invoke_agent", 2)
    method = openlit(5, "invoke_agent", 2, "openlit.instrumentation.crewai", gen_ai__output__messages=ANSWER)
    assert outline(ordered(agent(2, "desk", None), turn, call(4, 3), method)) == [("desk", "llm")]


def test_a_guardrail_is_a_step_where_it_trips() -> None:
    passed = agent(3, "polite", 2, gen_ai__guardrail__triggered=False)
    tripped = agent(3, "polite", 2, gen_ai__guardrail__triggered=True)
    assert outline(ordered(agent(2, "desk", None), passed, call(4, 2))) == [("desk", "llm")]
    steps = ordered(agent(2, "desk", None), tripped, call(4, 2))
    assert outline(steps) == [("desk", "other"), ("desk", "llm")]
    assert steps.steps[0].target == "polite"


def test_what_a_delegation_of_crewais_encloses_is_the_coworkers() -> None:
    crewai = "openlit.instrumentation.crewai"
    given = json.dumps({"coworker": "clerk", "task": "Look it up."})
    asking = {"gen_ai__tool__name": "Delegate work to coworker", "gen_ai__tool__call__arguments": given}
    delegated = openlit(3, "execute_tool", 1, crewai, **asking)
    steps = ordered(agent(1, "desk", None), call(2, 1), delegated, call(4, 3), call(5, 1))
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm"), ("desk", "llm")]


def test_an_agno_teams_run_is_its_leaders() -> None:
    team = {"gen_ai__workflow__name": "desk", "gen_ai__agno__team__agents": '["clerk"]'}
    steps = ordered(openlit(1, "invoke_workflow", None, **team), call(2, 1), agent(3, "clerk"), call(4, 3))
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm")]


def test_a_delegation_that_returns_a_generator_is_the_work_of_the_member_that_begins_after_it() -> None:
    team = {"gen_ai__workflow__name": "desk", "gen_ai__agno__team__agents": '["clerk"]'}
    given = {"gen_ai__tool__call__arguments": json.dumps({"member_id": "clerk"})}
    delegated = openlit(3, "execute_tool", 1, gen_ai__tool__name="delegate_task_to_member", **given)
    refused = openlit(6, "execute_tool", 1, gen_ai__tool__name="delegate_task_to_member", **given)
    top = openlit(1, "invoke_workflow", None, **team)
    steps = ordered(top, call(2, 1), delegated, agent(4, "clerk"), call(5, 4), refused)
    assert outline(steps) == [("desk", "llm"), ("clerk", "llm"), ("desk", "handoff")]


def test_the_nodes_of_a_graph_are_no_agents_whichever_scope_writes_them() -> None:
    for scope, provider in (("langgraph", "langgraph"), ("langchain", "langchain")):
        where = f"openlit.instrumentation.{scope}"
        node = {"gen_ai__agent__name": "call_agent", "gen_ai__provider__name": provider}
        spans = (agent(2, "desk", None), openlit(3, "invoke_agent", 2, where, **node), call(4, 3))
        assert outline(ordered(*spans)) == [("desk", "llm")]
