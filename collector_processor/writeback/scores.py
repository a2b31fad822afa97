"""Scores that a verdict writes for the sinks of its tenant: one outbox entry a sink. Pure.

The evaluations are those of the events; those of the previous verdict that stand elsewhere are withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from collector_processor.core.records import Outgoing, StoredVerdict
from collector_processor.core.scores import Lane, Score, ScoreChange, ScorePlace, pack_change
from collector_processor.otlp import Tenant
from collector_processor.writeback.annotate import CarrierPolicy, Judgement
from collector_processor.writeback.evaluations import (
    FAILURE_ATTRIBUTION,
    TASK_SUCCESS,
    UNEVALUATED,
    Evaluation,
    evaluations,
    event_attributes,
)
from semconv import attributes as names
from semconv.model import Span

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
    scores = tuple(_score(each, judgement, policy) for each in evaluations(judgement, root))
    held = {each.place for each in scores}
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


def _score(evaluation: Evaluation, judgement: Judgement, policy: CarrierPolicy) -> Score:
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
    found = (
        ScorePlace(name=FAILURE_ATTRIBUTION, trace_id=one.trace_id, span_id=one.span_id)
        for one in verdicts
        if one.trace_id and one.span_id and not one.is_provisional
    )
    return list(dict.fromkeys(found))
