"""The scripted model: its reply depends on the request, never on earlier ones. Pure.

The agent is read from the prompt, and the next action from the offered tools and the results so far. So a
framework's additional calls (a planner, a summary, a retry) get an answer too, and handoffs, delegation and a
plain chain of agents give the same story.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.frameworks.kit.story import (
    AGENTS,
    CONCIERGE,
    PURSER,
    REGISTRAR,
    SEATS,
    SECOND_VESSEL,
    TOOL,
    VESSEL,
    question,
)
from tests.frameworks.model_request import Asked, Call, Tool

NOBODY: Final = ""
"""The agent of a call that none of the three makes."""
UNAVAILABLE: Final = "the ship register is not answering"
WRONG_ANSWER: Final = "6,840"
"""Occurs in the final answer of the variants that end in it, and nowhere else."""
RIGHT_ANSWER: Final = "7,140"
"""85 seats x 12 crossings x 7 euros; in ``parallel`` 10,500."""
WRONG_TOTAL: Final = "6840"
"""The same wrong answer as ``structured`` writes it: a number in JSON."""
MISREAD: Final = 580
"""What the registrar makes of the register's 850 seats in ``misread``; the purser multiplies it rightly."""
GIVING_UP: Final = "I could not find out how many seats the Marianne has: the ship register is not answering."
"""What the registrar answers in ``given_up``, and every agent after it."""
PATIENCE: Final = 12
"""Failed look-ups after which the registrar gives up, so that every framework ends."""

_SPEAKER: Final = re.compile(rf"\byou are (?:the |an? )?({'|'.join(AGENTS)})\b", re.IGNORECASE)
_ANSWERING_TOOLS: Final = ("final_answer", "final_result")
"""Tools that some frameworks make the model call instead of answering."""
_NAMING_AN_AGENT: Final = re.compile(r"agent|coworker|member|recipient|target|assignee|worker", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The model's reply: a text, or tool calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    target: str | None = None
    """The agent that a call reaches, if any."""


class Broken(Exception):  # noqa: N818 (it is an answer of the script)
    """The model must fail now."""


def speaker(asked: Asked) -> str:
    """Return which of the three agents is calling; ``NOBODY`` for a framework's own call."""
    instructions = [message.text for message in asked.messages if message.role == "system"]
    for text in (*instructions, *(message.text for message in reversed(asked.messages))):
        if found := _SPEAKER.search(text):
            return found[1].lower()
    return NOBODY


def is_look_up(tool: str) -> bool:
    """Return whether a tool of this name asks the register."""
    return bare(tool) == TOOL


def bare(tool: str) -> str:
    """Return a tool's name without that of its MCP server (``register__``) or plugin (``Register-``)."""
    return re.split("__|-", tool)[-1]


def reply(asked: Asked, variant: str) -> Reply:
    """Return the model's reply.

    Raises:
        Broken: the request is to fail with HTTP 500.
    """
    who = speaker(asked)
    if who == CONCIERGE:
        return _concierge(asked, question(variant))
    if who == REGISTRAR:
        return _registrar(asked, variant)
    if who == PURSER:
        if variant == "crash":
            raise Broken
        return _says(asked, purser_answer(variant))
    return _says(asked, "Noted.")


def purser_answer(variant: str) -> str:
    """Return the run's final answer."""
    if variant == "given_up":
        return GIVING_UP
    seats = sum(SEATS.values()) if variant == "parallel" else SEATS[VESSEL]
    amount = RIGHT_ANSWER if variant in {"sound", "reported"} else WRONG_ANSWER
    if variant == "misread":
        seats, amount = MISREAD, f"{MISREAD * 12 * 7:,}"
    if variant == "structured":
        figures = {"vessel": VESSEL, "seats": seats, "crossings": 12, "price": 7, "total": int(WRONG_TOTAL)}
        return json.dumps(figures)
    working = f"{seats} x 12 x 7 = {amount}"
    return f"With {seats} seats, 12 full crossings at 7 euros a seat take in {working} euros."


def _concierge(asked: Asked, task: str) -> Reply:
    if found := re.search(rf"With \d+ seats.* euros\.|{GIVING_UP}", asked.conversation):
        return _says(asked, found[0])
    if WRONG_TOTAL in asked.conversation:
        return _says(asked, purser_answer("structured"))
    if "seats." not in asked.conversation:  # nobody has looked it up
        return _reaches(asked, REGISTRAR, task) or _says(asked, "The registrar should look this up.")
    words = f"{task} {_finding(asked)}"
    return _reaches(asked, PURSER, words) or _says(asked, "The purser should answer this.")


def _registrar(asked: Asked, variant: str) -> Reply:
    vessels = (VESSEL, SECOND_VESSEL) if variant == "parallel" else (VESSEL,)
    found = {vessel: any(f"{vessel} has" in text for text in _looked_up(asked)) for vessel in vessels}
    failed = sum(UNAVAILABLE in text for text in _looked_up(asked))
    tools = [tool.name for tool in asked.tools if is_look_up(tool.name)]
    if variant == "given_up" and (failed or any(is_look_up(call.name) for call in asked.calls)):
        return _says(asked, GIVING_UP)
    if tools and not all(found.values()) and failed < PATIENCE:
        missing = [vessel for vessel in vessels if not found[vessel]]
        return Reply(
            calls=tuple(Call(name=tools[0], arguments=json.dumps({"name": vessel})) for vessel in missing)
        )
    finding = " ".join(f"The {vessel} has {SEATS[vessel]} seats." for vessel in vessels)
    if variant == "misread":
        finding = f"The {VESSEL} has {MISREAD} seats."
    words = f"{question(variant)} {finding}"
    passed_on = _reaches(asked, PURSER, words)
    if passed_on and variant == "misread":  # said aloud, for a handoff may take no arguments
        return replace(passed_on, text=finding)
    return passed_on or _says(asked, f"The register says: {finding}")


def _finding(asked: Asked) -> str:
    """Return the sentences on vessels in the conversation, each once."""
    found = re.findall(r"The \w+ has \d+ seats\.", asked.conversation)
    return " ".join(dict.fromkeys(found))


def _looked_up(asked: Asked) -> list[str]:
    """Return the results of look-ups; in a history given as plain text, each of its lines."""
    results = [result for call in asked.calls if is_look_up(call.name) and (result := asked.result_of(call))]
    return results or asked.conversation.splitlines()


def _says(asked: Asked, text: str) -> Reply:
    for tool in asked.tools:
        if tool.name in _ANSWERING_TOOLS:
            return Reply(calls=(Call(name=tool.name, arguments=json.dumps(_filled(tool, NOBODY, text))),))
    return Reply(text=text)


def _reaches(asked: Asked, agent: str, words: str) -> Reply | None:
    """Return a call that hands over to, or asks, the agent; ``None`` if no tool does, or it was made."""
    for tool in _reaching(asked.tools, agent):
        arguments = _filled(tool, agent, words)
        if not any(_same(call, tool, agent) for call in asked.calls):
            call = Call(name=tool.name, arguments=json.dumps(arguments))
            return Reply(calls=(call,), target=agent)
    return None


def _same(call: Call, tool: Tool, agent: str) -> bool:
    return call.name == tool.name and (agent in call.name.lower() or agent in call.arguments.lower())


def _reaching(tools: Sequence[Tool], agent: str) -> Iterator[Tool]:
    """Return tools named after the agent first, then those that take an agent's name."""
    others = [other for other in AGENTS if other != agent]
    yield from (tool for tool in tools if agent in tool.name.lower())
    for tool in tools:
        names = [name for name in _properties(tool) if _NAMING_AN_AGENT.search(name)]
        if not is_look_up(tool.name) and names and not any(other in tool.name.lower() for other in others):
            yield tool


def _properties(tool: Tool) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tool.schema.get("properties") or {}
    return found


def _filled(tool: Tool, agent: str, words: str) -> dict[str, Any]:
    """Return arguments for the tool's schema: the agent's name where one is expected, else the words."""
    required = tool.schema.get("required") or list(_properties(tool))
    naming = [name for name in _properties(tool) if agent and _NAMING_AN_AGENT.search(name)]
    names = dict.fromkeys([*required, *naming])
    return {name: _value(name, _properties(tool).get(name) or {}, agent, words) for name in names}


def _value(name: str, schema: Mapping[str, Any], agent: str, words: str) -> Any:
    choices = [choice for choice in schema.get("enum") or () if agent and agent in str(choice).lower()]
    if choices or len(schema.get("enum") or ()) == 1:
        return (choices or schema["enum"])[0]
    if schema.get("type") == "array":
        return _entries(name, schema, agent, words)
    if agent and _NAMING_AN_AGENT.search(name):
        return agent
    if any(choice.get("type") == "null" for choice in schema.get("anyOf") or ()):
        return None  # strict schemas demand what is optional
    return {"boolean": False, "integer": 0, "number": 0, "object": {}}.get(str(schema.get("type")), words)


def _entries(name: str, schema: Mapping[str, Any], agent: str, words: str) -> list[Any]:
    """Return the agent's name in a list of names, one entry where the schema demands it, else none."""
    entry = schema.get("items") or {}
    if agent and _NAMING_AN_AGENT.search(name):
        return [agent]
    if not schema.get("minItems"):
        return []
    fields = entry.get("properties") or {}
    return [{each: _value(each, inner, "", words) for each, inner in fields.items()} if fields else words]
