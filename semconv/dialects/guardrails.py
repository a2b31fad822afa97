"""Guardrails: checks on what an agent hears or says, whatever framework runs them.

A guardrail is no agent's turn. One that let everything pass is no step in any dialect; one that stopped
something is a step of kind ``other`` and an error, even where its span says OK: what ended a run must be
seen. Whether it did stands in an attribute (openai-agents' ``triggered``, as Logfire, MLflow, LangSmith,
OpenTelemetry's contrib and OpenLIT write it), in the span's status, or nowhere but in the error of the
agent that was stopped (OpenInference).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from semconv.dialects.action import Action, ActionKind
from semconv.dialects.reading import error_of
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span, SpanStatus

GUARDRAIL_NAME: Final = "gen_ai.guardrail.name"
GUARDRAIL_TRIGGERED: Final = "gen_ai.guardrail.triggered"
TRIGGERED: Final = "triggered"

_TRIPWIRE: Final = "tripwire"
"""In openai-agents' error: ``Guardrail tripwire triggered: {'guardrail': 'amount_check'}``."""
_NEAREST: Final = 4
"""How far up the stopped agent is looked for: a turn and a task may stand between."""


def as_guardrail(action: Action, *, name: str, tripped: bool) -> Action:
    """Return the action as a guardrail's, failed if it stopped something or its span says so."""
    failed = tripped or action.failed
    return replace(
        action,
        kind=ActionKind.GUARDRAIL,
        tool=name,
        failed=failed,
        error=action.error or (f"guardrail {name} tripped" if failed else ""),
    )


def stopped_what_it_guards(span: Span, surroundings: Surroundings) -> bool:
    """Say whether the agent around a guardrail failed by its tripwire, and names it."""
    for above in islice(surroundings.ancestors(span), _NEAREST):
        if above.status is SpanStatus.ERROR:
            error = error_of(above)
            return _TRIPWIRE in error and span.name in error
    return False
