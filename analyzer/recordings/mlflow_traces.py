"""Reader of MLflow's traces: ``Trace.to_json``, the artifact ``traces.json``, ``search_traces``. Pure.

A trace has ``info`` and ``data.spans``; a data frame has ``spans``, or the whole trace as text in ``trace``.
Since version 3 ids are base64 and times end in ``_unix_nano``; before, ids were hex under ``context``. The
attributes are those that MLflow exports, so that its dialect reads them. The REST API
(``traces/batchGet``) has ``trace_info`` and OTLP's own spans. Assessments become OpenInference's
annotations; expectations are left out, because they need not be the answer. Spans that share an id, as in
traces put together by hand, are told apart by their order.
Source: mlflow 3.17 and 2.22, ``mlflow/entities/{trace,span,assessment}.py``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of, unwrapped
from analyzer.recordings.otlp_file import otlp_request
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import annotation, attributes_of, events_of, status_of
from analyzer.recordings.table_text import cell_of, rows_of
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.attributes import GEN_AI_OPERATION_NAME, OPENINFERENCE_SPAN_KIND, SESSION_ID
from semconv.dialects.conventions.mlflow import NAME
from semconv.dialects.reading.denormalized import TRACELOOP_KIND
from semconv.model import Attributes, AttributeValue, Resource, Span
from semconv.record import replace

_PREFIX: Final = "mlflow."
_OTHERS: Final = (GEN_AI_OPERATION_NAME, OPENINFERENCE_SPAN_KIND, TRACELOOP_KIND)
_SESSION: Final = "mlflow.trace.session"
_RESOURCE: Final = Resource(attributes={"service.name": NAME})
_ANNOTATORS: Final = {"HUMAN": "HUMAN", "LLM_JUDGE": "LLM", "AI_JUDGE": "LLM", "CODE": "CODE"}


def is_mlflow(records: Records) -> bool:
    """Tell whether records are traces of MLflow, or the spans of one."""
    found = _traces(records)
    return bool(found) and all(isinstance(one, dict) and _is_trace(one) for one in found)


def _traces(records: Records) -> Sequence[Any]:
    found = unwrapped(rows_of(records), "traces")
    return [{"spans": found}] if found and all(map(_is_span, found)) else found


def _is_trace(one: Mapping[str, Any]) -> bool:
    spans = _spans(one)
    if "trace_info" in one:
        return bool(spans)
    is_own = any(str(name).startswith(_PREFIX) for span in spans for name in span["attributes"])
    return is_own or (bool(spans) and "trace_metadata" in _info(one))


def _spans(one: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return a trace's spans; none unless all of them are MLflow's."""
    whole = cell_of(one.get("trace")) if "trace" in one else one
    data = whole.get("data", whole) if isinstance(whole, dict) else one
    held = data.get("spans") if isinstance(data, dict) else None
    cell = cell_of(held if held is not None else one.get("spans"))
    is_kind = _is_otlp_span if "trace_info" in one else _is_span
    return cell if isinstance(cell, list) and cell and all(map(is_kind, cell)) else ()


def _is_span(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("attributes"), dict):
        return False
    is_old = isinstance(one.get("context"), dict) and {"parent_id", "start_time", "status_code"} <= one.keys()
    return "name" in one and (is_old or "start_time_unix_nano" in one) and "resource" not in one


def _is_otlp_span(one: Any) -> bool:
    return isinstance(one, dict) and {"trace_id", "span_id", "start_time_unix_nano"} <= one.keys()


def _info(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is known of a trace: a row of a frame has it in columns."""
    whole = cell_of(one.get("trace"))
    held = whole if isinstance(whole, dict) else one
    found = held.get("trace_info", held.get("info"))
    return found if isinstance(found, dict) else one


def read_mlflow(records: Records) -> Spans:
    """Read traces."""
    return (span for place, one in enumerate(_traces(records)) for span in _trace(one, place))


def _trace(one: Mapping[str, Any], place: int) -> Sequence[Span]:
    info, raw = _info(one), _spans(one)
    name = json_text(info.get("trace_id") or info.get("request_id")) or f"trace {place}"
    is_otlp = "trace_info" in one
    spans = _otlp_spans(raw) if is_otlp else _told_apart([_span(each, name) for each in raw], raw)
    top = next((at for at, span in enumerate(spans) if span.parent_id is None), 0)
    more: dict[int, dict[str, AttributeValue]] = {top: {}}
    session = (cell_of(info.get("trace_metadata", info.get("request_metadata"))) or {}).get(_SESSION)
    if session:
        more[top][SESSION_ID] = json_text(session)
    places = {span.span_id: at for at, span in enumerate(spans)}
    for number, said in enumerate(objects(cell_of(info.get("assessments")) or [])):
        own = said.get("span_id")
        where = places.get(span_id_of(_hex(own)), top) if own else top
        more.setdefault(where, {}).update(_judgement(said, number, is_of_run=not own))
    return [
        replace(span, attributes={**span.attributes, **more[at]}) if at in more else span
        for at, span in enumerate(spans)
    ]


def _otlp_spans(raw: Sequence[Mapping[str, Any]]) -> Sequence[Span]:
    request = {"resource_spans": [{"scope_spans": [{"spans": list(raw)}]}]}
    spans = decode(otlp_request(Signal.TRACES, request)).spans
    return [replace(span, attributes=_as_sent(span.attributes), resource=_RESOURCE) for span in spans]


def _as_sent(given: Attributes) -> Attributes:
    """Return a span's attributes without what the server derived from them when it received OTLP.

    It adds its own names for what it knows of other conventions, and has none for the agent.
    """
    if not any(name in given for name in _OTHERS):
        return given
    return {name: value for name, value in given.items() if not name.startswith(_PREFIX)}


def _span(one: Mapping[str, Any], trace: str) -> Span:
    ids = one.get("context") or one
    status = one.get("status") or {"code": one.get("status_code"), "message": one.get("status_message")}
    parent = one.get("parent_span_id", one.get("parent_id"))
    start_ns = nanoseconds(one.get("start_time_unix_nano", one.get("start_time")))
    return Span(
        trace_id=trace_id_of(_hex(ids.get("trace_id")) or trace),
        span_id=span_id_of(_hex(ids.get("span_id"))),
        parent_id=span_id_of(_hex(parent)) if parent else None,
        name=json_text(one["name"]),
        kind=1,
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("end_time_unix_nano", one.get("end_time"))) or start_ns,
        status=status_of(status.get("code")),
        status_message=json_text(status.get("message")),
        attributes=attributes_of(one["attributes"]),
        events=events_of(one.get("events"), "timestamp" if "context" in one else "time_unix_nano"),
        resource=_RESOURCE,
    )


def _hex(value: object) -> str:
    """Return an id as hex if it is base64 of eight or sixteen bytes; otherwise its text."""
    text = json_text(value)
    if len(text) in {12, 24} and text.endswith("="):
        try:
            return base64.b64decode(text, validate=True).hex()
        except binascii.Error:
            return text
    return text


def _told_apart(spans: Sequence[Span], raw: Sequence[Mapping[str, Any]]) -> Sequence[Span]:
    """Return spans with ids of their own if several have the same, or none.

    The first span with an id is the parent of later ones that name it; without any ids, the first span is.
    """
    seen = {(span.span_id, span.name, span.start_ns) for span in spans}
    if len(seen) == len({span.span_id for span in spans}):
        return spans  # a span written twice is one span
    first = {span.span_id: at for at, span in reversed(list(enumerate(spans)))}
    own = [span_id_of(f"{span.trace_id} {at}") for at, span in enumerate(spans)]
    found = []
    for at, span in enumerate(spans):
        above = first.get(span.parent_id, at) if span.parent_id else at
        if span.parent_id is None and not (raw[at].get("context") or raw[at]).get("span_id"):
            above = 0
        found.append(replace(span, span_id=own[at], parent_id=own[above] if above < at else None))
    return found


def _judgement(said: Mapping[str, Any], number: int, *, is_of_run: bool) -> dict[str, AttributeValue]:
    feedback, source = said.get("feedback"), said.get("source") or {}
    if not isinstance(feedback, dict) or said.get("valid") is False or feedback.get("value") is None:
        return {}
    value = feedback["value"]
    return annotation(
        "trace.annotations" if is_of_run else "annotations",
        number,
        name=said.get("assessment_name", said.get("name")),
        label=value if isinstance(value, str) else None,
        score=value if isinstance(value, int | float) else None,
        annotator_kind=_ANNOTATORS.get(json_text(source.get("source_type"))),
    )


MLFLOW: Final = FileFormat(
    name="MLflow traces",
    example="mlflow-trace.json",
    source="mlflow 3.17, Trace.to_json, search_traces and REST API",
    how="`mlflow.get_trace(TRACE_ID).to_json()`; many at once: [`blamespan pull mlflow`](pull.md)",
    recognizes=is_mlflow,
    read=read_mlflow,
)
