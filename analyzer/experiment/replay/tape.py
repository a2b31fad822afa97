"""Tape of a recorded run: its model calls and tool results in recorded order. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from semconv.dialects.reading.action import Message
from semconv.model import SpanId, ToolCall, TraceId
from semconv.record import record


@record
class Answer:
    """A model's answer, without the wire format of any provider."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    error: str = ""
    """The reason why the call failed; text and calls are then empty."""
    error_status: int = 500
    model: str = ""
    """The model that answered; if it was not recorded, the requested model's name is served."""
    input_tokens: int = 0
    output_tokens: int = 0
    vectors: tuple[tuple[float, ...], ...] = ()
    """Embeddings, one for each input text; only in answers to such a call."""


class CallKind(StrEnum):
    """Kinds of model calls."""

    CHAT = "chat"
    """An answer to messages, through any API: traces seldom show which, and the gateway speaks all."""
    EMBEDDINGS = "embeddings"


@record
class RecordedCall:
    """One model call of the recorded run."""

    index: int
    """Its place in ``Tape.calls``."""
    trace_id: TraceId
    span_id: SpanId
    agent: str
    messages: tuple[Message, ...]
    """All messages sent, system messages first."""
    answer: Answer
    kind: CallKind = CallKind.CHAT
    step: int | None = None
    """Index of its step in the trajectory; ``None`` for calls that are not steps."""
    has_system: bool = True
    """False if its span holds no system message; requests are then compared without theirs."""
    has_calls: bool = True
    """False if its span holds results of tools without their calls (OpenLIT's spans of agno); as above."""
    start_ns: int = 0
    end_ns: int = 0
    group: int | None = None
    """Number of the set of steps that ran side by side, as in ``Step.group``."""


@record
class RecordedTool:
    """One execution of a tool in the recorded run."""

    index: int
    span_id: SpanId
    name: str
    arguments: str
    """JSON, as recorded."""
    result: str
    agent: str = ""
    call_id: str = ""
    """Id of the model's request for it; empty if not recorded."""
    failed: bool = False
    """The tool raised; ``result`` is then the error."""
    is_ours: bool = False
    """Recorded by ``semconv.instrument``, whose ``@tool`` asks the gateway for the result in a trial."""
    step: int | None = None
    start_ns: int = 0
    end_ns: int = 0


@record
class RemoteTools:
    """Tools outside the workflow's process: a trial's environment leads to the gateway in their place."""

    variable: str
    """The environment variable that holds the address, or the command if ``command`` is given; only a unique
    name if ``is_in_path``."""
    tools: frozenset[str]
    """The tools' names, as recorded."""
    mcp_server: str = ""
    """The MCP server's own address; empty for other tools."""
    command: tuple[str, ...] = ()
    """The command that starts the MCP server over stdio; empty for other tools."""
    is_in_path: bool = False
    """Whether the workflow starts a command that begins like ``command``, not the one in ``variable``."""

    @property
    def is_mcp(self) -> bool:
        """Whether the tools are those of an MCP server."""
        return bool(self.mcp_server or self.command)

    @property
    def place(self) -> str:
        """Name of the trial's replacement for the tools' server, for messages."""
        if self.is_in_path:
            return f"stand-in for `{' '.join(self.command)}`"
        return f"{'command' if self.command else 'address'} in {self.variable}"


class Matching(StrEnum):
    """What of a request must equal a recorded call."""

    REQUEST = "request"
    """All of its messages."""
    CONVERSATION = "conversation"
    """What the user, the agents and tools said; instructions may differ. For programs that were changed."""


@record
class Tape:
    """The answers of a recorded run's models and tools."""

    run_id: str
    calls: tuple[RecordedCall, ...]
    """Model calls by start; ties by end."""
    tools: tuple[RecordedTool, ...] = ()
    delegations: frozenset[str] = frozenset()
    """Names of functions that hand over to an agent, run one, or only carry the final answer."""
    dialects: tuple[str, ...] = ()
    matching: Matching = Matching.REQUEST

    def call_of_step(self, step: int) -> RecordedCall | None:
        """Return the model call behind this step of the trajectory."""
        return next((call for call in self.calls if call.step == step), None)

    def call_up_to(self, step: int) -> RecordedCall | None:
        """Return the model call behind this step, or the last one before it."""
        calls = [call for call in self.calls if call.step is not None and call.step <= step]
        return max(calls, key=lambda call: (call.step or 0, call.index), default=None)

    def before(self, call: int) -> Sequence[RecordedCall]:
        """Return the calls that had ended when ``call`` began: those it may depend on."""
        began = self.calls[call].start_ns
        return [each for each in self.calls if each.index != call and each.end_ns <= began]


class Obstacle(StrEnum):
    """Reasons why a run cannot be replayed; low cardinality."""

    NO_MODEL_CALLS = "no_model_calls"
    NO_CONTENT = "no_content"
    REDACTED = "redacted"
    CUT = "cut"
    ENCRYPTED_REASONING = "encrypted_reasoning"
    STORED_CONVERSATION = "stored_conversation"
    BACKGROUND = "background"
    PROVIDER_TOOL = "provider_tool"
    UNREACHABLE_PROVIDER = "unreachable_provider"
    UNDECLARED_TOOL = "undeclared_tool"


@record
class NotReplayable:
    """The obstacle to replaying a run, found before anything starts."""

    obstacle: Obstacle
    reason: str
    """A sentence that names the span or the tool."""
    mend: tuple[str, ...] = ()
    """Lines of code or settings that fix it for the next recording, as ``lint`` prints them."""
    span_id: SpanId | None = None


ReadTape: TypeAlias = Tape | NotReplayable
