"""blamespan's own convention: ``gen_ai.*`` together with ``blamespan.*``.

Source: ``semconv/registry``. Written by ``semconv.instrument`` (scope ``blamespan.instrument``) and by
other instrumentations that add these attributes to their spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.attributes import (
    HANDOFF_SOURCE,
    HANDOFF_TARGET,
    SCOPE_INSTRUMENT,
    TASK_INPUT,
    TASK_OUTCOME,
    TASK_OUTCOME_SOURCE,
    TASK_OUTPUT,
    TASK_REFERENCE,
)
from semconv.dialects.conventions.otel_genai import operation_kind, read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.values import read_outcome, text
from semconv.model import AgentSource, OutcomeSource, Span
from semconv.record import replace

NAME: Final = "blamespan"

_EMITTED: Final = frozenset({HANDOFF_TARGET, TASK_INPUT, TASK_OUTPUT, TASK_OUTCOME, TASK_REFERENCE})
_TASK_KEYS: Final = frozenset({TASK_INPUT, TASK_OUTPUT, TASK_OUTCOME, TASK_OUTCOME_SOURCE, TASK_REFERENCE})
_SOURCES: Final[Mapping[str, OutcomeSource]] = {source.value: source for source in OutcomeSource}


def read_blamespan(span: Span, _: Surroundings) -> Action | None:
    """Read a span of ``semconv.instrument``, or one that carries its attributes."""
    if span.scope.name != SCOPE_INSTRUMENT and _EMITTED.isdisjoint(span.attributes):
        return None
    action = read_operation(span, _kind_of(span), NAME)
    if action.kind is ActionKind.HANDOFF:
        return _handing_over(span, action)
    return _with_task(span, action)


def _kind_of(span: Span) -> ActionKind:
    kind = operation_kind(span)
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
    if _TASK_KEYS.isdisjoint(span.attributes):
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


BLAMESPAN: Final = Dialect(name=NAME, read=read_blamespan, scopes=(SCOPE_INSTRUMENT,), keys=_EMITTED)
