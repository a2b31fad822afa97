"""A request decodes to the same protobuf in every accepted spelling of OTLP/JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_protobuf

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES = ("UNSET", "OK", "ERROR")
TEMPORALITIES = ("UNSPECIFIED", "DELTA", "CUMULATIVE")
SEVERITIES = ("UNSPECIFIED", *(f"{name}{n}".rstrip("1") for name in ("TRACE", "DEBUG") for n in (1, 2, 3, 4)))
trace_ids = st.one_of(st.integers(1, 2**64 - 1), st.integers(2**64, 2**128 - 1)).map(lambda n: f"{n:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}")
texts = st.text("abc traceId", max_size=9)


def links() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"traceId": trace_ids, "spanId": span_ids})


spans = st.fixed_dictionaries(
    {"traceId": trace_ids, "spanId": span_ids, "name": texts},
    optional={
        "parentSpanId": span_ids,
        "kind": st.sampled_from(range(len(KINDS))),
        "status": st.fixed_dictionaries({"code": st.sampled_from(range(len(CODES))), "message": texts}),
        "links": st.lists(links(), max_size=2),
    },
)
severities = st.sampled_from(range(len(SEVERITIES)))
records = st.fixed_dictionaries(
    {"body": st.fixed_dictionaries({"stringValue": texts})},
    optional={"traceId": trace_ids, "spanId": span_ids, "severityNumber": severities},
)
points = st.fixed_dictionaries({"asInt": st.just("4"), "exemplars": st.lists(links(), max_size=2)})
temporalities = st.sampled_from(range(len(TEMPORALITIES)))
sums = {"aggregationTemporality": temporalities, "dataPoints": st.lists(points, max_size=2)}
metrics = st.fixed_dictionaries({"name": texts, "sum": st.fixed_dictionaries(sums)})
FIELDS = {
    Signal.TRACES: ("resourceSpans", "scopeSpans", "spans", "instrumentationLibrarySpans"),
    Signal.LOGS: ("resourceLogs", "scopeLogs", "logRecords", "instrumentationLibraryLogs"),
    Signal.METRICS: ("resourceMetrics", "scopeMetrics", "metrics", "instrumentationLibraryMetrics"),
}
ITEMS: dict[Signal, st.SearchStrategy[Any]] = dict(zip(FIELDS, (spans, records, metrics), strict=True))


@st.composite
def requests(draw: st.DrawFn) -> tuple[Signal, dict[str, Any]]:
    signal = draw(st.sampled_from(list(Signal)))
    groups, scopes, items, _ = FIELDS[signal]
    scope = st.fixed_dictionaries(
        {"scope": st.fixed_dictionaries({"name": texts}), items: st.lists(ITEMS[signal], max_size=3)}
    )
    group = st.fixed_dictionaries({scopes: st.lists(scope, min_size=1, max_size=2)})
    return signal, {groups: draw(st.lists(group, min_size=1, max_size=2))}


def in_hex(draw: st.DrawFn, text: str) -> str:
    """The id in another spelling of hex."""
    if len(text) == 32 and text.startswith("0" * 16) and draw(st.booleans()):
        text = text[16:]
    if draw(st.booleans()):
        text = "-".join((text[:8], text[8:12], text[12:]))
    text = text.upper() if draw(st.booleans()) else text
    return draw(st.sampled_from(("", "0x", "0X"))) + text


def in_base64(_: st.DrawFn, text: str) -> str:
    return b64encode(bytes.fromhex(text)).decode()


def named(draw: st.DrawFn, number: int, type_name: str, names: tuple[str, ...]) -> object:
    """The number of an enum in another spelling; ``type_name`` is ``SPAN_KIND`` and the like."""
    name, camel = names[number], type_name.title().replace("_", "")
    bare = (number, float(number), str(number), f" {number} ", name, name.lower(), name.title())
    typed = (f"{type_name}_{name}", f"{camel}.{name}", f"{camel}{name.title()}")
    spelling: object = draw(st.sampled_from((*bare, *typed)))
    return spelling


ENUMS = {
    "kind": ("SPAN_KIND", KINDS),
    "code": ("STATUS_CODE", CODES),
    "severityNumber": ("SEVERITY_NUMBER", SEVERITIES),
    "aggregationTemporality": ("AGGREGATION_TEMPORALITY", TEMPORALITIES),
}


def respelled(draw: st.DrawFn, value: Any, spell_id: Callable[[st.DrawFn, str], str]) -> Any:
    if isinstance(value, list):
        return [respelled(draw, each, spell_id) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {key: respelled(draw, each, spell_id) for key, each in value.items()}
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in value:
            changed[key] = spell_id(draw, value[key])
    for key in ENUMS.keys() & value.keys():
        changed[key] = named(draw, value[key], *ENUMS[key])
    return changed


def with_libraries(draw: st.DrawFn, signal: Signal, document: Any) -> Any:
    """Scopes as OTLP 0.14 called them, in some resources alone and in some beside the scopes of today."""
    groups, scopes, items, libraries = FIELDS[signal]
    old_items = "logs" if signal is Signal.LOGS else items
    for group in document[groups]:
        if draw(st.booleans()):
            group[libraries] = [
                {"instrumentationLibrary": one["scope"], old_items: one[items]} for one in group[scopes]
            ]
            if draw(st.booleans()):
                del group[scopes]
    return document


@given(requests(), st.data())
def test_a_respelled_request_decodes_to_the_same_protobuf(
    request: tuple[Signal, dict[str, Any]], data: st.DataObject
) -> None:
    signal, clean = request
    spell_id = data.draw(st.sampled_from((in_hex, in_base64)))
    rewriting = st.composite(lambda draw: with_libraries(draw, signal, respelled(draw, clean, spell_id)))
    other = data.draw(rewriting())
    assert to_protobuf(signal, json.dumps(other).encode()) == to_protobuf(signal, json.dumps(clean).encode())
