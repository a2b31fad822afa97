"""Form of the records: key, headers and value, the same as the Collector's ``kafka`` exporter writes. Pure.

The value is an OTLP export request (``otlp_proto``). The key of a trace's spans and log records is its id in
hexadecimal digits (``partition_traces_by_id``, ``partition_logs_by_trace_id``): a partition owns its traces.
The tenant and the hops are headers of the record, under the names they have in requests
(``include_metadata_keys``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from collector_processor.otlp import (
    HOP_HEADER,
    MalformedRequestError,
    Signal,
    Tenant,
    tenant_headers,
    tenant_of,
)
from collector_processor.receivers.admission import require_sendable
from collector_processor.wire.by_trace import TraceIndex
from collector_processor.wire.split import split_by_size

Headers = Sequence[tuple[str, bytes | str | None]]
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
    value: bytes = b""
    fault: str = ""
    """Reason for which its headers cannot be read; empty if they can."""


def headers_of(tenant: Tenant, hops: Sequence[str]) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a record."""
    found: list[tuple[str, str | bytes | None]] = [
        (name, value.encode()) for name, value in tenant_headers(tenant).items()
    ]
    return [*found, (HOP_HEADER, ",".join(hops).encode())] if hops else found


def origin_of(headers: Headers, tenant_names: tuple[str, ...]) -> tuple[Tenant, tuple[str, ...]]:
    """Return the tenant and the hops of a record; of several headers of a name, the first counts.

    Raises:
        MalformedRequestError: they cannot be forwarded as headers.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value or ""
        found.setdefault(name.lower(), text)
    require_sendable(found, tenant_names)
    hops = tuple(hop for hop in found.get(HOP_HEADER, "").split(",") if hop)
    return tenant_of(found, tenant_names), hops


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
