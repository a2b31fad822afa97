"""Evaluations that a verdict makes of a run, for dashboards and evaluation tools, and their scores. Pure.

A score is a quality: 1 is good, 0 is bad, and there is none where nobody said how the run ended. Names and
labels come from small sets, so that backends can count them. ``task_success`` is about the run,
``failure_attribution`` about the decisive span. Waiting and cancelled runs are not evaluated.
Source: OpenTelemetry GenAI (``gen_ai.evaluation.result``); OpenInference, spec/annotations.md.

Each sink of a tenant gets its scores in one entry of the outbox. They are the evaluations of the events;
those of the previous verdict that stand elsewhere are withdrawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collector_processor.core.records import PERSON, Outgoing, StoredVerdict
from collector_processor.core.scores import Lane, Score, ScoreChange, ScorePlace, pack_change
from collector_processor.otlp import Tenant
from collector_processor.writeback.annotate import CarrierPolicy, Judgement, finish
from semconv import attributes as names
from semconv.dialects.reading.values import below
from semconv.model import (
    Attributes,
    AttributeValue,
    Blame,
    Outcome,
    Span,
    SpanId,
    Status,
    TraceId,
)
from semconv.record import record

TASK_SUCCESS: Final = "task_success"
FAILURE_ATTRIBUTION: Final = "failure_attribution"
IDENTIFIER: Final = names.SCOPE_ANALYZER
"""Identifier of our annotations: one of a later version replaces that of an earlier one."""
PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"
NO_MODE: Final = "unspecified"
"""Label of an attribution without a failure mode."""
_ANNOTATIONS: Final = names.ANNOTATIONS_0_ANNOTATION_NAME.partition(".")[0]
UNEVALUATED: Final = (Status.WAITING, Status.CANCELLED)


@record
class Evaluation:
    """One evaluation of a span."""

    name: str
    """``TASK_SUCCESS`` of the run's root, or ``FAILURE_ATTRIBUTION`` of the decisive span."""
    score: float | None
    """1 for success, 0 for failure; ``None`` where nobody said so."""
    label: str
    """``PASS``, ``FAIL`` or ``UNKNOWN``; of an attribution the failure mode."""
    explanation: str
    """May quote content; not yet redacted."""
    annotator: str
    """OpenInference's annotator kind: HUMAN, LLM or CODE."""
    trace_id: TraceId
    span_id: SpanId


def evaluations(judgement: Judgement, root: Span | None) -> tuple[Evaluation, ...]:
    """Return the evaluation of the run, and of the decisive span if a step is blamed.

    Args:
        judgement: the verdict.
        root: the run's root, or its earliest span if the root never arrived.
    """
    if judgement.attribution.status in UNEVALUATED:
        return ()
    found = [] if root is None else [_task_success(judgement, root)]
    step, blame = judgement.decisive, judgement.attribution.verdict
    if step is not None and step.trace_id and step.span_id and isinstance(blame, Blame):
        found.append(
            Evaluation(
                name=FAILURE_ATTRIBUTION,
                score=_score(blame.status),
                label=blame.mode or NO_MODE,
                explanation=blame.reason,
                annotator=annotator(judgement),
                trace_id=step.trace_id,
                span_id=step.span_id,
            )
        )
    return tuple(found)


def _task_success(judgement: Judgement, root: Span) -> Evaluation:
    attribution = judgement.attribution
    score, label = _score(attribution.status), UNKNOWN
    if score == 0:
        label = FAIL
    elif attribution.status is Status.NO_FAILURE and _is_said(judgement):
        score, label = 1.0, PASS
    reason = attribution.verdict.reason
    is_suspicion = attribution.status is Status.SUSPECTED
    return Evaluation(
        name=TASK_SUCCESS,
        score=score,
        label=label,
        explanation=f"suspected by blamespan: {reason}" if is_suspicion else reason,
        annotator=annotator(judgement),
        trace_id=root.trace_id,
        span_id=root.span_id,
    )


def _score(status: Status) -> float | None:
    return 0.0 if status is Status.ATTRIBUTED else None


def _is_said(judgement: Judgement) -> bool:
    """Return whether the run, an evaluation, a check or a person said that the run succeeded."""
    is_stated = judgement.trajectory.outcome is Outcome.SUCCESS
    return is_stated or judgement.attribution.method == PERSON


def annotator(judgement: Judgement) -> str:
    """Return OpenInference's annotator kind of a verdict."""
    if judgement.attribution.method == PERSON:
        return "HUMAN"
    is_models_word = judgement.attribution.model and not judgement.attribution.fallback
    return "LLM" if is_models_word else "CODE"


def event_attributes(
    evaluation: Evaluation, judgement: Judgement, policy: CarrierPolicy
) -> dict[str, AttributeValue]:
    """Attributes of the event ``gen_ai.evaluation.result``: the evaluation, and where it comes from."""
    blame, attribution = judgement.attribution.verdict, judgement.attribution
    own: dict[str, AttributeValue] = {
        names.GEN_AI_EVALUATION_NAME: evaluation.name,
        names.GEN_AI_EVALUATION_SCORE_VALUE: evaluation.score,
        names.GEN_AI_EVALUATION_SCORE_LABEL: evaluation.label,
        names.GEN_AI_EVALUATION_EXPLANATION: evaluation.explanation,
        names.RUN_ID: judgement.trajectory.run_id,
        names.FAILURE_ID: judgement.failure_id,
        names.FAILURE_VERSION: judgement.version,
        names.FAILURE_STATUS: attribution.status.value,
        names.FAILURE_METHOD: attribution.method,
        names.FAILURE_RULES: attribution.rules or None,
    }
    if isinstance(blame, Blame):
        own |= {
            names.FAILURE_AGENT_NAME: blame.agent,
            names.FAILURE_STEP_INDEX: judgement.decisive.index if judgement.decisive else None,
            names.FAILURE_CONFIDENCE: blame.confidence,
            names.FAILURE_PROBABILITY: blame.failed_probability,
        }
    return finish(own, policy)


def openinference_evaluation(evaluation: Evaluation, failure_id: str) -> dict[str, AttributeValue]:
    """Attributes of a carrier as OpenInference's evaluator, so that tools of that family show the verdict."""
    return {
        names.OPENINFERENCE_SPAN_KIND: "EVALUATOR",
        names.EVALUATIONS_0_EVALUATION_NAME: evaluation.name,
        names.EVALUATIONS_0_EVALUATION_SCORE: evaluation.score,
        names.EVALUATIONS_0_EVALUATION_LABEL: evaluation.label,
        names.EVALUATIONS_0_EVALUATION_EXPLANATION: evaluation.explanation,
        names.EVALUATIONS_0_EVALUATION_ANNOTATOR_KIND: evaluation.annotator,
        names.EVALUATIONS_0_EVALUATION_IDENTIFIER: failure_id,
    }


def is_taken(name: str) -> bool:
    """Return whether an attribute's presence on an original span decides what is added to the span."""
    return name.startswith(_ANNOTATIONS) or name == names.ERROR


def annotation(
    evaluation: Evaluation, judgement: Judgement, policy: CarrierPolicy, taken: Attributes
) -> dict[str, AttributeValue]:
    """Attributes of an original span that show an evaluation as OpenInference's annotation.

    Args:
        evaluation: what to show.
        judgement: the verdict it comes from.
        policy: how prose is written.
        taken: the span's attributes; the annotation takes the next index that none of them uses.
    """
    version = {"version": judgement.version, "failure_id": judgement.failure_id}
    first = finish(
        {
            names.ANNOTATIONS_0_ANNOTATION_NAME: evaluation.name,
            names.ANNOTATIONS_0_ANNOTATION_SCORE: evaluation.score,
            names.ANNOTATIONS_0_ANNOTATION_LABEL: evaluation.label,
            names.ANNOTATIONS_0_ANNOTATION_EXPLANATION: evaluation.explanation,
            names.ANNOTATIONS_0_ANNOTATION_ANNOTATOR_KIND: evaluation.annotator,
            names.ANNOTATIONS_0_ANNOTATION_IDENTIFIER: IDENTIFIER,
            names.ANNOTATIONS_0_ANNOTATION_METADATA: json.dumps(version),
        },
        policy,
    )
    place = max(below(taken, _ANNOTATIONS), default=-1) + 1
    return {key.replace(".0.", f".{place}.", 1): value for key, value in first.items()}


_OF_EVENTS: Final = (
    names.GEN_AI_EVALUATION_NAME,
    names.GEN_AI_EVALUATION_SCORE_VALUE,
    names.GEN_AI_EVALUATION_SCORE_LABEL,
    names.GEN_AI_EVALUATION_EXPLANATION,
)
"""Attributes of the event that a score has as fields."""


def score_entries(
    judgement: Judgement,
    root: Span | None,
    policy: CarrierPolicy,
    *,
    tenant: Tenant,
    now_ns: int,
    published: StoredVerdict | None,
) -> list[Outgoing]:
    """Return the outbox entries of a verdict's scores; empty without sinks, or if nothing changes.

    Args:
        judgement: the verdict.
        root: the run's root, or its earliest span if the root never arrived.
        policy: with the sinks, and how prose is written.
        tenant: the run's tenant.
        now_ns: Unix ns.
        published: the previous verdict, unless it was provisional.
    """
    lanes = policy.lanes.get(tenant, ())
    if not lanes:
        return []
    scores = tuple(_score_of(evaluation, judgement, policy) for evaluation in evaluations(judgement, root))
    held = {score.place for score in scores}
    withdrawn = tuple(place for place in _places(published, root) if place not in held)
    if not scores and not withdrawn:
        return []
    change = ScoreChange(
        tenant=tenant,
        run_id=judgement.trajectory.run_id,
        decided_ns=now_ns,
        started_ns=root.start_ns if root else 0,
        scores=scores,
        withdrawn=withdrawn,
    )
    return entries_of(change, lanes)


def entries_of(change: ScoreChange, lanes: tuple[Lane, ...]) -> list[Outgoing]:
    """Return the outbox entries of a change, one a sink."""
    body = pack_change(change)
    return [Outgoing(signal=lane, body=body, tenant=change.tenant) for lane in lanes]


def _score_of(evaluation: Evaluation, judgement: Judgement, policy: CarrierPolicy) -> Score:
    attributes: dict[str, Any] = {**event_attributes(evaluation, judgement, policy)}
    explanation = attributes.get(names.GEN_AI_EVALUATION_EXPLANATION, "")
    return Score(
        place=ScorePlace(name=evaluation.name, trace_id=evaluation.trace_id, span_id=evaluation.span_id),
        score=evaluation.score,
        label=evaluation.label,
        explanation=explanation,
        annotator=evaluation.annotator,
        metadata=_metadata(attributes, judgement, policy),
    )


def _metadata(attributes: dict[str, Any], judgement: Judgement, policy: CarrierPolicy) -> Mapping[str, Any]:
    own = {name: value for name, value in attributes.items() if name not in _OF_EVENTS}
    url = policy.run_url(judgement.trajectory.run_id)
    return own | ({names.RUN_URL: url} if url else {})


def _places(published: StoredVerdict | None, root: Span | None) -> Iterator[ScorePlace]:
    """Yield the places of the previous verdict's scores."""
    if published is None or published.status in UNEVALUATED:
        return
    if root is not None:
        yield ScorePlace(name=TASK_SUCCESS, trace_id=root.trace_id, span_id=root.span_id)
    yield from attribution_places([published])


def attribution_places(verdicts: list[StoredVerdict]) -> list[ScorePlace]:
    """Return the places of the attributions of stored verdicts, each once."""
    places = (
        ScorePlace(name=FAILURE_ATTRIBUTION, trace_id=verdict.trace_id, span_id=verdict.span_id)
        for verdict in verdicts
        if verdict.trace_id and verdict.span_id and not verdict.is_provisional
    )
    return list(dict.fromkeys(places))
