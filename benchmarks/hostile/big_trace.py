"""Time and memory of a big trace from OTLP bytes to ordered steps.

    python -m benchmarks.hostile.big_trace  # 10,000 and 100,000 spans, in each shape; of those
                                                       # whose calls get 300 messages each, a tenth
    python -m benchmarks.hostile.big_trace --spans 50000 --shape wide

Time is the process's own CPU time, the best of three; memory is the growth of the peak resident size, in a
separate process for each shape.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.model import Span, Trace
from tests.factories import agent, chat, openinference, said, tool, workflow

_ROUNDS: Final = 3
_HEARD: Final = 300
"""Messages that each call gets in a long conversation."""
_MIB: Final = 1024 * 1024
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
_HEAVY: Final = frozenset({"history", "flat_history"})


def main() -> None:
    """Make each trace here, and measure it in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--spans", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, sys.stdin.buffer.read())
        return
    command = [sys.executable, "-m", "benchmarks.hostile.big_trace", "--measure"]
    for size in arguments.spans:
        for shape in arguments.shape:
            count = size // 10 if shape in _HEAVY else size
            subprocess.run([*command, shape], input=encode(SHAPES[shape](count)), check=True)


def measure(shape: str, body: bytes) -> None:
    """Print time and memory of one trace."""
    before = _peak_bytes()
    spans = decode(body).spans
    decoded = _peak_bytes()
    best_s, steps = min(_timed(spans) for _ in range(_ROUNDS))
    print(
        f"{shape:12} {len(spans):7,} spans ({len(body) / _MIB:5.1f} MiB of OTLP): {steps:7,} steps"
        f" ordered in {best_s:6.2f} s; memory: decoded {(decoded - before) / _MIB:5.0f} MiB,"
        f" ordering {(_peak_bytes() - decoded) / _MIB:5.0f} MiB,"
        f" whole process {_peak_bytes() / _MIB:5.0f} MiB",
        flush=True,
    )


def _timed(spans: tuple[Span, ...]) -> tuple[float, int]:
    started = time.process_time()
    steps = len(order(repair(Trace(spans=spans))).steps)
    return time.process_time() - started, steps


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
