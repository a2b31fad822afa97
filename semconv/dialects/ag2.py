"""AG2's own spans, of 0.14 (``autogen.opentelemetry``) and of 1.x (``TelemetryMiddleware``).

Source: ``autogen/opentelemetry`` of 0.14.0, recorded; ``ag2/middleware/builtin/telemetry.py`` and
``ag2/network/hub`` of 1.2.1, recorded without a hub. Both have the scope
``opentelemetry.instrumentation.ag2`` and say in ``ag2.span.type`` what a span is.

- 0.14: agents always carry what they heard and said, model calls only with
  ``capture_messages=True``; else the agent's words stand for its call's. A conversation's output is
  its whole history. Tools run under ``_Group_Tool_Executor`` or a user proxy, whose reply is the
  tool's and no step; nor is the reply of an agent that asked no model, where model calls are seen.
- 1.x: an agent's span has no texts, tools and model calls stand below it without its name. An
  agent as a tool runs below that tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from semconv.attributes import GEN_AI_OPERATION_NAME
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.ag2_names import is_bookkeeper
from semconv.dialects.otel_genai import KINDS, conversation_of, read_operation
from semconv.dialects.reading import text
from semconv.dialects.support import Support, gives, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

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
"""Any other is a container: choosing a speaker, accounts of usage, the network's envelopes."""
_NAMELESS: Final = "unknown"
"""What 1.x calls an agent whose middleware was not told its name."""


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
            return replace(action, pseudo_agent=is_bookkeeper(action.agent))


def _kind_of(span: Span) -> ActionKind:
    said = text(span.attributes, SPAN_TYPE)
    if said is not None:
        return _TYPES.get(said, ActionKind.CONTAINER)
    return KINDS.get(text(span.attributes, GEN_AI_OPERATION_NAME) or "", ActionKind.CONTAINER)


def _read_llm(action: Action, span: Span, surroundings: Surroundings) -> Action:
    """Give a call without texts those of its agent: the first call what it heard, the last what it said."""
    agent = surroundings.parent(span)
    if action.heard or action.said or agent is None or not _is(agent, _AGENT):
        return action
    heard, said = conversation_of(agent)
    calls = [child for child in surroundings.children(agent) if _is(child, _LLM)]
    return replace(
        action, heard=heard if span is calls[0] else (), said=said if span is calls[-1] else action.said
    )


def _read_agent(action: Action, span: Span, surroundings: Surroundings) -> Action:
    action = replace(action, pseudo_agent=is_bookkeeper(action.agent))
    if action.said and action.said[-1].role == "tool":
        return replace(action, output="", said=())
    asks = any(_is(child, _LLM) for child in surroundings.children(span))
    if not asks and not action.failed and _shows_model_calls(surroundings):
        return replace(action, kind=ActionKind.CONTAINER)
    return action


def _is(span: Span, span_type: str) -> bool:
    return span.attributes.get(SPAN_TYPE) == span_type


_SHOWING: WeakKeyDictionary[Surroundings, bool] = WeakKeyDictionary()


def _shows_model_calls(surroundings: Surroundings) -> bool:
    """Say whether the run has model calls of its own; looked up once a run."""
    found = _SHOWING.get(surroundings)
    if found is None:
        found = _SHOWING[surroundings] = any(_is(span, _LLM) for span in surroundings.walk())
    return found


AG2: Final = Dialect(
    name=NAME,
    read=read_ag2,
    support=(
        Support(
            framework="ag2",
            instrumentation="built in, 0.14 (`autogen.opentelemetry`)",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents and calls; bookkeepers are left out"),
            text=partly("agents' replies always; what calls heard with `capture_messages=True`"),
            tools=gives("`gen_ai.tool.call.*`, under the executor; given to the agent that asked"),
            handoff=partly("a plain tool, recognised by its name and the agent that speaks next"),
            task=gives("the conversation's first message; its output is the whole history"),
            errors=partly("of tools `error.type` alone; the words are in the next call's input"),
            scopes=(SCOPE,),
            recordings=("ag2-native", "ag2_native"),
            switches=("instrument_llm_wrapper(capture_messages=True)",),
        ),
        Support(
            framework="ag2",
            instrumentation="built in, 1.x (`TelemetryMiddleware`)",
            source="recorded",
            agent=partly("`gen_ai.agent.name`, if the middleware was told it; calls inherit it"),
            text=gives("`gen_ai.{input,output}.messages` on calls"),
            tools=partly("`gen_ai.tool.call.*`; a long result is cut"),
            handoff=partly("an agent as a tool is no handoff; other transfers by the tool's name"),
            task=gives("the first model call's question"),
            errors=gives("status and exception"),
            recordings=("ag2_1",),
        ),
    ),
)
