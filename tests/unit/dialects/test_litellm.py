"""LiteLLM's callback, which writes each call onto the surrounding span, whatever that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Span, TraceId
from tests.factories import TRACE, ordered, outline, span

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
