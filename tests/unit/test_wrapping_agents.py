"""An agent's span around other agents is a step only if no span inside shows what it said.

langgraph-supervisor runs each agent in a node that adds its own message, "Transferring back to …"; the
official instrumentation calls the node an agent. Only the agent inside spoke.
"""

from __future__ import annotations

import json
from dataclasses import replace

from semconv.model import Span, SpanStatus
from tests.factories import ordered, outline, span


def told(number: int, operation: str, parent: int | None, text: str, name: str = "") -> Span:
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    named = {"gen_ai.operation.name": operation, "gen_ai.output.messages": json.dumps(answer)}
    named |= {"gen_ai.agent.name": name} if name else {}
    return span(number, name=operation, parent=parent, attributes=named)


def agent(number: int, parent: int | None, name: str, text: str) -> Span:
    return told(number, "invoke_agent", parent, text, name)


def test_an_agent_that_only_wraps_one_whose_model_calls_are_shown_is_no_step() -> None:
    wrapped = agent(2, 1, "clerk", "85 seats"), told(3, "chat", 2, "85 seats")
    steps = ordered(agent(1, None, "call_agent", "Transferring back to the desk"), *wrapped)
    assert outline(steps) == [("clerk", "llm")]


def test_one_that_failed_by_itself_is() -> None:
    failed = replace(agent(1, None, "desk", ""), status=SpanStatus.ERROR, status_message="out of turns")
    wrapped = agent(2, 1, "clerk", "85 seats"), told(3, "chat", 2, "85 seats")
    steps = ordered(failed, *wrapped)
    assert outline(steps) == [("clerk", "llm"), ("desk", "llm")]
    assert steps.steps[1].error == "out of turns"


def test_where_no_model_call_is_shown_an_agents_own_words_are_its_step() -> None:
    steps = ordered(agent(1, None, "desk", "It has 85."), agent(2, 1, "clerk", "85 seats"))
    assert outline(steps) == [("clerk", "llm"), ("desk", "llm")]
