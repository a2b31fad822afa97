"""LiteLLM with its own callback: three agents inside a program's own spans, to which it adds its calls."""

from __future__ import annotations

import json
import os
from typing import Any

import litellm
from opentelemetry.trace import Tracer
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOLS,
    RegisterUnavailable,
    look_up_vessel,
)
from telemetry import traces


def ask(tracer: Tracer, who: str, question: str, **more: Any) -> str:
    messages: list[Any] = [
        {"role": "system", "content": INSTRUCTIONS[who]},
        {"role": "user", "content": question},
    ]
    with tracer.start_as_current_span(who):
        while True:
            reply = litellm.completion(
                model=f"openai/{MODEL}",
                api_base=os.environ["OPENAI_BASE_URL"],
                api_key="dummy",
                num_retries=0,
                messages=messages,
                **more,
            )
            said = reply.choices[0].message
            if not said.tool_calls:
                return str(said.content)
            messages += [said.model_dump(), *map(answer, said.tool_calls)]


def answer(call: Any) -> dict[str, str]:
    try:
        found = look_up_vessel(**json.loads(call.function.arguments))
    except RegisterUnavailable as error:
        found = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": found}


with traces() as provider:
    litellm.callbacks = ["otel"]
    tracer = provider.get_tracer("ferry-office")
    try:
        with tracer.start_as_current_span("office"):
            ask(tracer, CONCIERGE, QUESTION)
            found = ask(tracer, REGISTRAR, QUESTION, tools=TOOLS)
            print(ask(tracer, PURSER, f"{QUESTION} {found}"))
    finally:
        # The callback writes on a thread of its own.
        litellm.utils.executor.shutdown(wait=True)
