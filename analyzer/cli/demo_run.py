"""The demo: a small multi-agent program that fails, with ordinary instrumentation.

Four agents answer a question about money. The researcher's data service times out once; the program asks
again and gets the value, so that error is repaired and not to blame. The calculator's tool returns
9662.14, but the calculator reports 9,266.14. The writer repeats what it was given. The answer is wrong,
and the calculator's report is the cause.

The agents, tools and handoffs are real; only the model is scripted, an ordinary function from messages to a
reply, so that the demo needs no network and always ends the same way. ``examples/instrumented_agents.py``
replaces it with a real one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from opentelemetry.trace import TracerProvider, format_trace_id

from semconv.instrument import agent, handoff, llm, run, tool

Message: TypeAlias = dict[str, Any]
"""Messages in the format of OpenAI's chat API."""

TASK: Final = (
    "Our community hall in Freiburg gets 84 solar panels of 410 W each. We pay 0.31 euros for a kWh. "
    "How much will the panels save us in a year?"
)
RIGHT_ANSWER: Final = "9,662.14"
MODEL: Final = "scripted-1"

_MAX_ROUNDS: Final = 8
_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoExpectation:
    """The demo's result, and the expected verdict."""

    trace_id: str
    """Lower-case hex."""
    answer: str
    """The writer's text."""
    agent: str = "calculator"
    step: int = 9
    """0-based, over the twelve model calls, tool calls and handoffs in order of their start."""
    step_count: int = 12
    repaired_step: int = 3
    """The timeout that was repaired and so must not be blamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's request for a tool."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer: a text, or requests for tools."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None


Chat: TypeAlias = Callable[[Sequence[Message]], Reply]
"""A language model: messages in, reply out."""


# The program ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The agents' shared model, tools and tracer."""

    chat: Chat
    model: str
    tools: Mapping[str, Callable[..., Any]]

    def work(self, name: str, message: str) -> str:
        """Let one agent work on ``message`` until it answers with text."""
        instructions = INSTRUCTIONS[name]
        messages: list[Message] = [
            {"role": "system", "content": instructions},
            {"role": "user", "content": message},
        ]
        with agent(name, message=message, instructions=instructions) as turn:
            for _ in range(_MAX_ROUNDS):
                reply = self._ask(messages)
                if not reply.tool_calls:
                    turn.output(reply.text)
                    return reply.text
                messages.append(_as_message(reply))
                messages.extend(self._use(call) for call in reply.tool_calls)
            raise RuntimeError(f"{name} did not finish within {_MAX_ROUNDS} rounds")

    def _ask(self, messages: Sequence[Message]) -> Reply:
        with llm(self.model, messages=messages) as call:
            reply = self.chat(messages)
            call.output(_as_message(reply))
            call.usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
            return reply

    def _use(self, call: ToolCall) -> Message:
        """Run a tool, again if it times out, and return its result as a message."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with tool(call.name, arguments=call.arguments, call_id=call.id, kind="function") as running:
                    result = json.dumps(self.tools[call.name](**call.arguments))
                    running.result(result)
            except TimeoutError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                break
        return {"role": "tool", "tool_call_id": call.id, "content": result}


def answer_question(team: Team, question: str) -> str:
    """Plan, look up, calculate, write; each agent hands its work to the next."""
    work = team.work("planner", question)
    for source, target in (("planner", "researcher"), ("researcher", "calculator"), ("calculator", "writer")):
        handoff(target, source=source, message=work).record()
        work = team.work(target, work)
    return work


def play(
    tracer_provider: TracerProvider, *, chat: Chat | None = None, model: str = MODEL, latency_s: float = 0.04
) -> DemoExpectation:
    """Run the program once and return the expected findings in its trace.

    Args:
        tracer_provider: Receives the spans. Content is always captured, regardless of the environment: it is
        the demo's own.
        chat: A language model; by default the scripted one, whose mistake the expectation describes.
        model: The model's name, for the spans.
        latency_s: Duration of each call of the scripted model and the tools, so that a waterfall has visible
        bars.
    """
    weather = WeatherService(latency_s=latency_s)
    team = Team(
        chat=chat or ScriptedModel(latency_s=latency_s),
        model=model,
        tools={"solar_yield": weather.solar_yield, "multiply": multiply},
    )
    attempt = run(
        "solar-savings",
        task=TASK,
        reference=RIGHT_ANSWER,
        task_id="solar-savings-freiburg",
        capture="SPAN_ONLY",
        tracer_provider=tracer_provider,
    )
    with attempt as this:
        answer = answer_question(team, TASK)
        this.output(answer)
        this.outcome("success" if RIGHT_ANSWER in answer else "failure", source="reference")
    return DemoExpectation(trace_id=format_trace_id(this.span.get_span_context().trace_id), answer=answer)


def _as_message(reply: Reply) -> Message:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in reply.tool_calls
    ]
    return {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}


# The agents and their tools ------------------------------------------------

INSTRUCTIONS: Final[Mapping[str, str]] = {
    "planner": (
        "You are the planner. Break the question into what has to be looked up and what has to be "
        "calculated, and say what the researcher must find. Do not calculate anything yourself."
    ),
    "researcher": (
        "You are the researcher. Find the missing figures with the tool solar_yield, and list every "
        "figure the calculation needs, with its unit. Do not calculate."
    ),
    "calculator": (
        "You are the calculator. Work out the result with the tool multiply, never in your head, and "
        "report exactly what it returns."
    ),
    "writer": (
        "You are the writer. Put the result into one or two friendly sentences for the people who asked. "
        "Do not change any figure."
    ),
}

TOOLS: Final[Sequence[Message]] = (
    {
        "name": "solar_yield",
        "description": "kWh a year that one kW of solar panels gives in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    {
        "name": "multiply",
        "description": "The product of all factors, rounded to two decimals",
        "parameters": {
            "type": "object",
            "properties": {"factors": {"type": "array", "items": {"type": "number"}}},
            "required": ["factors"],
        },
    },
)
"""Descriptions of the tools for a real model."""


@dataclass(slots=True, kw_only=True)
class WeatherService:
    """A service that is slow to wake up: the first request times out."""

    latency_s: float
    _awake: bool = False

    def solar_yield(self, city: str) -> Mapping[str, Any]:
        """Return the kWh a year that one kW of panels gives in ``city``."""
        time.sleep(self.latency_s)
        if not self._awake:
            self._awake = True
            raise TimeoutError("the weather service did not answer within 5 s")
        return {"city": city, "kwh_per_kw_and_year": 905}


def multiply(factors: Sequence[float]) -> float:
    """Return the product of ``factors``, rounded to two decimals."""
    return round(math.prod(factors), 2)


# The model -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedModel:
    """Answers by the agent (system message) and the last message: a question or a tool's result."""

    latency_s: float

    def __call__(self, messages: Sequence[Message]) -> Reply:
        """Answer the conversation after the configured latency."""
        time.sleep(self.latency_s)
        name = next(name for name, text in INSTRUCTIONS.items() if text == messages[0]["content"])
        reply = _SCRIPT[name, messages[-1]["role"]]
        # About four characters a token, as a rule of thumb.
        heard = sum(len(message["content"]) for message in messages) // 4
        return replace(reply, input_tokens=heard, output_tokens=len(reply.text) // 4 + 20)


_SCRIPT: Final[Mapping[tuple[str, str], Reply]] = {
    ("planner", "user"): Reply(
        text="Plan: (1) The researcher finds how many kWh one kW of panels gives in Freiburg in a year. "
        "(2) The calculator multiplies number of panels, kW of one panel, that yield and the price of a "
        "kWh: 84 panels of 410 W, 0.31 euros. (3) The writer tells the hall's committee."
    ),
    ("researcher", "user"): Reply(
        tool_calls=(ToolCall(id="call_1", name="solar_yield", arguments={"city": "Freiburg"}),)
    ),
    ("researcher", "tool"): Reply(
        text="Figures for the calculation: 84 panels; 0.41 kW each (410 W); 905 kWh a year from one kW in "
        "Freiburg (weather service); 0.31 euros for a kWh."
    ),
    ("calculator", "user"): Reply(
        tool_calls=(ToolCall(id="call_2", name="multiply", arguments={"factors": [84, 0.41, 905, 0.31]}),)
    ),
    # The mistake: the tool returned 9662.14.
    ("calculator", "tool"): Reply(
        text="84 * 0.41 * 905 * 0.31 = 9,266.14. The panels save 9,266.14 euros a year."
    ),
    ("writer", "user"): Reply(
        text="Good news for the hall: the new solar panels will save about 9,266.14 euros on electricity "
        "every year."
    ),
}
