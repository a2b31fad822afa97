"""Shifts all times of a request, so that ``replay`` can send a recorded run as if it happened now.

Only OTLP's time fields are shifted; times in attributes or text stay. Not used on the
forwarding path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from collector_processor.otlp import Signal
from collector_processor.otlp.to_json import REQUESTS, ExportRequest

_TIME: Final = "time_unix_nano"
"""Suffix of every time field's name, in spans, events, records, points and exemplars."""
_VALUES: Final = frozenset({"KeyValue", "AnyValue"})
"""Attributes and bodies are skipped: they have no time fields, and may be nested deeply."""
_LATEST_NS: Final = 2**64 - 1


def newest_ns(signal: Signal, body: bytes) -> int:
    """Return the latest time in a request, Unix ns; 0 if it has none or cannot be read."""
    request = _read(signal, body)
    return max((value for _, _, value in _times(request)), default=0) if request is not None else 0


def moved(signal: Signal, body: bytes, by_ns: int) -> bytes:
    """Return the request with every set time shifted by ``by_ns``; unchanged if it cannot be read."""
    request = _read(signal, body)
    if request is None:
        return body
    for message, name, value in list(_times(request)):
        setattr(message, name, min(max(value + by_ns, 1), _LATEST_NS))
    return request.SerializeToString()


def _read(signal: Signal, body: bytes) -> ExportRequest | None:
    request = REQUESTS[signal]()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return None
    return request


def _times(request: Message) -> Iterator[tuple[Any, str, int]]:
    """Yield every set time: its message, field name and value."""
    todo: list[Message] = [request]
    while todo:
        message = todo.pop()
        for descriptor, value in message.ListFields():
            if descriptor.name.endswith(_TIME):
                yield message, descriptor.name, value
            elif descriptor.message_type is not None and descriptor.message_type.name not in _VALUES:
                todo.extend([value] if isinstance(value, Message) else value)
