"""A run as a list of messages and calls, with its facts marked so that a fault can change one of them.

In texts, ``⟦9,600 W⟧`` marks a figure that a tool returned, perhaps rounded or converted, and ``⟦=230⟧`` one
that the agent computed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.renderings.play import Act, Asked, ModelCall, Play, ToolUse, Transfer, Turn

FACT: Final = re.compile(r"⟦(=?)([^⟧]*)⟧")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    agent: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    agent: str
    tool: str
    arguments: dict[str, Any]
    result: str = ""
    error: str = ""
    is_key: bool = False
    """Whether the answer depends on its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    agent: str
    target: str


Event = Said | Called | Handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A demand of the task that the answer meets, and a way to break it."""

    words: str
    broken: Callable[[str], str]


@dataclass(slots=True, kw_only=True)
class Story:
    """A good run; its last event is the final answer."""

    kind: str
    task: str
    events: list[Event] = field(default_factory=list)
    constraint: Constraint | None = None

    def say(self, agent: str, text: str) -> Story:
        self.events.append(Said(agent=agent, text=text))
        return self

    def call(
        self, agent: str, tool: str, arguments: dict[str, Any], result: Any, *, is_key: bool = False
    ) -> Story:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        self.events.append(Called(agent=agent, tool=tool, arguments=arguments, result=text, is_key=is_key))
        return self

    def fail(self, agent: str, tool: str, arguments: dict[str, Any], error: str) -> Story:
        self.events.append(Called(agent=agent, tool=tool, arguments=arguments, error=error))
        return self

    def hand(self, agent: str, target: str) -> Story:
        self.events.append(Handed(agent=agent, target=target))
        return self


def plain(text: str) -> str:
    """Return a text without its marks."""
    return FACT.sub(lambda found: found[2], text)


def as_play(story: Story) -> Play:
    """Return the run as played by the renderings: one turn for consecutive events of an agent."""
    turns: list[Turn] = []
    acts: list[Act] = []
    agent = story.events[0].agent
    for number, event in enumerate(story.events):
        if event.agent != agent:
            turns.append(_turn(agent, acts))
            agent, acts = event.agent, []
        match event:
            case Said():
                acts.append(ModelCall(text=plain(event.text)))
            case Called():
                asked = Asked(
                    tool=event.tool,
                    arguments=json.dumps(event.arguments, ensure_ascii=False),
                    call_id=f"call_{number}",
                )
                acts += [
                    ModelCall(asks=(asked,)),
                    ToolUse(asked=asked, result=event.result, error=event.error),
                ]
            case Handed():
                asked = Asked(tool=f"transfer_to_{event.target}", arguments="{}", call_id=f"call_{number}")
                acts += [ModelCall(asks=(asked,)), Transfer(asked=asked, target=event.target)]
    turns.append(_turn(agent, acts))
    return Play(name="run", task=story.task, stages=tuple(turns))


def _turn(agent: str, acts: list[Act]) -> Turn:
    return Turn(agent=agent, instructions=f"You are {agent}. Be brief.", acts=tuple(acts))
