"""Reader of Langfuse's JSON exports. Pure.

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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import nanoseconds, span_id_of, text_at, trace_id_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import annotation
from semconv.dialects.conventions.langfuse import (
    LEVEL,
    METADATA,
    OBSERVATION_INPUT,
    OBSERVATION_OUTPUT,
    OBSERVATION_TYPE,
    SCOPE,
    STATUS_MESSAGE,
)
from semconv.model import AttributeValue, Resource, Scope, Span, SpanId, SpanStatus
from semconv.record import replace

_TYPES: Final = frozenset(
    {"SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING"}
    | {"GUARDRAIL", "COMPLETION"}
)
_SCOPE: Final = Scope(name=SCOPE)
_RESOURCE: Final = Resource(attributes={"service.name": "langfuse"})
_ANNOTATORS: Final = {"ANNOTATION": "HUMAN", "EVAL": "LLM"}
"""OpenInference's annotator kind by a score's source; ``API`` may be either."""


def is_langfuse(records: Records) -> bool:
    """Tell whether records are observations of Langfuse, or documents that hold some."""
    return _are_observations(records) or all(_are_observations(_observations(record)) for record in records)


def _are_observations(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        text_at(one, "type") in _TYPES and one.get("startTime") and one.get("id") for one in found
    )


def read_langfuse(records: Records) -> Spans:
    """Read exports, or the observations of one."""
    documents: Sequence[Any] = [list(records)] if _are_observations(records) else records
    return (span for document in documents for span in _spans(document))


def _spans(document: Any) -> list[Span]:
    trace, observations = _trace(document), _observations(document)
    known = {str(observation["id"]) for observation in observations}
    tops = [one for one in observations if str(one.get("parentObservationId")) not in known]
    judged = _judgements(document)
    spans = [_span(one, trace, judged.get(span_id_of(one["id"]), {})) for one in observations]
    if len(tops) > 1 and trace:
        root = _root(trace, observations)
        root_id, top_ids = span_id_of(root["id"]), {span_id_of(top["id"]) for top in tops}
        spans = [replace(span, parent_id=root_id) if span.span_id in top_ids else span for span in spans]
        spans.insert(0, _span(root, trace, {}))
    if spans:
        whole = judged.get(None, {})
        spans[0] = replace(spans[0], attributes={**spans[0].attributes, **whole})
    return spans


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


def _judgements(document: Any) -> dict[SpanId | None, dict[str, AttributeValue]]:
    """Return the scores by the id of the observation's span; by none, those of the trace, for any span."""
    found: defaultdict[SpanId | None, dict[str, AttributeValue]] = defaultdict(dict)
    for number, score in enumerate(_scores(document)):
        observation = score.get("observationId")
        found[span_id_of(observation) if observation else None] |= _judgement(number, score)
    return found


def _scores(document: Any) -> Sequence[Mapping[str, Any]]:
    holders = (document, _trace(document)) if isinstance(document, dict) else ()
    found = next((holder["scores"] for holder in holders if isinstance(holder.get("scores"), list)), ())
    return [score for score in found if isinstance(score, dict)]


def _judgement(number: int, score: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return a score as attributes; a category's number is only its position in a list."""
    value, label = score.get("value"), score.get("stringValue")
    label = value if isinstance(value, str) else label
    return annotation(
        "annotations" if score.get("observationId") else "trace.annotations",
        number,
        name=str(score.get("name") or ""),
        label=str(label or ""),
        annotator_kind=_ANNOTATORS.get(str(score.get("source"))),
        score=float(value) if isinstance(value, int | float) and not label else None,
    )


def _root(trace: Mapping[str, Any], observations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the trace as an observation around all the others."""
    starts = [str(observation["startTime"]) for observation in observations]
    ends = [str(observation["endTime"]) for observation in observations if observation.get("endTime")]
    return {
        **{name: trace.get(name) for name in ("name", "input", "output", "metadata")},
        "id": f"trace {trace.get('id')}",
        "traceId": observations[0].get("traceId"),
        "type": "SPAN",
        "startTime": min(starts),
        "endTime": max(ends, default=max(starts)),
    }


def _span(
    observation: Mapping[str, Any], trace: Mapping[str, Any], judged: Mapping[str, AttributeValue]
) -> Span:
    parent, level = observation.get("parentObservationId"), str(observation.get("level") or "DEFAULT")
    start_ns = nanoseconds(observation["startTime"])
    message, metadata = observation.get("statusMessage"), observation.get("metadata")
    fields = {
        OBSERVATION_TYPE: str(observation["type"]).lower(),
        OBSERVATION_INPUT: observation.get("input"),
        OBSERVATION_OUTPUT: observation.get("output"),
        LEVEL: level,
        STATUS_MESSAGE: message,
        **{
            f"{METADATA}{key}": value
            for key, value in (metadata.items() if isinstance(metadata, dict) else ())
        },
    }
    return Span(
        trace_id=trace_id_of(observation.get("traceId") or trace.get("id") or ""),
        span_id=span_id_of(observation["id"]),
        parent_id=span_id_of(parent) if parent else None,
        name=str(observation.get("name") or observation["type"]),
        kind=1,
        start_ns=start_ns,
        end_ns=nanoseconds(observation.get("endTime") or None) or start_ns,
        status=SpanStatus.ERROR if level == "ERROR" else SpanStatus.UNSET,
        status_message=str(message or ""),
        attributes={
            **{
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in fields.items()
                if value is not None
            },
            **judged,
        },
        scope=_SCOPE,
        resource=_RESOURCE,
    )


LANGFUSE: Final = FileFormat(
    name="a Langfuse export",
    example="langfuse.json",
    source="Langfuse's OpenAPI description, 2026",
    how=(
        "The download button of a trace, or `curl -u PUBLIC_KEY:SECRET_KEY "
        "https://HOST/api/public/traces/TRACE_ID`; many at once: [`blamespan pull "
        "langfuse`](pull.md)"
    ),
    recognizes=is_langfuse,
    read=read_langfuse,
)
