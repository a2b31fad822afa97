"""The records every part of blamespan speaks: spans, steps, verdicts.

All are frozen (``record``) and hold tuples, so that a stage can hand them on without
copying. Times are integer nanoseconds since the epoch (a float loses hundreds
of them); ids are lower-case hex. Nothing here knows protobuf, clocks or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NewType, TypeAlias

from semconv.record import record

TraceId = NewType("TraceId", str)
SpanId = NewType("SpanId", str)

AttributeValue: TypeAlias = (
    "str | bool | int | float | bytes | tuple[AttributeValue, ...] | Mapping[str, AttributeValue] | None"
)
Attributes: TypeAlias = Mapping[str, AttributeValue]


class SpanStatus(StrEnum):
    """OTLP ``Status.code``."""

    UNSET = "unset"
    OK = "ok"
    ERROR = "error"


@record
class Resource:
    """What emitted the span (OTLP ``Resource``)."""

    attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""


@record
class Scope:
    """Which instrumentation emitted the span (OTLP ``InstrumentationScope``)."""

    name: str = ""
    version: str = ""
    attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""


@record
class Event:
    """A span event, or a log record that was joined to its span."""

    name: str
    time_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    body: AttributeValue = None
    """Only log records have one; ``None`` on span events."""


@record
class Link:
    """A reference to another span, perhaps of another trace."""

    trace_id: TraceId
    span_id: SpanId
    attributes: Attributes = field(default_factory=dict)


@record
class Span:
    """One OTLP span with its resource and scope beside it."""

    trace_id: TraceId
    span_id: SpanId
    parent_id: SpanId | None = None
    name: str = ""
    kind: int = 0
    """OTLP ``Span.SpanKind`` as its number."""
    start_ns: int = 0
    end_ns: int = 0
    status: SpanStatus = SpanStatus.UNSET
    status_message: str = ""
    attributes: Attributes = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    logs: tuple[Event, ...] = ()
    """Log records that carry this span's id, in time order; empty until joined."""
    scope: Scope = field(default_factory=Scope)
    resource: Resource = field(default_factory=Resource)
    trace_state: str = ""
    flags: int = 0
    dropped_attributes: int = 0


@record
class LogRecord:
    """One OTLP log record; ``event.name`` is its event name, if it has one."""

    trace_id: TraceId | None
    span_id: SpanId | None
    event: Event
    severity: int = 0
    """OTLP's severity number, 1 to 24; 0 says nothing."""
    scope: Scope = field(default_factory=Scope)
    resource: Resource = field(default_factory=Resource)


class Completion(StrEnum):
    """Why the spans of a trace were released for analysis."""

    ROOT_ENDED = "root_ended"
    """The run's top span ended and the grace period was quiet."""
    IDLE = "idle"
    """A candidate top span ended, and nothing more came for the idle period."""
    IDLE_OPEN = "idle_open"
    """Idle while no top span has ended: good for a provisional verdict at most."""
    MAX_AGE = "max_age"
    SPAN_LIMIT = "span_limit"
    BYTE_LIMIT = "byte_limit"
    EVICTED = "evicted"
    DRAINED = "drained"
    RECORDED = "recorded"
    """Read whole from a file."""


@record
class Trace:
    """The spans of one run (usually one trace id; more where traces were joined)."""

    spans: tuple[Span, ...]
    completion: Completion = Completion.RECORDED
    warnings: tuple[str, ...] = ()
    tenant: str = ""
    complete: bool = True
    """False when parents are missing: part of the run was lost on the way."""
    run_id: str = ""
    """Set where one trace id holds several runs; else the run is known by its (first) trace id."""


class StepKind(StrEnum):
    """What a step was."""

    LLM = "llm"
    TOOL = "tool"
    HANDOFF = "handoff"
    AGENT = "agent"
    HUMAN = "human"
    OTHER = "other"


class AgentSource(StrEnum):
    """Where a step's agent name was found."""

    SPAN = "span"
    ANCESTOR = "ancestor"
    METADATA = "metadata"
    SPAN_NAME = "span_name"
    HANDOFF = "handoff"
    UNKNOWN = "unknown"


class ContentState(StrEnum):
    """Whether a step's texts are what the agent saw and said."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    DROPPED = "dropped"
    REDACTED = "redacted"
    ABSENT = "absent"


class Outcome(StrEnum):
    """Whether the run did its task."""

    SUCCESS = "success"
    FAILURE = "failure"


class OutcomeSource(StrEnum):
    """Who says whether the run did its task."""

    REFERENCE = "reference"
    EVALUATOR = "evaluator"
    USER = "user"
    ERROR = "error"
    HEURISTIC = "heuristic"


UNKNOWN_AGENT = "unknown"


@record
class Step:
    """One action of one agent."""

    index: int
    """0-based position in the trajectory."""
    agent: str
    kind: StepKind
    agent_source: AgentSource = AgentSource.SPAN
    trace_id: TraceId | None = None
    span_id: SpanId | None = None
    name: str = ""
    """The span's name; for a tool step the tool's name stands in ``target``."""
    start_ns: int = 0
    end_ns: int = 0
    status: SpanStatus = SpanStatus.UNSET
    error: str = ""
    """What went wrong in words, if the span says so (status message, exception, error type)."""
    input: str = ""
    """What is new to this step; history repeated from earlier calls is left out."""
    output: str = ""
    target: str | None = None
    """The tool called, or the agent handed over to."""
    group: int | None = None
    """Number of the set of steps that overlap in time, if any; no causality inside."""
    content: ContentState = ContentState.COMPLETE
    instructions: str = ""
    """The agent's system instructions, where the span carries them."""
    tools: str = ""
    """The tools the agent could call, one a line, where the span carries them."""
    causes: tuple[int, ...] = ()
    """Earlier steps the spans tie this one to: what encloses it, links to it, or asked for it."""


@record
class Trajectory:
    """The ordered steps of one attempt at one task."""

    run_id: str
    steps: tuple[Step, ...]
    task: str = ""
    output: str = ""
    """The run's final answer, as far as it is known."""
    reference: str | None = None
    """The right answer, where somebody knows it."""
    outcome: Outcome | None = None
    """As stated by the run itself or an evaluator in it; triage decides the rest."""
    outcome_source: OutcomeSource | None = None
    complete: bool = True
    """False when context was lost (orphans, unjoined traces, cut short)."""
    agents: tuple[str, ...] = ()
    """In order of first appearance."""
    dialects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    root_trace_id: TraceId | None = None
    root_span_id: SpanId | None = None
    root_status: SpanStatus = SpanStatus.UNSET
    root_error: str = ""
    """What ended the run in error. May be there although the root says OK: an agent or the last
    step below it failed, and nothing came after."""
    is_recorded_conversation: bool = False
    """A conversation log rather than a trace: a failure by definition."""


@record
class Evidence:
    """A verbatim quote from a step."""

    step: int
    quote: str


@record
class Ranked:
    """One candidate; probabilities of a ranking sum to at most 1."""

    step: int
    agent: str
    probability: float


@record
class Blame:
    """The decisive error: the earliest mistake whose correction would have saved the run."""

    agent: str
    step: int
    reason: str
    confidence: float
    """Probability in 0..1 that ``step`` is the decisive one."""
    fix: str = ""
    mode: str = ""
    """Failure mode, low cardinality (``wrong_computation``, ``unhandled_error``, …)."""
    evidence: tuple[Evidence, ...] = ()
    ranking: tuple[Ranked, ...] = ()
    """Best first; the first is the blamed step."""


class Status(StrEnum):
    """How an attribution ended."""

    ATTRIBUTED = "attributed"
    NO_FAILURE = "no_failure"
    UNDETERMINED = "undetermined"
    """We looked and cannot tell."""
    ERROR = "error"
    """We could not analyse."""


@record
class Abstention:
    """No blame, and why. A result, never an exception and never a guess."""

    status: Status
    reason: str
    ranking: tuple[Ranked, ...] = ()


Verdict: TypeAlias = Blame | Abstention


@record
class Effort:
    """What an attribution cost."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """``None`` when the model's price is not known."""
    duration_s: float = 0.0


@record
class Attribution:
    """A verdict with how it was come by."""

    run_id: str
    verdict: Verdict
    method: str
    model: str | None = None
    fallback: str | None = None
    """The method that answered in place of the one asked for, and why; ``None`` if it answered itself."""
    truncated: bool = False
    coverage: float = 1.0
    """Share of the trajectory's text that the method saw, 0..1."""
    effort: Effort = field(default_factory=Effort)
    error: str | None = None

    @property
    def status(self) -> Status:
        """The verdict's status; ``attributed`` for a blame."""
        return Status.ATTRIBUTED if isinstance(self.verdict, Blame) else self.verdict.status
