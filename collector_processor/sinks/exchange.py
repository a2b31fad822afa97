"""What a sink asks its backend to do, and what that says about runs in people's words: human scores. Pure.

A sink is a generator without a socket. It yields a ``Call`` and is sent the JSON of the answer. An exchange
that was interrupted is repeated from its first call, so each must lead to the same scores however often it is
repeated.

A reader is an exchange that returns the human scores that it found; ours and those of other judges are left
out. What a backend says may be of any type: a part without its type is left out, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from collector_processor.core.scores import ScoreChange
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, TASK_SUCCESS


class UnexpectedAnswerError(Exception):
    """The backend answered what its API does not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    """Below the backend's URL, quoted, without a leading slash."""
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = None
    """JSON; ``None`` for no body."""
    may_be_absent: bool = False
    """Whether 404 means that nothing is left to do: the answer is then ``None``."""


Exchange: TypeAlias = Generator[Call, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run whose human scores are asked for."""

    run_id: str
    trace_ids: Sequence[str]
    span_ids: Sequence[str]
    """Its root and the spans of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanScore:
    """What a person said in a backend about a trace or a span."""

    name: str
    trace_id: str
    """Empty if the backend names only the span."""
    span_id: str
    """Empty for the whole trace."""
    value: str | float | bool
    """The label; without one, the number."""
    said_ns: int
    """Unix ns of its last change, by the backend's clock."""
    author: str = ""
    """As the backend names the person; may be empty."""


Reading: TypeAlias = Generator[Call, Any, list[HumanScore]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A backend that shows scores."""

    deliver: Callable[[ScoreChange], Exchange]
    """Brings the backend to a run's new state."""
    read: Callable[[Sequence[ScoredRun], int], Reading]
    """Reads the human scores of runs, those given since a Unix ns where the backend can tell."""
    probe: Call
    """Changes nothing; answered only to sound credentials."""


def listed(answer: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list inside an answer; empty if it is left out, as protobuf's JSON does.

    Raises:
        UnexpectedAnswerError: a part of the answer has another type.
    """
    for key in keys:
        if not isinstance(answer, Mapping):
            raise UnexpectedAnswerError(f"expected an object with {key!r}")
        found = answer.get(key)
        answer = ([] if key == keys[-1] else {}) if found is None else found
    if not isinstance(answer, list) or not all(isinstance(each, Mapping) for each in answer):
        raise UnexpectedAnswerError(f"expected a list of objects under {keys[-1]!r}")
    return answer


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
