"""Repair a request that protobuf cannot parse, so that one bad span does not cost the others.

Protobuf refuses a whole request for a single string that is not UTF-8 or a value nested too deeply. Here the
request is copied field by field: invalid UTF-8 becomes U+FFFD, values nested too deeply become a text that
says so, and a span or log record that is not valid protobuf is left out and counted. Only a broken envelope
makes the request malformed. What the caller's parser accepts is copied whole, and the fields that are copied
one by one are bounded: a request of tiny bad words is not worth seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.protobuf import LENGTH_DELIMITED, SHORTEST_SPAN, Field, fields, write_varint

MAX_NESTING: Final = 24
"""Most levels of lists and maps in an attribute; each is three messages, and protobuf takes 100."""
TOO_DEEP: Final = f"[nested deeper than {MAX_NESTING} levels]"

TRACES: Final = "traces"
LOGS: Final = "logs"

_TEXT: Final = "text"
_MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    TRACES: {1: "spans of a resource"},
    LOGS: {1: "logs of a resource"},
    "spans of a resource": {1: "resource", 2: "spans of a scope", 3: _TEXT},
    "logs of a resource": {1: "resource", 2: "logs of a scope", 3: _TEXT},
    "spans of a scope": {1: "scope", 2: "span", 3: _TEXT},
    "logs of a scope": {1: "scope", 2: "record", 3: _TEXT},
    "resource": {1: "pair"},
    "scope": {1: _TEXT, 2: _TEXT, 3: "pair"},
    "span": {3: _TEXT, 5: _TEXT, 9: "pair", 11: "event", 13: "link", 15: "status"},
    "event": {2: _TEXT, 3: "pair"},
    "link": {3: _TEXT, 4: "pair"},
    "status": {2: _TEXT},
    "record": {3: _TEXT, 5: "value", 6: "pair", 12: _TEXT},
    "pair": {1: _TEXT, 2: "value"},
    "value": {1: _TEXT, 5: "list", 6: "map"},
    "list": {1: "value"},
    "map": {1: "pair"},
}
"""Fields of each message that are text, or messages with text in them. Source: opentelemetry-proto 1.x."""
_LEAVES: Final = frozenset({"span", "record"})
_ENVELOPE: Final = frozenset(
    {TRACES, LOGS, "spans of a resource", "logs of a resource", "spans of a scope", "logs of a scope"}
)
_NESTING: Final = frozenset({"list", "map"})
SPAN: Final = "span"
RECORD: Final = "record"
PAIR: Final = "pair"
_CHECKED: Final = frozenset({SPAN, RECORD, PAIR})
"""Messages that are offered to the caller's parser before they are copied field by field."""
_STRING_VALUE_TAG: Final = 0x0A
"""Field 1 of a value, length-delimited."""


@dataclass(frozen=True, slots=True)
class Mended:
    """A repaired request, which protobuf can parse."""

    body: bytes
    rejected: int
    """Spans or log records left out."""


def most_copied(size: int) -> int:
    """Return how many fields of the spans in a request of ``size`` bytes are copied one by one.

    Half a million in 8 MB, which takes half a second. Spans and log records beyond are left out.
    """
    return 1_000 + size // 16


def mend(body: bytes, request: str, is_valid: Callable[[str, bytes], bool]) -> Mended:
    """Return ``body``, a request of kind ``TRACES`` or ``LOGS``, repaired so that protobuf can parse it.

    Args:
        body: the request.
        request: its kind.
        is_valid: tells whether protobuf parses a message of the kind ``SPAN``, ``RECORD`` or ``PAIR``.

    Raises:
        MalformedRequestError: its envelope is not valid protobuf, or a resource exceeds ``most_copied``.
    """
    mender = _Mender(body, is_valid)
    return Mended(body=mender.copy(request, 0, len(body), 0), rejected=mender.rejected)


class _Mender:
    def __init__(self, body: bytes, is_valid: Callable[[str, bytes], bool]) -> None:
        self._body = body
        self._is_valid = is_valid
        self._left = most_copied(len(body))
        self.rejected = 0

    def copy(self, message: str, start: int, end: int, nesting: int) -> bytes:
        """Return a repaired message; its depth is bounded by ``MAX_NESTING``."""
        if message in _CHECKED and self._is_valid(message, whole := self._body[start:end]):
            return whole
        kinds = _MESSAGES[message]
        out = bytearray()
        for field in fields(self._body, start, end):
            self._left -= message not in _ENVELOPE
            if self._left < 0 and message not in _ENVELOPE:
                raise MalformedRequestError("more fields than are repaired in a request of its size")
            kind = kinds.get(field.number) if field.wire_type == LENGTH_DELIMITED else None
            if kind is None:
                out += self._body[field.at : field.end]
            elif kind in _NESTING and nesting >= MAX_NESTING:
                out += _field(bytes((_STRING_VALUE_TAG,)), TOO_DEEP.encode())
            elif (content := self._content(kind, field, nesting)) is not None:
                out += _field(write_varint(field.number << 3 | LENGTH_DELIMITED), content)
        return bytes(out)

    def _content(self, kind: str, field: Field, nesting: int) -> bytes | None:
        """Return a field's repaired content; ``None`` for a span or log record to leave out."""
        if kind == _TEXT:
            return self._body[field.start : field.end].decode(errors="replace").encode()
        if kind not in _LEAVES:
            return self.copy(kind, field.start, field.end, nesting + (kind in _NESTING))
        if kind == SPAN and field.end - field.start < SHORTEST_SPAN:  # it has no ids
            self.rejected += 1
            return None
        try:
            return self.copy(kind, field.start, field.end, nesting)
        except MalformedRequestError:
            self.rejected += 1
            return None


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + write_varint(len(content)) + content
