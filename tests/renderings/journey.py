"""Transport of a run's spans: services with different clocks, in pieces, with duplicates, out of order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from collector_processor.rebuild.encode import encode
from semconv.model import Resource, Scope, Span, SpanId

MAIN: Final = "main"
_CLIENT, _SERVER = 3, 2
_HTTP: Final = Scope(name="opentelemetry.instrumentation.httpx", version="1")


def split(
    spans: Sequence[Span],
    turns: Mapping[SpanId, str],
    services: Mapping[str, str],
    skews_ns: Mapping[str, int],
) -> list[Span]:
    """Return the run as if some of its agents ran in separate services, called over HTTP.

    Args:
        spans: the run, parents before children.
        turns: whose turn a span is; all below it is the same agent's.
        services: each agent's service; what is no agent's is in ``MAIN``.
        skews_ns: how far each service's clock is ahead.
    """
    service_of: dict[SpanId | None, str] = {None: MAIN}
    found: list[Span] = []
    for span in spans:
        caller = service_of[span.parent_id]
        service = service_of[span.span_id] = (
            services[turns[span.span_id]] if span.span_id in turns else caller
        )
        if service != caller:
            client, server = _calls(span)
            found += [_at(client, caller, skews_ns), _at(server, service, skews_ns)]
            found.append(_at(replace(span, parent_id=server.span_id), service, skews_ns))
        else:
            found.append(_at(span, service, skews_ns))
    return found


def _calls(span: Span) -> tuple[Span, Span]:
    """Return the HTTP call around ``span``, as client and server record it."""
    number = int(span.span_id, 16)
    client = replace(
        span,
        span_id=SpanId(f"{(number + (1 << 62)) % (1 << 64):016x}"),
        name="POST",
        kind=_CLIENT,
        start_ns=span.start_ns - 2,
        end_ns=span.end_ns + 2,
        attributes={"http.request.method": "POST"},
        events=(),
        scope=_HTTP,
    )
    server = replace(
        client,
        span_id=SpanId(f"{(number + (1 << 63)) % (1 << 64):016x}"),
        parent_id=client.span_id,
        name="POST /agent",
        kind=_SERVER,
        start_ns=span.start_ns - 1,
        end_ns=span.end_ns + 1,
    )
    return client, server


def _at(span: Span, service: str, skews_ns: Mapping[str, int]) -> Span:
    skew_ns = skews_ns.get(service, 0)
    return replace(
        span,
        start_ns=span.start_ns + skew_ns,
        end_ns=span.end_ns + skew_ns,
        resource=Resource(attributes={"service.name": service}),
    )


def arriving(spans: Sequence[Span], chance: random.Random) -> list[bytes]:
    """Return the spans as export requests: out of order, in batches, some of them twice."""
    arrived = [*spans, *(span for span in spans if chance.random() < 0.3)]
    chance.shuffle(arrived)
    return [encode(batch) for batch in _batches(arrived, chance)]


def _batches(spans: Sequence[Span], chance: random.Random) -> Iterator[Sequence[Span]]:
    start = 0
    while start < len(spans):
        size = chance.randint(1, 8)
        yield spans[start : start + size]
        start += size
