"""Cost of our emitting API per span in the agent's process, beside a bare SDK span with the same attributes.

    python -m benchmarks.dialects.instrument

CPU time of the process; each figure is the median of the rounds, with both sides of a round run in turn. The
bare side encodes the messages with ``json.dumps``, as any emitter must.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Tracer

from semconv.instrument import ContentCapture, agent, llm, run, tool

_QUESTION: Final = "How many days are there from 3 March to 1 May?"
_ANSWER: Final = "There are 59 days."
_ARGUMENTS: Final = '{"from": "3 March", "to": "1 May"}'


def bare_call(tracer: Tracer, count: int) -> None:
    for _ in range(count):
        with tracer.start_as_current_span("chat gpt", kind=SpanKind.CLIENT, attributes=_named("chat")):
            pass


def own_call(count: int) -> None:
    for _ in range(count):
        with llm("gpt"):
            pass


def bare_call_with_content(tracer: Tracer, count: int) -> None:
    for _ in range(count):
        with tracer.start_as_current_span(
            "chat gpt", kind=SpanKind.CLIENT, attributes=_named("chat")
        ) as span:
            span.set_attribute("gen_ai.input.messages", _messages("user", _QUESTION))
            span.set_attribute("gen_ai.output.messages", _messages("assistant", _ANSWER))


def own_call_with_content(count: int) -> None:
    for _ in range(count):
        with llm("gpt", messages=[{"role": "user", "content": _QUESTION}]) as call:
            call.output(_ANSWER)


def bare_tool_with_content(tracer: Tracer, count: int) -> None:
    for _ in range(count):
        with tracer.start_as_current_span("execute_tool days", attributes=_named_tool()) as span:
            span.set_attribute("gen_ai.tool.call.arguments", _ARGUMENTS)
            span.set_attribute("gen_ai.tool.call.result", "59")


def own_tool_with_content(count: int) -> None:
    for _ in range(count):
        with tool("days", arguments=_ARGUMENTS, call_id="c1") as counting:
            counting.result("59")


def _named_tool() -> dict[str, str]:
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "days"}
    return named | {"gen_ai.agent.name": "counter", "gen_ai.tool.call.id": "c1"}


def _named(operation: str) -> dict[str, str]:
    return {"gen_ai.operation.name": operation, "gen_ai.request.model": "gpt", "gen_ai.agent.name": "counter"}


def _messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


PAIRS: Final[Mapping[str, tuple[Callable[[Tracer, int], None], Callable[[int], None], bool]]] = {
    "model call": (bare_call, own_call, False),
    "model call with content": (bare_call_with_content, own_call_with_content, True),
    "tool with content": (bare_tool_with_content, own_tool_with_content, True),
}


def main() -> None:
    """Print both costs and their ratio for each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--spans", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    provider = TracerProvider()
    tracer = provider.get_tracer("bare", "1")
    for title, (bare, own, with_content) in PAIRS.items():
        capture = ContentCapture.SPAN_ONLY if with_content else ContentCapture.NO_CONTENT
        with run("r", tracer_provider=provider, capture=capture), agent("counter"):
            rounds = [
                (_timed(partial(bare, tracer, arguments.spans)), _timed(partial(own, arguments.spans)))
                for _ in range(arguments.rounds)
            ]
        bare_us, own_us = (
            statistics.median(each[side] for each in rounds) / arguments.spans * 1e6 for side in (0, 1)
        )
        ratios = sorted(ours / theirs for theirs, ours in rounds)
        middle = statistics.median(ratios)
        print(
            f"{title:24} bare {bare_us:5.1f} µs, ours {own_us:5.1f} µs a span:"
            f" {middle:.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)"
        )


def _timed(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
