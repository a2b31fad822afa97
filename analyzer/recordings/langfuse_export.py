"""Conversion of Langfuse's JSON exports to OTLP/JSON documents.

Reads a trace with its observations (``GET /api/public/traces/{id}``, or the page's download, which nests the
trace under ``trace``), a list of observations under ``data``, or a bare list. Each observation becomes the
span that Langfuse's SDK would have sent, so that one dialect reads both. Observations without a common parent
become children of the trace itself. Scores, of people and programs, become OpenInference's annotations: of
the observation that they name, else of the trace. Ids that do not have OpenTelemetry's form (UUIDs, before
version 3 of the SDK) are hashed.
Source: Langfuse's OpenAPI description, ``TraceWithFullDetails``, ``ObservationsView`` and ``Score`` (2026).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.file_format import (
    FileFormat,
    Recording,
    Records,
    nanoseconds,
    span_id_of,
    text_at,
    trace_id_of,
)
from analyzer.recordings.otlp_file import of_documents
from semconv.dialects.conventions.langfuse import (
    LEVEL,
    METADATA,
    OBSERVATION_INPUT,
    OBSERVATION_OUTPUT,
    OBSERVATION_TYPE,
    SCOPE,
    STATUS_MESSAGE,
)

_TYPES: Final = frozenset(
    {"SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING"}
    | {"GUARDRAIL", "COMPLETION"}
)
_ANNOTATORS: Final = {"ANNOTATION": "HUMAN", "EVAL": "LLM"}
"""OpenInference's annotator kind by a score's source; ``API`` may be either."""


def is_langfuse(records: Records) -> bool:
    """Tell whether records are observations of Langfuse, or documents that hold some."""
    return _are_observations(records) or all(_are_observations(_observations(one)) for one in records)


def _are_observations(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        text_at(one, "type") in _TYPES and one.get("startTime") and one.get("id") for one in found
    )


def read_langfuse(records: Records) -> Recording:
    """Read exports, or the observations of one."""
    documents: Sequence[Any] = [list(records)] if _are_observations(records) else records
    return of_documents(*map(_to_otlp, documents))


def _to_otlp(document: Any) -> dict[str, Any]:
    trace, observations = _trace(document), _observations(document)
    known = {str(one["id"]) for one in observations}
    tops = [one for one in observations if str(one.get("parentObservationId")) not in known]
    spans = [_span(one, trace) for one in observations]
    if len(tops) > 1 and trace:
        root = _root(trace, observations)
        top_ids = {span_id_of(one["id"]) for one in tops}
        spans = [_span(root, trace)] + [
            {**span, "parentSpanId": span_id_of(root["id"])} if span["spanId"] in top_ids else span
            for span in spans
        ]
    _add_scores(document, spans)
    service = {"key": "service.name", "value": {"stringValue": "langfuse"}}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [service]},
                "scopeSpans": [{"scope": {"name": SCOPE}, "spans": spans}],
            }
        ]
    }


def _observations(document: object) -> Sequence[Any]:
    found = document
    if isinstance(document, dict):
        found = document.get("observations", document.get("data"))
    return found if isinstance(found, list) else ()


def _trace(document: object) -> Mapping[str, Any]:
    if not isinstance(document, dict) or "observations" not in document:
        return {}
    inner = document.get("trace")
    return inner if isinstance(inner, dict) else document


def _add_scores(document: Any, spans: list[dict[str, Any]]) -> None:
    """Add each score to the span of its observation, and a score of the trace to any of its spans."""
    by_id = {span["spanId"]: span for span in spans}
    for number, score in enumerate(_scores(document)):
        observation = score.get("observationId")
        span = by_id.get(span_id_of(observation)) if observation else spans[0]
        if span is not None:
            whose = "annotations" if observation else "trace.annotations"
            span["attributes"] += _annotation(f"{whose}.{number}.annotation", score)


def _scores(document: Any) -> Sequence[Mapping[str, Any]]:
    holders = (document, _trace(document)) if isinstance(document, dict) else ()
    found = next((one["scores"] for one in holders if isinstance(one.get("scores"), list)), ())
    return [score for score in found if isinstance(score, dict)]


def _annotation(prefix: str, score: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a score as attributes; a category's number is only its position in a list."""
    value, label = score.get("value"), score.get("stringValue")
    label = value if isinstance(value, str) else label
    annotator = _ANNOTATORS.get(str(score.get("source")))
    fields = {"name": score.get("name"), "label": label, "annotator_kind": annotator}
    texts = {name: {"stringValue": str(text)} for name, text in fields.items() if text}
    number = {"score": {"doubleValue": float(value)}} if isinstance(value, int | float) and not label else {}
    return [{"key": f"{prefix}.{name}", "value": each} for name, each in (texts | number).items()]


def _root(trace: Mapping[str, Any], observations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the trace as an observation around all the others."""
    starts = [str(one["startTime"]) for one in observations]
    ends = [str(one["endTime"]) for one in observations if one.get("endTime")]
    return {
        **{name: trace.get(name) for name in ("name", "input", "output", "metadata")},
        "id": f"trace {trace.get('id')}",
        "traceId": observations[0].get("traceId"),
        "type": "SPAN",
        "startTime": min(starts),
        "endTime": max(ends, default=max(starts)),
    }


def _span(observation: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any]:
    parent, level = observation.get("parentObservationId"), str(observation.get("level") or "DEFAULT")
    start = nanoseconds(observation["startTime"])
    end = observation.get("endTime")
    metadata = observation.get("metadata")
    attributes = {
        OBSERVATION_TYPE: str(observation["type"]).lower(),
        OBSERVATION_INPUT: observation.get("input"),
        OBSERVATION_OUTPUT: observation.get("output"),
        LEVEL: level,
        STATUS_MESSAGE: observation.get("statusMessage"),
        **{
            f"{METADATA}{key}": value
            for key, value in (metadata.items() if isinstance(metadata, dict) else ())
        },
    }
    return {
        "traceId": trace_id_of(observation.get("traceId") or trace.get("id") or ""),
        "spanId": span_id_of(observation["id"]),
        "parentSpanId": span_id_of(parent) if parent else "",
        "name": str(observation.get("name") or observation["type"]),
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(nanoseconds(end) if end else start),
        "attributes": [
            {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
            for key, value in attributes.items()
            if value is not None
        ],
        "status": {
            "code": 2 if level == "ERROR" else 0,
            "message": str(observation.get("statusMessage") or ""),
        },
    }


LANGFUSE: Final = FileFormat(
    name="a Langfuse export",
    example="langfuse.json",
    source="Langfuse's OpenAPI description, 2026",
    recognizes=is_langfuse,
    read=read_langfuse,
)
