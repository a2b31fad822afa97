"""What a dialect answers: one span in our words, whatever its framework wrote.

An action is not yet a step. Which actions are steps, in which order and by
whom, is decided once for all dialects by ``collector_processor.trajectory.order``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from semconv.dialects.support import Support
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Outcome, OutcomeSource, Span
from semconv.record import record


class ActionKind(StrEnum):
    """What a span stands for."""

    LLM = "llm"
    TOOL = "tool"
    HANDOFF = "handoff"
    HUMAN = "human"
    OTHER = "other"
    """A leaf worth a step of its own that is none of the above (a re-ranking)."""
    GUARDRAIL = "guardrail"
    """A check on what an agent hears or says; a step, of kind ``other``, only where it failed."""
    AGENT = "agent"
    """One agent's run. Encloses its steps; a step only where nothing below shows what it did."""
    WORKFLOW = "workflow"
    """The run as a whole, or the team's."""
    CONTAINER = "container"
    """A turn, a cycle, a graph's node: groups steps, never one itself."""
    EVALUATION = "evaluation"
    """A judgement on the run, made beside it."""
    SETUP = "setup"
    """Building agents before the run."""


@record
class ToolCall:
    """A tool that a model asked for."""

    name: str
    arguments: str = ""
    call_id: str = ""


@record
class Message:
    """One message to or from a model, all content as text."""

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    """Who speaks, where the framework says so (langchain names the agent here)."""
    answers: tuple[str, ...] = ()
    """Ids of the calls whose results it brings."""


@record
class Judgement:
    """An evaluator's result. Source: event ``gen_ai.evaluation.result``, OpenInference EVALUATOR spans."""

    name: str
    outcome: Outcome | None
    """``None`` where label and score do not say plainly whether it passed."""


@record
class Action:
    """What one span says. Absent stays absent: nothing here is guessed."""

    dialect: str
    kind: ActionKind
    agent: str | None = None
    agent_source: AgentSource = AgentSource.SPAN
    pseudo_agent: bool = False
    """The name is the framework's own bookkeeping (a group chat's manager), no agent of the user's."""
    input: str = ""
    """Arguments, prompt or task in words; of an LLM call only where ``heard`` is empty."""
    output: str = ""
    """Result or answer in words; of an LLM call only where ``said`` is empty."""
    heard: tuple[Message, ...] = ()
    """The messages an LLM call was given, system messages included, repeated history too."""
    said: tuple[Message, ...] = ()
    instructions: str = ""
    tool: str | None = None
    call_id: str = ""
    target: str | None = None
    """The agent a handoff goes to, or a tool call delegates to."""
    failed: bool = False
    """The span says it failed, in its status or in any other of its dialect's ways."""
    error: str = ""
    task: str = ""
    """What the run (or this agent) was asked; on agents and workflows."""
    answer: str = ""
    reference: str | None = None
    outcome: Outcome | None = None
    outcome_source: OutcomeSource | None = None
    judgements: tuple[Judgement, ...] = ()
    is_delivery: bool = False
    """The tool call as it goes over the wire (MCP): another span may show the same call."""
    has_calls_beside: bool = False
    """An agent whose calls may stand beside its span, inside it in time only."""
    redacted: bool = False
    """The emitter hid content on purpose."""

    @property
    def requested(self) -> tuple[ToolCall, ...]:
        """The tool calls the model asked for, in its order."""
        if len(self.said) == 1:  # as nearly always
            return self.said[0].calls
        return tuple([call for message in self.said for call in message.calls]) if self.said else ()


Read: TypeAlias = Callable[[Span, Surroundings], Action | None]


@record
class Dialect:
    """A way in which frameworks write spans."""

    name: str
    read: Read
    """Returns ``None`` for a span that is not of this dialect. Never raises on odd content."""
    support: tuple[Support, ...] = ()
    """What frameworks tell in it, one entry a framework and instrumentation."""
