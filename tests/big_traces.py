"""Big traces in unusual shapes: wide, deep, crowded, or with long conversations."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from semconv.model import Span
from tests.factories import agent, chat, openinference, said, tool, workflow

_HEARD: Final = 300
"""Messages that each call gets in a long conversation."""
_PROSE: Final = "and so on " * 20


def wide(count: int) -> list[Span]:
    """Make a run of seven agents in turn: each call repeats the last six messages, and requests a tool."""
    spans = [workflow(end=20 * count), *(agent(n, f"agent {n}", end=20 * count) for n in range(2, 9))]
    history: list[dict[str, Any]] = []
    for number in range(9, count + 1, 2):
        home = 2 + number % 7
        history = [*history[-6:], said("user", f"turn {number} {'x' * 200}")]
        answer = f"answer {number} {'y' * 200}"
        spans.append(chat(number, parent=home, heard=history, answer=answer))
        spans.append(tool(number + 1, "search", parent=home, arguments='{"q": 1}', result="ok"))
    return spans[:count]


def deep(count: int) -> list[Span]:
    """Make a chain: each agent calls the next one."""
    return [
        openinference(number, "AGENT", parent=number - 1 or None, start=number, end=3 * count - number)
        for number in range(1, count + 1)
    ]


def crowded(count: int) -> list[Span]:
    """Make one agent whose tools all run at the same time."""
    spans = [agent(1, "boss", parent=None, end=count)]
    return spans + [
        tool(number, f"tool {number}", start=20, end=count, result="ok") for number in range(2, count + 1)
    ]


def team(count: int) -> list[Span]:
    """Make many agents under one root, each with a model call and the requested tool."""
    spans = [workflow(end=20 * count)]
    for number in range(2, count, 3):
        start = 10 * number
        spans.append(agent(number, f"agent {number}", start=start, end=start + 9))
        spans.append(chat(number + 1, parent=number, start=start + 1, end=start + 2, answer=f"{number}"))
        spans.append(tool(number + 2, "search", parent=number, start=start + 3, end=start + 4, result="ok"))
    return spans[:count]


def nested(count: int) -> list[Span]:
    """Make a chain of langgraph's nodes as OpenInference writes them: each carries its metadata as JSON."""
    ends = 3 * count
    return [
        openinference(
            number,
            ("CHAIN", "AGENT")[number % 2],
            parent=number - 1 or None,
            start=number,
            end=ends - number,
            framework="langchain",
            name="agent",
            attributes={
                "metadata": json.dumps({"langgraph_node": "agent", "langgraph_step": number, "note": _PROSE}),
                "input.value": json.dumps({"messages": [{"role": "user", "content": f"go {number}"}]}),
                "output.value": json.dumps(
                    {"messages": [{"role": "assistant", "content": f"done {number}"}]}
                ),
            },
        )
        for number in range(1, count + 1)
    ]


def history(count: int, heard: int = _HEARD) -> list[Span]:
    """Make one agent with many requests, which gets the last ``heard`` messages each time."""
    spans = [workflow(end=20 * count), agent(2, "solo", end=20 * count)]
    conversation = deque((said("user", f"before {turn} {_PROSE}") for turn in range(heard)), maxlen=heard)
    for number in range(3, count + 1):
        conversation.append(said("user", f"turn {number} {_PROSE}"))
        answer = f"answer {number} {_PROSE}"
        spans.append(chat(number, parent=2, heard=conversation, answer=answer))
        conversation.append(said("assistant", answer))
    return spans


def flat_history(count: int, heard: int = _HEARD) -> list[Span]:
    """Make the same as OpenInference writes it: two attributes per message."""
    spans = [openinference(1, "AGENT", parent=None, name="solo", end=20 * count)]
    conversation = deque((("user", f"before {turn} {_PROSE}") for turn in range(heard)), maxlen=heard)
    for number in range(2, count + 1):
        conversation.append(("user", f"turn {number} {_PROSE}"))
        answer = ("assistant", f"answer {number} {_PROSE}")
        attributes = _flattened("llm.input_messages", conversation) | _flattened(
            "llm.output_messages", [answer]
        )
        spans.append(openinference(number, "LLM", framework="openai_agents", attributes=attributes))
        conversation.append(answer)
    return spans


def _flattened(prefix: str, each: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {
        f"{prefix}.{place}.message.{field}": value
        for place, (role, content) in enumerate(each)
        for field, value in (("role", role), ("content", content))
    }


SHAPES: Final[Mapping[str, Callable[[int], list[Span]]]] = {
    "wide": wide,
    "deep": deep,
    "crowded": crowded,
    "team": team,
    "nested": nested,
    "history": history,
    "flat_history": flat_history,
}
