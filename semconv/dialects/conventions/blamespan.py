"""Our own convention: the official ``gen_ai.*`` with ``blamespan.*`` beside it.

Source: ``semconv/registry``. Written by ``semconv.instrument`` (scope
``blamespan.instrument``) and by anybody who adds our attributes to theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from semconv.attributes import (
    GEN_AI_OPERATION_NAME,
    HANDOFF_SOURCE,
    HANDOFF_TARGET,
    SCOPE_INSTRUMENT,
    TASK_INPUT,
    TASK_OUTCOME,
    TASK_OUTCOME_SOURCE,
    TASK_OUTPUT,
    TASK_REFERENCE,
)
from semconv.dialects.action import Action, ActionKind, Dialect
from semconv.dialects.otel_genai import KINDS, read_operation
from semconv.dialects.reading import text
from semconv.dialects.support import Support, gives, partly
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, OutcomeSource, Span
from semconv.outcomes import read_outcome

NAME: Final = "blamespan"

_EMITTED: Final = frozenset({HANDOFF_TARGET, TASK_INPUT, TASK_OUTPUT, TASK_OUTCOME, TASK_REFERENCE})
_TOLD: Final = frozenset({TASK_INPUT, TASK_OUTPUT, TASK_OUTCOME, TASK_OUTCOME_SOURCE, TASK_REFERENCE})
_SOURCES: Final[Mapping[str, OutcomeSource]] = {each.value: each for each in OutcomeSource}


def read_blamespan(span: Span, _: Surroundings) -> Action | None:
    """Read a span of our emitting API, or one that carries our emitters' attributes."""
    if span.scope.name != SCOPE_INSTRUMENT and span.attributes.keys().isdisjoint(_EMITTED):
        return None
    action = read_operation(span, _kind_of(span), NAME)
    if action.kind is ActionKind.HANDOFF:
        return _handing_over(span, action)
    return _with_task(span, action)


def _kind_of(span: Span) -> ActionKind:
    kind = KINDS.get(text(span.attributes, GEN_AI_OPERATION_NAME) or "")
    if kind is ActionKind.LLM:
        return kind  # a model call that hands over is still a model call
    if HANDOFF_TARGET in span.attributes:
        return ActionKind.HANDOFF
    if kind is not None:
        return kind
    return ActionKind.WORKFLOW if TASK_INPUT in span.attributes else ActionKind.CONTAINER


def _handing_over(span: Span, action: Action) -> Action:
    source, target = text(span.attributes, HANDOFF_SOURCE), text(span.attributes, HANDOFF_TARGET)
    if source is not None and source != action.agent:
        action = replace(action, agent=source, agent_source=AgentSource.HANDOFF)
    return action if target is None or target == action.target else replace(action, target=target)


def _with_task(span: Span, action: Action) -> Action:
    if span.attributes.keys().isdisjoint(_TOLD):
        return action
    source = text(span.attributes, TASK_OUTCOME_SOURCE)
    return replace(
        action,
        task=text(span.attributes, TASK_INPUT) or action.task,
        answer=text(span.attributes, TASK_OUTPUT) or action.answer,
        reference=text(span.attributes, TASK_REFERENCE),
        outcome=read_outcome(span.attributes.get(TASK_OUTCOME)),
        outcome_source=_SOURCES.get(source or ""),
    )


BLAMESPAN: Final = Dialect(
    name=NAME,
    read=read_blamespan,
    support=(
        Support(
            framework="any Python code",
            instrumentation="`semconv.instrument`, this version",
            source="recorded",
            agent=gives("`gen_ai.agent.name` on agents, calls and tools"),
            text=partly("off by default, as upstream"),
            tools=partly("arguments and result with content on"),
            handoff=gives("`blamespan.handoff.*`"),
            task=partly("`blamespan.task.*` on the root, with content on; the right answer too"),
            errors=gives("status, `error.type`, `exception` events; the run's outcome"),
            scopes=(SCOPE_INSTRUMENT,),
            switches=("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",),
        ),
    ),
)
