"""LiteLLM's own callback (``litellm.callbacks = ["otel"]``), in the library and in its proxy.

Source: litellm 1.106 (``integrations/opentelemetry.py``), seen from a program of three agents. A call is a
span ``raw_gen_ai_request`` with the provider's request and response as Python shows them; around it either a
``litellm_request`` (``USE_OTEL_LITELLM_REQUEST_SPAN=true``, or where nothing is above), or the caller's
own span, over which it writes each of its calls: the last is told, and none of them is the caller's.
A call that failed has no raw span, so what is written over the caller's stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.attributes import GEN_AI_AGENT_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.model_calls import heard_in, said_in
from semconv.dialects.observations import Observation, action_of
from semconv.dialects.python_repr import from_repr
from semconv.dialects.reading import text
from semconv.dialects.support import Support, gives, lacks, partly
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.traceloop import ENTITY_NAME, SPAN_KIND
from semconv.model import Span

NAME: Final = "litellm"

SCOPE: Final = "litellm"
CALL_ID: Final = "litellm.call_id"

_RAW: Final = "raw_gen_ai_request"
_PREFIX: Final = "llm."
"""Before the provider and the name of a field: ``llm.openai.messages``."""
_ASKED: Final = frozenset(
    {"messages", "input", "contents", "system", "system_instruction", "instructions", "prompt"}
    | {"tools", "model", "extra_body"}
)
"""Fields of requests that responses do not have, or have as an echo."""


def read_litellm(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a call that the callback wrote, and what it wrote around it or over."""
    if span.scope.name == SCOPE and span.name == _RAW:
        return _read_raw(span)
    if CALL_ID not in span.attributes or not _is_shown_below(span, surroundings):
        return None
    return Action(dialect=NAME, kind=ActionKind.CONTAINER, agent=_agent_of(span))


def _agent_of(span: Span) -> str | None:
    """Return the agent that the caller's own attributes name, which are still there."""
    is_decorated = span.attributes.get(SPAN_KIND) == "agent"
    decorated = text(span.attributes, ENTITY_NAME) if is_decorated else None
    return text(span.attributes, GEN_AI_AGENT_NAME) or decorated


def _is_shown_below(span: Span, surroundings: Surroundings) -> bool:
    return any(child.name == _RAW and child.scope.name == SCOPE for child in surroundings.children(span))


def _read_raw(span: Span) -> Action:
    fields = _fields(span)
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        heard=heard_in({name: value for name, value in fields.items() if name in _ASKED}),
        said=said_in({name: value for name, value in fields.items() if name not in _ASKED}),
    )
    return action_of(span, seen)


def _fields(span: Span) -> Mapping[str, Any]:
    """Return the fields of request and response; those of one name are the response's, set last."""
    found: dict[str, Any] = {}
    for key, value in span.attributes.items():
        if key.startswith(_PREFIX):
            name = key[len(_PREFIX) :].partition(".")[2]
            found[name] = from_repr(value) if isinstance(value, str) else value
    return found


LITELLM: Final = Dialect(
    name=NAME,
    read=read_litellm,
    support=(
        Support(
            framework="litellm",
            instrumentation='its own callback, `litellm.callbacks = ["otel"]`',
            source="recorded",
            agent=lacks("only what stands around the calls tells"),
            text=gives("`llm.<provider>.*` on the raw request; no span of it where messages are not logged"),
            tools=lacks("a client runs none; the next call has heard what they returned"),
            handoff=partly("no span: the `transfer_to_X` call in the answer, once its result was heard"),
            task=partly("not on the root: the first and the last model call"),
            errors=gives("status and `error.type`, on the span around the call"),
            scopes=(SCOPE,),
            switches=("USE_OTEL_LITELLM_REQUEST_SPAN=true",),
        ),
    ),
)
