"""Visits every text of an export request, and replaces it. Pure.

Everything that may hold a secret counts as a text: names, keys, values, bytes, and numbers as long as a card
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

LARGE_NUMBER: Final = 10**11
"""Smallest number visited as a text, because it may be a card number."""

Place: TypeAlias = tuple[str, str]
"""Receives a text's key (empty if it has none) and the text."""
Visit: TypeAlias = Callable[[Place], str | None]
"""Returns the replacement for a text; ``None`` to keep it."""
VisitAll: TypeAlias = Callable[[Any, Visit], None]

# ``raw`` below are protobuf messages; their generated types would not make this safer to read.


def visit_spans(raw: Any, visit: Visit) -> None:
    """Visit the texts of an ``ExportTraceServiceRequest``."""
    for group in raw.resource_spans:
        _visit_group(group, visit)
        for members in group.scope_spans:
            _visit_scope(members, visit)
            for span in members.spans:
                _visit_span(span, visit)


def visit_records(raw: Any, visit: Visit) -> None:
    """Visit the texts of an ``ExportLogsServiceRequest``."""
    for group in raw.resource_logs:
        _visit_group(group, visit)
        for members in group.scope_logs:
            _visit_scope(members, visit)
            for record in members.log_records:
                _visit_texts(record, ("severity_text", "event_name"), visit)
                _visit_value("", record.body, visit)
                _visit_pairs(record.attributes, visit)


def _visit_group(group: Any, visit: Visit) -> None:
    _visit_texts(group, ("schema_url",), visit)
    _visit_pairs(group.resource.attributes, visit)
    if group.resource.entity_refs:  # only names of attributes, which no reader of ours uses
        group.resource.ClearField("entity_refs")


def _visit_scope(members: Any, visit: Visit) -> None:
    _visit_texts(members, ("schema_url",), visit)
    _visit_texts(members.scope, ("name", "version"), visit)
    _visit_pairs(members.scope.attributes, visit)


def _visit_span(span: Any, visit: Visit) -> None:
    _visit_texts(span, ("name", "trace_state"), visit)
    _visit_pairs(span.attributes, visit)
    if span.HasField("status"):
        _visit_texts(span.status, ("message",), visit)
    for event in span.events:
        _visit_texts(event, ("name",), visit)
        _visit_pairs(event.attributes, visit)
    for link in span.links:
        _visit_texts(link, ("trace_state",), visit)
        _visit_pairs(link.attributes, visit)


def _visit_texts(raw: Any, names: Iterable[str], visit: Visit) -> None:
    for name in names:
        text = getattr(raw, name)
        if text and (kept := visit(("", text))) is not None:
            setattr(raw, name, kept)


def _visit_pairs(pairs: Iterable[Any], visit: Visit) -> None:
    for pair in pairs:
        key, value = pair.key, pair.value
        text = value.string_value  # most values are texts; querying the kind costs as much as reading
        if text:
            if (kept := visit((key, text))) is not None:
                value.string_value = kept
        else:
            _visit_value(key, value, visit)
        if (kept := visit(("", key))) is not None:
            pair.key = kept


def _visit_value(key: str, value: Any, visit: Visit) -> None:
    """Visit an ``AnyValue``; recursion is bounded by protobuf's limit on nesting (a hundred messages)."""
    match value.WhichOneof("value"):
        case "string_value":
            if (kept := visit((key, value.string_value))) is not None:
                value.string_value = kept
        case "bytes_value":
            _visit_bytes(key, value, visit)
        case "array_value":
            for each in value.array_value.values:
                _visit_value(key, each, visit)
        case "kvlist_value":
            _visit_pairs(value.kvlist_value.values, visit)
        case "int_value" if abs(value.int_value) >= LARGE_NUMBER:
            _visit_number(key, value, str(value.int_value), visit)
        case "double_value" if LARGE_NUMBER <= abs(value.double_value) < 1e20:
            _visit_number(key, value, f"{value.double_value:.0f}", visit)
        case _:
            pass


def _visit_number(key: str, value: Any, text: str, visit: Visit) -> None:
    if (kept := visit((key, text))) is not None:
        value.string_value = kept


def _visit_bytes(key: str, value: Any, visit: Visit) -> None:
    """Visit bytes as UTF-8, or one character for each byte if they are not UTF-8."""
    data: bytes = value.bytes_value
    try:
        encoding, text = "utf-8", data.decode()
    except UnicodeDecodeError:
        encoding, text = "latin-1", data.decode("latin-1")
    if (kept := visit((key, text))) is not None:
        value.bytes_value = kept.encode(encoding, "replace")
