"""The story that every framework runs: a question to a ferry office, and the wrong answer it gets.

Imported by the run scripts in their own environments, and by the scripted server in ours: standard library
only, Python 3.11.

A passenger asks what a ferry earns. The *concierge* hands over to the *registrar*, who looks the vessel up
(the register fails once, then answers) and hands over to the *purser*, who multiplies wrongly. Frameworks
without handoffs let the concierge call the other two, or run the three one after the other.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

CONCIERGE: Final = "concierge"
REGISTRAR: Final = "registrar"
PURSER: Final = "purser"
AGENTS: Final = (CONCIERGE, REGISTRAR, PURSER)

INSTRUCTIONS: Final = {
    CONCIERGE: "You are the concierge of a ferry office. Pass every question on; never answer it yourself.",
    REGISTRAR: "You are the registrar of a ferry office. Look vessels up in the register, then pass on.",
    PURSER: "You are the purser of a ferry office. Work out the amount and answer the passenger.",
}
"""An agent's prompt must contain its line: by ``You are the <agent>`` the server recognises the caller."""
PURPOSE: Final = {
    CONCIERGE: "Receives passengers' questions.",
    REGISTRAR: "Looks vessels up in the ship register.",
    PURSER: "Works out amounts of money.",
}
"""For frameworks in which an agent is described to the others."""

MODEL: Final = "gpt-4.1-mini"
"""A model name that frameworks know; the server accepts any."""
TOOL: Final = "look_up_vessel"
TOOL_PURPOSE: Final = "Look a vessel up in the ship register: how many seats it has."
TOOLS: Final[Any] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": TOOL_PURPOSE,
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    }
]
"""The tool as OpenAI's chat API takes it."""
VESSEL: Final = "Marianne"
SECOND_VESSEL: Final = "Odile"
SEATS: Final = {VESSEL: 85, SECOND_VESSEL: 40}
MAX_TURNS: Final = 5
"""Turns (model calls) after which the variant ``max_turns`` asks the framework to stop."""

CHECK: Final = "amount_check"
"""The guardrail of ``guarded``: asks the office whether a text may pass."""

VARIANT: Final = os.environ.get("SCENARIO_VARIANT", "normal")
"""``normal``, ``sound``, ``crash``, ``parallel``, ``streaming``, ``max_turns``, ``delegating``, ``guarded``,
``misread``, ``given_up``, ``structured``, ``reported``: README."""


def question(variant: str) -> str:
    """Return the passenger's question."""
    if variant == "parallel":
        return (
            "The ferries Marianne and Odile: how many seats do they have together, and what do 12 full"
            " crossings of both take in at 7 euros a seat?"
        )
    return (
        "The ferry Marianne: how many seats does it have, and what do 12 full crossings take in at 7 euros"
        " a seat?"
    )


QUESTION: Final = question(VARIANT)


def told(variant: str) -> dict[str, object]:
    """Return the story as the programs in other languages need it."""
    return {
        "question": question(variant),
        "instructions": INSTRUCTIONS,
        "purpose": PURPOSE,
        "model": MODEL,
        "tool": TOOL,
        "toolPurpose": TOOL_PURPOSE,
        "maxTurns": MAX_TURNS,
        "agents": AGENTS,
    }


class RegisterUnavailable(Exception):  # noqa: N818 (frameworks show the name to the model; it should read well)
    """The ship register did not answer."""


def look_up_vessel(name: str) -> str:
    """Return the register's entry on a vessel; the register is the scripted server.

    Raises:
        RegisterUnavailable: the first time a run asks for the Marianne, always in ``max_turns`` and
            ``given_up``, never in ``misread`` and ``reported``; in the latter the entry says so instead.
    """
    try:
        return _post(f"tools/{TOOL}", name=name)
    except HTTPError as refusal:
        with refusal:
            raise RegisterUnavailable(refusal.read().decode()) from None


def may_pass(agent: str, text: str) -> bool:
    """Return whether the office lets an agent's input or output pass: not the wrong amount."""
    return _post(f"checks/{CHECK}", agent=agent, text=text) == "pass"


def _post(path: str, **said: str) -> str:
    base = (os.environ.get("OFFICE_URL") or os.environ["OPENAI_BASE_URL"]).removesuffix("/v1")
    request = Request(
        f"{base}/{path}", data=json.dumps(said).encode(), headers={"Content-Type": "application/json"}
    )
    with build_opener(ProxyHandler({})).open(request, timeout=30) as answer:
        found: str = answer.read().decode()
        return found
