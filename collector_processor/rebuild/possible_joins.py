"""Runs that may be one: the task of the later quotes the answer of the earlier. Pure.

A program that calls one agent after another without a span around both leaves separate traces, and nothing
in them says that they are one run: nodes of a pydantic-graph without Logfire, AG2's chained chats under
OpenInference, the crews of a CrewAI flow under Traceloop. Such runs are never joined, because a person who
pastes an answer into a new question leaves the same traces; each gets a note on the run it may belong to.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias
from zlib import crc32

from collector_processor.core.runs import MAY_JOIN
from semconv.model import Trace, Trajectory
from semconv.record import record, replace

_WORDS: Final = 6
"""Words of the answer's beginning and end that the task must quote; shorter answers are no evidence."""
_MOST_QUOTES: Final = 500
"""Positions of a text that are compared, from its beginning."""
_MOST_CHARS: Final = 8_000
_LONGEST_PAUSE_NS: Final = 300 * 10**9
"""Longest pause between two runs: a program continues sooner, a person later."""
_MOST_REMEMBERED: Final = 4_096
_HISTORY: Final = re.compile(r"^assistant\b", re.MULTILINE)
_SERVICE_NAME: Final = "service.name"

Quote: TypeAlias = int
"""Checksum of consecutive words."""


@record
class Continuation:
    """Quotes of a run's answer, and of its inputs, by which one run may continue another."""

    run_id: str
    service: str
    start_ns: int
    end_ns: int
    said: tuple[Quote, ...] = ()
    """Beginning and end of its answer; empty if the answer is short or repeats the task."""
    heard: tuple[Quote, ...] = ()
    """Everything that its task, or its first step's input, may quote."""


def continuation_of(trace: Trace, trajectory: Trajectory) -> Continuation:
    """Return the quotes that may link a run to those before and after it."""
    heard = tuple(dict.fromkeys(quote for text in _given(trajectory) for quote in _quotes(text)))
    words = trajectory.output.split()
    ends = (words[:_WORDS], words[-_WORDS:]) if len(words) >= _WORDS else ()
    said = tuple(_checksum(end) for end in ends)
    return Continuation(
        run_id=trajectory.run_id,
        service=str(trace.spans[0].resource.attributes.get(_SERVICE_NAME, "")) if trace.spans else "",
        start_ns=min((span.start_ns for span in trace.spans), default=0),
        end_ns=max((span.end_ns for span in trace.spans), default=0),
        said=() if set(said) <= set(heard) else said,
        heard=heard if trajectory.steps else (),
    )


def _given(trajectory: Trajectory) -> Iterator[str]:
    """Yield the task and the first step's input, unless that is a chat with earlier answers in it."""
    yield trajectory.task
    first = trajectory.steps[0].input if trajectory.steps else ""
    if first != trajectory.task and not _HISTORY.search(first[:_MOST_CHARS]):
        yield first


def _quotes(text: str) -> Iterator[Quote]:
    words = text[:_MOST_CHARS].split()[: _MOST_QUOTES + _WORDS]
    return (_checksum(words[at : at + _WORDS]) for at in range(len(words) - _WORDS + 1))


def _checksum(words: Sequence[str]) -> Quote:
    return crc32(" ".join(words).encode("utf-8", "surrogatepass"))


class RecentRuns:
    """Answers of the most recent runs, up to a bound."""

    def __init__(self) -> None:
        self._said: Final[OrderedDict[tuple[str, str, Quote], Continuation]] = OrderedDict()

    def before(self, run: Continuation, tenant: str = "") -> str:
        """Return the id of the run that this one may continue, empty if there is none; remember this one.

        Args:
            run: the run to look up.
            tenant: the tenant of the run; runs of several tenants are never one.
        """
        found = (self._said.get((tenant, run.service, quote)) for quote in run.heard)
        ids = (one.run_id for one in found if one is not None and _continues(run, one))
        before = next(ids, "")
        if run.said:
            self._said[tenant, run.service, run.said[0]] = run
            if len(self._said) > _MOST_REMEMBERED:
                self._said.popitem(last=False)
        return before


def _continues(run: Continuation, before: Continuation) -> bool:
    """Say whether ``run`` began soon after ``before``, with the beginning and end of its answer as input."""
    is_soon = 0 <= run.start_ns - before.end_ns <= _LONGEST_PAUSE_NS
    return is_soon and run.run_id != before.run_id and set(before.said) <= set(run.heard)


def note(run_id: str) -> str:
    """Return the note on a run that may continue ``run_id``."""
    return f"{MAY_JOIN}{run_id}: its task quotes the answer of that run; a span around both would join them"


def note_possible_joins(runs: Iterable[tuple[Trace, Trajectory]]) -> tuple[Trajectory, ...]:
    """Return the trajectories, in the order of their starts, each with a note on the run it may continue."""
    recent, found = RecentRuns(), []
    for trace, trajectory in runs:
        before = recent.before(continuation_of(trace, trajectory))
        warnings = (*trajectory.warnings, note(before)) if before else trajectory.warnings
        found.append(replace(trajectory, warnings=warnings) if before else trajectory)
    return tuple(found)
