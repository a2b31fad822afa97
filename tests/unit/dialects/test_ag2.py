"""AG2's own spans, old and new."""

from __future__ import annotations

from typing import Any

import pytest

from semconv.dialects.reading.agent_names import is_ag2_helper
from semconv.model import Span
from tests.factories import messages, openinference, ordered, outline, said, span

SCOPE = "opentelemetry.instrumentation.ag2"
CALL = ("look_up", "{}", "c1")


def of(number: int, span_type: str, *, parent: int | None = 1, who: str | None = None, **more: Any) -> Span:
    attributes = {"ag2.span.type": span_type} | more.pop("attributes", {})
    if who is not None:
        attributes["gen_ai.agent.name"] = who
    return span(number, parent=parent, scope=SCOPE, attributes=attributes, **more)


def conversation(task: str = "How many?") -> Span:
    heard = {"gen_ai.input.messages": messages(said("user", task))}
    return of(1, "conversation", parent=None, who="user", end=1000, attributes=heard)


def agent(number: int, who: str, reply: dict[str, Any], **more: Any) -> Span:
    told = {"gen_ai.output.messages": messages(reply)}
    return of(number, "agent", who=who, attributes=told, end=number * 10 + 8, **more)


def llm(number: int, *, parent: int, who: str | None = None) -> Span:
    return of(number, "llm", parent=parent, who=who, start=parent * 10 + 1, end=parent * 10 + 7)


def tool(number: int, *, parent: int) -> Span:
    attributes = {"gen_ai.tool.name": "look_up", "gen_ai.tool.call.id": "c1"}
    return of(number, "tool", parent=parent, attributes=attributes)


def test_a_call_without_texts_said_what_its_agent_said_and_tools_are_its_agents() -> None:
    asking = agent(2, "clerk", said("assistant", "", CALL))
    running = agent(4, "_Group_Tool_Executor", said("tool", "16"))
    trajectory = ordered(conversation(), asking, llm(3, parent=2, who="clerk"), running, tool(5, parent=4))
    assert outline(trajectory) == [("clerk", "llm"), ("clerk", "tool")]
    assert trajectory.steps[0].output == "call look_up({})"
    assert trajectory.task == "How many?"


def test_a_reply_that_only_passes_a_tools_result_on_is_no_step() -> None:
    proxy = agent(4, "user_proxy", said("tool", "16"))
    trajectory = ordered(conversation(), proxy, tool(5, parent=4))
    assert [step.kind for step in trajectory.steps] == ["tool"]


def test_a_reply_without_a_model_is_no_step_where_model_calls_are_seen() -> None:
    bare = agent(4, "user_proxy", said("user", "Please continue."))
    assert outline(ordered(conversation(), bare)) == [("user_proxy", "llm")]
    seen = [agent(2, "clerk", said("assistant", "Sixteen.")), llm(3, parent=2)]
    assert outline(ordered(conversation(), *seen, bare)) == [("clerk", "llm")]


def test_chats_one_after_the_other_are_one_run() -> None:
    whole = of(1, "multi_conversation", parent=None, attributes={"gen_ai.operation.name": "initiate_chats"})
    first = of(2, "conversation", attributes={"gen_ai.operation.name": "conversation"})
    second = of(4, "conversation", attributes={"gen_ai.operation.name": "conversation"})
    agents = [of(3, "agent", parent=2, who="writer"), of(5, "agent", parent=4, who="critic")]
    spans = [whole, first, second, *agents]
    assert outline(ordered(*spans)) == [("writer", "llm"), ("critic", "llm")]


def test_a_person_is_asked_and_answers() -> None:
    asking = {"ag2.human_input.prompt": "Go on?", "ag2.human_input.response": "Yes."}
    (step,) = ordered(conversation(), of(2, "human_input", who="clerk", attributes=asking)).steps
    assert (step.kind, step.input, step.output) == ("human", "Go on?", "Yes.")


def test_an_agent_whose_name_the_middleware_was_not_told_has_none() -> None:
    spans = [of(1, "agent", parent=None, who="unknown", end=90), llm(2, parent=1, who="unknown")]
    trajectory = ordered(*spans)
    assert trajectory.agents == ()
    assert trajectory.steps[0].agent_source == "unknown"


@pytest.mark.parametrize("span_type", ["usage", "speaker_selection", "envelope", "channel", "made_up_later"])
def test_accounts_and_envelopes_are_no_steps(span_type: str) -> None:
    spans = [of(1, "agent", parent=None, who="clerk", end=90), llm(2, parent=1), of(3, span_type)]
    assert outline(ordered(*spans)) == [("clerk", "llm")]


@pytest.mark.parametrize("name", ["chat_manager", "checking_agent", "_User", "_Group_Tool_Executor"])
def test_bookkeepers_are_no_agents(name: str) -> None:
    assert is_ag2_helper(name)
    assert ordered(conversation(), agent(2, name, said("assistant", "next: clerk"))).steps == ()


def test_under_openinference_a_user_proxys_reply_is_its_tools() -> None:
    reply = '{"role": "tool", "tool_responses": [{"tool_call_id": "c1", "content": "16"}]}'
    around = openinference(1, "AGENT", parent=None, end=90, attributes={"ag2.recipient.name": "clerk"})
    named = {"agent.name": "user_proxy", "output.value": reply, "input.value": "None"}
    proxy = openinference(2, "AGENT", end=80, attributes=named)
    using = openinference(3, "TOOL", parent=2, attributes={"tool.name": "look_up", "output.value": "16"})
    assert [step.kind for step in ordered(around, proxy, using).steps] == ["tool"]


def test_a_numbered_transfer_goes_to_the_agent_without_the_number() -> None:
    asking = agent(2, "triage", said("assistant", "", ("transfer_to_clerk_1", "{}", "c1")))
    running = agent(4, "_Group_Tool_Executor", said("tool", "Transfer to clerk"))
    moving = {"gen_ai.tool.name": "transfer_to_clerk_1", "gen_ai.tool.call.id": "c1"}
    replying = agent(6, "clerk", said("assistant", "Sixteen."))
    spans = [conversation(), asking, llm(3, parent=2), running, of(5, "tool", parent=4, attributes=moving)]
    trajectory = ordered(*spans, replying, llm(7, parent=6))
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("clerk", "llm")]
    assert trajectory.steps[1].target == "clerk"
