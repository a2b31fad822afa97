"""Reads facts about an agent's span from raw bytes, beyond its ids, for the slow lane. Pure.

The facts are its end time, the process and line of code that sent it, and the traces it links to. From
them the assembler decides whether more spans of the trace are coming. Nothing here raises: a span
that is malformed after its ids has no facts, and the backend decides whether to accept it.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from collector_processor.framing import LENGTH_DELIMITED, fields, messages, read_varint
from collector_processor.notes import MAX_NOTE_LINKS
from collector_processor.otlp import MalformedRequestError
from collector_processor.raw_ids import (
    SHORTEST_SPAN,
    SPAN_ID_HEAD,
    TRACE_ID_BYTES,
    has_usual_head,
    has_usual_tail,
)

_SERVICE: Final = b"\x0a\x0cservice.name"
"""The encoded key of the resource attribute."""
_TRACE_STATE, _PARENT, _NAME, _KIND, _START, _END = 0x1A, 0x22, 0x2A, 0x30, 0x39, 0x41
"""Tags of ``Span``'s fields 3 to 8, in the order in which most encoders write them."""
_LINKS: Final = 13
_LINK_TAG: Final = 0x6A
_FLAGS_TAG: Final = b"\x85\x01"
_PARENT_HEAD: Final = b"\x22\x08"
_NO_PARENT: Final = b"\x22\x00"
_TRACE_ID_HEAD: Final = b"\x0a\x10"


class Process(NamedTuple):
    """The Resource that spans of several groups share."""

    source: int
    """Its checksum."""
    service: bytes


class Origin(NamedTuple):
    """The Resource and scope that spans of one group share."""

    source: int
    """Checksum of the Resource."""
    names: int
    """Checksum of the service's name and the scope's: what ``kind_of`` begins with."""


class SpanFacts(NamedTuple):
    """End time and name of a span."""

    end_ns: int
    name: bytes


def read_process(body: bytes, at: int, end: int) -> Process:
    """Return what the Resource of a ``ResourceSpans`` message says; read once for all its scopes."""
    resource = _first_message(body, at, end)
    return Process(zlib.crc32(resource), _service_of(resource))


def read_origin(body: bytes, process: Process, scope_at: int, scope_end: int) -> Origin:
    """Return where the spans of the ``ScopeSpans`` between two offsets come from."""
    scope = _name_of(_first_message(body, scope_at, scope_end))
    return Origin(process.source, zlib.crc32(b"\0".join((process.service, scope, b""))))


def kind_from(origin: Origin, name: bytes) -> int:
    """Return ``kind_of`` a span of this origin."""
    return zlib.crc32(name, origin.names)


def read_facts(body: bytes, start: int, end: int) -> SpanFacts:
    """Return the end time and name of a span; 0 and empty if unreadable."""
    try:
        found = None
        if has_usual_head(body, start, end):
            at = start + SHORTEST_SPAN
            found = _read_at_once(body, at, end) or _read_in_order(body, at, end)
        elif has_usual_tail(body, start, end):
            found = _read_from_tail(body, start, end - SHORTEST_SPAN)
        return found or _read_any_order(body, start, end)
    except (MalformedRequestError, IndexError):
        return SpanFacts(0, b"")


def linked_traces(body: bytes, start: int, end: int, own: bytes) -> tuple[bytes, ...]:
    """Return the other traces that a span links to, without duplicates, at most ``MAX_NOTE_LINKS``.

    Most spans have no link; a byte search for the start of a link's trace id rules them out quickly.
    """
    if not _may_have_links(body, start, end):
        return ()
    try:
        found = {
            body[one.start : one.end]: None
            for link in messages(body, start, end, _LINKS)
            for one in messages(body, link.start, link.end, 1)
            if one.end - one.start == TRACE_ID_BYTES
        }
    except MalformedRequestError:
        return ()
    found.pop(own, None)
    return tuple(found)[:MAX_NOTE_LINKS]


def _may_have_links(body: bytes, start: int, end: int) -> bool:
    """Whether a trace id follows a link's tag and length, or a span id as the Collector writes it."""
    at = body.find(_TRACE_ID_HEAD, start + 2, end - 18)
    while at >= 0:
        is_behind_tag = any(at - width >= start and body[at - width] == _LINK_TAG for width in (2, 3, 4, 5))
        if is_behind_tag or (at - 10 > start and body.startswith(SPAN_ID_HEAD, at - 10)):
            return True
        at = body.find(_TRACE_ID_HEAD, at + 2, end - 18)
    return False


def _read_at_once(body: bytes, at: int, end: int) -> SpanFacts | None:
    """Read a span in the field order of most SDKs: parent, short name, kind, start, end; else ``None``."""
    if body[at] == _PARENT and body[at + 1] == 8:
        at += 10
    length = body[at + 1]
    name_at, at = at + 2, at + 2 + length
    if body[name_at - 2] != _NAME or length > 0x7F or at + 20 > end:
        return None
    name = body[name_at:at]
    if body[at] == _KIND:
        at += 2
    if body[at] != _START or body[at + 9] != _END or at + 18 > end:
        return None
    return SpanFacts(int.from_bytes(body[at + 10 : at + 18], "little"), name)


def _read_from_tail(body: bytes, start: int, end: int) -> SpanFacts | None:
    """Read a span in the Collector's field order: end, start, kind, short name, flags, parent, ids."""
    if body.startswith(_NO_PARENT, end - 2):
        end -= 2
    elif body.startswith(_PARENT_HEAD, end - 10):
        end -= 10
    if body.startswith(_FLAGS_TAG, end - 6):
        end -= 6
    first = max(start + 20, end - 0x7F - 2)
    at = body.rfind(_NAME, first, end)
    while at >= 0:
        kind_at = at - 2 if body[at - 2] == _KIND else at
        if (
            at + 2 + body[at + 1] == end
            and kind_at - 18 >= start
            and body[kind_at - 9] == _START
            and body[kind_at - 18] == _END
        ):
            return SpanFacts(int.from_bytes(body[kind_at - 17 : kind_at - 9], "little"), body[at + 2 : end])
        at = body.rfind(_NAME, first, at)
    return None


def _read_in_order(body: bytes, at: int, end: int) -> SpanFacts | None:
    """Read fields 3 to 8 if they are in the order of their numbers; else ``None``."""
    name = b""
    while at < end:
        tag = body[at]
        if tag == _END:
            return SpanFacts(int.from_bytes(body[at + 1 : at + 9], "little"), name)
        if tag == _START:
            at += 9
        elif tag == _KIND:
            at = read_varint(body, at + 1, end)[1]
        elif tag in {_TRACE_STATE, _PARENT, _NAME}:
            length, begin = read_varint(body, at + 1, end)
            at = begin + length
            if at > end:  # without a copy of all that follows
                return None
            if tag == _NAME:
                name = body[begin:at]
        else:
            return None
    return None


def _read_any_order(body: bytes, start: int, end: int) -> SpanFacts:
    name, end_ns = b"", 0
    for found in fields(body, start, end):
        if found.number == 5 and found.wire_type == LENGTH_DELIMITED:
            name = body[found.start : found.end]
        elif found.number == 8 and found.end - found.start == 8:
            end_ns = int.from_bytes(body[found.start : found.end], "little")
    return SpanFacts(end_ns, name)


def _first_message(body: bytes, at: int, end: int) -> bytes:
    """Return field 1 of a group: its Resource, or its scope; the Collector writes it last."""
    try:
        found = next(messages(body, at, end, 1), None)
    except MalformedRequestError:
        return b""
    return body[found.start : found.end] if found else b""


def _service_of(resource: bytes) -> bytes:
    """Return the value of ``service.name``, as the bytes of its ``AnyValue``; empty if missing."""
    try:
        for attribute in messages(resource, 0, len(resource), 1):
            if _SERVICE in resource[attribute.start : attribute.end]:
                for value in messages(resource, attribute.start, attribute.end, 2):
                    text = next(messages(resource, value.start, value.end, 1), None)
                    return resource[text.start : text.end] if text else b""
    except MalformedRequestError:
        return b""
    return b""


def _name_of(scope: bytes) -> bytes:
    try:
        found = next(messages(scope, 0, len(scope), 1), None)
    except MalformedRequestError:
        return b""
    return scope[found.start : found.end] if found else b""
