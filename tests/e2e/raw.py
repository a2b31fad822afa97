"""Spans as bytes on the wire, read and written by hand so that no library can normalise them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.rebuild.encode import encode
from semconv.model import Span

_RESOURCE_SPANS, _SCOPE_SPANS, _SPANS = 1, 2, 2
_UNKNOWN_FIELD: Final = b"\xba\x3e\x05later"
"""Field 999, of a future OTLP; a span that is parsed and serialised again has it in another place."""


def plain_span(span: Span) -> bytes:
    """Return a span's bytes as protobuf serialises them, and as JSON is converted."""
    request = ExportTraceServiceRequest.FromString(encode([span]))
    return request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()


def odd_span(span: Span) -> bytes:
    """Return a span's bytes in a valid form that no library writes."""
    return _UNKNOWN_FIELD + plain_span(span)


def wrap(span: Span, *raw: bytes) -> bytes:
    """Return an export request of raw spans, with the resource and scope of ``span``."""
    request = ExportTraceServiceRequest.FromString(encode([span]))
    group = request.resource_spans[0]
    scope = group.scope_spans[0]
    del scope.spans[:]
    del group.scope_spans[:]
    inner = scope.SerializeToString() + b"".join(field(_SPANS, one) for one in raw)
    return field(_RESOURCE_SPANS, group.SerializeToString() + field(_SCOPE_SPANS, inner))


def raw_spans(body: bytes) -> Iterator[bytes]:
    """Yield the spans of an export request in their order."""
    for group in _values(body, _RESOURCE_SPANS):
        for scope in _values(group, _SCOPE_SPANS):
            yield from _values(scope, _SPANS)


def _values(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the values of one length-delimited field; other wire types do not occur here."""
    at = 0
    while at < len(message):
        tag, at = _read(message, at)
        assert tag & 7 == 2, "only length-delimited fields stand around spans"
        length, at = _read(message, at)
        if tag >> 3 == number:
            yield message[at : at + length]
        at += length


def _read(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def field(number: int, value: bytes) -> bytes:
    length, header = len(value), bytearray()
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((number << 3 | 2,)) + bytes((*header, length)) + value
