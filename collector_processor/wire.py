"""Cut and join raw OTLP requests. Pure: bytes in, bytes out, nothing decoded.

All three signals have one shape on the wire: a request holds resource groups
(field 1), these hold scope groups (field 2), these hold items (field 2: spans,
log records, metrics). An item's bytes are never touched, with one exception:
``append_attributes`` adds at the end of one span. What else a group carries
(resource, scope, schema URL, fields we do not know) goes with each piece that
has an item of it; unknown fields of the request itself go with the first piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from collector_processor.framing import (
    LENGTH_DELIMITED,
    Field,
    fields,
    messages,
    past_the_end,
    read_varint,
    require_message,
    write_varint,
)
from collector_processor.otlp import MalformedRequestError
from collector_processor.raw_ids import read_span_ids

_ATTRIBUTES_TAG: Final = 0x4A
_HEADER_BYTES: Final = 11
"""The most that a tag and a length add to a group."""


class Item(NamedTuple):
    """One span, log record or metric: with its header from ``at``, without from ``start``."""

    at: int
    start: int
    end: int


@dataclass(slots=True)
class ScopeGroup:
    """Items of one scope; ``others`` is every other field of the group, as it came."""

    others: bytes
    items: list[Item]


@dataclass(slots=True)
class ResourceGroup:
    """Scope groups of one resource."""

    others: bytes
    scopes: list[ScopeGroup] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """A request taken apart; ``body`` is what the items' offsets point into."""

    body: bytes
    others: bytes
    resources: list[ResourceGroup] = field(default_factory=list)

    def items(self) -> Iterator[Item]:
        """All items, in the order they came."""
        for resource in self.resources:
            for scope in resource.scopes:
                yield from scope.items


Keep: TypeAlias = Callable[[int, int], bool]
"""Told where an item's bytes start and end, says whether it stays."""


def parse(body: bytes) -> Request:
    """Take a request apart down to its items.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    groups, others = _members(body, 0, len(body), 1)
    request = Request(body=body, others=others)
    for group in groups:
        scopes, others = _members(body, group.start, group.end, 2)
        resource = ResourceGroup(others=others)
        request.resources.append(resource)
        for scope in scopes:
            items, others = _members(body, scope.start, scope.end, 2)
            resource.scopes.append(ScopeGroup(others=others, items=items))
    return request


def _members(body: bytes, at: int, end: int, number: int) -> tuple[list[Item], bytes]:
    """Return the messages in field ``number``, and all other fields joined."""
    members: list[Item] = []
    others: list[bytes] = []
    tag = number << 3 | LENGTH_DELIMITED
    while at < end:
        if body[at] == tag:  # nearly always, and there may be thousands
            length, start = read_varint(body, at + 1, end)
            stop = start + length
            if stop > end:
                raise past_the_end(at)
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
    return members, b"".join(others)


def build(request: Request) -> bytes:
    """Put a request together again; groups without an item are left out."""
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


def filter_items(body: bytes, keep: Keep) -> tuple[bytes, int]:
    """Return the request with only the items that ``keep`` wants, and how many went.

    The very same bytes come back when none went.
    """
    request = parse(body)
    dropped = 0
    for resource in request.resources:
        for scope in resource.scopes:
            kept = [item for item in scope.items if keep(item.start, item.end)]
            dropped += len(scope.items) - len(kept)
            scope.items = kept
    return (build(request), dropped) if dropped else (body, 0)


def drop_oversize(body: bytes, max_bytes: int) -> tuple[bytes, int]:
    """Leave out the items that could not be sent even alone to a backend that takes ``max_bytes``."""
    request = parse(body)
    dropped = 0
    for resource in request.resources:
        for scope in resource.scopes:
            room = max_bytes - len(resource.others) - len(scope.others) - 2 * _HEADER_BYTES
            kept = [item for item in scope.items if item.end - item.at <= room]
            dropped += len(scope.items) - len(kept)
            scope.items = kept
    return (build(request), dropped) if dropped else (body, 0)


def member_count(body: bytes) -> int:
    """Return how many spans, log records or metrics the request holds."""
    return sum(1 for _ in parse(body).items())


def split_by_size(body: bytes, max_bytes: int) -> tuple[bytes, ...]:
    """Cut a request between items into requests of at most ``max_bytes``, in order.

    A single item that is larger stays alone in a request that is larger too.
    """
    if len(body) <= max_bytes:
        return (body,)
    request = parse(body)
    cuts: list[int] = []
    used = len(request.others)
    held = position = 0
    for resource in request.resources:
        used += len(resource.others) + _HEADER_BYTES
        for scope in resource.scopes:
            used += len(scope.others) + _HEADER_BYTES
            for item in scope.items:
                size = item.end - item.at
                if held and used + size > max_bytes:
                    cuts.append(position)
                    held = 0
                    used = len(resource.others) + len(scope.others) + 2 * _HEADER_BYTES
                used += size
                held += 1
                position += 1
    return _cut(request, cuts)


def halve(body: bytes) -> tuple[bytes, bytes] | None:
    """Cut a request in two with half of the items each; ``None`` if it has fewer than two."""
    request = parse(body)
    count = sum(1 for _ in request.items())
    if count < 2:
        return None
    first, second = _cut(request, [count // 2])
    return first, second


def _cut(request: Request, cuts: Iterable[int]) -> tuple[bytes, ...]:
    """Build one request for each stretch of items between ``cuts`` (ascending positions)."""
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
    """Add raw ``attributes`` fields to one span; of all other bytes only the enclosing lengths change.

    Args:
        body: a trace request.
        trace_id: lower-case hex.
        span_id: lower-case hex; the first span with these ids is taken.
        attribute_bytes: whole ``Span.attributes`` fields (tag, length, KeyValue), one after another.

    Returns:
        The new request, or the very same bytes if there is no such span in it.

    Raises:
        MalformedRequestError: the request, or ``attribute_bytes``, is broken.
    """
    for added in fields(attribute_bytes, 0, len(attribute_bytes)):
        if attribute_bytes[added.at] != _ATTRIBUTES_TAG:
            raise MalformedRequestError("only fields of Span.attributes can be added to a span")
    wanted = (bytes.fromhex(trace_id), bytes.fromhex(span_id))
    for group in messages(body, 0, len(body), 1):
        for scope in messages(body, group.start, group.end, 2):
            for span in messages(body, scope.start, scope.end, 2):
                if read_span_ids(body, span.start, span.end) == wanted:
                    return _insert(body, (group, scope, span), attribute_bytes)
    return body


def _insert(body: bytes, path: tuple[Field, ...], added: bytes) -> bytes:
    """Put ``added`` at the end of the innermost message of ``path`` and mend the lengths around it."""
    inner = body[path[-1].start : path[-1].end] + added
    for outer, member in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        before = body[outer.start : member.at]
        after = body[member.end : outer.end]
        inner = b"".join((before, b"\x12", write_varint(len(inner)), inner, after))
    outermost = path[0]
    head = body[: outermost.at] + b"\x0a" + write_varint(len(inner))
    return b"".join((head, inner, body[outermost.end :]))
