"""Langfuse: categorical scores of traces and observations, under ids of our choice. Pure.

A run has one score a name, with one id and one timestamp, by which a later verdict replaces it wherever it
stands. A score may come before its trace.
Source: langfuse 5.0 for Python (2026), ``api/scores``: ``POST`` and ``DELETE /api/public/scores``,
``GET /api/public/v2/scores``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from collector_processor.core.scores import Score, ScoreChange
from collector_processor.sinks.exchange import (
    READ_NAMES,
    Call,
    Exchange,
    HumanScore,
    Reading,
    ScoredRun,
    Sink,
    human_score,
    listed,
)
from collector_processor.writeback.annotate import digest
from collector_processor.writeback.evaluations import IDENTIFIER, TASK_SUCCESS
from semconv import attributes as names

_SCORES: Final = "api/public/scores"
_READ: Final = "api/public/v2/scores"
_PAGE: Final = 100
_MOST_PAGES: Final = 10
_ANNOTATION: Final = "ANNOTATION"


def deliver_langfuse(change: ScoreChange) -> Exchange:
    """Write the scores that hold, and delete those of the names that none has."""
    for score in change.scores:
        yield Call(method="POST", path=_SCORES, body=_body(score, change))
    held = {score.place.name for score in change.scores}
    for name in sorted({place.name for place in change.withdrawn} - held):
        yield Call(method="DELETE", path=f"{_SCORES}/{_id(change, name)}", may_be_absent=True)


def read_langfuse(runs: Sequence[ScoredRun], since_ns: int) -> Reading:
    """Read the annotations created since a Unix ns, the newest 1,000 of each name, and keep the runs' own."""
    wanted = {trace_id for run in runs for trace_id in run.trace_ids}
    found: list[HumanScore | None] = []
    for name in READ_NAMES:
        for page in range(1, _MOST_PAGES + 1):
            answer = yield _listing(name, page, since_ns)
            listing = listed(answer, "data")
            found += [_said(one) for one in listing if _is_persons(one)]
            if len(listing) < _PAGE:
                break
    return [score for score in found if score is not None and score.trace_id in wanted]


def _listing(name: str, page: int, since_ns: int) -> Call:
    query = {
        "name": name,
        "source": _ANNOTATION,
        "fromTimestamp": _moment(since_ns),
        "fields": "score",
        "limit": str(_PAGE),
        "page": str(page),
    }
    return Call(method="GET", path=_READ, query=[*query.items()])


def _is_persons(one: Mapping[str, Any]) -> bool:
    return one.get("source") == _ANNOTATION  # ours are of the source API


def _said(one: Mapping[str, Any]) -> HumanScore | None:
    return human_score(
        name=one.get("name"),
        trace_id=one.get("traceId"),
        span_id=one.get("observationId"),
        values=[one.get("stringValue"), one.get("value")],
        said=one.get("updatedAt") or one.get("timestamp"),
        author=one.get("authorUserId"),
    )


def _id(change: ScoreChange, name: str) -> str:
    return digest(IDENTIFIER, change.tenant, change.run_id, name, size=16)


def _body(score: Score, change: ScoreChange) -> dict[str, Any]:
    place = score.place
    body = {
        "id": _id(change, place.name),
        "traceId": place.trace_id,
        "timestamp": _moment(change.started_ns),
        "name": place.name,
        "dataType": "CATEGORICAL",
        "value": score.label,
        "comment": score.explanation or None,
        "metadata": {**score.metadata, names.GEN_AI_EVALUATION_SCORE_VALUE: score.score},
    }
    is_of_trace = place.name == TASK_SUCCESS and place.trace_id == change.run_id
    return body if is_of_trace else {**body, "observationId": place.span_id}


def _moment(unix_ns: int) -> str:
    """Return a time as ISO 8601, in whole milliseconds as Langfuse keeps it."""
    seconds, rest_ns = divmod(unix_ns, 10**9)
    whole = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 10**6 * 1000)
    return whole.isoformat(timespec="milliseconds")


LANGFUSE: Final = Sink(
    deliver=deliver_langfuse,
    read=read_langfuse,
    probe=Call(method="GET", path="api/public/projects"),
)
