"""Arize Phoenix: annotations of spans and traces, replaced by name and identifier. Pure.

A run's evaluation is on its root span, where filters and columns find it, and on the trace if the run is the
whole trace. REST deletes annotations by project and time only, not by span; so one that no longer holds is
first overwritten, which gives its id, and is then deleted by that id, as Phoenix's own pages do.
Source: arize-phoenix 20.26 (2026), ``server/api/routers/v1/{spans,traces}.py``, ``server/api/mutations``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.core.scores import Score, ScoreChange, ScorePlace
from collector_processor.sinks.exchange import Call, Exchange, Sink, UnexpectedAnswerError, listed
from collector_processor.writeback.evaluations import IDENTIFIER, TASK_SUCCESS

WITHDRAWN: Final = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Annotations of spans, or of traces."""

    path: str
    key: str
    """Name of the id of what is annotated."""
    mutation: str


_SPANS: Final = _Kind(path="v1/span_annotations", key="span_id", mutation="deleteSpanAnnotations")
_TRACES: Final = _Kind(path="v1/trace_annotations", key="trace_id", mutation="deleteTraceAnnotations")


def deliver_phoenix(change: ScoreChange) -> Exchange:
    """Write the annotations that hold, then delete the others."""
    for score in change.scores:
        for kind, owner in _owners(score.place, change.run_id):
            yield _upsert(kind, owner, _annotation(score))
    for place in change.withdrawn:
        for kind, owner in _owners(place, change.run_id):
            yield from _delete(kind, owner, place)


def _owners(place: ScorePlace, run_id: str) -> Iterable[tuple[_Kind, str]]:
    if place.span_id:
        yield _SPANS, place.span_id
    if place.name == TASK_SUCCESS and place.trace_id == run_id:
        yield _TRACES, place.trace_id


def _annotation(score: Score) -> dict[str, Any]:
    result = {"label": score.label, "score": score.score, "explanation": score.explanation or None}
    return {
        "name": score.place.name,
        "annotator_kind": score.annotator,
        "result": result,
        "metadata": {**score.metadata},
    }


def _upsert(kind: _Kind, owner: str, annotation: Mapping[str, Any], *, may_be_absent: bool = False) -> Call:
    # Not ``sync``, Phoenix would answer before it has stored anything.
    row = {kind.key: owner, "identifier": IDENTIFIER, **annotation}
    return Call(
        method="POST",
        path=kind.path,
        query=[("sync", "true")],
        body={"data": [row]},
        may_be_absent=may_be_absent,
    )


def _delete(kind: _Kind, owner: str, place: ScorePlace) -> Generator[Call, Any, None]:
    gone = {"name": place.name, "annotator_kind": "CODE", "result": {"label": WITHDRAWN}, "metadata": {}}
    answer = yield _upsert(kind, owner, gone, may_be_absent=True)
    if answer is None:  # the span is gone, and its annotations with it
        return
    ids = [one.get("id") for one in listed(answer, "data")]
    query = f"mutation($ids: [ID!]!) {{ {kind.mutation}(input: {{annotationIds: $ids}}) {{ __typename }} }}"
    answer = yield Call(method="POST", path="graphql", body={"query": query, "variables": {"ids": ids}})
    if listed(answer, "errors"):
        raise UnexpectedAnswerError(f"{kind.mutation} failed; the annotation stays, labelled {WITHDRAWN!r}")


PHOENIX: Final = Sink(
    deliver=deliver_phoenix,
    probe=Call(method="GET", path="v1/projects", query=[("limit", "1")]),
)
