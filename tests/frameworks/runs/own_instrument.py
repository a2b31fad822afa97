"""No framework: a plain loop over OpenAI's chat API, instrumented by hand with ``semconv.instrument``."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from story import (
    AGENTS,
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    VARIANT,
    RegisterUnavailable,
    look_up_vessel,
)
from telemetry import traces

from semconv.instrument import agent, carry, handoff, llm, run, tool

Message = dict[str, Any]

REACHES = {CONCIERGE: REGISTRAR, REGISTRAR: PURSER}
TURNS = MAX_TURNS if VARIANT == "max_turns" else 12


class TooManyTurnsError(Exception):
    """The agents did not finish."""


def main() -> None:
    with traces(), run("ferry-office", task=QUESTION) as attempt:
        answer = answer_passenger()
        attempt.output(answer)
        print(answer)


def answer_passenger() -> str:
    who: str = CONCIERGE
    said: list[Message] = [{"role": "user", "content": QUESTION}]
    left = TURNS
    while True:
        with agent(who, message=QUESTION, instructions=INSTRUCTIONS[who]) as turn:
            while True:
                left -= 1
                if left < 0:
                    raise TooManyTurnsError(f"no answer after {TURNS} turns")
                reply = ask(who, said)
                said.append(reply)
                calls = reply.get("tool_calls") or []
                if not calls:
                    turn.output(reply["content"])
                    return str(reply["content"])
                target = next((name for name in AGENTS if name in calls[0]["function"]["name"]), None)
                if target is not None:
                    break
                said += use(calls)
        handoff(target, source=who, message=QUESTION).record()
        said.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": f"{target} takes over"})
        who = target


def ask(who: str, said: list[Message]) -> Message:
    messages = [{"role": "system", "content": INSTRUCTIONS[who]}, *said]
    tools = [{"type": "function", "function": described} for described in tools_of(who)]
    body = json.dumps({"model": MODEL, "messages": messages, **({"tools": tools} if tools else {})}).encode()
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with llm(MODEL, messages=messages) as call:
        request = Request(url, data=body, headers={"Content-Type": "application/json"})
        with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
            message: Message = json.load(answer)["choices"][0]["message"]
        call.output(message)
        return message


def tools_of(who: str) -> list[Message]:
    name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    look_up = [{"name": TOOL, "parameters": name}] if who == REGISTRAR else []
    return look_up + ([{"name": f"transfer_to_{REACHES[who]}", "parameters": {}}] if who in REACHES else [])


def use(calls: list[Message]) -> list[Message]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(carry(use_one), calls))


def use_one(call: Message) -> Message:
    arguments = json.loads(call["function"]["arguments"])
    try:
        with tool(TOOL, arguments=arguments, call_id=call["id"], kind="function") as running:
            found = look_up_vessel(**arguments)
            running.result(found)
    except RegisterUnavailable as error:
        found = f"error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": found}


main()
