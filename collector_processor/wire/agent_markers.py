"""Find the spans of a raw request, and the markers of agents' spans and log records. Pure.

``semconv/markers.py`` defines the keys, values and scopes; this module knows how they are encoded. One
search over all bytes goes from one marked span to the next, so unmarked spans are never examined one by one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import re2

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.facts import AGENT_BIT, MARKED_BIT, TOP_BIT
from collector_processor.wire.protobuf import (
    GROUP_TAG,
    RE2_BYTES,
    SHORTEST_SPAN,
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    fields,
    most_fields,
    read_varint,
    require_message,
    skip_short,
    some_fields,
    span_ids,
    too_many,
    write_field,
)
from semconv.markers import (
    AGENT_VALUES,
    ATTRIBUTE_PREFIXES,
    CARRIER_KEY,
    CARRIER_SCOPE,
    MODEL_HINTS,
    OWN_CALL_TRACE_PREFIX,
    SCOPE_PREFIXES,
    WORKFLOW_VALUES,
)

SpanPlace: TypeAlias = tuple[int, int, int, bytes]
"""Start and end of a span's bytes, the kind of its scope, and its trace id.

A tuple, not a class, for speed: one is created for every span received.
"""

PLAIN, MARKED, OURS = 0, 1, 2
"""Kinds of scopes: unknown, of an agent framework, our own."""
CARRIER_BIT: Final = 16
"""Used with the bits of ``facts``, but never stored: carriers get no note."""


class Hint(NamedTuple):
    """A sign of a model call in spans without a marker."""

    text: bytes
    """Searched for first; a request without it has no such sign."""
    search: Any
    """The same for RE2, which is ten times as fast as ``in`` on a large request."""
    near: re.Pattern[bytes]
    """The same for ``re``, which costs less for a span."""
    before: re.Pattern[bytes]
    """Matches the bytes before the text."""
    behind: re.Pattern[bytes]
    """Matches the bytes behind it where it is not in a key."""
    anywhere: Any
    """Matches text and bytes before it, in time linear in the request, for spans with very many texts."""


Hints: TypeAlias = tuple[Hint, ...]


_KEYS: Final = b"|".join(re.escape(prefix.encode()) for prefix in ATTRIBUTE_PREFIXES)
_ATTRIBUTE_TAG, _KEY_TAG, _VALUE_TAG = 0x4A, 0x0A, 0x12
_LONGEST_KEY: Final = 127
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
"""No key has such a byte."""
_ATTRIBUTE, _PADDED_ATTRIBUTE = rb"J.", rb"J[\x80-\xff]{0,3}."
"""Beginning of a ``Span.attributes`` field, ``4a <length>``: for up to 127 bytes, or for any length.

The short form is enough: each marked span also has a short attribute (its kind, its operation), and a single
rare first byte makes the search fast.
"""
_MARKED: Final = rb"\n.(?:" + _KEYS + rb")"
"""Pattern of a marker key: ``0a <length> key``."""
_MARKER_ANYWHERE: Final = re.compile(rb"\n(?<!\x12[^\x00]\n).(?:" + _KEYS + rb")", re.DOTALL)
"""A marker key in any field order, for requests not written in the order of field numbers.

The look-behind excludes a text value that starts like a key: it follows the ``12 <length>`` of its value.
Slower, since ``0a`` is a frequent byte.
"""
_MOST_TEXTS: Final = 16
"""Number of texts of one hint to examine in a span; any position counts in the rest of it."""
_BEFORE_BYTES: Final = 24
"""Bytes before a text that its hint looks at."""
_NEAR: Final = 4
"""Number of spans after a marked one to examine individually: marked spans usually come together."""
_SMALL_BYTES: Final = 32 << 10
"""Requests up to this size are searched by ``re`` alone, whose calls cost less."""
_FEW_BYTES: Final = 4 << 10
"""Requests up to this size are searched without RE2, whose calls release Python's lock and wait for it."""
_RECORD_MARKER: Final = re.compile(rb"(?:\n|b).(?:" + _KEYS + rb")", re.DOTALL)
"""Pattern of an attribute key (``0a``) or an event name (``62``) that marks a log record."""
_SCOPES: Final = tuple(prefix.encode() for prefix in SCOPE_PREFIXES)
_OUR_SCOPE: Final = CARRIER_SCOPE.encode()
OUR_TRACES: Final = bytes.fromhex(OWN_CALL_TRACE_PREFIX)
"""Prefix of the trace ids of our own model calls."""


def _key_value(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` in field order, as most encoders write it."""
    return write_field(b"\x0a", key.encode()) + write_field(b"\x12", value)


def _value_key(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` in reverse order, as the Collector writes it."""
    return write_field(b"\x12", value) + write_field(b"\x0a", key.encode())


_BITS: Final[dict[bytes, int]] = {
    write(key, value): bit
    for write in (_key_value, _value_key)
    for key, value, bit in (
        *((key, write_field(b"\x0a", value.encode()), AGENT_BIT) for key, value in AGENT_VALUES),
        *((key, write_field(b"\x0a", value.encode()), TOP_BIT) for key, value in WORKFLOW_VALUES),
        (CARRIER_KEY, b"\x10\x01", CARRIER_BIT),
    )
}
_FACTS: Final = b"|".join(
    # The common first byte precedes the alternatives, so that ``re`` does not try each at every attribute.
    re.escape(first)
    + b"(?:"
    + b"|".join(re.escape(written[1:]) for written in _BITS if written.startswith(first))
    + b")"
    for first in (b"\x0a", b"\x12")
)


class Layout(NamedTuple):
    """Patterns that find the markers in requests of one byte layout."""

    hint: Any
    """Searches the rest of a request: RE2 skips to the first byte eight times as fast as ``re``.

    Each call costs more, though, and RE2 has no look-behind, so it also matches text values.
    """
    marker: re.Pattern[bytes]
    """Searches one span."""
    fact_hint: Any
    """Searches a request for the next span that states a fact, by RE2."""
    fact: re.Pattern[bytes]
    """Searches that span and its neighbours."""


def _layout(attribute: bytes) -> Layout:
    return Layout(
        hint=re2.compile(attribute + _MARKED, RE2_BYTES),
        marker=re.compile(attribute + _MARKED, re.DOTALL),
        fact_hint=re2.compile(attribute + b"(?:" + _FACTS + b")", RE2_BYTES),
        fact=re.compile(attribute + b"(" + _FACTS + b")", re.DOTALL),
    )


USUAL: Final = _layout(_ATTRIBUTE)
"""Fields in the order of their numbers, lengths in as few bytes as possible."""
PADDED: Final = _layout(_PADDED_ATTRIBUTE)
"""The same order with padded lengths: .NET's exporter reserves four bytes for each length."""
ANY_ORDER: Final = USUAL._replace(hint=re2.compile(_MARKED, RE2_BYTES), marker=_MARKER_ANYWHERE)
"""Fields in any other order, such as the Collector's."""


def hints_of(attributes: Iterable[str] = ()) -> Hints:
    """Return the usual hints, and those of attributes that mark a user's own spans.

    An attribute is looked for with the length that stands before a key: ``kind`` is not ``span.kind``.
    """
    keys = [write_field(b"\x0a", attribute.encode()) for attribute in sorted({*attributes})]
    usual = (_hint(*(each.encode() for each in hint)) for hint in MODEL_HINTS)
    return (*usual, *(_hint(key, b"", b"") for key in keys))


def _hint(text: bytes, before: bytes, behind: bytes) -> Hint:
    literal = re.escape(text)
    return Hint(
        text=text,
        search=re2.compile(literal, RE2_BYTES),
        near=re.compile(literal),
        before=re.compile(before + b"$", re.DOTALL),
        behind=re.compile(behind),
        anywhere=re2.compile(before + literal, RE2_BYTES),
    )


def hinted_spans(body: bytes, places: Sequence[SpanPlace], hints: Hints) -> frozenset[int]:
    """Return the positions of the spans that hint at a model call."""
    is_small = len(body) <= _FEW_BYTES
    found: set[int] = set()
    for hint in hints:
        if hint.text in body if is_small else hint.search.search(body) is not None:
            found.update(_hinted_by(hint, body, places))
    return frozenset(found)


def _hinted_by(hint: Hint, body: bytes, places: Sequence[SpanPlace]) -> Iterator[int]:
    index, count, key = 0, len(places), b""
    while index < count and (hit := hint.near.search(body, places[index][0])) is not None:
        index = max(index, bisect_right(places, (hit.start() + 1,)) - 1)
        sign: bytes | None = key
        at = hit.start()
        while index < count and sign is not None:
            start, end, _, _ = places[index]
            # The key of the span before is found in less time than the text.
            is_repeated = key and body.find(key, start, end) >= 0
            sign = key if is_repeated else _sign(hint, body, start, max(start, at), end)
            if sign is not None:
                yield index
            key = sign or key
            index += 1


def _sign(hint: Hint, body: bytes, start: int, at: int, end: int) -> bytes | None:
    """Return the key of a span that is a sign; empty for a sign in a value, ``None`` without one.

    ``at`` is where the search begins, at most at the span's first text.
    """
    at -= 1
    for _ in range(_MOST_TEXTS):
        at = body.find(hint.text, at + 1, end)
        if at < 0:
            return None
        if hint.before.search(body, max(start, at - _BEFORE_BYTES), at) is not None:
            key = _key_around(body, at, start, end)
            if key or hint.behind.match(body, at + len(hint.text), end):
                return key
    return None if hint.anywhere.search(body[at:end]) is None else b""


def _key_around(body: bytes, at: int, start: int, end: int) -> bytes:
    """Return the key that holds a position, with its length in front; empty if it is not in a key.

    A key is ``0a <length> text``; those of more than 127 bytes are not found. A text value looks the same,
    but stands behind its own ``12 <length>``. A line of a text may look the same: then its first byte, read
    as a length, leads beyond the span or to a control character.
    """
    last = body.rfind(b"\n", max(start, at - _LONGEST_KEY), at)
    for tag in (last - 1, last):  # the length of a key of ten bytes looks like a tag
        is_value = body[tag - 2] == _VALUE_TAG and body[tag - 1]
        if tag >= start and body[tag] == _KEY_TAG and not is_value:
            behind = tag + 2 + body[tag + 1]
            if at < behind < end and _CONTROL.search(body, tag + 2, behind) is None:
                return body[tag:behind]
    return b""


def _count_nothing(_steps: int) -> None:
    """Do nothing: the default if the caller sets no bound."""


def scope_kind(body: bytes, at: int, end: int, take_steps: Callable[[int], None] = _count_nothing) -> int:
    """Return the kind of a scope group, by the name of its scope.

    Args:
        body: the request.
        at: where the group begins.
        end: where it ends.
        take_steps: called for each field that is read and no span; may raise.

    Raises:
        MalformedRequestError: the bytes are not valid protobuf.
    """
    name = _name_in_front(body, at, end)
    if name is not None:
        take_steps(1)
        return _kind_of(name)
    while at < end:
        for found in fields(body, at, end):
            at = found.end
            if found.number == 2 and at - found.start >= SHORTEST_SPAN:
                continue
            take_steps(1)
            if found.number == 1:
                require_message(found)
                for inner in some_fields(body, found.start, found.end):
                    if inner.number == 1:
                        return _kind_of(body[inner.start : inner.end])
            elif found.number == 2:
                at = skip_short(body, at, end)[0]  # there may be millions before the scope
                break
    return PLAIN


def _name_in_front(body: bytes, at: int, end: int) -> bytes | None:
    """Return the scope's name if scope and name come first and are short, as usual; in half of the time."""
    if at + 4 > end or body[at] != 0x0A or body[at + 2] != 0x0A:
        return None
    length, size = body[at + 1], body[at + 3]
    if not size + 2 <= length <= 0x7F or at + 2 + length > end:
        return None
    return body[at + 4 : at + 4 + size]


def _kind_of(name: bytes) -> int:
    return OURS if name == _OUR_SCOPE else MARKED if name.startswith(_SCOPES) else PLAIN


def marked_spans(body: bytes, places: Sequence[SpanPlace], layout: Layout) -> frozenset[int]:
    """Return the positions of the spans that have a marker attribute.

    Args:
        body: the request.
        places: its spans, in their order in the body.
        layout: the byte layout of the request.
    """
    marker = layout.marker
    hint = marker if len(body) <= _FEW_BYTES else layout.hint
    marked: list[int] = []
    index, key, count = 0, b"", len(places)
    while index < count and (hit := hint.search(body, places[index][0])) is not None:
        # A match between two spans is not a marker: the span before it is then examined needlessly.
        index = max(index, bisect_right(places, (hit.start() + 1,)) - 1)
        until = index + 1
        while index < until and index < count:
            start, end, _, _ = places[index]
            # The key of the span before is found in a third of the time of a search for every key.
            at = body.find(key, start + 2, end) if key else -1
            if at < 0 or body[at - 2] != _ATTRIBUTE_TAG:
                found = marker.search(body, start, end)
                at = -1 if found is None else found.start()
                key = found[0][2:] if found is not None and layout is USUAL else key
            if at >= 0:
                marked.append(index)
                until = index + 1 + _NEAR
            index += 1
    return frozenset(marked)


def marker_bits(
    body: bytes, places: Sequence[SpanPlace], marked: frozenset[int], layout: Layout
) -> dict[int, int]:
    """Return the bits that the attributes of each marked span state, by the span's position.

    The request is searched once, from its first marked span; a fact does not begin in one span and end in
    the next, whose ids stand between. Spans that state facts usually come together, as marked ones do.
    """
    bits = dict.fromkeys(marked, MARKED_BIT)
    if not bits:
        return bits
    starts = [place[0] for place in places]
    for fact in _facts(body, places, starts, starts[min(marked)], layout):
        index = bisect_right(starts, fact.start()) - 1
        if index in bits and fact.end() <= places[index][1]:
            bits[index] |= _BITS[fact[1]]
    return bits


def _facts(
    body: bytes, places: Sequence[SpanPlace], starts: Sequence[int], at: int, layout: Layout
) -> Iterable[re.Match[bytes]]:
    """Iterate over the facts that a request states, in order, from ``at``."""
    if len(body) <= _SMALL_BYTES:
        return layout.fact.finditer(body, at)
    return _facts_near(body, places, starts, at, layout)


def _facts_near(
    body: bytes, places: Sequence[SpanPlace], starts: Sequence[int], at: int, layout: Layout
) -> Iterator[re.Match[bytes]]:
    while (hit := layout.fact_hint.search(body, at)) is not None:
        index = bisect_right(starts, hit.start()) - 1
        until = places[min(index + _NEAR, len(places) - 1)][1]
        yield from layout.fact.finditer(body, hit.start(), until)
        at = max(until, hit.end())


USUAL_HINTS: Final = hints_of()


def is_marked_record(body: bytes, start: int, end: int) -> bool:
    """Return whether a log record has a marker attribute, or an event name that is a marker."""
    return _RECORD_MARKER.search(body, start, end) is not None


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
