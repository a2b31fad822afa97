"""Find the spans of a raw trace request, without decoding it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.agent_markers import (
    ANY_ORDER,
    PADDED,
    PLAIN,
    USUAL,
    Layout,
    SpanPlace,
    scope_kind,
)
from collector_processor.wire.protobuf import (
    GROUP_TAG,
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    fields,
    most_fields,
    read_varint,
    require_message,
    skip_short,
    span_ids,
    too_many,
)

_ROOM: Final = 4
"""Bound on the bytes of a tag and an unpadded length below 2 MiB."""
_GROUP_STEPS: Final = 4
"""Steps for a group of spans, or for another field instead."""


class TooCostlyError(Exception):
    """The scan takes more steps than the caller allows."""


Group: TypeAlias = tuple[int, int, int, int, int]
"""Index of a scope's first span, and the bounds of its resource and scope messages."""


@dataclass(slots=True)
class Found:
    """The spans found in a request."""

    steps_left: int
    fields_left: int
    """Number of groups and other non-span fields that may still follow."""
    places: list[SpanPlace] = field(default_factory=list)
    """Spans, in their order in the request."""
    invalid: int = 0
    """Number of spans with ids of a wrong length; they are left out of ``places``."""
    largest: int = 0
    """Size of the largest span in bytes."""
    layout: Layout = USUAL
    has_marked_scope: bool = False
    """Whether any span is in a scope of an agent framework or of ours."""
    groups: list[Group] = field(default_factory=list)
    """One entry per scope, in the order of ``places``."""

    def take_field(self, steps: int) -> None:
        """Count a group or another field, and its steps; raise if there are too many."""
        self.fields_left -= 1
        self.steps_left -= steps  # without a call, which would be more expensive
        if self.fields_left < 0:
            raise too_many(0)
        if self.steps_left < 0:
            raise TooCostlyError

    def take_steps(self, count: int) -> None:
        """Count slow steps; raise if there are too many."""
        self.steps_left -= count
        if self.steps_left < 0:
            raise TooCostlyError


def find_spans(body: bytes, most_steps: int) -> Found:
    """Return the spans of a trace request.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
        TooCostlyError: the search takes more than ``most_steps`` slow steps.
    """
    found = Found(steps_left=most_steps, fields_left=most_fields(len(body)))
    try:
        _find_in_request(body, found)
    except IndexError:
        raise MalformedRequestError("the request is cut short") from None
    return found


def _find_in_request(body: bytes, found: Found) -> None:
    for resource in fields(body, 0, len(body)):
        found.take_field(_GROUP_STEPS)
        if resource.number != 1:
            continue
        require_message(resource)
        if resource.start < resource.end and body[resource.start] != GROUP_TAG:
            found.layout = ANY_ORDER  # the Resource, field 1, is not first
        elif resource.start - resource.at > _ROOM and found.layout is USUAL:
            found.layout = PADDED
        for scope in fields(body, resource.start, resource.end):
            found.take_field(_GROUP_STEPS)
            if scope.number == 2:
                require_message(scope)
                found.groups.append((len(found.places), resource.start, resource.end, scope.start, scope.end))
                _find_in_scope(body, scope.start, scope.end, found)


def _find_in_scope(body: bytes, at: int, end: int, found: Found) -> None:  # noqa: C901, PLR0912 - hot
    """Add the spans of one scope.

    Most of the scan's time is spent in this loop: hence inlined lengths and no calls.
    """
    kind = scope_kind(body, at, end, found.take_field)
    if kind != PLAIN:
        found.has_marked_scope = True  # or one of our own, which is examined too
    add, largest = found.places.append, found.largest
    while at < end:
        tag = body[at]
        if tag != 0x12:
            found.take_field(1)
            at = _skip(body, at, end)
            continue
        length = body[at + 1]
        start = at + 2
        if length > 0x7F:
            high = body[at + 2]
            if high < 0x80:
                length += (high - 1) << 7
                start = at + 3
            else:
                length, start = read_varint(body, at + 1, end)
        at = start + length
        if at > end:
            raise MalformedRequestError("a span runs past the end of its scope")
        if length > largest:  # noqa: PLR1730 - hot: a call costs more
            largest = length
        if (
            length > SHORTEST_SPAN
            and body[start] == 0x0A
            and body[start + 1] == 0x10
            and body[start + 18] == 0x12
            and body[start + 19] == 0x08
        ):
            add((start, at, kind, body[start + 2 : start + 18]))
        elif (
            length > SHORTEST_SPAN
            and body[start] != 0x0A
            and body[at - 18] == 0x0A
            and body[at - 17] == 0x10
            and body[at - 28] == 0x12
            and body[at - 27] == 0x08
        ):
            add((start, at, kind, body[at - 16 : at]))
        else:
            found.take_steps(1 + (length >> 1))  # as many fields as there may be
            trace_id, span_id = span_ids(body, start, at)
            if len(trace_id) != TRACE_ID_BYTES or len(span_id) != SPAN_ID_BYTES:
                at, skipped = skip_short(body, at, end)
                found.invalid += 1 + skipped
            else:
                add((start, at, kind, trace_id))
    found.largest = largest


def _skip(body: bytes, at: int, end: int) -> int:
    """Return the end of the field at ``at``; a span that is not length-delimited is malformed."""
    found = next(fields(body, at, end))
    if found.number == 2:
        require_message(found)
        raise MalformedRequestError("a span's tag is longer than one byte: expected the shortest form")
    return found.end
