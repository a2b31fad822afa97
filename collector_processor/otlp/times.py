"""All times of a request, moved together: what ``replay`` does so that a recorded run happens now.

Only fields are looked at that OTLP has for times; what stands in attributes, or in
text, stays as it is. Not on any path that passes traffic on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from collector_processor.otlp import Signal
from collector_processor.otlp.to_json import REQUESTS, ExportRequest

_TIME: Final = "time_unix_nano"
"""How every name of such a field ends, of spans, events, records, points and exemplars."""
_VALUES: Final = frozenset({"KeyValue", "AnyValue"})
"""Attributes and bodies: no times in them, and as deep as their sender likes."""
_LATEST_NS: Final = 2**64 - 1


def newest_ns(signal: Signal, body: bytes) -> int:
    """Return the latest time in a request, Unix ns; 0 where there is none, or it cannot be read."""
    request = _read(signal, body)
    return max((value for _, _, value in _times(request)), default=0) if request is not None else 0


def moved(signal: Signal, body: bytes, by_ns: int) -> bytes:
    """Return a request with every time that is set ``by_ns`` later; one that cannot be read as it is."""
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
    """Yield every time that is set: its message, its field's name, and its value."""
    todo: list[Message] = [request]
    while todo:
        message = todo.pop()
        for descriptor, value in message.ListFields():
            if descriptor.name.endswith(_TIME):
                yield message, descriptor.name, value
            elif descriptor.message_type is not None and descriptor.message_type.name not in _VALUES:
                todo.extend([value] if isinstance(value, Message) else value)
