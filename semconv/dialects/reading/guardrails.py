"""Checks on a run: guardrails, and evaluators' results recorded in its trace.

A guardrail checks an agent's input or output and is not an agent's turn. One that lets everything pass is not
a step in any dialect. One that stops something is a step of kind ``other`` and an error, even if its span
says OK, because it may have ended the run. Where this is recorded depends on the instrumentation: in an
attribute (openai-agents' ``triggered``, copied by Logfire, MLflow, LangSmith, OpenTelemetry's contrib and
OpenLIT), in the span's status, or only in the error of the stopped agent (OpenInference).

Sources of evaluations: log or span event ``gen_ai.evaluation.result`` (OpenTelemetry GenAI); OpenInference's
``evaluations.N.evaluation.*`` and, with the same meaning, ``annotations.N.annotation.*`` of a span,
``trace.annotations.N.annotation.*`` of its trace and ``session.annotations.N.annotation.*`` of its session
(Arize-ai/openinference, spec/annotations.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from semconv.attributes import ERROR_TYPE, FAILURE_ID, SCOPE_ANALYZER
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
EVALUATOR_TYPE: Final = "gen_ai.evaluation.evaluator.type"
"""Proposed (semantic-conventions-genai #359): ``human``, ``llm_judge`` or ``deterministic``."""
_LISTS: Final[tuple[tuple[str, str, bool], ...]] = (
    ("evaluations", "evaluation", False),
    ("annotations", "annotation", False),
    ("trace.annotations", "annotation", True),
    ("session.annotations", "annotation", True),
)
"""Flattened lists, the prefix of their entries' fields, and whether they are about the run."""
_LISTED: Final = re.compile(r"^(?:evaluations|(?:trace\.|session\.)?annotations)\.\d", re.MULTILINE)
_PERSON: Final = "human"
"""Both ``gen_ai.evaluation.evaluator.type`` and OpenInference's ``annotator_kind`` (HUMAN, LLM, CODE)."""
_OWN_IDENTIFIER: Final = SCOPE_ANALYZER
"""Identifier of blamespan's own annotations; like its own events they are never read back."""

# Words of labels: those of Phoenix's, MLflow's, Azure's and OpenAI's evaluators, and of feedback buttons.
_PASSED: Final = frozenset(
    {"pass", "passed", "success", "successful", "correct", "true", "yes", "resolved", "factual", "completed"}
    | {"thumbs up", "thumb up", "👍", "like", "liked", "good", "helpful", "satisfied", "accepted", "approved"}
)
_FAILED: Final = frozenset(
    {"fail", "failed", "failure", "incorrect", "wrong", "false", "no", "unresolved", "error", "hallucinated"}
    | {"thumbs down", "thumb down", "👎", "dislike", "disliked", "bad", "unhelpful", "not helpful"}
    | {"unsatisfied", "dissatisfied", "frustrated", "rejected", "incomplete"}
)
_UNSCALED: Final = re.compile(r"hallucin|error|fail|frustrat|refus|rating|stars?\b|likert", re.IGNORECASE)
"""Names whose score says nothing alone: 0 is the best of an error rate, 1 the worst of five stars."""
_SEPARATORS: Final = str.maketrans("_-", "  ")


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
    has_lists = _LISTED.search("\n".join(span.attributes))  # one search is faster than one for each name
    if not has_lists and not span.events and not span.logs:
        return ()
    found = [
        Judgement(
            name=text(event.attributes, RESULT_NAME) or "",
            outcome=_outcome(event.attributes, RESULT_NAME, RESULT_LABEL, RESULT_SCORE),
            is_by_person=_is_person(event.attributes, EVALUATOR_TYPE),
        )
        for event in events_of(span, RESULT_EVENT)
        if FAILURE_ID not in event.attributes
        and ERROR_TYPE not in event.attributes  # an evaluator's own error
    ]
    if has_lists:
        found.extend(_listed(span))
    return tuple(found)


def _listed(span: Span) -> Iterator[Judgement]:
    for prefix, entry, is_of_run in _LISTS:
        for fields in below(span.attributes, prefix).values():
            if text(fields, f"{entry}.identifier") == _OWN_IDENTIFIER:
                continue
            yield Judgement(
                name=text(fields, f"{entry}.name") or "",
                outcome=_outcome(fields, f"{entry}.name", f"{entry}.label", f"{entry}.score"),
                is_of_run=is_of_run,
                is_by_person=_is_person(fields, f"{entry}.annotator_kind"),
            )


def _is_person(fields: Attributes, kind: str) -> bool:
    return (text(fields, kind) or "").casefold() == _PERSON


def _outcome(fields: Attributes, name: str, label: str, score: str) -> Outcome | None:
    verdict = (text(fields, label) or "").strip().casefold().translate(_SEPARATORS)
    value = None if verdict or _UNSCALED.search(text(fields, name) or "") else fields.get(score)
    if verdict in _PASSED or value == 1:
        return Outcome.SUCCESS
    return Outcome.FAILURE if verdict in _FAILED or value == 0 else None
