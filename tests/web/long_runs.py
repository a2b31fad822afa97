"""Runs of spans with all that a step can have: messages, tools, parameters, tokens, cost, times, retries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, StatusCode, set_span_in_context

from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import make_redactor
from collector_processor.rebuild.runs import total_up
from collector_processor.rebuild.stages import rebuild
from collector_processor.store.small_tables import PackedSpans
from semconv.model import Attribution
from tests.web.stage import NOW_NS, Stage

BEGAN_NS: Final = 1_789_990_000 * 10**9
_MS: Final = 10**6
_PROMPT: Final = """You find papers and compare what they measured.

- Quote numbers **with their conditions**.
- Never mix temperatures.
"""
_TOOLS: Final = [
    {
        "type": "function",
        "name": "search_papers",
        "description": "Search the archive of papers by words of the title or abstract.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "words to look for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            },
            "required": ["query"],
        },
    },
    {
        "type": "function",
        "name": "read_paper",
        "description": "Read a paper's measurements.",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
        },
    },
]
_NOTES: Final = """### What the papers say

Two of the three **agree**; the third measured at *another* temperature:

| paper | yield | at |
|---|---:|---|
| Okafor 2021 | 71 % | 80 °C |
| Lind 2023 | 69 % | 80 °C |
| Serra 2024 | 44 % | 60 °C |

```python
mean = (71 + 69 + 44) / 3
```

1. Ask for the raw data of [Serra 2024](https://papers.example/serra-2024).
2. Report a mean yield of 61 %.
"""


class _Numbers(IdGenerator):
    """Ids that are the same each time."""

    def __init__(self, seed: str) -> None:
        self._ids: Final = Random(seed)

    def generate_span_id(self) -> int:
        return self._ids.getrandbits(63) | 1

    def generate_trace_id(self) -> int:
        return self._ids.getrandbits(127) | 1


class Tape:
    """Records spans with chosen times, below one root."""

    def __init__(self, task: str, began_ns: int = BEGAN_NS) -> None:
        """Begin the run."""
        self.at_ns: int = began_ns
        self._memory: Final = InMemorySpanExporter()
        provider = TracerProvider(
            resource=Resource({"service.name": "paper-desk", "service.version": "2.4.1"}),
            id_generator=_Numbers(task),
        )
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self._tracer: Final = provider.get_tracer("paper_desk.agents", "2.4.1")
        question = json.dumps([_message("user", task)])
        self._root: Final[Any] = self._tracer.start_span(
            "invoke_workflow paper-desk",
            start_time=self.at_ns,
            attributes={"gen_ai.operation.name": "invoke_workflow", "gen_ai.input.messages": question},
        )
        self._agent: tuple[str, Span] | None = None
        """The one whose turn it is."""

    def llm(
        self,
        agent: str,
        heard: Sequence[Any],
        said: Sequence[Any],
        ms: int = 900,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a call to a model; ``more`` attributes replace the usual ones."""
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4.1",
            "gen_ai.response.model": "gpt-4.1-2025-04-14",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.max_tokens": 800,
            "gen_ai.usage.input_tokens": 140 + sum(len(json.dumps(one)) for one in heard) // 4,
            "gen_ai.usage.output_tokens": sum(len(json.dumps(one)) for one in said) // 4,
            "gen_ai.usage.cost": 0.0021,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": _PROMPT}]),
            "gen_ai.tool.definitions": json.dumps(_TOOLS),
            "gen_ai.input.messages": json.dumps(heard),
            "gen_ai.output.messages": json.dumps(said),
            **(more or {}),
        }
        self._span("chat gpt-4.1", agent, attributes, ms)

    def tool(  # noqa: PLR0917 - as a tape reads
        self,
        agent: str,
        name: str,
        given: object,
        found: object,
        ms: int = 300,
        error: str = "",
        wait: int = -1,
    ) -> None:
        """Record a call to a tool; the next span begins ``wait`` ms after this one began, if given."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.arguments": json.dumps(given),
        }
        if not error:
            attributes["gen_ai.tool.call.result"] = found if isinstance(found, str) else json.dumps(found)
        self._span(f"execute_tool {name}", agent, attributes, ms, error, wait)

    def ended(self, answer: str, error: str = "") -> bytes:
        """End the run; return its spans as an export request."""
        if self._agent is not None:
            self._agent[1].end(self.at_ns)
        self._root.set_attribute(
            "gen_ai.output.messages", json.dumps([{**_message("assistant", answer), "finish_reason": "stop"}])
        )
        if error:
            self._root.set_status(StatusCode.ERROR, error)
        self._root.end(self.at_ns)
        body: bytes = encode_spans(self._memory.get_finished_spans()).SerializeToString()
        return body

    def _span(  # noqa: PLR0917 - as above
        self,
        name: str,
        agent: str,
        attributes: Mapping[str, Any],
        ms: int,
        error: str = "",
        wait: int = -1,
    ) -> None:
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(self._turn(agent)),
            start_time=self.at_ns,
            attributes={"gen_ai.agent.name": agent, **attributes},
        )
        if error:
            span.set_status(StatusCode.ERROR, error)
            span.add_event("exception", {"exception.message": error}, timestamp=self.at_ns + ms * _MS)
            span.set_attribute("error.type", error.partition(":")[0])
        span.end(self.at_ns + ms * _MS)
        self.at_ns += (ms + 4 if wait < 0 else wait) * _MS

    def _turn(self, agent: str) -> Span:
        """Return the span of the agent whose turn it is; the turn of another one ends."""
        if self._agent is not None and self._agent[0] == agent:
            return self._agent[1]
        if self._agent is not None:
            self._agent[1].end(self.at_ns)
        turn: Span = self._tracer.start_span(
            f"invoke_agent {agent}",
            context=set_span_in_context(self._root),
            start_time=self.at_ns,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent},
        )
        self._agent = (agent, turn)
        return turn


def _message(role: str, text: str, name: str = "") -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"role": role, "parts": [{"type": "text", "content": text}], **named}


def _asks(name: str, **given: object) -> dict[str, Any]:
    call = {"type": "tool_call", "id": f"call_{name}", "name": name, "arguments": given}
    return {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}


def _gets(name: str, found: object) -> dict[str, Any]:
    response = {"type": "tool_call_response", "id": f"call_{name}", "response": found}
    return {"role": "tool", "parts": [response]}


def papers() -> bytes:
    """Return a run whose texts are Markdown, JSON and code, with a retry and a parallel search."""
    task = "Which catalyst gives the best yield at 80 °C, and how sure is that?"
    tape = Tape(task)
    asked = _message("user", task)
    tape.llm("planner", [asked], [_message("assistant", "First the archive, then a comparison.")], 1200)
    search = {"query": "catalyst yield 80 °C", "limit": 3}
    tape.llm("researcher", [asked], [_asks("search_papers", **search)], 800)
    tape.tool("researcher", "search_papers", search, "", 2000, "TimeoutError: the archive did not answer")
    found = {"hits": [{"id": "okafor-2021", "year": 2021}, {"id": "lind-2023", "year": 2023}], "more": False}
    tape.tool("researcher", "search_papers", search, found, 640)
    for name, measured, place in (("okafor-2021", 71, 60), ("lind-2023", 69, 60), ("serra-2024", 44, 900)):
        paper = {"id": name, "yield": measured, "unit": "%", "at": {"value": 60 if measured < 50 else 80}}
        tape.tool("researcher", "read_paper", {"id": name}, paper, 820, wait=place)
    tape.llm(
        "analyst",
        [asked, _asks("read_paper", id="serra-2024"), _gets("read_paper", {"yield": 44, "at": 60})],
        [_message("assistant", _NOTES)],
        2600,
    )
    answer = "The mean yield at 80 °C is 61 %."
    tape.llm("writer", [asked, _message("user", _NOTES, "analyst")], [_message("assistant", answer)], 700)
    return tape.ended(answer, "the answer was refused: expected 70 %")


def long_run(steps: int = 1_000, text: str = "", began_ns: int = BEGAN_NS) -> bytes:
    """Return a run of this many steps by six agents, with errors and with repeated calls."""
    tape = Tape("Read the archive from 1990 on and report each yield at 80 °C.", began_ns)
    agents = ("planner", "researcher", "reader", "analyst", "checker", "writer")
    for number in range(steps):
        agent = agents[number // 9 % len(agents)]
        if number % 97 == 41:
            tape.tool(agent, "read_paper", {"id": f"p-{number}"}, "", 400, "TimeoutError: no answer")
        elif 300 <= number < 340:
            tape.tool("reader", "search_papers", {"query": "yield", "limit": 50}, {"hits": []}, 120)
        elif number % 3 == 0:
            said = _message("assistant", f"Paper {number} measured {number % 60 + 30} % at 80 °C. {text}")
            tape.llm(agent, [_message("user", f"What does paper {number} say? {text}")], [said], 700)
        else:
            given = {"id": f"p-{number}", "pages": [number, number + 1]}
            tape.tool(agent, "read_paper", given, {"id": f"p-{number}", "yield": number % 60 + 30}, 150)
    return tape.ended("Done.", "the report was refused")


async def add_spans(stage: Stage, body: bytes, service: str, attribution: Attribution | None = None) -> str:
    """Analyse a run of spans, and store it with its spans as the service does; return its id."""
    (run,) = rebuild([body])
    run_id = await stage.add(run.trajectory, service, attribution, total_up(run))
    keep_spans(stage, run, body, NOW_NS)
    return run_id


def keep_spans(stage: Stage, run: Run, body: bytes, now_ns: int) -> None:
    """Keep a failed run's spans as the service does."""
    redactor = make_redactor((), ())
    (packed,) = SpanKeeper(redactor=redactor).pack(
        [body], [], [(run.trace.spans, redactor.for_run())], [True]
    )
    assert packed is not None
    kept = PackedSpans(tenant=NO_TENANT, run_id=run.trajectory.run_id, is_failure=True, packed=packed)
    stage.verdicts.spans.keep_all([kept], now_ns)
