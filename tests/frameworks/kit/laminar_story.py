"""The story with OpenAI's client in functions that Laminar observes: the first asks the other two."""

from __future__ import annotations

import json
from collections.abc import Callable

from lmnr import observe
from openai import OpenAI
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    RegisterUnavailable,
    look_up_vessel,
)

client = OpenAI(max_retries=0)
look_up = observe(name=TOOL, span_type="TOOL")(look_up_vessel)


def tool(name: str, purpose: str, argument: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": purpose, "parameters": schema}}


def converse(who: str, task: str, tools: dict[str, tuple[dict[str, object], Callable[..., str]]]) -> str:
    messages: list = [{"role": "system", "content": INSTRUCTIONS[who]}, {"role": "user", "content": task}]
    more = {"tools": [told for told, _ in tools.values()]} if tools else {}
    while True:
        reply = client.chat.completions.create(model=MODEL, messages=messages, **more).choices[0].message
        if not reply.tool_calls:
            return str(reply.content)
        messages.append(reply.model_dump(exclude_none=True))
        for call in reply.tool_calls:
            try:
                found = tools[call.function.name][1](**json.loads(call.function.arguments))
            except RegisterUnavailable as refusal:
                found = f"Error: {refusal}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


@observe()
def purser(task: str) -> str:
    return converse(PURSER, task, {})


@observe()
def registrar(task: str) -> str:
    return converse(REGISTRAR, task, {TOOL: (tool(TOOL, TOOL_PURPOSE, "name"), look_up)})


@observe()
def concierge(question: str) -> str:
    asking = {
        "ask_registrar": (tool("ask_registrar", PURPOSE[REGISTRAR], "task"), registrar),
        "ask_purser": (tool("ask_purser", PURPOSE[PURSER], "task"), purser),
    }
    return converse(CONCIERGE, question, asking)


def answer() -> str:
    """Return what the concierge answers."""
    return concierge(QUESTION)
