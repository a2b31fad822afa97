"""Evaluators' results that stand in a trace.

Source: log or span event ``gen_ai.evaluation.result`` (OpenTelemetry GenAI);
``evaluations.N.evaluation.*`` on OpenInference EVALUATOR spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from semconv.dialects.action import Judgement
from semconv.dialects.reading import below, events_of, text
from semconv.model import Attributes, Outcome, Span

RESULT_EVENT: Final = "gen_ai.evaluation.result"
RESULT_NAME: Final = "gen_ai.evaluation.name"
RESULT_LABEL: Final = "gen_ai.evaluation.score.label"
RESULT_SCORE: Final = "gen_ai.evaluation.score.value"
_LISTS: Final = "evaluations."
OWN_EVALUATION: Final = "failure_attribution"
"""The name under which blamespan itself writes; never read back."""

_PASSED: Final = frozenset({"pass", "passed", "success", "successful", "correct", "true", "yes", "resolved"})
_FAILED: Final = frozenset(
    {"fail", "failed", "failure", "incorrect", "wrong", "false", "no", "unresolved", "error"}
)


def read_judgements(span: Span) -> tuple[Judgement, ...]:
    """Return what evaluators said about ``span``: its events, its joined logs, its flattened attributes."""
    has_lists = _LISTS in "\n".join(span.attributes)  # quicker than to ask each name; it may be inside one
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
