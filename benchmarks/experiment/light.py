"""The example systems without their frameworks: the same roles and messages, as plain requests.

Saves the start of a process and the import of a framework in each trial.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from collector_processor.core.runs import Run
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order as steps_of
from semconv.model import Span, SpanId, Trace, TraceId

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "systems"))

from script import FLOWS, LOOKING_UP, Order  # type: ignore[import-not-found]  # the examples are not a package

MODEL = "gpt-4o-mini"
Exchange = tuple[str, list[dict[str, Any]], dict[str, Any]]
"""Prompt, messages, answer."""
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up_price",
        "description": "Look up whether an item is sold at its usual price.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}


@dataclass
class Said:
    """One run: its texts in order, and its spans."""

    texts: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def run(self, run_id: str, system: str) -> Run:
        """Return the run as it would be recorded."""
        root = Span(
            trace_id=TraceId(run_id),
            span_id=SpanId("00000000000000ff"),
            name=f"invoke_workflow {system}",
            start_ns=self.spans[0].start_ns - 1,
            end_ns=self.spans[-1].end_ns + 1,
            attributes={"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": system},
        )
        trace = repair(Trace(spans=(root, *self.spans), run_id=run_id))
        return Run(trace=trace, trajectory=steps_of(trace))


async def talk(
    session: aiohttp.ClientSession, system: str, order: Order, base_url: str, run_id: str = "0" * 32
) -> Said:
    """Run a system to its end.

    Raises:
        aiohttp.ClientError: a request was refused.
    """
    said = Said()
    shared: list[dict[str, Any]] = [{"role": "user", "content": order.text}]
    for role in FLOWS[system]:
        if system == "pipeline":
            asked = [{"role": "user", "content": "\n".join([order.text, *said.texts])}]
        else:
            asked = list(shared)
        prompt = f"You are the {role}."
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "system", "content": prompt}, *asked]}
        if role == LOOKING_UP:
            body["tools"] = [_TOOL]
        began = time.time_ns()
        async with session.post(
            f"{base_url}/chat/completions", json=body, headers={"Authorization": "Bearer none"}
        ) as answer:
            answer.raise_for_status()
            message = (await answer.json())["choices"][0]["message"]
        said.spans.append(_span(run_id, len(said.spans), role, (prompt, asked, message), began))
        said.texts.append(message["content"] or "")
        shared.append(message)
        for call in message.get("tool_calls") or ():
            item = json.loads(call["function"]["arguments"])["item"]
            result = f"{item}: sold at the usual price"
            shared.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return said


def _span(run_id: str, number: int, role: str, exchange: Exchange, began: int) -> Span:
    prompt, asked, message = exchange
    return Span(
        trace_id=TraceId(run_id),
        span_id=SpanId(f"{number + 1:016x}"),
        parent_id=SpanId("00000000000000ff"),
        name=f"chat {MODEL}",
        start_ns=began,
        end_ns=max(time.time_ns(), began + 1),
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.name": role,
            "gen_ai.request.model": MODEL,
            "gen_ai.response.model": MODEL,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": prompt}]),
            "gen_ai.input.messages": json.dumps([_message(each) for each in asked]),
            "gen_ai.output.messages": json.dumps([{**_message(message), "finish_reason": "stop"}]),
        },
    )


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the conventions' JSON."""
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = []
    if message.get("content"):
        parts.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = json.loads(function["arguments"])
        parts.append(
            {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments}
        )
    return {"role": message["role"], "parts": parts}
