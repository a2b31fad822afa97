"""Arize Phoenix: annotations of spans and traces, replaced by name and identifier. Pure.

A run's evaluation is on its root span, where filters and columns find it, and on the trace if the run is the
whole trace. REST deletes annotations by project and time only, not by span; so one that no longer holds is
first overwritten, which gives its id, and is then deleted by that id, as Phoenix's own pages do.
Source: arize-phoenix 20.26 (2026), ``server/api/routers/v1/{spans,traces,annotations}.py``,
``server/api/mutations``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from collector_processor.core.scores import Score, ScoreChange, ScorePlace
from collector_processor.sinks.exchange import (
    HUMAN,
    READ_NAMES,
    Call,
    Exchange,
    HumanScore,
    Reading,
    ScoredRun,
    Sink,
    UnexpectedAnswerError,
    human_score,
    inside,
    listed,
)
from collector_processor.writeback.evaluations import IDENTIFIER, TASK_SUCCESS

WITHDRAWN: Final = "withdrawn"
_MOST_PROJECTS: Final = 10
_MOST_IDS: Final = 100
"""Ids in one request: 5 KB of URL, which proxies take."""
_MOST_ANNOTATIONS: Final = 1_000
_MOST_LISTINGS: Final = 60
"""Bound on the requests of one reading."""


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


def read_phoenix(runs: Sequence[ScoredRun], _since_ns: int) -> Reading:
    """Read people's annotations of the runs' traces and spans, in each of the first projects."""
    answer = yield Call(method="GET", path="v1/projects", query=[("limit", str(_MOST_PROJECTS))])
    projects = [str(one.get("id", "")) for one in listed(answer, "data")[:_MOST_PROJECTS]]
    found: list[HumanScore | None] = []
    for call, key in islice(_listings(runs, projects), _MOST_LISTINGS):
        answer = yield call
        listing = [] if answer is None else listed(answer, "data")
        found += [_said(one, key) for one in listing if _is_persons(one)]
    return [score for score in found if score is not None]


def _listings(runs: Sequence[ScoredRun], projects: Sequence[str]) -> Iterable[tuple[Call, str]]:
    """Yield the requests, the smaller ones of traces first; none of the spans has to exist."""
    traces = dict.fromkeys(trace_id for run in runs for trace_id in run.trace_ids)
    spans = dict.fromkeys(span_id for run in runs for span_id in run.span_ids)
    only = [("include_annotation_names", name) for name in READ_NAMES]
    for kind, ids in ((_TRACES, traces), (_SPANS, spans)):
        for some in _in_batches(list(ids)):
            for project in projects:
                path = f"v1/projects/{quote(project, safe='')}/{kind.path.removeprefix('v1/')}"
                query = [*((f"{kind.key}s", id_) for id_ in some), *only, ("limit", str(_MOST_ANNOTATIONS))]
                yield Call(method="GET", path=path, query=query, may_be_absent=True), kind.key


def _in_batches(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[first : first + _MOST_IDS] for first in range(0, len(ids), _MOST_IDS))


def _is_persons(one: Mapping[str, Any]) -> bool:
    return one.get("annotator_kind") == HUMAN and one.get("identifier") != IDENTIFIER


def _said(one: Mapping[str, Any], key: str) -> HumanScore | None:
    given = inside(one, "result")
    return human_score(
        name=one.get("name"),
        trace_id=one.get("trace_id") if key == _TRACES.key else None,
        span_id=one.get("span_id") if key == _SPANS.key else None,
        values=[given.get("label"), given.get("score")],
        said=one.get("updated_at") or one.get("created_at"),
        author=one.get("user_id"),
    )


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
    read=read_phoenix,
    probe=Call(method="GET", path="v1/projects", query=[("limit", "1")]),
)
