"""Reader of Arize Phoenix's spans: its REST API, and its data frames as JSON, CSV or Parquet. Pure.

``GET /v1/projects/{id}/spans`` lists spans with flat attributes under ``data``, ``…/spans/otlpv1`` OTLP's own
spans; ``get_spans_dataframe`` has a column ``attributes.NAME`` for each name of OpenInference, whose value is
a list of objects for lists. All are OpenInference's attributes again once they are flat, except for metadata,
which Phoenix takes apart. CSV has Python's ``repr`` of lists. A frame's evaluations (``eval.NAME.label``) and
annotations, in their spans or listed beside them, are OpenInference's annotations.
Source: arize-phoenix 20.26 (2026), ``server/api/routers/v1``, ``trace/dsl/query.py``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of, unwrapped
from analyzer.recordings.otlp_file import otlp_request
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import annotation, attribute_of, events_of, status_of
from analyzer.recordings.table_text import cell_of, rows_of
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.attributes import GEN_AI_OPERATION_NAME, OPENINFERENCE_SPAN_KIND
from semconv.dialects.conventions.openinference import INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_PARAMETERS
from semconv.dialects.conventions.openinference_agents import DOCUMENTS, METADATA
from semconv.dialects.reading.values import structured
from semconv.model import AttributeValue, Span, SpanId
from semconv.record import replace

_OBJECTS: Final = (METADATA, TOOL_PARAMETERS)
"""Attributes that are objects as JSON."""
_LISTS: Final = frozenset({INPUT_MESSAGES, OUTPUT_MESSAGES, DOCUMENTS, *_OBJECTS})
_EVALUATION: Final = re.compile(r"eval\.(?P<name>.+)\.(?P<field>label|score)")


def is_phoenix(records: Records) -> bool:
    """Tell whether records are Phoenix's spans, with annotations among them or without."""
    found = _items(records)
    return all(_is_span(one) or _is_annotation(one) for one in found) and any(map(_is_span, found))


def _items(records: Records) -> Records:
    return unwrapped(rows_of(records), "data", "spans")


def _is_span(one: Any) -> bool:
    if not isinstance(one, dict) or "name" not in one:
        return False
    context = one.get("context")
    is_nested = isinstance(context, dict) and {"trace_id", "span_id"} <= context.keys()
    is_row = {"context.trace_id", "context.span_id"} <= one.keys()
    has_kind = (
        "span_kind" in one or f"attributes.{OPENINFERENCE_SPAN_KIND}" in one
    )  # Arize has no column of its own
    return ((is_nested or is_row) and has_kind and "start_time" in one) or _is_otlp(one)


def _is_otlp(one: Mapping[str, Any]) -> bool:
    """Tell whether it is a span of OTLP outside a request, in either spelling."""
    keys = ({"trace_id", "span_id", "start_time_unix_nano"}, {"traceId", "spanId", "startTimeUnixNano"})
    return any(key <= one.keys() for key in keys) and isinstance(one.get("attributes"), list | None)


def _is_annotation(one: Any) -> bool:
    return isinstance(one, dict) and {"annotator_kind", "span_id", "name"} <= one.keys()


def read_phoenix(records: Records) -> Spans:
    """Read spans and what was said of them."""
    found = objects(_items(records))
    said: defaultdict[SpanId, list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        if _is_annotation(one):
            said[span_id_of(one["span_id"])].append(one)
    otlp = [one for one in found if not _is_annotation(one) and _is_otlp(one)]
    request = {"resource_spans": [{"scope_spans": [{"spans": otlp}]}]}
    plain = decode(otlp_request(Signal.TRACES, request)).spans
    spans = [_annotated(replace(span, attributes=_whole(span.attributes)), said) for span in plain]
    for one in found:
        if not _is_annotation(one) and not _is_otlp(one):
            span = _span(one)
            said[span.span_id] += [*_own_annotations(one), *_evaluations(one)]
            spans.append(_annotated(span, said))
    return spans


def _span(one: Mapping[str, Any]) -> Span:
    context = one.get("context")
    ids = context if isinstance(context, dict) else {name: one[f"context.{name}"] for name in _IDS}
    start_ns, kind = nanoseconds(one["start_time"]), json_text(one.get("span_kind"))
    attributes = _whole(dict(_flat(one)))
    # Phoenix adds OpenInference's attributes to spans that were sent with GenAI's, which say more.
    if kind.upper() not in {"", "UNKNOWN"} and GEN_AI_OPERATION_NAME not in attributes:
        attributes.setdefault(OPENINFERENCE_SPAN_KIND, kind)
    return Span(
        trace_id=trace_id_of(ids["trace_id"]),
        span_id=span_id_of(ids["span_id"]),
        parent_id=span_id_of(one["parent_id"]) if one.get("parent_id") else None,
        name=json_text(one["name"]),
        kind=1,
        start_ns=start_ns,
        end_ns=nanoseconds(one.get("end_time")) or start_ns,
        status=status_of(one.get("status_code")),
        status_message=json_text(one.get("status_message")),
        attributes=attributes,
        events=events_of(cell_of(one.get("events"))),
    )


_IDS: Final = ("trace_id", "span_id")


def _flat(one: Mapping[str, Any]) -> Iterator[tuple[str, AttributeValue]]:
    """Yield a span's attributes with flat names, in order."""
    prefix = "attributes."
    given = one.get("attributes")
    columns = [(name[len(prefix) :], value) for name, value in one.items() if name.startswith(prefix)]
    nested = structured(given) if given is not None else {}
    waiting: list[tuple[str, Any]] = [*nested.items(), *columns][::-1]
    while waiting:
        name, value = waiting.pop()
        value = cell_of(value) if name in _LISTS else value
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if isinstance(value, dict) and not name.endswith(_OBJECTS):
            waiting += [(f"{name}.{key}", inner) for key, inner in value.items()][::-1]
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            waiting += [(f"{name}.{at}", each) for at, each in enumerate(value)][::-1]
        else:
            yield name, attribute_of(value)


def _whole(flat: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return attributes with the objects whose fields Phoenix lists one by one as JSON again."""
    fields: dict[str, dict[str, AttributeValue]] = {name: {} for name in _OBJECTS}
    found: dict[str, AttributeValue] = {}
    for name, value in flat.items():
        whole = next((each for each in _OBJECTS if name.startswith(f"{each}.")), "")
        if whole and whole not in flat:
            fields[whole][name[len(whole) + 1 :]] = value
        else:
            found[name] = value
    return found | {name: json_text(inner) for name, inner in fields.items() if inner}


def _own_annotations(one: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    held = (one.get(name) for name in ("span_annotations", "spanAnnotations", "annotations"))
    return objects(next((cell_of(each) for each in held if each), []))


def _evaluations(one: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in one.items():
        if (match := _EVALUATION.fullmatch(name)) and value is not None:
            found[match["name"]][match["field"]] = value
    return [{"name": name, **fields} for name, fields in found.items()]


def _annotated(span: Span, said: Mapping[SpanId, Sequence[Mapping[str, Any]]]) -> Span:
    found: dict[str, AttributeValue] = {}
    for number, one in enumerate(said.get(span.span_id, ())):
        result = one["result"] if isinstance(one.get("result"), dict) else one
        kind = one.get("annotator_kind", one.get("annotatorKind"))
        label, score = result.get("label"), result.get("score")
        score = float(score) if isinstance(score, str) and score else score
        found |= annotation(
            "annotations", number, name=one.get("name"), label=label, score=score, annotator_kind=kind
        )
    return replace(span, attributes={**span.attributes, **found}) if found else span


PHOENIX: Final = FileFormat(
    name="Phoenix spans (REST API, or a data frame as JSON, CSV or Parquet)",
    example="phoenix-spans.json",
    source="arize-phoenix 20.26, REST API and get_spans_dataframe",
    how=(
        '`Client().spans.get_spans_dataframe(project_identifier="P").to_parquet("spans.parquet")`,'
        " or `curl http://HOST:6006/v1/projects/P/spans`; many at once: [`blamespan pull "
        "phoenix`](pull.md)"
    ),
    recognizes=is_phoenix,
    read=read_phoenix,
)
