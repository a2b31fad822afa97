"""LiteLLM's own callback (``litellm.callbacks = ["otel"]``), in the library and its proxy.

Source: litellm 1.106 (``integrations/opentelemetry.py``), seen in a program of three agents. A call is a
span ``raw_gen_ai_request`` with the provider's request and response as Python ``repr``. Around it is either
a ``litellm_request`` (``USE_OTEL_LITELLM_REQUEST_SPAN=true``, or no enclosing span), or the caller's own
span, whose attributes each call overwrites: they describe the last call, not the caller. A failed call has
no raw span, so the overwritten span stands for it. What the caller of the proxy sends as ``metadata`` is in
``metadata.requester_metadata`` (JSON or ``repr``), where an ``agent`` and a ``session_id`` are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_NAME, GEN_AI_OPERATION_NAME
from semconv.dialects.conventions.otel_genai import read_operation, read_otel_genai
from semconv.dialects.conventions.traceloop import ENTITY_NAME, SPAN_KIND, read_traceloop
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.observations import (
    Observation,
    action_of,
    input_messages_in,
    output_messages_in,
)
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.values import mapping, text
from semconv.model import Span
from semconv.record import replace

NAME: Final = "litellm"

SCOPE: Final = "litellm"
CALL_ID: Final = "litellm.call_id"
REQUESTER: Final = "metadata.requester_metadata"

_RAW: Final = "raw_gen_ai_request"
_FUNCTIONS: Final = frozenset({"acompletion", "completion", "aresponses", "atext_completion"})
_PREFIX: Final = "llm."
"""Prefix of the provider and a field's name: ``llm.openai.messages``."""
_ASKED: Final = frozenset(
    {"messages", "input", "contents", "system", "system_instruction", "instructions", "prompt"}
    | {"tools", "model", "extra_body"}
)
"""Request fields that responses lack or only echo."""


def read_litellm(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a call that the callback wrote, or the span around it that it overwrote."""
    if span.scope.name == SCOPE and span.name == _RAW:
        return _read_raw(span)
    if CALL_ID not in span.attributes:
        return None
    function, agent = "" if span.scope.name == SCOPE else span.name, _agent_of(span)
    if _is_shown_below(span, surroundings):
        return Action(dialect=NAME, kind=ActionKind.CONTAINER, agent=agent, function=function)
    if not function and agent is None:
        return None
    call = _read_call(span, surroundings)
    return call and replace(call, function=function, agent=call.agent or agent)


def _read_call(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a call by its conventions; the proxy's asynchronous calls are named after LiteLLM's functions."""
    if text(span.attributes, GEN_AI_OPERATION_NAME) in _FUNCTIONS:
        return read_operation(span, ActionKind.LLM, NAME)
    return read_traceloop(span, surroundings) or read_otel_genai(span, surroundings)


def requester(span: Span) -> Mapping[str, Any]:
    """Return the metadata that the caller sent along with a request to the proxy."""
    value = span.attributes.get(REQUESTER)
    return mapping(from_repr(value)) if isinstance(value, str) else {}


def session_keys(spans: Iterable[Span]) -> Iterator[str]:
    """Yield the caller's sessions, if its calls also name their agents: then its traces are one run.

    A session alone may be a chat that lasts for days.
    """
    for span in spans:
        metadata = requester(span)
        session = text(metadata, "session_id") if metadata.get("agent") else None
        if session:
            yield f"{NAME}:{session}"


def _agent_of(span: Span) -> str | None:
    """Return the agent named by the caller's own attributes, which remain."""
    is_decorated = span.attributes.get(SPAN_KIND) == "agent"
    decorated = text(span.attributes, ENTITY_NAME) if is_decorated else None
    return text(span.attributes, GEN_AI_AGENT_NAME) or decorated or text(requester(span), "agent")


def _is_shown_below(span: Span, surroundings: Surroundings) -> bool:
    return any(child.name == _RAW and child.scope.name == SCOPE for child in surroundings.children(span))


def _read_raw(span: Span) -> Action:
    fields = _fields(span)
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        input_messages=input_messages_in({name: value for name, value in fields.items() if name in _ASKED}),
        output_messages=output_messages_in(
            {name: value for name, value in fields.items() if name not in _ASKED}
        ),
    )
    return action_of(span, seen)


def _fields(span: Span) -> Mapping[str, Any]:
    """Return the fields of request and response; fields of the response win, because they are set last."""
    found: dict[str, Any] = {}
    for key, value in span.attributes.items():
        if key.startswith(_PREFIX):
            name = key[len(_PREFIX) :].partition(".")[2]
            found[name] = from_repr(value) if isinstance(value, str) else value
    return found


LITELLM: Final = Dialect(
    name=NAME, read=read_litellm, scopes=(SCOPE,), keys=frozenset({CALL_ID}), run_keys=session_keys
)
