"""A run of agents as a pure description, in no framework's terms.

A run is a sequence of stages: one agent's turn, or several in parallel. In a turn an agent calls its model,
which requests tools, asks another agent, or hands over. Spans, times and conversations are added by
``staging``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that a model requests."""

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
    """An agent used like a tool: control returns with its last words."""

    asked: Asked
    brief: str
    turn: Turn

    @property
    def result(self) -> str:
        """What the caller receives; for a failed turn, the error."""
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
        """The error that ended the turn: a last call without an answer."""
        last = self.acts[-1]
        return last.error if isinstance(last, ModelCall) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Several agents in parallel, each with its own task."""

    turns: tuple[Turn, ...]
    briefs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A whole run."""

    name: str
    task: str
    stages: tuple[Turn | SideBySide, ...]
    reference: str = ""
    """The right answer; empty if unknown."""

    @property
    def crash(self) -> str:
        """The error that ended the run, if any."""
        last = self.stages[-1]
        return last.error if isinstance(last, Turn) else ""

    @property
    def answer(self) -> str:
        last = self.stages[-1]
        return last.last_words if isinstance(last, Turn) else "\n".join(t.last_words for t in last.turns)
