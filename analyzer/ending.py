"""The error that the run's root itself states: which step it speaks of.

A root may end in error though every step below says that it went well, and then
its words are all there is: they may repeat a step's own error, or name a tool or
an agent; else the run broke off after its last step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.finding import Finding
from analyzer.folding import folded
from analyzer.reading import HEAD, Fault, Reading
from semconv.model import SpanStatus, Step

_TELLING: Final = 4
"""Characters of an error, or of a name, below which it is found by chance."""
_SHOWN: Final = 160
_JUDGES_ANSWER: Final = re.compile(
    r"\b(?:answer|expected|assert\w*|mismatch|incorrect|wrong|score|graded?|evaluat\w+)\b", re.IGNORECASE
)
"""Words of a root's error that judges what the run said: it tells of no step."""


def root_error(reading: Reading) -> Iterator[Finding]:
    """The step that the root's error repeats or names; else the last, after which it came."""
    trajectory = reading.trajectory
    if trajectory.root_status is not SpanStatus.ERROR or not trajectory.root_error or not reading.steps:
        return
    error = folded(trajectory.root_error[:HEAD])
    words = trajectory.root_error[:_SHOWN]
    places = range(len(reading.steps) - 1, -1, -1)
    for position in places:
        if reading.faults[position] is Fault.FAILED and _repeats(reading.steps[position], error):
            yield _finding(reading, position, 3.0, f"the run ended in the error that came up here: {words}")
            return
    for position in places:
        if _names(error, reading.steps[position]):
            yield _finding(reading, position, 2.0, f"the error that the run ended in names it: {words}")
            return
    if not _JUDGES_ANSWER.search(trajectory.root_error) and Fault.FAILED not in reading.faults:
        told = f"the run ended in an error that no step states, and this came last: {words}"
        yield _finding(reading, len(reading.steps) - 1, 1.5, told)


def _finding(reading: Reading, position: int, weight: float, reason: str) -> Finding:
    author = reading.authors[position]
    return Finding(step=author, quoted_step=position, signal="unhandled_error", weight=weight, reason=reason)


def _repeats(step: Step, error: str) -> bool:
    own = folded(step.error[:HEAD] or step.output[:_SHOWN])
    return min(len(own), len(error)) >= _TELLING and (own in error or error in own)


def _names(error: str, step: Step) -> bool:
    names = (folded(name or "") for name in (step.target, step.agent))
    return any(len(name) >= _TELLING and f" {name} " in f" {error} " for name in names)
