"""What Claude Code says in log events and leaves out of its spans.

Source: runs of Claude Code 2.1.330. An event stands at the span around the one that it is about: what a
model said (``assistant_response``, which names the request) and what a tool was given and answered
(``tool_result``, which names the call), so both are looked for at the parent. An interaction may hold
thousands of events; only those of the span's own time are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from semconv.dialects.reading import text
from semconv.dialects.surroundings import Surroundings
from semconv.model import Attributes, Span

ASSISTANT_RESPONSE: Final = "assistant_response"
RESPONSE: Final = "response"
REQUEST_ID: Final = "request_id"
TOOL_RESULT: Final = "tool_result"
TOOL_USE_ID: Final = "tool_use_id"

_EARLY_NS: Final = 1_000_000
"""Events carry whole milliseconds."""
_LATE_NS: Final = 1_000_000_000
"""An event is written right after what it is about."""


def answer_beside(span: Span, surroundings: Surroundings) -> str | None:
    """Return what the model said in this call, by the event that names the same request."""
    told = _event(span, surroundings, ASSISTANT_RESPONSE, REQUEST_ID)
    return text(told, RESPONSE)


def result_beside(span: Span, surroundings: Surroundings) -> Attributes:
    """Return the attributes of the event on a tool's result; none where it was not written."""
    return _event(span, surroundings, TOOL_RESULT, TOOL_USE_ID)


def _event(span: Span, surroundings: Surroundings, name: str, key: str) -> Attributes:
    wanted = text(span.attributes, key)
    if wanted is None:
        return {}
    return next((found for found in _events_beside(span, surroundings, name) if found.get(key) == wanted), {})


def _events_beside(span: Span, surroundings: Surroundings, name: str) -> Iterator[Attributes]:
    above = surroundings.parent(span)
    if above is None:
        return
    first = bisect_left(above.logs, span.start_ns - _EARLY_NS, key=lambda event: event.time_ns)
    until = span.end_ns + _LATE_NS
    candidates = (above.logs[index] for index in range(first, len(above.logs)))
    for event in takewhile(lambda event: event.time_ns <= until, candidates):
        if event.name == name:
            yield event.attributes
