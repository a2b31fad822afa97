"""Tempo JSON (``/api/traces/<id>``, version 1 and 2) as an OTLP/JSON document.

Tempo prints the OTLP message by protobuf's own JSON rules: ids are base64, the
list is called ``batches`` (v1) or stands under ``trace`` (v2), and old versions
say ``instrumentationLibrarySpans``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

_ID_BYTES: Final = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def is_tempo(document: Mapping[str, Any]) -> bool:
    """Whether the document is a trace of Tempo's."""
    trace = document.get("trace", document)
    return isinstance(trace, dict) and (isinstance(trace.get("batches"), list) or trace is not document)


def tempo_to_otlp(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same spans as an OTLP/JSON ``resourceSpans`` document."""
    trace = document.get("trace", document)
    batches = trace.get("batches") or trace.get("resourceSpans") or []
    return {"resourceSpans": [_batch(batch) for batch in batches]}


def _batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    groups = batch.get("scopeSpans") or batch.get("instrumentationLibrarySpans") or []
    return {"resource": batch.get("resource", {}), "scopeSpans": [_group(group) for group in groups]}


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    scope = group.get("scope") or group.get("instrumentationLibrary") or {}
    return {"scope": scope, "spans": [_span(span) for span in group.get("spans", ())]}


def _span(span: Mapping[str, Any]) -> dict[str, Any]:
    links = [{**link, **_hex_ids(link)} for link in span.get("links", ())]
    return {**span, **_hex_ids(span), "links": links}


def _hex_ids(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: _hex(item[name], length) for name, length in _ID_BYTES.items() if item.get(name)}


def _hex(text: str, length: int) -> str:
    """Hex of the right length stays; base64 becomes hex; anything else is left for decoding to refuse."""
    if len(text) == 2 * length and all(char in "0123456789abcdefABCDEF" for char in text):
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).rjust(length, b"\0").hex()
    except (binascii.Error, ValueError):
        return text
