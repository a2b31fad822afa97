"""What a sink's backend says about runs in people's words: human scores of spans and traces. Pure.

A reader is an exchange that returns the human scores that it found; ours and those of other judges are left
out. What a backend says may be of any type: a part without its type is left out, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from collector_processor.sinks.exchange import HumanScore
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, TASK_SUCCESS

READ_NAMES: Final = (TASK_SUCCESS, FAILURE_ATTRIBUTION)
"""Names of the scores that are read."""
HUMAN: Final = "HUMAN"
MOST_SCORES: Final = 2_000
"""Bound on the scores of one reading."""
_MOST_TEXT: Final = 200
"""Characters kept of a label or an author."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def human_score(
    *, name: object, trace_id: object, span_id: object, values: Sequence[object], said: object, author: object
) -> HumanScore | None:
    """Return a score, or ``None`` if it is not one of ours to read or a part has another type.

    Args:
        name: the score's name.
        trace_id: the trace.
        span_id: the span; empty or ``None`` for the whole trace.
        values: label and number; the first that says something counts.
        said: ISO 8601 time of the last change.
        author: the person.
    """
    said_ns = _moment_ns(said)
    value = next((each for each in map(_value, values) if each is not None), None)
    if name not in READ_NAMES or said_ns is None or value is None or not (_text(trace_id) or _text(span_id)):
        return None
    return HumanScore(
        name=str(name),
        trace_id=_text(trace_id),
        span_id=_text(span_id),
        value=value,
        said_ns=said_ns,
        author=_text(author),
    )


def inside(one: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside another; empty if there is none."""
    found = one.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str:
    return value.strip()[:_MOST_TEXT] if isinstance(value, str) else ""


def _value(value: object) -> str | float | bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e9 and math.isfinite(value) else None
    return _text(value) or None


def _moment_ns(text: object) -> int | None:
    try:
        moment = datetime.fromisoformat(_text(text))
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000
