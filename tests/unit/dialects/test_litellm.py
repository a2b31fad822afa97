"""LiteLLM's callback, which writes each call over the span around it, whoever's that is."""

from __future__ import annotations

import pytest

from semconv.model import Span
from tests.factories import ordered, span

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
