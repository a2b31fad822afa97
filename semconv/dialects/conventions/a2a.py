"""Spans of the Agent2Agent protocol (A2A): a client's call of a remote agent, and a server's work on it.

Both have the remote agent's name. A client's span is the only sign of that agent where the server sends no
spans; below an ``invoke_agent`` span for the same agent it is that call's transport. A task fails while its
requests succeed: only ``a2a.task.state`` says so, on the request that learns of it, which may be a later poll
in a trace of its own. Source: open-telemetry/semantic-conventions-genai, ``docs/gen-ai/a2a.md`` and
``model/a2a`` (2026, in *Development*); a2a-python's own spans have none of these attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.reading.action import Action, ActionKind, Surroundings
from semconv.dialects.reading.values import error_of, is_failed, text
from semconv.model import Span

METHOD: Final = "a2a.method.name"
TASK_ID: Final = "a2a.task.id"
TASK_STATE: Final = "a2a.task.state"
_SENDING: Final = frozenset(
    {"SendMessage", "SendStreamingMessage", "message/send", "message/stream", "tasks/send"}
    | {"tasks/sendSubscribe"}
)
"""Methods that set an agent to work, in the protocol's version 1.0, 0.3 and 0.1; the others look after it."""
_STATE: Final = "TASK_STATE_"
_LOST: Final = frozenset({"failed", "rejected"})
_SERVER: Final = 2
"""Span kind."""
_INVOKES: Final = "invoke_agent"


def read_a2a(span: Span, surroundings: Surroundings, dialect: str) -> Action | None:
    """Read a span of the protocol; ``None`` for any other."""
    method = text(span.attributes, METHOD)
    if method is None:
        return None
    agent = text(span.attributes, GEN_AI_AGENT_NAME)
    state = (text(span.attributes, TASK_STATE) or "").removeprefix(_STATE).casefold()
    error = error_of(span) if is_failed(span) else f"A2A task {state}" if state in _LOST else ""
    is_sent = method in _SENDING
    if (
        (is_sent or state in _LOST)
        and agent is not None
        and (error or not _delivers(span, agent, surroundings))
    ):
        return Action(dialect=dialect, kind=ActionKind.AGENT, agent=agent, failed=bool(error), error=error)
    if error and span.kind != _SERVER:  # a call that its caller makes, as of a tool
        return Action(dialect=dialect, kind=ActionKind.TOOL, tool=method, failed=True, error=error)
    return Action(dialect=dialect, kind=ActionKind.CONTAINER)


def _delivers(span: Span, agent: str, surroundings: Surroundings) -> bool:
    """Say whether a span only transports a call that the agent's framework records around it."""
    return any(
        text(above.attributes, GEN_AI_OPERATION_NAME) == _INVOKES
        and text(above.attributes, GEN_AI_AGENT_NAME) == agent
        for above in surroundings.ancestors(span)
    )


def task_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the ids of the tasks: a client that polls later, or elsewhere, has a trace of its own."""
    for span in spans:
        task = text(span.attributes, TASK_ID)
        if task is not None:
            yield f"a2a:{task}"
