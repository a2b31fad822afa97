"""Records shared by all of blamespan: spans, steps, verdicts.

All are frozen (``record``) and hold tuples, so that stages pass them on without copying. Times are integer
nanoseconds since the epoch (a float loses hundreds of them); ids are lower-case hex. No dependency on
protobuf, clocks or language models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final, NewType, TypeAlias

from semconv.record import record, replace

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
    """The entity that emitted the span (OTLP ``Resource``)."""

    attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""


@record
class Scope:
    """The instrumentation that emitted the span (OTLP ``InstrumentationScope``)."""

    name: str = ""
    version: str = ""
    attributes: Attributes = field(default_factory=dict)
    schema_url: str = ""


@record
class Event:
    """A span event, or a log record joined to its span."""

    name: str
    time_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    body: AttributeValue = None
    """Only on log records; ``None`` on span events."""


@record
class Link:
    """A reference to another span, possibly in another trace."""

    trace_id: TraceId
    span_id: SpanId
    attributes: Attributes = field(default_factory=dict)


@record
class Span:
    """One OTLP span with its resource and scope."""

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
    """One OTLP log record; ``event.name`` is its event name, empty if it has none."""

    trace_id: TraceId | None
    span_id: SpanId | None
    event: Event
    severity: int = 0
    """OTLP's severity number, 1 to 24; 0 if unset."""
    scope: Scope = field(default_factory=Scope)
    resource: Resource = field(default_factory=Resource)


class Completion(StrEnum):
    """The reason why the spans of a trace were released for analysis."""

    ROOT_ENDED = "root_ended"
    """The run's top span ended and the grace period was quiet."""
    IDLE = "idle"
    """A candidate top span ended, and no spans came for the idle period."""
    IDLE_OPEN = "idle_open"
    """Idle, but no top span has ended; allows only a provisional verdict."""
    MAX_AGE = "max_age"
    SPAN_LIMIT = "span_limit"
    BYTE_LIMIT = "byte_limit"
    EVICTED = "evicted"
    RECORDED = "recorded"
    """Read complete from a file."""


@record
class Trace:
    """The spans of one run: usually one trace id, several where traces were joined."""

    spans: tuple[Span, ...]
    completion: Completion = Completion.RECORDED
    warnings: tuple[str, ...] = ()
    tenant: str = ""
    complete: bool = True
    """False if parents are missing: part of the run was lost in transit."""
    run_id: str = ""
    """Set if one trace id holds several runs; otherwise the (first) trace id identifies the run."""


class StepKind(StrEnum):
    """The kind of a step."""

    LLM = "llm"
    TOOL = "tool"
    HANDOFF = "handoff"
    AGENT = "agent"
    HUMAN = "human"
    OTHER = "other"


class AgentSource(StrEnum):
    """Source of a step's agent name."""

    SPAN = "span"
    ANCESTOR = "ancestor"
    METADATA = "metadata"
    SPAN_NAME = "span_name"
    HANDOFF = "handoff"
    UNKNOWN = "unknown"


class ContentState(StrEnum):
    """Whether a step's texts are what the agent received and produced."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    DROPPED = "dropped"
    REDACTED = "redacted"
    ABSENT = "absent"


class Outcome(StrEnum):
    """Whether the run accomplished its task."""

    SUCCESS = "success"
    FAILURE = "failure"


class OutcomeSource(StrEnum):
    """The source of the outcome."""

    REFERENCE = "reference"
    EVALUATOR = "evaluator"
    USER = "user"
    ERROR = "error"
    HEURISTIC = "heuristic"


class Stop(StrEnum):
    """Why a step or a run ended early although nothing failed; its error text only says so in other words."""

    WAITING = "waiting"
    """It waits for a person, or for a result that its caller has to bring."""
    CANCELLED = "cancelled"
    """Its caller cancelled it, set a deadline for the whole run, or stopped listening."""
    HANDED_OVER = "handed_over"
    """A transfer to another agent, which the framework raises as an exception."""
    GUARDED = "guarded"
    """A guardrail of the application stopped it, as it is there to do."""


UNKNOWN_AGENT = "unknown"
_COMMON_NOUNS = frozenset({"agent", "assistant", "ai", "llm", "model", "bot"})


def agent_label(agent: str) -> str:
    """Return an agent's name for a list, a table or a heading, where ``unknown`` is not a name."""
    return "unnamed agent" if agent == UNKNOWN_AGENT else agent


def agent_in_prose(agent: str) -> str:
    """Return an agent's name for a sentence, where ``unknown`` and ``agent`` do not count as names."""
    if agent == UNKNOWN_AGENT:
        return f"an {agent_label(agent)}"
    if agent.casefold() not in _COMMON_NOUNS:
        return agent
    return f"the {agent if agent.isupper() else agent.lower()}"


@record
class ToolCall:
    """A tool call requested by a model."""

    name: str
    arguments: str = ""
    call_id: str = ""


@record
class Heard:
    """One message in a step's text, most often its input; the message's text is ``input[start:end]``."""

    role: str
    """``user``, ``assistant``, ``tool`` or another word of the dialect, in lower case."""
    start: int
    end: int
    author: str = ""
    """The speaker's or the tool's name, if the framework gives it."""
    answers: tuple[str, ...] = ()
    """Ids of the tool calls that the message answers."""


@record
class Step:
    """One action of one agent."""

    index: int
    """Position in the trajectory, from 0."""
    agent: str
    kind: StepKind
    agent_source: AgentSource = AgentSource.SPAN
    trace_id: TraceId | None = None
    span_id: SpanId | None = None
    name: str = ""
    """The span's name; a tool's name is in ``target``."""
    start_ns: int = 0
    end_ns: int = 0
    status: SpanStatus = SpanStatus.UNSET
    error: str = ""
    """The error's text, from the status message, the exception or the error type."""
    input: str = ""
    """The input that is new to this step, without history repeated from earlier calls."""
    heard: tuple[Heard, ...] = ()
    """The messages in ``input``, in order; empty if it is not made of messages."""
    output: str = ""
    """What the agent wrote, each requested call as a line of its own; for a tool, its result."""
    said: tuple[Heard, ...] = ()
    """Messages of ``output``, in order, if it holds results of tools too: some calls hold a whole loop."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls that the model requested, in order."""
    call_id: str = ""
    """Id of the requested call that a tool or a handoff executes, if recorded."""
    target: str | None = None
    """The tool called, or the agent that takes over."""
    group: int | None = None
    """Number of the set of steps that overlap in time, if any; no causal order within it."""
    content: ContentState = ContentState.COMPLETE
    instructions: str = ""
    """The agent's system instructions, if recorded."""
    tools: str = ""
    """The agent's available tools, one per line, if recorded."""
    causes: tuple[int, ...] = ()
    """Earlier steps linked to this one by the spans: enclosing it, linking to it, or requesting it."""
    failed_evaluations: tuple[str, ...] = ()
    """Names of the evaluations, by people or programs, that this step failed."""
    stop: Stop | None = None
    """Set if the step ended early on purpose; ``error`` is then no failure."""
    is_whole_turn: bool = False
    """Whether it is all that is recorded of an agent's turn: which calls it made is not known."""

    @property
    def is_failed(self) -> bool:
        """Whether the step reports an error that is a failure."""
        return self.stop is None and (self.status is SpanStatus.ERROR or bool(self.error))


def marks_of(messages: Sequence[Heard]) -> tuple[int, ...]:
    """Return the places at which messages begin and end in their text, ascending."""
    return tuple([mark for message in messages for mark in (message.start, message.end)])


def at_marks(messages: Sequence[Heard], marks: Sequence[int]) -> tuple[Heard, ...]:
    """Return messages at other places: begin and end of each, as in ``marks_of``."""
    pairs = zip(messages, marks[::2], marks[1::2], strict=True)
    return tuple([replace(one, start=start, end=end) for one, start, end in pairs])


@record
class Trajectory:
    """The ordered steps of one attempt at one task."""

    run_id: str
    steps: tuple[Step, ...]
    task: str = ""
    output: str = ""
    """The run's final answer, if known."""
    reference: str | None = None
    """The right answer, if known."""
    outcome: Outcome | None = None
    """Outcome stated by the run or by an evaluator in it; triage decides the rest."""
    outcome_source: OutcomeSource | None = None
    complete: bool = True
    """False if context was lost (orphans, unjoined traces, a run cut short)."""
    agents: tuple[str, ...] = ()
    """Agents in order of first appearance."""
    dialects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    root_trace_id: TraceId | None = None
    root_span_id: SpanId | None = None
    root_status: SpanStatus = SpanStatus.UNSET
    root_error: str = ""
    """The error that ended the run.

    Present even if the root says OK, if an agent or the last step below it failed and no step followed. If
    ``failed_turn`` is set, the error ended only that turn.
    """
    stop: Stop | None = None
    """Set if the run ended early on purpose and did not go on; ``root_error`` is then no failure."""
    failed_turn: tuple[int, int] | None = None
    """First and last step of a turn that failed and was not retried with success, while the run went on."""
    is_recorded_conversation: bool = False
    """True for a conversation log instead of a trace: a failure by definition."""


@record
class Evidence:
    """A verbatim quote from a step."""

    step: int
    quote: str


@record
class Ranked:
    """One candidate. The probabilities of a ranking sum to at most 1."""

    step: int
    agent: str
    probability: float


class Status(StrEnum):
    """The status of an attribution."""

    ATTRIBUTED = "attributed"
    SUSPECTED = "suspected"
    """The run reported no failure, but evidence in it, such as a wrong figure, says that it failed."""
    NO_FAILURE = "no_failure"
    UNDETERMINED = "undetermined"
    """Analysed, but no step could be blamed."""
    WAITING = "waiting"
    """The run waits for a person or for a result from outside; it may be resumed."""
    CANCELLED = "cancelled"
    """The run's caller cancelled it or stopped listening."""
    UNREADABLE = "unreadable"
    """The run's steps could not be read."""
    ERROR = "error"
    """The analysis failed."""


def certainty_of(confidence: float, failed_probability: float | None) -> float:
    """Return the probability that thresholds, filters and orders compare, for verdicts and for suspicions.

    That the run failed, if in doubt: a suspicion's confidence is only the share that falls on one step, and a
    suspicion spread over three steps is no less sure. Else that the step is right.
    """
    return confidence if failed_probability is None else failed_probability


UNFINISHED: Final = frozenset({Status.WAITING, Status.CANCELLED})
"""Statuses of runs that ended early on purpose: neither passed nor failed, so they count as neither."""
BLAMELESS: Final = frozenset({Status.NO_FAILURE, *UNFINISHED})
"""Statuses of runs that have not failed."""


@record
class StepSet:
    """Steps that hold the decisive one with a stated coverage, as labelled runs of the same system show."""

    steps: tuple[int, ...]
    """Indices, ascending; the blamed step is among them."""
    coverage: float
    """The coverage that the set was made for, 0..1."""
    observed: float
    """Share of the labelled runs whose decisive step was in a set made without them."""
    interval: tuple[float, float]
    """The 95 % interval of ``observed``."""
    n: int
    """Number of those labelled runs."""


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
    status: Status = Status.ATTRIBUTED
    """``SUSPECTED`` if only the evidence says that the run failed."""
    failed_probability: float | None = None
    """Probability in 0..1 that the run failed; ``None`` unless ``SUSPECTED``.

    ``confidence`` is then a share of it: the probability that the run failed, and at ``step``.
    """
    step_set: StepSet | None = None
    """``None`` without enough labelled runs of the system."""

    @property
    def certainty(self) -> float:
        """The probability that thresholds compare: that the run failed, if in doubt; else of the step."""
        return certainty_of(self.confidence, self.failed_probability)


@record
class Abstention:
    """A verdict without blame, and its reason: a result, never an exception or a guess."""

    status: Status
    reason: str
    ranking: tuple[Ranked, ...] = ()


Verdict: TypeAlias = Blame | Abstention


@record
class Effort:
    """The cost of an attribution."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """``None`` if the model's price is unknown."""
    duration_s: float = 0.0


class ProofDecision(StrEnum):
    """Decision of an experiment on a step."""

    PROVED = "proved"
    """The run succeeds more often with another answer of this step: it is the decisive error."""
    REFUTED = "refuted"
    """Another answer of this step does not help."""


@record
class Proof:
    """An experiment's finding about one step, made by running the workflow again."""

    decision: ProofDecision
    step: int
    span_id: SpanId | None
    effect: float
    """Rise of the rate of success with the change, -1 to 1."""
    interval: tuple[float, float]
    """The interval of ``effect``, at the level of the walk."""
    trials: int
    """Number of valid trials in both arms."""
    change: str
    """Kind of change to the step's answer (``resample``, ``text``, …)."""


class Origin(StrEnum):
    """Where a value came from."""

    GIVEN = "given"
    """From the task, a person or the instructions."""
    RETURNED = "returned"
    """From the result of a tool."""
    DERIVED = "derived"
    """From known values, by arithmetic, conversion or rounding."""
    NOWHERE = "nowhere"
    """From nothing that the run shows."""


class Change(StrEnum):
    """What a step did with a value."""

    SAID = "said"
    """It was the first to have it."""
    REPEATED = "repeated"
    CHANGED = "changed"
    """It wrote another value in its place."""


@record
class Passed:
    """A step on the way of a value."""

    step: int
    value: str
    """As the step wrote it."""
    change: Change


@record
class ValueOrigin:
    """A value of the answer or of the decisive step, with its origin and its way."""

    value: str
    """As the answer has it."""
    origin: Origin
    step: int | None = None
    """The step that returned it, or said it first; ``None`` if it was given before the first step."""
    path: str = ""
    """Its place in a result that is JSON, such as ``flights[2].price``."""
    formula: str = ""
    """How it follows from known values, if it was derived: ``2 x 210``."""
    chain: tuple[Passed, ...] = ()


@record
class Pooled:
    """The two opinions behind a verdict that pools a model's with that of signals or a ranker."""

    step: int
    """The step that the model named."""
    agent: str
    own_step: int
    """The most probable step without the model."""
    own_agent: str
    weight: float
    """Exponent of the model's opinion in the pool, 0 to 1."""
    accuracy: float
    """How often the model was believed to name the right step."""
    right: float
    """Of ``labelled``, those in which the model had named the decisive step."""
    labelled: float
    """Earlier verdicts of the model that labels or proofs decided; a proof counts half."""


@record
class Attribution:
    """A verdict with its method, its cost and its basis."""

    run_id: str
    verdict: Verdict
    method: str
    model: str | None = None
    fallback: str | None = None
    """The method that answered instead of the requested one, and why; ``None`` if there was no fallback."""
    truncated: bool = False
    coverage: float = 1.0
    """Share of the trajectory's text that the method saw, 0 to 1."""
    effort: Effort = field(default_factory=Effort)
    error: str | None = None
    proof: Proof | None = None
    """The experiment behind the verdict; ``None`` for an opinion."""
    checked: tuple[str, ...] = ()
    """Sentences on what was checked and what could not be; empty for a blame."""
    lineage: tuple[ValueOrigin, ...] = ()
    """Values of the answer and of the decisive step, in their order; empty if the run shows no result."""
    rules: str = ""
    """Version of the rules that judged the run; empty for a person's or an experiment's verdict."""
    pooled: Pooled | None = None
    """What the model and the own method said before they were pooled; ``None`` without a pool."""
    stated: float | None = None
    """The confidence before labels of verdicts with the same kind of evidence corrected it, if they did."""

    @property
    def status(self) -> Status:
        """The verdict's status."""
        return self.verdict.status
