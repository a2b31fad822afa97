"""Typed reads of attributes that may be absent, of another type, or JSON inside a string.

Every function is total: unexpected content yields less, never an exception. JSON is untrusted and parsed
within bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.json_text import read_json
from semconv.model import Attributes, AttributeValue, Event, Outcome, Span, SpanStatus

REDACTED: Final = "__REDACTED__"
"""OpenInference's placeholder for hidden content (``OPENINFERENCE_HIDE_*``)."""

ERROR_TYPE: Final = "error.type"
EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

_ERROR: Final = SpanStatus.ERROR
_MAX_JSON_CHARS: Final = 4_000_000
"""Longer strings stay strings: parsing 50 MB takes seconds and gives no better text."""
_OPENING: Final = ("{", "[", '"')
_TRACEBACK: Final = "Traceback (most recent call last)"
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    **dict.fromkeys(("success", "succeeded", "successful", "pass", "passed", "ok"), Outcome.SUCCESS),
    **dict.fromkeys(("failure", "failed", "fail", "unsuccessful", "error"), Outcome.FAILURE),
}
"""Words used for a run's outcome."""


def words(value: Any) -> str:
    """Return ``value`` as text: strings unchanged, ``None`` as empty, all else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    try:
        return _ENCODER.encode(value)
    except (ValueError, RecursionError):
        return "[too deeply nested]"


def _unserialisable(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return f"[{len(value)} bytes]" if isinstance(value, bytes) else str(value)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=_unserialisable, check_circular=False)


def structured(value: Any) -> Any:
    """Return the value of a JSON string; anything else, and invalid JSON, unchanged."""
    if not isinstance(value, str) or len(value) > _MAX_JSON_CHARS:
        return value
    first = value[:1]
    if first not in _OPENING and (not first.isspace() or value.lstrip()[:1] not in _OPENING):
        return value
    try:
        return read_json(value)
    except ValueError:
        return value


def text(attributes: Attributes, *names: str) -> str | None:
    """Return the first non-empty attribute of ``names``, as text."""
    for name in names:
        value = attributes.get(name)
        if value is not None and value != "":
            return value if isinstance(value, str) else words(value)
    return None


def mapping(value: AttributeValue | Any) -> Mapping[str, Any]:
    """Return the object that ``value`` is or holds as JSON, else an empty one."""
    value = structured(value)
    if value is None or isinstance(value, str):  # the check against the abstract class is slow
        return {}
    return value if isinstance(value, (dict, Mapping)) else {}


def items(value: AttributeValue | Any) -> Sequence[Any]:
    """Return the list that ``value`` is or holds as JSON, else an empty one."""
    value = structured(value)
    return value if isinstance(value, (list, tuple)) else ()


def below(attributes: Attributes, prefix: str) -> dict[int, dict[str, AttributeValue]]:
    """Return flattened list entries, ``<prefix>.<index>.<rest>``, as index → rest → value, in index order.

    Indices may have gaps, because span limits evict the oldest attributes.
    """
    found: dict[int, dict[str, AttributeValue]] = {}
    start = len(prefix) + 1
    for name, value in attributes.items():
        if name.startswith(prefix):
            index, dot, rest = name[start:].partition(".")
            if dot and index.isdecimal() and len(index) < 7:
                found.setdefault(int(index), {})[rest] = value
    return dict(sorted(found.items()))


def events_of(span: Span, *names: str) -> list[Event]:
    """Return the span's events and joined log events named one of ``names``, in time order."""
    if not span.events and not span.logs:
        return []
    events = [event for event in (*span.events, *span.logs) if event.name in names]
    return sorted(events, key=lambda event: event.time_ns) if len(events) > 1 else events


def is_failed(span: Span) -> bool:
    """Say whether the status or ``error.type`` marks a failure (AG2 sets only the latter)."""
    return span.status is _ERROR or bool(span.attributes.get(ERROR_TYPE))


def error_of(span: Span) -> str:
    """Return the error as text: exception, else status message, else ``error.type``.

    Langchain and LangSmith append the whole traceback to the message; it is cut off.
    """
    for event in span.events:
        if event.name == EXCEPTION_EVENT:
            kind = (text(event.attributes, EXCEPTION_TYPE) or "").rpartition(".")[2]
            message = (text(event.attributes, EXCEPTION_MESSAGE) or "").partition(_TRACEBACK)[0].strip()
            if kind or message:
                return ": ".join(part for part in (kind, message) if part)
    message = span.status_message.partition(_TRACEBACK)[0].strip()
    return message or text(span.attributes, ERROR_TYPE) or ""


def is_redacted(*texts: str) -> bool:
    """Say whether any of ``texts`` was hidden by the emitter."""
    return REDACTED in "\n".join(texts)  # one search is cheaper than a loop


def read_outcome(value: AttributeValue) -> Outcome | None:
    """Return the outcome that a word stands for, ignoring case; ``None`` for any other word."""
    return _OUTCOMES.get(value.strip().casefold()) if isinstance(value, str) else None
