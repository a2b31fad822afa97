"""Read the spans or log records of single traces from a raw request. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.wire.protobuf import (
    LENGTH_DELIMITED,
    fields,
    record_trace_id,
    span_trace_id,
    write_varint,
)
from collector_processor.wire.split import Request, ResourceGroup, ScopeGroup, build, filter_items, parse
from semconv.model import TraceId

_MOST_COPIES: Final = 16
_LEAST_COPIES_BYTES: Final = 4 << 20
"""Bound on what the traces of a request take with their own copies of its Resources: 16 times the request."""
_MOST_SHARED_BYTES: Final = 8 << 10
"""Bytes copied of a Resource or scope beyond that bound."""
_READ_TRACE_ID: Final = {Signal.TRACES: span_trace_id, Signal.LOGS: record_trace_id}


def extract(signal: Signal, body: bytes, trace_ids: Iterable[TraceId]) -> bytes:
    """Return the request with only the spans or log records of these traces; empty if there are none."""
    wanted = {bytes.fromhex(trace_id) for trace_id in trace_ids}
    read = _READ_TRACE_ID[signal]
    return filter_items(body, lambda start, end: read(body, start, end) in wanted)[0]


def exclude(signal: Signal, body: bytes, trace_ids: Iterable[TraceId]) -> bytes:
    """Return the request without the spans or log records of these traces."""
    unwanted = {bytes.fromhex(trace_id) for trace_id in trace_ids}
    read = _READ_TRACE_ID[signal]
    return filter_items(body, lambda start, end: read(body, start, end) not in unwanted)[0]


class TraceIndex:
    """A request's spans or log records by trace: parsed once, then split for any number of traces."""

    def __init__(self, signal: Signal, body: bytes) -> None:
        """Parse the request.

        Raises:
            MalformedRequestError: the bytes are not valid protobuf.
        """
        self._request: Final = parse(body)
        self._found: Final[dict[bytes, list[ResourceGroup]]] = {}
        self._shrunk: Final[dict[int, bytes]] = {}
        read = _READ_TRACE_ID[signal]
        for resource in self._request.resources:
            resources: dict[bytes, ResourceGroup] = {}
            for scope in resource.scopes:
                scopes: dict[bytes, ScopeGroup] = {}
                for item in scope.items:
                    trace_id = read(body, item.start, item.end)
                    into = scopes.get(trace_id)
                    if into is None:
                        into = scopes[trace_id] = ScopeGroup(others=scope.others, items=[])
                    into.items.append(item)
                for trace_id, group in scopes.items():
                    if trace_id not in resources:
                        resources[trace_id] = ResourceGroup(others=resource.others)
                        self._found.setdefault(trace_id, []).append(resources[trace_id])
                    resources[trace_id].scopes.append(group)

    def __len__(self) -> int:
        """Return the number of traces."""
        return len(self._found)

    @property
    def body(self) -> bytes:
        """The request."""
        return self._request.body

    @property
    def trace_ids(self) -> Iterable[TraceId]:
        """Ids of the traces."""
        return (TraceId(trace_id.hex()) for trace_id in self._found)

    @property
    def item_count(self) -> int:
        """Number of spans or log records."""
        return sum(1 for _ in self._request.items())

    def extract(self, trace_id: TraceId) -> bytes:
        """Return the request with only the spans or log records of one trace; empty if there are none."""
        resources = self._found.get(bytes.fromhex(trace_id), [])
        if resources and len(self._found) == 1:
            return self.body
        return build(Request(body=self.body, others=self._request.others, resources=resources))

    def extract_for_reading(self, trace_id: TraceId) -> bytes:
        """Return what ``extract`` returns, for analysis only.

        If copies of Resources and scopes for each trace would take far more than the request, only the
        smallest attributes of large ones are copied: 10,000 traces may share a Resource of 1 MiB.
        """
        if not self._is_heavy:
            return self.extract(trace_id)
        resources = [
            ResourceGroup(
                others=self._smaller(resource.others),
                scopes=[
                    ScopeGroup(others=self._smaller(scope.others), items=scope.items)
                    for scope in resource.scopes
                ],
            )
            for resource in self._found.get(bytes.fromhex(trace_id), ())
        ]
        return build(Request(body=self.body, others=b"", resources=resources))

    @cached_property
    def _is_heavy(self) -> bool:
        return self.is_too_much(self.trace_ids)

    def _smaller(self, others: bytes) -> bytes:
        if len(others) <= _MOST_SHARED_BYTES:
            return others
        key = id(others)  # equal for all traces of a group, which keeps it alive
        if key not in self._shrunk:
            self._shrunk[key] = _shrink(others)
        return self._shrunk[key]

    def is_too_much(self, trace_ids: Iterable[TraceId]) -> bool:
        """Return whether these traces, each with a copy of its Resource, take far more than the request."""
        copied = sum(
            len(resource.others)
            + sum(
                len(scope.others) + sum(item.end - item.at for item in scope.items)
                for scope in resource.scopes
            )
            for trace_id in trace_ids
            for resource in self._found.get(bytes.fromhex(trace_id), ())
        )
        return copied > max(_MOST_COPIES * len(self.body), _LEAST_COPIES_BYTES)


def _shrink(others: bytes) -> bytes:
    """Return a group's fields besides its items, with the smallest fields of its Resource or scope only."""
    kept: list[bytes] = []
    for found in fields(others, 0, len(others)):
        if found.number == 1 and found.wire_type == LENGTH_DELIMITED:
            message = _smallest_fields(others[found.start : found.end])
            kept.append(b"\x0a" + write_varint(len(message)) + message)
        elif found.end - found.at <= _MOST_SHARED_BYTES // 8:  # a schema URL
            kept.append(others[found.at : found.end])
    return b"".join(kept)


def _smallest_fields(message: bytes) -> bytes:
    """Return the smallest fields, in their order, up to the bound; none if the message is broken."""
    try:
        ranges = [(found.at, found.end) for found in fields(message, 0, len(message))]
    except MalformedRequestError:
        return b""
    kept, left = list[tuple[int, int]](), _MOST_SHARED_BYTES
    for at, end in sorted(ranges, key=lambda found: found[1] - found[0]):
        left -= end - at
        if left < 0:
            break
        kept.append((at, end))
    return b"".join(message[at:end] for at, end in sorted(kept))
