"""Action and surroundings: what a dialect reads from one span, and the run that the span is part of.

An action is framework-neutral and not yet a step. ``collector_processor.trajectory`` decides, once for all
dialects, which actions are steps, in which order, and by which agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from semconv.model import AgentSource, Outcome, OutcomeSource, Span, SpanId, Stop, ToolCall, TraceId
from semconv.record import record

Key: TypeAlias = tuple[TraceId, SpanId]
T = TypeVar("T")


key_of: Final[Callable[[Span], Key]] = attrgetter("trace_id", "span_id")
"""Returns a span's key within a run."""

moment: Final[Callable[[Span], tuple[int, int, str, str]]] = attrgetter(
    "start_ns", "end_ns", "trace_id", "span_id"
)
"""Returns a sort key: start, end, then ids, so that ties never depend on arrival order."""


class Surroundings:
    """The spans of one run as a forest.

    Expects the output of ``collector_processor.rebuild.repair``: ids are unique and parents form no cycle.
    A span whose parent is missing is a root.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = {key_of(span): span for span in spans}
        self._children: dict[Key, list[Span]] = {}
        self._roots: list[Span] = []
        self._linking: dict[Key, list[Span]] = {}
        self._read: dict[tuple[Callable[[Span], Any], Key], Any] = {}
        self._read_of_run: dict[Callable[[Surroundings], Any], Any] = {}
        for span in sorted(self._spans.values(), key=moment):
            for link in span.links:
                self._linking.setdefault((link.trace_id, link.span_id), []).append(span)
            parent = None if span.parent_id is None else (span.trace_id, span.parent_id)
            if parent is None or parent not in self._spans:
                self._roots.append(span)
            else:
                self._children.setdefault(parent, []).append(span)

    @property
    def roots(self) -> Sequence[Span]:
        """The root spans, earliest first."""
        return self._roots

    def __len__(self) -> int:
        return len(self._spans)

    def parent(self, span: Span) -> Span | None:
        """Return the parent, or ``None`` for a root."""
        if span.parent_id is None:
            return None
        return self._spans.get((span.trace_id, span.parent_id))

    def ancestors(self, span: Span) -> Iterator[Span]:
        """Yield parent, grandparent and so on up to the root."""
        above = self.parent(span)
        while above is not None:
            yield above
            above = self.parent(above)

    def once(self, read: Callable[[Span], T], span: Span) -> T:
        """Return ``read(span)``, computed once and cached for all spans below."""
        key = (read, key_of(span))
        if key not in self._read:
            self._read[key] = read(span)
        found: T = self._read[key]
        return found

    def once_a_run(self, read: Callable[[Surroundings], T]) -> T:
        """Return ``read(self)``, computed once and cached for the whole run."""
        if read not in self._read_of_run:
            self._read_of_run[read] = read(self)
        found: T = self._read_of_run[read]
        return found

    def children(self, span: Span) -> Sequence[Span]:
        """Return the children, earliest first."""
        return self._children.get(key_of(span), ())

    def linking(self, span: Span) -> Sequence[Span]:
        """Return the spans that link to ``span``, earliest first."""
        return self._linking.get(key_of(span), ())

    @property
    def walked(self) -> Sequence[Span]:
        """Every span once, parents before children, earlier siblings first."""
        return self._walk[0]

    @property
    def parents(self) -> Sequence[int]:
        """The position of each span's parent in ``walked``; -1 for a root."""
        return self._walk[1]

    @cached_property
    def _walk(self) -> tuple[list[Span], list[int]]:
        walked: list[Span] = []
        parents: list[int] = []
        stack = [(root, -1) for root in reversed(self._roots)]
        while stack:
            span, parent = stack.pop()
            below = self._children.get(key_of(span))
            if below is not None:
                position = len(walked)
                stack.extend([(child, position) for child in reversed(below)])
            walked.append(span)
            parents.append(parent)
        return walked, parents


class ActionKind(StrEnum):
    """Kind of action that a span represents."""

    LLM = "llm"
    TOOL = "tool"
    HANDOFF = "handoff"
    HUMAN = "human"
    OTHER = "other"
    """A leaf that is a step of no other kind (a re-ranking)."""
    GUARDRAIL = "guardrail"
    """A check on an agent's input or output; a step of kind ``other``, only if it failed."""
    AGENT = "agent"
    """One agent's run. Encloses its steps; a step itself only if no span below shows what the agent did."""
    WORKFLOW = "workflow"
    """The whole run, or a team's whole run."""
    CONTAINER = "container"
    """A turn, a cycle, a graph's node: groups steps, never a step itself."""
    EVALUATION = "evaluation"
    """An evaluator's judgement of the run."""
    SETUP = "setup"
    """Setup of agents before the run."""


FUNCTION_KINDS: Final = frozenset({ActionKind.CONTAINER, ActionKind.WORKFLOW})
"""Kinds of spans that may trace a user's function."""


@record
class Message:
    """One message to or from a model; all content as text."""

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    """The speaker's name, if the framework gives it (langchain puts the agent's name here)."""
    answers: tuple[str, ...] = ()
    """Ids of the tool calls that this message answers."""
    results: str = ""
    """Results of tools that stand beside an agent's own words and calls (Vercel's whole run in one message);
    those of a message that only answers calls are its text."""


@record
class Judgement:
    """A person's or a program's evaluation. ``guardrails`` says where it is recorded."""

    name: str
    outcome: Outcome | None
    """``None`` if label and score do not clearly say passed or failed."""
    is_of_run: bool = False
    """True if it is about the trace or the session, whichever span carries it."""
    is_by_person: bool = False


@record
class Action:
    """The facts of one span. Missing values stay empty; nothing is guessed."""

    dialect: str
    kind: ActionKind
    agent: str | None = None
    agent_source: AgentSource = AgentSource.SPAN
    caller: str | None = None
    """The agent that invokes this one, if the span of the invocation says so."""
    pseudo_agent: bool = False
    """True if the name belongs to the framework (a group chat's manager), not to one of the user's agents."""
    input: str = ""
    """Arguments, prompt or task as text; for an LLM call only if ``input_messages`` is empty."""
    output: str = ""
    """Result or answer as text; for an LLM call only if ``output_messages`` is empty."""
    input_messages: tuple[Message, ...] = ()
    """The input messages of an LLM call, including system messages and repeated history."""
    output_messages: tuple[Message, ...] = ()
    instructions: str = ""
    tool: str | None = None
    call_id: str = ""
    target: str | None = None
    """The agent that a handoff goes to or a tool call delegates to."""
    failed: bool = False
    """True if the span reports a failure, by its status or in its dialect's own way."""
    error: str = ""
    stop: Stop | None = None
    """Set once all spans are known if the action ended early on purpose; it has then not failed."""
    is_unended: bool = False
    """True if only its beginning was sent: it failed, unless the run is still going on."""
    task: str = ""
    """The request to the run or to this agent; on agents and workflows."""
    answer: str = ""
    reference: str | None = None
    outcome: Outcome | None = None
    outcome_source: OutcomeSource | None = None
    judgements: tuple[Judgement, ...] = ()
    is_delivery: bool = False
    """True for a tool call's transport span (MCP): another span may show the same call."""
    function: str = ""
    """Name of the user's function that the span traces; it may name the agent if nothing else does."""
    is_named_by_tool: bool = False
    """True if an agent's only name is that of the tool that runs it."""
    has_calls_beside: bool = False
    """True if the agent's calls may be siblings of its span, related by time only."""
    redacted: bool = False
    """True if the emitter deliberately hid content."""

    @property
    def requested(self) -> tuple[ToolCall, ...]:
        """The tool calls that the model requested, in order."""
        if len(self.output_messages) == 1:  # the usual case
            return self.output_messages[0].calls
        return (
            tuple([call for message in self.output_messages for call in message.calls])
            if self.output_messages
            else ()
        )


Read: TypeAlias = Callable[[Span, Surroundings], Action | None]
RunKeys: TypeAlias = Callable[[Sequence[Span]], Iterable[str]]
"""Returns the framework's own ids of the run that a trace belongs to, from its spans; traces that share one
are one run. Each begins with a word and a colon; any length, and whatever the sender wrote. Never raises."""


@record
class Dialect:
    """One way of writing spans, and its reader."""

    name: str
    read: Read
    """Returns ``None`` for a span of another dialect. Never raises, whatever the content."""
    scopes: tuple[str, ...] = ()
    """Prefixes of the scope names of its spans."""
    keys: frozenset[str] = frozenset()
    """Attributes of its spans. Spans need such a scope or attribute, unless the dialect declares neither."""
    run_keys: RunKeys | None = None
    """``None`` if the framework has no ids of runs."""
    message_scopes: tuple[str, ...] = ()
    """Prefixes of scopes whose spans link to the sender of their message: without it, a run is incomplete."""
