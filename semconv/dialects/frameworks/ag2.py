"""AG2's own spans, of 0.14 (``autogen.opentelemetry``) and 1.x (``TelemetryMiddleware``).

Source: ``autogen/opentelemetry`` of 0.14.0, recorded; ``ag2/middleware/builtin/telemetry.py`` and
``ag2/network/hub`` of 1.2.1, recorded without a hub. Both versions have the scope
``opentelemetry.instrumentation.ag2`` and name the kind of span in ``ag2.span.type``.

- 0.14: agents always carry their input and output, model calls only with ``capture_messages=True``; otherwise
  the agent's texts stand for its calls'. A conversation's output is its whole history. Tools run under
  ``_Group_Tool_Executor`` or a user proxy, whose reply repeats the tool's and is not a step. In runs that
  record model calls, the reply of an agent without a model call is not a step either.
- 1.x: an agent's span has no texts; its tools and model calls are below it, without its name. An agent used
  as a tool runs below that tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.conventions.otel_genai import conversation_of, operation_kind, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import is_ag2_helper
from semconv.dialects.reading.values import text
from semconv.model import Span
from semconv.record import replace

NAME: Final = "ag2"

SCOPE: Final = "opentelemetry.instrumentation.ag2"
SPAN_TYPE: Final = "ag2.span.type"
HUMAN_PROMPT: Final = "ag2.human_input.prompt"
HUMAN_RESPONSE: Final = "ag2.human_input.response"

_AGENT: Final = "agent"
_LLM: Final = "llm"
_TYPES: Final[Mapping[str, ActionKind]] = {
    "conversation": ActionKind.WORKFLOW,
    "multi_conversation": ActionKind.WORKFLOW,
    _AGENT: ActionKind.AGENT,
    _LLM: ActionKind.LLM,
    "tool": ActionKind.TOOL,
    "code_execution": ActionKind.TOOL,
    "handoff": ActionKind.HANDOFF,
    "human_input": ActionKind.HUMAN,
}
"""All other span types are containers: choosing a speaker, usage accounts, the network's envelopes."""
_NAMELESS: Final = "unknown"
"""Name that AG2 1.x uses for an agent whose middleware was given no name."""


def read_ag2(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span of AG2's own scope."""
    if span.scope.name != SCOPE and SPAN_TYPE not in span.attributes:
        return None
    action = read_operation(span, _kind_of(span), NAME)
    if action.agent == _NAMELESS:
        action = replace(action, agent=None)
    match action.kind:
        case ActionKind.LLM:
            return _read_llm(action, span, surroundings)
        case ActionKind.AGENT:
            return _read_agent(action, span, surroundings)
        case ActionKind.HUMAN:
            prompt, response = text(span.attributes, HUMAN_PROMPT), text(span.attributes, HUMAN_RESPONSE)
            return replace(action, input=prompt or "", output=response or "")
        case _:
            return replace(action, pseudo_agent=is_ag2_helper(action.agent))


def _kind_of(span: Span) -> ActionKind:
    span_type = text(span.attributes, SPAN_TYPE)
    if span_type is not None:
        return _TYPES.get(span_type, ActionKind.CONTAINER)
    return operation_kind(span) or ActionKind.CONTAINER


def _read_llm(action: Action, span: Span, surroundings: Surroundings) -> Action:
    """Fill a call without texts from its agent: the first call gets the input, the last the output."""
    agent = surroundings.parent(span)
    if action.input_messages or action.output_messages or agent is None or not _is(agent, _AGENT):
        return action
    input_messages, output_messages = conversation_of(agent)
    calls = [child for child in surroundings.children(agent) if _is(child, _LLM)]
    return replace(
        action,
        input_messages=input_messages if span is calls[0] else (),
        output_messages=output_messages if span is calls[-1] else action.output_messages,
    )


def _read_agent(action: Action, span: Span, surroundings: Surroundings) -> Action:
    action = replace(action, pseudo_agent=is_ag2_helper(action.agent))
    if action.output_messages and action.output_messages[-1].role == "tool":
        return replace(action, output="", output_messages=())
    asks = any(_is(child, _LLM) for child in surroundings.children(span))
    if not asks and not action.failed and surroundings.once_a_run(_shows_model_calls):
        return replace(action, kind=ActionKind.CONTAINER)
    return action


def _is(span: Span, span_type: str) -> bool:
    return span.attributes.get(SPAN_TYPE) == span_type


def _shows_model_calls(surroundings: Surroundings) -> bool:
    return any(_is(span, _LLM) for span in surroundings.walked)


AG2: Final = Dialect(name=NAME, read=read_ag2, scopes=(SCOPE,), keys=frozenset({SPAN_TYPE}))
