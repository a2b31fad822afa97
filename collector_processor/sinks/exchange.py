"""What a sink asks its backend to do. Pure: a sink is a generator without a socket.

It yields a ``Call`` and is sent the JSON of the answer. An exchange that was interrupted is repeated from its
first call, so each must lead to the same scores however often it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from collector_processor.core.scores import ScoreChange


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
