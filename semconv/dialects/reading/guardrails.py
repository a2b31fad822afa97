"""Checks on a run: guardrails, and evaluators' results recorded in its trace.

A guardrail checks an agent's input or output and is not an agent's turn. One that lets everything pass is not
a step in any dialect. One that stops something is a step of kind ``other`` and an error, even if its span
says OK, because it may have ended the run. Where this is recorded depends on the instrumentation: in an
attribute (openai-agents' ``triggered``, copied by Logfire, MLflow, LangSmith, OpenTelemetry's contrib and
OpenLIT), in the span's status, or only in the error of the stopped agent (OpenInference).

Sources of evaluations: log or span event ``gen_ai.evaluation.result`` (OpenTelemetry GenAI);
``evaluations.N.evaluation.*`` on OpenInference EVALUATOR spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from semconv.dialects.reading.action import Action, ActionKind, Judgement, Surroundings
from semconv.dialects.reading.values import below, error_of, events_of, text
from semconv.model import Attributes, Outcome, Span, SpanStatus
from semconv.record import replace

GUARDRAIL_NAME: Final = "gen_ai.guardrail.name"
GUARDRAIL_TRIGGERED: Final = "gen_ai.guardrail.triggered"
TRIGGERED: Final = "triggered"

_TRIPWIRE: Final = "tripwire"
"""In openai-agents' error: ``Guardrail tripwire triggered: {'guardrail': 'amount_check'}``."""
_NEAREST: Final = 4
"""Levels to search upwards for the stopped agent: a turn and a task may lie between."""
RESULT_EVENT: Final = "gen_ai.evaluation.result"
RESULT_NAME: Final = "gen_ai.evaluation.name"
RESULT_LABEL: Final = "gen_ai.evaluation.score.label"
RESULT_SCORE: Final = "gen_ai.evaluation.score.value"
_LISTS: Final = "evaluations."
OWN_EVALUATION: Final = "failure_attribution"
"""blamespan's own evaluations; never read back."""

_PASSED: Final = frozenset({"pass", "passed", "success", "successful", "correct", "true", "yes", "resolved"})
_FAILED: Final = frozenset(
    {"fail", "failed", "failure", "incorrect", "wrong", "false", "no", "unresolved", "error"}
)


def as_guardrail(action: Action, *, name: str, tripped: bool) -> Action:
    """Return the action as a guardrail check, failed if it stopped something or its span says so."""
    failed = tripped or action.failed
    return replace(
        action,
        kind=ActionKind.GUARDRAIL,
        tool=name,
        failed=failed,
        error=action.error or (f"guardrail {name} tripped" if failed else ""),
    )


def stopped_what_it_guards(span: Span, surroundings: Surroundings) -> bool:
    """Say whether the enclosing agent failed with a tripwire error that names this guardrail."""
    for above in islice(surroundings.ancestors(span), _NEAREST):
        if above.status is SpanStatus.ERROR:
            error = error_of(above)
            return _TRIPWIRE in error and span.name in error
    return False


def read_judgements(span: Span) -> tuple[Judgement, ...]:
    """Return evaluators' results on ``span``: from its events, joined logs and flattened attributes."""
    has_lists = _LISTS in "\n".join(span.attributes)  # one search is faster than one for each name
    if not has_lists and not span.events and not span.logs:
        return ()
    found = [
        _judgement(event.attributes, RESULT_NAME, RESULT_LABEL, RESULT_SCORE)
        for event in events_of(span, RESULT_EVENT)
    ]
    if has_lists:
        found.extend(
            _judgement(fields, "evaluation.name", "evaluation.label", "evaluation.score")
            for fields in below(span.attributes, "evaluations").values()
        )
    return tuple(judgement for judgement in found if judgement.name != OWN_EVALUATION)


def _judgement(fields: Attributes | Mapping[str, Any], name: str, label: str, score: str) -> Judgement:
    verdict = (text(fields, label) or "").strip().lower()
    value = fields.get(score)
    outcome = None
    if verdict in _PASSED or (not verdict and value == 1):
        outcome = Outcome.SUCCESS
    elif verdict in _FAILED or (not verdict and value == 0):
        outcome = Outcome.FAILURE
    return Judgement(name=text(fields, name) or "", outcome=outcome)
