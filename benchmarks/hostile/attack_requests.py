"""Requests of attacks: traces that link to each other or share an id, and spans without ids."""

from __future__ import annotations

from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.otlp_requests import request, span

OTHER_RUN: Final = 1 << 100
"""Trace id of the other tenant's run."""
AGENT: Final = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}


_INVALID: Final = b"\x12\x00"
"""A span without ids, in as few bytes as a span can have."""


def agents(count: int, first: int = 1) -> bytes:
    """Return small agent traces, none linked to another; ``first`` is the first trace's id."""
    return request(*(span(1, trace=number, attributes=AGENT) for number in range(first, first + count)))


def _linked(number: int, *targets: int) -> Span:
    made = span(1, trace=number, attributes=AGENT)
    for target in targets:
        made.links.add(trace_id=target.to_bytes(16), span_id=(1).to_bytes(8))
    return made


def star(count: int) -> bytes:
    """Return traces that all link to the first."""
    return request(_linked(1), *(_linked(number, 1) for number in range(2, count + 1)))


def chain(count: int) -> bytes:
    """Return traces that each link to the previous one."""
    return request(_linked(1), *(_linked(number, number - 1) for number in range(2, count + 1)))


def shared(count: int) -> bytes:
    """Return traces that share one framework id."""
    one = "0123abcd-0000-4000-8000-000000000000"
    agent = {**AGENT, "gen_ai.agent.id": f"clerk_{one}/{one}"}
    return request(*(span(1, trace=number, attributes=agent) for number in range(1, count + 1)))


def groups(count: int) -> bytes:
    """Return traces in groups of 200 that share one framework id: as many as one run may have."""
    made = []
    for number in range(1, count + 1):
        one = f"{number // 200:08x}-0000-4000-8000-000000000000"
        agent = {**AGENT, "gen_ai.agent.id": f"clerk_{one}/{one}"}
        made.append(span(1, trace=number, attributes=agent))
    return request(*made)


def invalid(mebibytes: int) -> bytes:
    """Return a request of spans without ids, followed by one valid span."""
    spans = _INVALID * ((mebibytes << 20) // len(_INVALID))
    return _wrapped(spans + _field(2, span(9, trace=9).SerializeToString()))


def half_invalid(mebibytes: int) -> bytes:
    """Return a request in which every second span is valid, and of minimal size."""
    pair = _INVALID + _field(2, b"\x0a\x10" + (7).to_bytes(16) + b"\x12\x08" + (7).to_bytes(8) + b"\x28\x01")
    return _wrapped(pair * ((mebibytes << 20) // len(pair)))


def _wrapped(spans: bytes) -> bytes:
    return _field(1, _field(2, spans))


def _field(number: int, value: bytes) -> bytes:
    length, written = len(value), bytearray((number << 3 | 2,))
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*written, length)) + value
