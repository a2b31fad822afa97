"""Split, filter and extend raw OTLP requests, by size or by trace. Pure: bytes in, bytes out, not decoded.

All three signals have the same structure: a request holds resource groups (field 1), these hold scope groups
(field 2), these hold items (field 2: spans, log records, metrics). The bytes of items are never changed, with
one exception: ``append_attributes`` adds to the end of one span. A group's other fields (resource, scope,
schema URL, unknown fields) go into each piece that has one of its items; unknown fields of the request itself
go into the first piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.wire.protobuf import (
    LENGTH_DELIMITED,
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Field,
    fields,
    past_the_end,
    read_span_ids,
    read_varint,
    record_trace_id,
    require_message,
    skip_short,
    span_ids,
    span_trace_id,
    write_varint,
)
from semconv.model import TraceId

_ATTRIBUTES_TAG: Final = 0x4A
_HEADER_BYTES: Final = 11
"""Bound on the bytes of a group's tag and length."""
_PIECE_ITEMS, _PIECE_BYTES = 1_000, 1 << 20  # such a piece is parsed in a few milliseconds


class Item(NamedTuple):
    """One span, log record or metric: its tag is at ``at``, its message from ``start`` to ``end``."""

    at: int
    start: int
    end: int


@dataclass(slots=True)
class ScopeGroup:
    """Items of one scope; ``others`` is the bytes of the group's other fields."""

    others: bytes
    items: list[Item]


@dataclass(slots=True)
class ResourceGroup:
    """Scope groups of one resource."""

    others: bytes
    scopes: list[ScopeGroup] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """A parsed request; the items' offsets refer to ``body``."""

    body: bytes
    others: bytes
    resources: list[ResourceGroup] = field(default_factory=list)
    left_out: int = 0
    """Number of items that were too short; they are left out of ``resources``."""

    def items(self) -> Iterator[Item]:
        """All items, in their order."""
        for resource in self.resources:
            for scope in resource.scopes:
                yield from scope.items


Keep: TypeAlias = Callable[[int, int], bool]
"""Returns whether to keep the item between two offsets."""


def parse(body: bytes, *, least: int = 0) -> Request:
    """Parse a request down to its items.

    Args:
        body: the request.
        least: items with fewer bytes are left out: 0 or ``SHORTEST_SPAN``, since there may be millions.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """
    groups, others, _ = _members(body, 0, len(body), 1)
    request = Request(body=body, others=others)
    for group in groups:
        scopes, others, _ = _members(body, group.start, group.end, 2)
        resource = ResourceGroup(others=others)
        request.resources.append(resource)
        for scope in scopes:
            items, others, left_out = _members(body, scope.start, scope.end, 2, least)
            request.left_out += left_out
            resource.scopes.append(ScopeGroup(others=others, items=items))
    return request


class _Members(NamedTuple):
    members: list[Item]
    others: bytes
    """Bytes of all other fields, concatenated."""
    left_out: int


def _members(body: bytes, at: int, end: int, number: int, least: int = 0) -> _Members:
    """Return the messages in field ``number`` with ``least`` bytes or more."""
    members: list[Item] = []
    left_out = 0
    others: list[bytes] = []
    tag = number << 3 | LENGTH_DELIMITED
    while at < end:
        if body[at] == tag:  # the usual case, inlined: there may be thousands
            length, start = read_varint(body, at + 1, end)
            stop = start + length
            if stop > end:
                raise past_the_end(at)
            if length < least:
                stop, skipped = skip_short(body, stop, end)
                left_out += 1 + skipped
            else:
                members.append(Item(at, start, stop))
        else:
            found = next(fields(body, at, end))
            stop = found.end
            if found.number == number:
                require_message(found)
                members.append(Item(at, found.start, stop))
            else:
                others.append(body[at:stop])
        at = stop
    return _Members(members, b"".join(others), left_out)


def build(request: Request) -> bytes:
    """Serialize a request; groups without items are left out."""
    parts = [request.others]
    for resource in request.resources:
        content = [resource.others]
        for scope in resource.scopes:
            if scope.items:
                raw = b"".join([scope.others, *(request.body[item.at : item.end] for item in scope.items)])
                content += (b"\x12", write_varint(len(raw)), raw)
        if len(content) > 1:
            raw = b"".join(content)
            parts += (b"\x0a", write_varint(len(raw)), raw)
    return b"".join(parts)


def filter_items(body: bytes, keep: Keep, *, least: int = 0) -> tuple[bytes, int]:
    """Return the request with only the items for which ``keep`` is true, and the number dropped.

    If none is dropped, ``body`` itself is returned. ``least`` is as for ``parse``.
    """
    request = parse(body, least=least)
    dropped = request.left_out
    for resource in request.resources:
        for scope in resource.scopes:
            kept = [item for item in scope.items if keep(item.start, item.end)]
            dropped += len(scope.items) - len(kept)
            scope.items = kept
    return (build(request), dropped) if dropped else (body, 0)


def drop_oversize(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Drop items that exceed a request of ``max_bytes`` even alone; return their number."""
    request, dropped = parse(body), 0
    for resource in request.resources:
        for scope in resource.scopes:
            room = max_bytes - len(resource.others) - len(scope.others) - 2 * _HEADER_BYTES
            kept = [item for item in scope.items if item.end - item.at <= room]
            dropped += len(scope.items) - len(kept)
            scope.items = kept
    return (build(request), dropped) if dropped else (body, 0)


def member_count(body: bytes) -> int:
    """Return the number of spans, log records or metrics in the request."""
    return sum(1 for _ in parse(body).items())


def split_by_size(body: bytes, max_bytes: int) -> tuple[bytes, ...]:
    """Split a request between items into requests of at most ``max_bytes``; larger items are alone in one."""
    return (body,) if len(body) <= max_bytes else _split(parse(body), max_bytes, len(body))


def split_for_reading(body: bytes, count: int) -> tuple[bytes, ...]:
    """Split a request so that each piece is quick to parse, even if many traces are read from it separately.

    At most 1,000 items and 1 MiB; more with a large Resource, so that copies take at most twice the request.

    Args:
        body: a request of traces or logs.
        count: number of its items.
    """
    if count <= _PIECE_ITEMS and len(body) <= _PIECE_BYTES:
        return (body,)
    request = parse(body)
    scopes = ((group, scope) for group in request.resources for scope in group.scopes)
    shared = max((len(group.others) + len(scope.others) for group, scope in scopes), default=0)
    return _split(request, max(_PIECE_BYTES, 2 * shared), max(_PIECE_ITEMS, count * shared // len(body)))


def _split(request: Request, max_bytes: int, max_items: int) -> tuple[bytes, ...]:
    cuts: list[int] = []
    used = len(request.others)
    held = position = 0
    for resource in request.resources:
        used += len(resource.others) + _HEADER_BYTES
        for scope in resource.scopes:
            used += len(scope.others) + _HEADER_BYTES
            for item in scope.items:
                size = item.end - item.at
                if held and (used + size > max_bytes or held >= max_items):
                    cuts.append(position)
                    held = 0
                    used = len(resource.others) + len(scope.others) + 2 * _HEADER_BYTES
                used += size
                held += 1
                position += 1
    return _cut(request, cuts)


def halve(body: bytes) -> tuple[bytes, bytes] | None:
    """Split a request into two with half of the items each; ``None`` if it has fewer than two."""
    request = parse(body)
    count = sum(1 for _ in request.items())
    if count < 2:
        return None
    first, second = _cut(request, [count // 2])
    return first, second


def _cut(request: Request, cuts: Iterable[int]) -> tuple[bytes, ...]:
    """Return one request for each range of items between ``cuts`` (ascending positions)."""
    pieces = [Request(body=request.body, others=request.others)]
    ahead = list(cuts)[::-1]
    position = 0
    for resource in request.resources:
        pieces[-1].resources.append(ResourceGroup(others=resource.others))
        for scope in resource.scopes:
            into = ScopeGroup(others=scope.others, items=[])
            pieces[-1].resources[-1].scopes.append(into)
            for item in scope.items:
                if ahead and position == ahead[-1]:
                    ahead.pop()
                    into = ScopeGroup(others=scope.others, items=[])
                    group = ResourceGroup(others=resource.others, scopes=[into])
                    pieces.append(Request(body=request.body, others=b"", resources=[group]))
                into.items.append(item)
                position += 1
    return tuple(build(piece) for piece in pieces)


def append_attributes(body: bytes, trace_id: str, span_id: str, attribute_bytes: bytes) -> bytes:
    """Append raw ``attributes`` fields to one span; otherwise only the enclosing lengths change.

    Args:
        body: a trace request.
        trace_id: lower-case hex.
        span_id: lower-case hex; the first span with these ids is changed.
        attribute_bytes: whole ``Span.attributes`` fields (tag, length, KeyValue), one after another.

    Returns:
        The new request, or ``body`` itself if it has no such span.

    Raises:
        MalformedRequestError: the request, or ``attribute_bytes``, is broken.
    """
    for added in fields(attribute_bytes, 0, len(attribute_bytes)):
        if attribute_bytes[added.at] != _ATTRIBUTES_TAG:
            raise MalformedRequestError("only fields of Span.attributes can be added to a span")
    wanted = (bytes.fromhex(trace_id), bytes.fromhex(span_id))
    for group in _inner(body, 0, len(body), 1):
        for scope in _inner(body, group.start, group.end, 2):
            for span in _inner(body, scope.start, scope.end, 2):
                if read_span_ids(body, span.start, span.end) == wanted:
                    return _insert(body, (group, scope, span), attribute_bytes)
    return body


def _inner(body: bytes, at: int, end: int, number: int) -> Iterator[Field]:
    """Iterate like ``protobuf.messages``, without its limit per message: the scan has limited the total."""
    for found in fields(body, at, end):
        if found.number == number and found.wire_type == LENGTH_DELIMITED:
            yield found


def _insert(body: bytes, path: tuple[Field, ...], added: bytes) -> bytes:
    """Append ``added`` to the innermost message of ``path`` and update the enclosing lengths."""
    inner = body[path[-1].start : path[-1].end] + added
    for outer, member in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        before = body[outer.start : member.at]
        after = body[member.end : outer.end]
        inner = b"".join((before, b"\x12", write_varint(len(inner)), inner, after))
    outermost = path[0]
    head = body[: outermost.at] + b"\x0a" + write_varint(len(inner))
    return b"".join((head, inner, body[outermost.end :]))


def drop_invalid(body: bytes) -> tuple[bytes, int]:
    """Return the request without spans whose ids are invalid by OTLP, and their number.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """

    def has_valid_ids(start: int, end: int) -> bool:
        trace_id, span_id = span_ids(body, start, end)
        return (
            len(trace_id) == TRACE_ID_BYTES and len(span_id) == SPAN_ID_BYTES and trace_id.strip(b"\0") != b""
        )

    return filter_items(body, has_valid_ids, least=SHORTEST_SPAN)


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
