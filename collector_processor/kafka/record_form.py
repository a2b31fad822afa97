"""Form of the records: key, headers and value, the same as the Collector's ``kafka`` exporter writes. Pure.

The value is an OTLP export request (``otlp_proto``). The key of a trace's spans and log records is its id in
hexadecimal digits (``partition_traces_by_id``, ``partition_logs_by_trace_id``): a partition owns its traces.
The tenant and the hops are headers of the record, under the names they have in requests
(``include_metadata_keys``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from collector_processor.core.headers import hops_among, tenant_among
from collector_processor.otlp import (
    HOP_HEADER,
    Arrival,
    MalformedRequestError,
    Signal,
    Tenant,
    tenant_headers,
)
from collector_processor.wire.protobuf import some_fields
from collector_processor.wire.split import TraceIndex, split_by_size

Headers = Sequence[tuple[str, bytes | str | None]]
_MOST_BYTES: Final = 90 << 10
"""Bytes of neighbouring records taken together; more would be checked in another thread."""
_NO_TRACE: Final = frozenset({"", "0" * 32})


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record that was read."""

    place: Place
    offset: int
    headers: Headers = ()
    value: bytes
    fault: str = ""
    """Why its headers cannot be read; empty if they can."""


def headers_of(tenant: Tenant, hops: Sequence[str]) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a record."""
    found: list[tuple[str, str | bytes | None]] = [
        (name, value.encode()) for name, value in tenant_headers(tenant).items()
    ]
    return [*found, (HOP_HEADER, ",".join(hops).encode())] if hops else found


def origin_of(headers: Headers, tenant_names: tuple[str, ...]) -> tuple[Tenant, tuple[str, ...]]:
    """Return the tenant and the hops of a record.

    Raises:
        MalformedRequestError: they cannot be forwarded as headers, or a tenant header is given twice.
    """
    told = [
        (name, value.decode(errors="replace") if isinstance(value, bytes) else value or "")
        for name, value in headers
    ]
    return tenant_among(told, tenant_names), hops_among(told)


def pieces(signal: Signal, body: bytes, most_bytes: int) -> Iterator[tuple[str | None, bytes]]:
    """Yield the records of a request, each with its key, none larger than ``most_bytes``.

    A single item that is larger must have been rejected before.

    Raises:
        MalformedRequestError: copies of what the traces share would be far larger than the request.
    """
    if signal is Signal.METRICS:
        parts: Iterator[tuple[str | None, bytes]] = iter(((None, body),))
    else:
        parts = _by_trace(signal, body)
    for key, part in parts:
        for piece in split_by_size(part, most_bytes) if len(part) > most_bytes else (part,):
            yield key, piece


def _by_trace(signal: Signal, body: bytes) -> Iterator[tuple[str | None, bytes]]:
    index = TraceIndex(signal, body)
    ids = list(index.trace_ids)
    if len(ids) > 1 and index.is_too_much(ids):
        raise MalformedRequestError(
            f"{len(ids)} traces share a Resource too large to be copied for each: send fewer in a request"
        )
    for trace_id in ids:
        yield (None if trace_id in _NO_TRACE else trace_id), index.extract(trace_id)


def request_of(signal: Signal, run: Sequence[Record], tenant_names: tuple[str, ...]) -> Arrival:
    """Return neighbouring records of one origin as one request.

    Raises:
        MalformedRequestError: a record's headers cannot be read or forwarded, or one of several is cut short:
            joined, it would swallow the beginning of the next one.
    """
    if run[0].fault:
        raise MalformedRequestError(run[0].fault)
    tenant, hops = origin_of(run[0].headers, tenant_names)
    for record in run if len(run) > 1 else ():
        deque(some_fields(record.value, 0, len(record.value)), maxlen=0)
    body = run[0].value if len(run) == 1 else b"".join(record.value for record in run)
    return Arrival(signal=signal, body=body, tenant=tenant, hops=hops)


def runs_of(records: Iterable[Record], is_forwarded: Callable[[int], bool]) -> Iterator[Sequence[Record]]:
    """Yield neighbouring records of one origin, all or none of which were forwarded before, up to a size."""

    def alike(record: Record) -> tuple[object, ...]:
        headers = tuple(sorted(record.headers, key=str))
        return headers, record.fault, is_forwarded(record.offset)

    for _, group in groupby(records, alike):
        run: list[Record] = []
        size = 0
        for record in group:
            size += len(record.value)
            if run and size > _MOST_BYTES:
                yield run
                run, size = [], len(record.value)
            run.append(record)
        yield run
