"""MLflow: assessments of traces, each with its source, us. Pure.

The server chooses the ids, so ours on the trace are read first: what is there already is left alone, so that
a repeat adds nothing, and what no longer holds is deleted. A changed one is written anew, because its source
and its span cannot be changed.
Source: mlflow 3.17 (2026), ``server/handlers.py``, ``protos/assessments_pb2.pyi``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, Final
from urllib.parse import quote

from collector_processor.core.scores import Score, ScoreChange
from collector_processor.sinks.exchange import (
    HUMAN,
    Call,
    Exchange,
    HumanScore,
    Reading,
    ScoredRun,
    Sink,
    human_score,
    inside,
    listed,
)
from collector_processor.writeback.evaluations import IDENTIFIER
from semconv import attributes as names

_TRACES: Final = "api/3.0/mlflow/traces"
_SOURCES: Final = {"HUMAN": "HUMAN", "LLM": "LLM_JUDGE", "CODE": "CODE"}
_MOST_TRACES: Final = 60
"""Traces asked for in one reading."""
_MAX_VALUE: Final = 1000
"""Characters of a value of the metadata."""


def deliver_mlflow(change: ScoreChange) -> Exchange:
    """Read our assessments of each trace, delete those that no longer hold, and write the missing ones."""
    wanted: dict[str, list[Score]] = {place.trace_id: [] for place in change.withdrawn}
    for score in change.scores:
        wanted.setdefault(score.place.trace_id, []).append(score)
    for trace_id, scores in wanted.items():
        yield from _bring(change.run_id, f"{_TRACES}/tr-{quote(trace_id, safe='')}", scores)


def _bring(run_id: str, path: str, scores: list[Score]) -> Exchange:
    answer = yield Call(method="GET", path=path, may_be_absent=not scores)
    missing = {_key(body): body for body in map(_assessment, scores)}
    found = [] if answer is None else listed(answer, "trace", "trace_info", "assessments")
    for one in [one for one in found if _is_ours(one, run_id)]:
        if missing.pop(_key(one), None) is None:
            own = quote(str(one.get("assessment_id", "")), safe="")
            yield Call(method="DELETE", path=f"{path}/assessments/{own}", may_be_absent=True)
    for body in missing.values():
        yield Call(method="POST", path=f"{path}/assessments", body={"assessment": body})


def read_mlflow(runs: Sequence[ScoredRun], _since_ns: int) -> Reading:
    """Read the feedback of people on each run's traces, one request a trace, the first traces first."""
    found: list[HumanScore | None] = []
    ranks = zip_longest(*(run.trace_ids for run in runs))
    traces = dict.fromkeys(trace_id for rank in ranks for trace_id in rank if trace_id is not None)
    for trace_id in islice(traces, _MOST_TRACES):
        answer = yield Call(method="GET", path=f"{_TRACES}/tr-{quote(trace_id, safe='')}", may_be_absent=True)
        listing = [] if answer is None else listed(answer, "trace", "trace_info", "assessments")
        found += [_said(one, trace_id) for one in listing if _is_persons(one)]
    return [score for score in found if score is not None]


def _is_persons(one: Mapping[str, Any]) -> bool:
    source = inside(one, "source")
    is_standing = one.get("valid") is not False  # false once another one overrides it
    return source.get("source_type") == HUMAN and source.get("source_id") != IDENTIFIER and is_standing


def _said(one: Mapping[str, Any], trace_id: str) -> HumanScore | None:
    return human_score(
        name=one.get("assessment_name"),
        trace_id=trace_id,
        span_id=one.get("span_id"),
        values=[inside(one, "feedback").get("value")],
        said=one.get("last_update_time") or one.get("create_time"),
        author=inside(one, "source").get("source_id"),
    )


def _is_ours(one: Mapping[str, Any], run_id: str) -> bool:
    is_by_us = inside(one, "source").get("source_id") == IDENTIFIER
    return is_by_us and inside(one, "metadata").get(names.RUN_ID) == run_id


def _key(one: Mapping[str, Any]) -> str:
    """Return what tells one of our assessments of a run from another."""
    version = inside(one, "metadata").get(names.FAILURE_ID)
    return repr((one.get("assessment_name"), one.get("span_id"), version))


def _assessment(score: Score) -> dict[str, Any]:
    metadata = {name: _text(value) for name, value in score.metadata.items()}
    if score.score is not None:
        metadata[names.GEN_AI_EVALUATION_SCORE_VALUE] = _text(score.score)
    return {
        "assessment_name": score.place.name,
        "span_id": score.place.span_id,
        "source": {"source_type": _SOURCES[score.annotator], "source_id": IDENTIFIER},
        "feedback": {"value": score.label},
        "rationale": score.explanation,
        "metadata": metadata,
    }


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_MAX_VALUE]


MLFLOW: Final = Sink(
    deliver=deliver_mlflow,
    read=read_mlflow,
    probe=Call(method="POST", path="api/2.0/mlflow/experiments/search", body={"max_results": 1}),
)
