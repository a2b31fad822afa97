"""What gives an agent's spans and log records away, as the bytes of a request show it. Pure.

Which keys, values and scopes these are, ``semconv/markers.py`` says; here is how they are written,
and how they are found without a look at each span: a search over all bytes goes from one marked span
to the next, so that a request costs that search, and beyond it only what there is of agents in it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import re2

from collector_processor.framing import fields, require_message, write_varint
from collector_processor.notes import AGENT_BIT, TOP_BIT
from semconv.markers import (
    AGENT_VALUES,
    ATTRIBUTE_PREFIXES,
    CARRIER_KEY,
    CARRIER_SCOPE,
    SCOPE_PREFIXES,
    WORKFLOW_VALUES,
)

Place: TypeAlias = tuple[int, int, int, bytes]
"""Where a span's bytes start and end, whose scope it is in, and its trace id.

No class: there is one of every span that comes.
"""

PLAIN, MARKED, OURS = 0, 1, 2
"""Whose a scope is: nobody's we know, an agent's, our own."""
CARRIER_BIT: Final = 16
"""Beside the bits of ``notes``, and never in a note: carriers have none."""

_KEYS: Final = b"|".join(re.escape(prefix.encode()) for prefix in ATTRIBUTE_PREFIXES)
_ATTRIBUTE, _ROOMY_ATTRIBUTE = rb"J.", rb"J[\x80-\xff]{0,3}."
"""How a ``Span.attributes`` field begins: ``4a <length>``, of up to 127 bytes or of any length.

Longer ones need not be found: whoever marks a span gives it a short attribute
too (its kind, its operation), and one rare first byte makes the search fast.
"""
_MARKED: Final = rb"\n.(?:" + _KEYS + rb")"
"""A key that is marked: ``0a <length> key``."""
_MARKER_ANYWHERE: Final = re.compile(rb"\n(?<!\x12[^\x00]\n).(?:" + _KEYS + rb")", re.DOTALL)
"""A key in whatever order; of requests that are not in the order of the numbers.

What looks the same and is none is a text, behind the ``12 <length>`` of its
value. Slower, for ``0a`` is everywhere.
"""
_BYTES: Final = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_BYTES.dot_nl = True
_NEAR: Final = 2
"""Spans behind a marked one that are looked at one by one: marked ones mostly come together."""
_RECORD_MARKER: Final = re.compile(rb"(?:\n|b).(?:" + _KEYS + rb")", re.DOTALL)
"""An attribute key (``0a``) or an event name (``62``) of a log record that is marked."""
_SCOPES: Final = tuple(prefix.encode() for prefix in SCOPE_PREFIXES)
_OUR_SCOPE: Final = CARRIER_SCOPE.encode()


def _key_value(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` as every encoder writes it."""
    return _text(b"\x0a", key.encode()) + _text(b"\x12", value)


def _value_key(key: str, value: bytes) -> bytes:
    """Return a ``KeyValue`` as the Collector writes it."""
    return _text(b"\x12", value) + _text(b"\x0a", key.encode())


def _text(tag: bytes, raw: bytes) -> bytes:
    return tag + write_varint(len(raw)) + raw


_BITS: Final[dict[bytes, int]] = {
    write(key, value): bit
    for write in (_key_value, _value_key)
    for key, value, bit in (
        *((key, _text(b"\x0a", value.encode()), AGENT_BIT) for key, value in AGENT_VALUES),
        *((key, _text(b"\x0a", value.encode()), TOP_BIT) for key, value in WORKFLOW_VALUES),
        (CARRIER_KEY, b"\x10\x01", CARRIER_BIT),
    )
}
_FACTS: Final = b"|".join(
    # With its first byte in front of the choice, ``re`` does not try each at every attribute.
    re.escape(first)
    + b"(?:"
    + b"|".join(re.escape(written[1:]) for written in _BITS if written.startswith(first))
    + b")"
    for first in (b"\x0a", b"\x12")
)


class Manner(NamedTuple):
    """How a request is written, and so what finds the marks in it."""

    hint: Any
    """Asked of all that is left of a request: RE2 skips to the first byte eight times as fast.

    A call of it is dearer, though, and it has no look-behind, so that texts are found too.
    """
    marker: re.Pattern[bytes]
    """Asked of one span."""
    fact: re.Pattern[bytes]


def _manner(attribute: bytes) -> Manner:
    return Manner(
        hint=re2.compile(attribute + _MARKED, _BYTES),
        marker=re.compile(attribute + _MARKED, re.DOTALL),
        fact=re.compile(attribute + b"(" + _FACTS + b")", re.DOTALL),
    )


USUAL: Final = _manner(_ATTRIBUTE)
"""In the order of the fields' numbers, with lengths as short as can be."""
ROOMY: Final = _manner(_ROOMY_ATTRIBUTE)
"""In the same order; .NET's exporter leaves room for lengths before it knows them: four bytes each."""
ANY_ORDER: Final = USUAL._replace(hint=re2.compile(_MARKED, _BYTES), marker=_MARKER_ANYWHERE)
"""As the Collector writes, and whoever else does not keep to the numbers."""


def scope_kind(body: bytes, at: int, end: int) -> int:
    """Return whose the items of a scope group are, by the name of their scope.

    Raises:
        MalformedRequestError: the framing is broken.
    """
    for found in fields(body, at, end):
        if found.number == 1:
            require_message(found)
            for inner in fields(body, found.start, found.end):
                if inner.number == 1:
                    name = body[inner.start : inner.end]
                    return OURS if name == _OUR_SCOPE else MARKED if name.startswith(_SCOPES) else PLAIN
    return PLAIN


def marked_spans(body: bytes, places: Sequence[Place], manner: Manner) -> frozenset[int]:
    """Return which of the spans carry a marked attribute, as positions among them.

    Args:
        body: the request.
        places: its spans in the order in which they stand in it.
        manner: how it is written.
    """
    hint, marker, _ = manner
    marked: list[int] = []
    index = 0
    while index < len(places) and (hit := hint.search(body, places[index][0])) is not None:
        # Between two spans it is none: the one before is looked at for nothing, and the search goes on.
        index = max(index, bisect_right(places, (hit.start() + 1,)) - 1)
        until = index + 1
        while index < min(until, len(places)):
            if marker.search(body, *places[index][:2]):
                marked.append(index)
                until = index + 1 + _NEAR
            index += 1
    return frozenset(marked)


def facts_of(body: bytes, start: int, end: int, manner: Manner) -> int:
    """Return as bits what the attributes of a marked span say of it."""
    bits = 0
    for fact in manner.fact.findall(body, start, end):
        bits |= _BITS[fact]
    return bits


def is_marked_record(body: bytes, start: int, end: int) -> bool:
    """Whether a log record carries a marked attribute, or its event has a marked name."""
    return _RECORD_MARKER.search(body, start, end) is not None
