"""Exceptions that steer a run instead of failing it: waits, cancellations, transfers, tripped guardrails.

Frameworks raise them to leave a step early on purpose, and instrumentations record them like any error. The
class decides, as an exception event, ``error.type`` or the beginning of an error's message states it. No
other text decides: an agent may write about ``GraphInterrupt``. A qualified name counts only in the packages
of its row, because applications have classes of the same name. A bare name counts where no package is
recorded (JavaScript, ``error.type`` of some instrumentations) and the name is not an everyday word. Names
that say it themselves count in every package: ``ToolApprovalRequired``, ``ClientDisconnected``.

A cancellation may also be how a caller enforces a call's own deadline; which it is, is decided from all spans
(``collector_processor.trajectory.endings``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from semconv.dialects.reading.action import Action, ActionKind
from semconv.dialects.reading.values import (
    ERROR_TYPE,
    EXCEPTION_EVENT,
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    items,
    mapping,
    text,
)
from semconv.model import Span, SpanStatus, Stop


class Raised(StrEnum):
    """What a span's error is, as far as the span alone says it."""

    WAIT = "wait"
    CANCELLATION = "cancellation"
    """The task was cancelled from outside; its caller may have done so to enforce a deadline."""
    ABANDONED = "abandoned"
    """The one who asked stopped listening or interrupted the program; no deadline ends in this."""
    TRANSFER = "transfer"
    GUARDRAIL = "guardrail"
    TIMEOUT = "timeout"
    """A deadline passed: an error, unless it is the deadline of the whole run."""
    GROUP = "group"
    """Several errors in one, which the span does not list."""
    ERROR = "error"


STOPS: Final[Mapping[Raised, Stop]] = {
    Raised.WAIT: Stop.WAITING,
    Raised.CANCELLATION: Stop.CANCELLED,
    Raised.ABANDONED: Stop.CANCELLED,
    Raised.TRANSFER: Stop.HANDED_OVER,
    Raised.GUARDRAIL: Stop.GUARDED,
}


class _Row(NamedTuple):
    name: str
    packages: tuple[str, ...]
    """First parts of the qualified name."""
    means: Raised
    source: str
    is_telling: bool = True
    """Whether the bare name suffices."""


_WAIT, _CANCEL, _GONE = Raised.WAIT, Raised.CANCELLATION, Raised.ABANDONED
_MOVE, _GUARD = Raised.TRANSFER, Raised.GUARDRAIL
_GRAPH: Final = ("langgraph", "@langchain/langgraph")
_OPENAI_AGENTS: Final = ("agents", "@openai/agents")
_LANGCHAIN4J: Final = ("dev.langchain4j", "io.quarkiverse.langchain4j")
_PYDANTIC_GUARDS: Final = ("pydantic_ai_guardrails",)

_TABLE: Final = (
    _Row("GraphInterrupt", _GRAPH, _WAIT, "langgraph.errors; langgraphjs errors.ts"),
    _Row("NodeInterrupt", _GRAPH, _WAIT, "langgraph.errors; langgraphjs errors.ts"),
    _Row("GraphBubbleUp", _GRAPH, _WAIT, "langgraph.errors: base class of its control flow"),
    _Row("ParentCommand", _GRAPH, _MOVE, "langgraph.errors: carries a Command to the parent graph"),
    _Row("Interrupt", ("langgraph",), _WAIT, "langgraph.types: the value of interrupt()", is_telling=False),
    _Row("Command", ("langgraph",), _MOVE, "langgraph.types", is_telling=False),
    _Row("CallDeferred", ("pydantic_ai",), _WAIT, "pydantic_ai.exceptions: a tool that runs elsewhere"),
    _Row("ApprovalRequired", ("pydantic_ai",), _WAIT, "pydantic_ai.exceptions", is_telling=False),
    _Row("HumanFeedbackPending", ("crewai",), _WAIT, "crewai.flow.async_feedback.types"),
    _Row(
        "InterruptException",
        ("strands",),
        _WAIT,
        "strands.interrupt, strands.types.interrupt",
        is_telling=False,
    ),
    _Row("ToolInterruptError", ("genkit",), _WAIT, "genkit blocks/tools: tool interrupts, Python and JS"),
    _Row("WaitingForEvent", ("workflows", "llama_index"), _WAIT, "llama-index-workflows, wait_for_event()"),
    _Row("UrlElicitationRequiredError", ("mcp",), _WAIT, "MCP 2025-11-25, code -32042"),
    _Row("URLElicitationRequiredError", ("mcp",), _WAIT, "MCP 2025-11-25, Ruby and Kotlin SDKs"),
    _Row("PausedRun", ("prefect",), _WAIT, "prefect.exceptions", is_telling=False),
    _Row("InputGuardrailTripwireTriggered", _OPENAI_AGENTS, _GUARD, "openai-agents exceptions"),
    _Row("OutputGuardrailTripwireTriggered", _OPENAI_AGENTS, _GUARD, "openai-agents exceptions"),
    _Row("ToolInputGuardrailTripwireTriggered", _OPENAI_AGENTS, _GUARD, "openai-agents exceptions"),
    _Row("ToolOutputGuardrailTripwireTriggered", _OPENAI_AGENTS, _GUARD, "openai-agents exceptions"),
    _Row("InputCheckError", ("agno",), _GUARD, "agno.exceptions", is_telling=False),
    _Row("OutputCheckError", ("agno",), _GUARD, "agno.exceptions", is_telling=False),
    _Row(
        "MiddlewareTermination", ("agent_framework",), _GUARD, "agent_framework._middleware", is_telling=False
    ),
    _Row("PIIDetectionError", ("langchain",), _GUARD, "langchain.agents.middleware, block", is_telling=False),
    _Row("OpenAIModerationError", ("langchain_openai",), _GUARD, "its middleware", is_telling=False),
    _Row("InputGuardrailException", _LANGCHAIN4J, _GUARD, "dev.langchain4j.guardrail", is_telling=False),
    _Row("OutputGuardrailException", _LANGCHAIN4J, _GUARD, "dev.langchain4j.guardrail", is_telling=False),
    _Row("InputGuardrailViolation", _PYDANTIC_GUARDS, _GUARD, "exceptions", is_telling=False),
    _Row("OutputGuardrailViolation", _PYDANTIC_GUARDS, _GUARD, "exceptions", is_telling=False),
    _Row("GuardrailTripwireTriggered", ("guardrails",), _GUARD, "openai-guardrails exceptions"),
    _Row("ValidationError", ("guardrails",), _GUARD, "Guardrails AI, on_fail: exception", is_telling=False),
    _Row("RunCancelledException", ("agno",), _GONE, "agno.exceptions: cancelled by the user"),
    _Row("WorkflowCancelledByUser", ("workflows", "llama_index"), _GONE, "llama-index-workflows errors"),
    _Row("CancelledError", ("asyncio", "concurrent", "temporalio"), _CANCEL, "Python; temporalio.exceptions"),
    _Row("Cancelled", ("trio",), _CANCEL, "trio, anyio on trio", is_telling=False),
    _Row("CancelledRun", ("prefect",), _CANCEL, "prefect.exceptions"),
    _Row("CancellationException", ("java", "kotlin", "kotlinx"), _CANCEL, "java.util.concurrent; Kotlin"),
    _Row("JobCancellationException", ("kotlinx",), _CANCEL, "kotlinx.coroutines"),
    _Row("InterruptedException", ("java",), _CANCEL, "java.lang: the thread was interrupted"),
    _Row("ClosedByInterruptException", ("java",), _CANCEL, "java.nio.channels: the same, inside a read"),
    _Row("CancellationError", ("Swift",), _CANCEL, "Swift: the task was cancelled"),
    _Row("OperationCanceledException", ("System",), _CANCEL, ".NET"),
    _Row("TaskCanceledException", ("System",), _CANCEL, ".NET; an HttpClient's timeout is told apart below"),
    _Row("AbortError", ("DOMException",), _CANCEL, "DOM, Node, Vercel AI: AbortController.abort()"),
    _Row("APIUserAbortError", ("openai", "@anthropic-ai/sdk"), _CANCEL, "OpenAI's and Anthropic's JS SDKs"),
    _Row("ResponseAborted", ("next",), _GONE, "Next.js: the browser closed the connection"),
    _Row("GeneratorExit", ("builtins",), _GONE, "Python: the consumer stopped reading"),
    _Row("KeyboardInterrupt", ("builtins",), _GONE, "Python: Ctrl-C"),
    _Row("ClientDisconnect", ("starlette",), _GONE, "starlette.requests"),
    _Row("WebSocketDisconnect", ("starlette", "fastapi"), _GONE, "starlette.websockets"),
    _Row(
        "ConnectionClosedOK", ("websockets",), _GONE, "websockets.exceptions: closed with code 1000 or 1001"
    ),
    _Row("ClientDisconnected", ("uvicorn", "gunicorn"), _GONE, "uvicorn, gunicorn"),
)
_ROWS: Final = {row.name: row for row in _TABLE}

DEFERRAL: Final = "pydantic_ai.tool.deferral.name"
"""pydantic-ai's attribute of a tool call that it put off, whatever the status of its span."""
_LISTENER_LEFT: Final = frozenset({"BrokenPipeError", "ConnectionResetError", "ClientAbortException"})
"""Errors of a server whose client has gone. On a call they are the failure of a connection."""
_GROUPS: Final = frozenset({"ExceptionGroup", "BaseExceptionGroup", "AggregateError", "AggregateException"})
_WRAPPERS: Final = frozenset(
    {"Exception", "BaseException", "Error", "ExecutionException", "CompletionException", "AggregateException"}
)
"""Classes that say nothing; the wrapped class begins the message (LangSmith, ``java.util.concurrent``)."""
_MESSAGES: Final[Mapping[str, Raised]] = {
    "This operation was aborted": _CANCEL,  # Node's fetch
    "The operation was aborted.": _CANCEL,  # DOM
    "The user aborted a request.": _CANCEL,  # DOM, Chrome
    "signal is aborted without reason": _CANCEL,  # DOM, Chrome
    "Request was aborted.": _CANCEL,  # OpenAI's and Anthropic's JS SDKs
    "The operation was canceled.": _CANCEL,  # .NET
    "context canceled": _CANCEL,  # Go
}
"""Whole messages of errors whose class JavaScript, .NET and Go leave out of the status."""
_BEGINNINGS: Final[tuple[tuple[str, Raised], ...]] = (
    ("(Interrupt(value=", _WAIT),  # the repr of GraphInterrupt's argument
    ("[Interrupt(value=", _WAIT),
    ("Interrupt(value=", _WAIT),
    ("Guardrail tripwire triggered", _GUARD),  # openai-agents sets this message on its spans
)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CONSENTS: Final = frozenset({"approval", "confirmation", "consent", "signoff"})
_OUTSTANDING: Final = frozenset(
    {"required", "requires", "needed", "needs", "pending", "requested", "awaiting", "awaited", "waiting"}
)
_PEOPLE: Final = frozenset(
    {"human", "user", "person", "manual", "operator", "reviewer", "approver", "caller"}
)
_PARTS: Final = frozenset(
    {"input", "feedback", "review", "response", "reply", "answer", "decision", "intervention"}
    | {"clarification"}
)
"""What a run asks of a person. A missing login or permission is a failure, so neither is among them."""
_HALTED: Final = frozenset({"awaiting", "awaited", "waiting", "wait", "paused", "pause", "suspended"})
_NONE: Final = frozenset({"no", "not", "non", "without", "never"})
_ACTION: Final = ({"requires", "action"}, {"action", "required"})
"""OpenAI's status of a run whose calls its caller has to answer (``requires_action``)."""
_LATE: Final = ("timeout", "timedout", "deadlineexceeded")
_ASKERS: Final = r"(?:client|user|caller|customer|operator|human)"
_WORK: Final = (
    r"(?:the )?(?:run|request|task|operation|connection|workflow|job|execution|response|turn|tool call)"
)
_LEFT: Final = re.compile(
    rf"(?:the )?{_ASKERS}(?: has| was)? ?(?:disconnect(?:ed)?|cancell?ed|abort(?:ed)?|hung up|gone|left"
    r"|closed (?:the )?(?:connection|request))"
    rf"|(?:{_WORK} )?(?:was )?(?:cancell?ed|aborted|stopped|interrupted|closed|terminated)"
    rf" by (?:the )?{_ASKERS}(?: for tool use)?",
    re.IGNORECASE,
)
"""Says that the user or client who started the run left or stopped it; a peer or a server did not."""
_CALL: Final = r"(?:the |this )?(?:permission|approval|request|tool(?: call| use)?|call|action|command)"
_DECIDERS: Final = r"(?:the )?(?:user|human|operator|reviewer|approver)"
_DENIED: Final = re.compile(
    rf"{_DECIDERS}(?: has)? (?:denied|rejected|declined|refused)(?: {_CALL})?"
    rf"|(?:{_CALL} )?(?:was |has been )?(?:denied|rejected|declined|refused) by {_DECIDERS}",
    re.IGNORECASE,
)
"""Says that a person did not allow a call, which fails nobody."""
_DENIALS: Final = frozenset({"rejected", "denied", "declined"})
_DENIED_PARTS: Final = _CONSENTS | _PEOPLE | {"tool", "call", "calls", "by", "execution"}
"""With a denial they name an exception for a call that somebody did not allow: ``ToolCallRejected``.

A permission that is denied may be that of a file.
"""
_RUNNING: Final = frozenset(
    {"task", "job", "run", "workflow", "coroutine", "future", "operation", "execution"}
)
_HALTS: Final = frozenset({"cancelled", "canceled", "cancellation", "revoked"})
"""With a word of work they name an exception by which a scheduler stops it: ``TaskRevokedError``."""
_GRPC: Final = re.compile(
    r"<\w{1,40} of RPC that terminated with:\s+status = StatusCode\.CANCELLED\b"  # grpcio
    r"|\brpc error: code = Canceled\b"  # Go
    r"|\bio\.grpc\.Status(?:Runtime)?Exception: CANCELLED\b"  # Java
    r"|\bStatus\(StatusCode=\"Cancelled\""  # .NET
    r"|^1 CANCELLED:"  # grpc-js
)
"""gRPC's code for a call that its caller cancelled; a call that took too long has another."""
_TOKIO: Final = re.compile(
    r"(?:\w{1,40}::){0,4}JoinError(?:::Cancelled)?(?:: task \d{1,20} was cancelled|\(Id\(\d{1,20}\)\))"
)
"""Rust's error for a task that was aborted; for one that panicked it has other words."""
_RUBY: Final = frozenset({("Interrupt", ""), ("Interrupt", "Interrupt")}) | {
    ("SignalException", signal) for signal in ("SIGINT", "SIGTERM", "SIGHUP")
}
"""Ruby's exceptions, with their messages, for a program that Ctrl-C or its host stopped."""
_BY_TRADER: Final = re.compile(r"(?:cancell?|abort|stop)\w* by .*customer", re.IGNORECASE)
"""People of the task, if more follows: ``cancelled by customer: order 4711 cannot be changed``."""
_GO_CANCELLED: Final = ": context canceled"
"""How Go ends an error that wraps the cancellation of its context."""
_CAUSE: Final = "\nCaused by: "
"""In Java's traceback of an error that another one caused: LangChain4j wraps a guardrail that crashed."""
_SPAN_ERROR: Final = re.compile(r"""\A\{["']message["']: ?["']""")
"""How a printed ``SpanError`` of openai-agents begins: ``{'message': '…', 'data': {…}}``."""
_INNER_TIMEOUT: Final = re.compile(r"\bTimeoutException\b|\bHttpClient\.Timeout\b")
_CLASS: Final = re.compile(r"((?:[@\w/-]{1,60}\.){0,12}[A-Za-z_]\w{2,80})(?=\(|:|\s*$|\n)")
_MEMBER: Final = re.compile(r"^[ |]{0,80}\| ((?:\w{1,60}\.){0,12}[A-Za-z_]\w{2,80})(?=:|$)", re.MULTILINE)
"""A line of a group's traceback that states a member's class; its frames are indented further."""
_MOST_TRACE: Final = 50_000
"""Characters of a group's traceback to read."""
_SIGNALLED: Final = frozenset({"130", "143"})
"""Exit codes of a program that the shell (Ctrl-C) or its host (SIGTERM) stopped."""
_MOST_SAID: Final = 1_000
"""Characters of a message to read."""
_SERVER: Final = 2
_CLIENT_CLOSED: Final = 499
"""nginx's status of a request whose client has gone."""
_GRPC_CANCELLED: Final = (1, "1", "CANCELLED")


def raised_by(span: Span, action: Action | None) -> Raised | None:
    """Return what a span's error is; ``None`` if it has none.

    An exception event decides; instrumentations that treat a wait as success still write one. Then come the
    message of the status, ``error.type`` and the dialect's own field for errors, but never a result's text.
    """
    if span.attributes.get(DEFERRAL):
        return Raised.WAIT
    if _client_has_gone(span):
        return Raised.ABANDONED
    found = _by_event(span) or _by_status(span)
    if found is None and action is not None and action.failed:
        is_result = bool(action.error) and action.error == action.output
        found = None if is_result else _by_message(action.error)
    if found is None and (span.status is SpanStatus.ERROR or (action is not None and action.failed)):
        found = Raised.ERROR
    if action is not None and action.kind is ActionKind.GUARDRAIL and found is Raised.ERROR:
        has_exception = any(event.name == EXCEPTION_EVENT for event in span.events)
        return found if has_exception else Raised.GUARDRAIL
    return found


def _by_event(span: Span) -> Raised | None:
    """Read the last exception event: an earlier one may have been handled."""
    for event in reversed(span.events):
        if event.name != EXCEPTION_EVENT:
            continue
        name = text(event.attributes, EXCEPTION_TYPE) or ""
        message = text(event.attributes, EXCEPTION_MESSAGE) or ""
        trace = text(event.attributes, "exception.stacktrace") or ""
        found = _by_class(name, message, trace) if name else _by_message(message)
        is_failed = span.status is SpanStatus.ERROR or bool(span.attributes.get(ERROR_TYPE))
        if found in STOPS or is_failed:
            return found or Raised.ERROR
    return None


def _by_status(span: Span) -> Raised | None:
    """Read the status; an error without any words leaves it to the dialect's own field for errors."""
    error_type = text(span.attributes, ERROR_TYPE)
    if span.status is not SpanStatus.ERROR and error_type is None:
        return None
    found = _by_message(span.status_message) or _by_class(error_type or "", span.status_message)
    says_nothing = not span.status_message.strip() and error_type is None
    return found or (None if says_nothing else Raised.ERROR)


def _by_class(name: str, message: str, trace: str = "") -> Raised | None:
    package, _, last = name.rpartition(".")
    if last in _GROUPS and (members := _members(trace)):
        return members.pop() if len(members) == 1 else Raised.ERROR
    if last in _GROUPS:
        return Raised.GROUP
    if last in _WRAPPERS:
        return _by_message(message)
    row = _row(package, last)
    if row is not None:
        is_late = row.means is _CANCEL and _INNER_TIMEOUT.search(f"{message[:1_000]}\n{trace[:_MOST_TRACE]}")
        if row.means is _GUARD and _CAUSE in trace[:_MOST_TRACE]:
            return Raised.ERROR
        return Raised.TIMEOUT if is_late else row.means
    return _by_words(last) or _by_sayings(name, message.strip())


def _by_sayings(name: str, message: str) -> Raised | None:
    """Read what the message of an unknown class says, whole: its caller left or stopped it."""
    is_signalled = (name == "SystemExit" and message in _SIGNALLED) or (name, message) in _RUBY
    if is_signalled or (_has_left(message) and not _BY_TRADER.search(message)):
        return _GONE
    return _cancelled(message) or _cancelled(f"{name}: {message}")


def _by_words(name: str) -> Raised | None:
    """Read a name that says what happened: somebody has to agree, the one who asked has left, time is up."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    if words[-1:] in (["error"], ["exception"]):
        words.pop()
    if any(word in name.casefold() for word in _LATE):
        return Raised.TIMEOUT
    if _asks_somebody(frozenset(words)):
        return Raised.WAIT
    if _DENIALS & {*words} and {*words} - _DENIALS and {*words} <= _DENIALS | _DENIED_PARTS:
        return _GONE
    if _HALTS & {*words} and _RUNNING & {*words} and {*words} <= _HALTS | _RUNNING:
        return _CANCEL
    return _GONE if _LEFT.fullmatch(" ".join(words)) else None


def _asks_somebody(has: frozenset[str]) -> bool:
    """Say whether a name's words say that a person's part is outstanding: ``HumanInputRequired``."""
    if has & _NONE:
        return False
    asked = has & _CONSENTS or (has & _PEOPLE and has & _PARTS)
    halted = has & _HALTED and has & (_PEOPLE | _CONSENTS)
    return bool((asked and has & _OUTSTANDING) or halted or has in _ACTION or {"human", "interrupt"} <= has)


def _row(package: str, name: str) -> _Row | None:
    row = _ROWS.get(name)
    if row is None:
        return None
    if not package:
        return row if row.is_telling else None
    return row if package.startswith(row.packages) else None


def _by_message(message: str) -> Raised | None:
    """Read an error's message that is, or begins with, what only such an error says."""
    head = _SPAN_ERROR.sub("", message[:_MOST_SAID].strip(), count=1)
    for beginning, means in _BEGINNINGS:
        if head.startswith(beginning):
            return means
    said, _, rest = head.partition(":")
    is_of_work = bool(rest) and _cancelled(rest.strip()) is None and _BY_TRADER.search(said)
    if not is_of_work and _has_left(said):
        return _GONE
    if found := _cancelled(head):
        return found
    stated = _CLASS.match(head)
    if stated is None or stated[1] in _WRAPPERS:
        return None
    return _by_class(stated[1], head)


def _cancelled(message: str) -> Raised | None:
    """Read the message of a cancellation, whole or as Go, gRPC and tokio wrap it."""
    is_wrapped = message.endswith(_GO_CANCELLED) or _GRPC.search(message[:_MOST_SAID])
    is_wrapped = is_wrapped or _TOKIO.fullmatch(message[:_MOST_SAID])
    return _MESSAGES.get(message) or (_CANCEL if is_wrapped else None)


def _has_left(message: str) -> bool:
    said = message.strip(" .![]") if len(message) <= _MOST_SAID else ""
    return _LEFT.fullmatch(said) is not None or _DENIED.fullmatch(said) is not None


def _members(trace: str) -> set[Raised]:
    """Return what the members of a Python exception group are, from its traceback."""
    names = (line[1] for line in _MEMBER.finditer(trace[:_MOST_TRACE]))
    return {_by_class(name, "") or Raised.ERROR for name in names if name.rpartition(".")[2] not in _GROUPS}


def _client_has_gone(span: Span) -> bool:
    """Say whether a server's span ended because its client cancelled the request or closed the connection."""
    if span.kind != _SERVER:
        return False
    said = span.attributes
    codes = (said.get("http.response.status_code"), said.get("http.status_code"))
    grpc = (said.get("rpc.grpc.status_code"), said.get("rpc.response.status_code"))
    classes = {_last(text(event.attributes, EXCEPTION_TYPE)) for event in span.events} | {
        _last(text(said, ERROR_TYPE))
    }
    return (
        any(str(code) == str(_CLIENT_CLOSED) for code in codes)
        or any(code in _GRPC_CANCELLED for code in grpc)
        or not _LISTENER_LEFT.isdisjoint(classes)
    )


def _last(name: str | None) -> str:
    return (name or "").rpartition(".")[2]


_INTERRUPTS: Final = "__interrupt__"
"""Field of a LangGraph run's result that lists its interrupts."""
_DEFERRED: Final = ("calls", "approvals")
"""The fields of pydantic-ai's ``DeferredToolRequests``, the result of a run that waits."""
_STATES: Final = (
    ("status", "requires_action", "required_action"),  # OpenAI's Assistants API
    ("status", "suspended", "steps"),  # Mastra's workflows
    ("status", "paused", "run_id"),  # agno
    ("stop_reason", "interrupt", "interrupts"),  # Strands
    ("finishReason", "interrupted", "message"),  # Genkit
)
"""A field and its value in the result of a run that waits, with another field of the same result: the value
alone may be the user's (a subscription that is paused).
"""
_ADK_CONFIRMATION: Final = "This tool call requires confirmation, please approve or reject."
"""ADK's own result of a call of a tool with ``require_confirmation`` (``google.adk.tools.function_tool``)."""


def is_pending(span: Span, action: Action) -> bool:
    """Say whether an agent's or a workflow's own result says that it waits for a person or a caller.

    Only such spans are asked: a model or a tool may say anything. ADK's tools are the exception: the
    framework answers in place of the tool, in fixed words, whichever instrumentation records them.
    """
    if action.kind is ActionKind.TOOL:
        return _ADK_CONFIRMATION in (action.error, mapping(action.output).get("error"))
    if action.kind not in _RUNS:
        return False
    return any(_lists_requests(result) for result in _results(span, action))


_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW, ActionKind.CONTAINER})
_RESULTS: Final = (
    "output.value", "traceloop.entity.output", "gen_ai.task.output", "langfuse.observation.output",
    "mlflow.spanOutputs", "final_result",
)  # fmt: skip
"""Attributes with a whole result; dialects keep only the answer in it."""


def _results(span: Span, action: Action) -> Iterator[Mapping[str, Any]]:
    for said in (action.answer, action.output, *map(span.attributes.get, _RESULTS)):
        if not isinstance(said, str) or said.lstrip().startswith("{"):
            result = mapping(said)
            yield from (result, mapping(result.get("output")), mapping(result.get("outputs")))


def _lists_requests(result: Mapping[str, Any]) -> bool:
    if result.get(_INTERRUPTS):
        return True
    if set(_DEFERRED) <= set(result) <= {*_DEFERRED, "metadata", "context"}:
        return any(bool(items(result[name])) for name in _DEFERRED)
    return any(
        str(result.get(field, "")).casefold() == value and beside in result
        for field, value, beside in _STATES
    )
