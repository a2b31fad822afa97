"""A run of agents as a pure description: what happened, in no framework's words.

A run is a sequence of stages: one agent's turn, or several side by side. In a turn an agent calls
its model; the model asks for tools, for another agent's help, or hands over. Nothing here knows
spans, times or conversations (``staging`` adds these).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that a model asks for."""

    tool: str
    arguments: str
    """JSON."""
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    text: str = ""
    asks: tuple[Asked, ...] = ()
    error: str = ""
    """Why there was no answer; then there is neither text nor call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    asked: Asked
    result: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """An agent used like a tool: control comes back with its last words."""

    asked: Asked
    brief: str
    turn: Turn

    @property
    def result(self) -> str:
        """What the caller gets; of a turn that failed, that it did."""
        return self.turn.last_words or f"agent failed: {self.turn.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Tools and delegations that run at the same time."""

    acts: tuple[ToolUse | Delegation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Control passes to another agent, whose turn is the next stage."""

    asked: Asked
    target: str


Act: TypeAlias = ModelCall | ToolUse | Delegation | Together | Transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    agent: str
    instructions: str
    acts: tuple[Act, ...]

    @property
    def last_words(self) -> str:
        last = self.acts[-1]
        return last.text if isinstance(last, ModelCall) else ""

    @property
    def error(self) -> str:
        """What ended the turn in error: a last call without an answer."""
        last = self.acts[-1]
        return last.error if isinstance(last, ModelCall) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Several agents at the same time, each with a brief of its own."""

    turns: tuple[Turn, ...]
    briefs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A whole run."""

    name: str
    task: str
    stages: tuple[Turn | SideBySide, ...]
    reference: str = ""
    """The right answer; empty if nobody knows it."""

    @property
    def crash(self) -> str:
        """The error that ended the run, if one did."""
        last = self.stages[-1]
        return last.error if isinstance(last, Turn) else ""

    @property
    def answer(self) -> str:
        last = self.stages[-1]
        return last.last_words if isinstance(last, Turn) else "\n".join(t.last_words for t in last.turns)
