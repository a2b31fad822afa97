"""Hostile requests and odd traces."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector_processor.rebuild.encode import encode
from semconv.model import Link, Span, SpanId, TraceId
from tests.e2e.raw import field, wrap
from tests.factories import agent, chat, tool, workflow

MEBIBYTE: Final = 1 << 20
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
ANY_TRACE: Final = TraceId("a" * 32)
ESCAPES: Final = "[bold]planner\x1b]0;owned\x07\x1b[2J\x1b[31m<script>alert(1)</script>\u202e"
"""Terminal escapes (title, colours), a page's script, right-to-left text, and rich's markup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An HTTP request that must be refused."""

    body: bytes
    status: int
    content_type: str = PROTOBUF
    headers: tuple[tuple[str, str], ...] = ()


def good_request() -> bytes:
    return encode(failing_run(ANY_TRACE))


def failing_run(trace_id: TraceId, *, name: str = "planner") -> list[Span]:
    """Return the spans of a run that fails because its tool fails permanently."""
    return [
        tool(4, "lookup", parent=2, trace_id=trace_id, error="connection refused"),
        chat(3, parent=2, answer="I will look it up", trace_id=trace_id),
        agent(2, name, trace_id=trace_id, end=80, error="connection refused"),
        workflow(1, task="add up", trace_id=trace_id, error="connection refused"),
    ]


def bomb(size: int) -> bytes:
    """Return gzip that decompresses to ``size`` zeros."""
    packer, out = zlib.compressobj(9, zlib.DEFLATED, 31), bytearray()
    zeros = bytes(MEBIBYTE)
    for _ in range(size // MEBIBYTE):
        out += packer.compress(zeros)
    return bytes(out + packer.flush())


def refused() -> dict[str, Refused]:
    """Return requests that take much memory or stack; ``test_http_receiver.py`` has all kinds."""
    gzipped = (("Content-Encoding", "gzip"),)
    return {
        "gzip bomb": Refused(body=bomb(256 * MEBIBYTE), headers=gzipped, status=413),
        "gzip bomb as JSON": Refused(
            body=bomb(64 * MEBIBYTE), content_type=JSON, headers=gzipped, status=413
        ),
        "50 MB attribute": Refused(body=huge_attribute(50 * MEBIBYTE), status=413),
        "JSON nested deep": Refused(body=b"[" * 200_000, content_type=JSON, status=400),
        "JSON objects nested deep": Refused(body=b'{"a":' * 200_000, content_type=JSON, status=400),
    }


def json_span(**changed: Any) -> bytes:
    """Return one span as OTLP/JSON, with some fields changed."""
    one = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "work",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        **changed,
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}).encode()


def huge_attribute(size: int, trace_id: TraceId = ANY_TRACE) -> bytes:
    return encode([*failing_run(trace_id)[:-1], workflow(1, task="x" * size, trace_id=trace_id)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """A trace that is accepted as it is and repaired for the analysis."""

    bodies: tuple[bytes, ...]
    warning: str | None
    """Must occur in one of the trace's warnings, if set."""
    trace_id: TraceId = ANY_TRACE

    def renamed(self, trace_id: TraceId) -> Odd:
        """Return the same trace under another id."""
        old, new = bytes.fromhex(self.trace_id), bytes.fromhex(trace_id)
        bodies = tuple(body.replace(old, new) for body in self.bodies)
        return replace(self, bodies=bodies, trace_id=trace_id)


def odd_traces() -> dict[str, Odd]:
    """Return traces that are valid OTLP but unusual."""

    def made(*spans: Span, warning: str | None = None) -> Odd:
        moved = [replace(one, trace_id=ANY_TRACE) for one in spans]
        parts = [part for part in (moved[:-1], moved[-1:]) if part]
        return Odd(bodies=tuple(encode(part) for part in parts), warning=warning)

    run = failing_run(ANY_TRACE)
    chain = [chat(number, parent=number - 1, answer="deeper") for number in range(10_000, 1, -1)]
    broad = [chat(number, answer="wider", start=number / 100) for number in range(2, 10_001)]
    unknown = [Link(trace_id=TraceId(f"{n:032x}"), span_id=SpanId("1" * 16)) for n in range(1, 20_001)]
    crowd = {f"key.{number}": f"value {number}" for number in range(10_000)}
    return {
        "10,000 deep": made(*chain, run[-1]),
        "10,000 wide": made(*broad, run[-1]),
        "cycle of parents": made(
            agent(8, "a", parent=9), agent(9, "b", parent=8), *run, warning="cycle of parents"
        ),
        "own parent": made(agent(8, "a", parent=8), *run, warning="cycle of parents"),
        "duplicate ids": made(*run, chat(3, answer="other"), workflow(1), warning="span id used"),
        "ends before it starts": made(chat(8, start=50, end=10), *run, warning="zero or negative time"),
        "no times": made(*(replace(one, start_ns=0, end_ns=0) for one in run), warning="zero or negative"),
        "end of time": made(chat(8, end=9e12), *(replace(one, end_ns=2**64 - 1) for one in run)),
        "missing root": made(*run[:-1], warning="parent"),
        "many links": made(*run[:-1], replace(run[-1], links=tuple(unknown))),
        "10,000 attributes": made(*run[:-1], replace(run[-1], attributes={**run[-1].attributes, **crowd})),
        "escapes and markup": made(*failing_run(ANY_TRACE, name=ESCAPES)),
        "2 MB attribute": made(*run[:-1], workflow(1, task="x" * (2 * MEBIBYTE), error="wrong")),
        "half a character": made(*run[:-1], workflow(1, task="say \ud83d", error="wrong \\ud83d")),
        "no UTF-8": _no_utf8(),
        "deeply nested value": _nested(5_000),
        "nothing but a model call": made(chat(1, parent=None, answer="4")),
    }


def _no_utf8() -> Odd:
    body = encode(failing_run(ANY_TRACE)).replace(b"lookup", b"loo\xff\xfep")
    return Odd(bodies=(body,), warning="text that is not UTF-8")


def _nested(depth: int) -> Odd:
    """Nested lists: ``AnyValue.array_value`` is field 5, ``ArrayValue.values`` field 1."""
    value = field(1, b"in there")
    for _ in range(depth):
        value = field(5, field(1, value))
    spans = failing_run(ANY_TRACE)
    raw = [_plain(one) for one in spans]
    raw[-1] += field(9, field(1, b"depths") + field(2, value))
    return Odd(bodies=(wrap(spans[0], *raw),), warning="text that is not UTF-8, or values nested")


def _plain(one: Span) -> bytes:
    request = ExportTraceServiceRequest.FromString(encode([one]))
    return request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()
