"""Repeated steps: a stretch in which the same few steps come again and again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from semconv.model import Step

_LONGEST_CYCLE: Final = 4
_LEAST_TIMES: Final = 4
"""Fewer repetitions are shown one by one."""
_COMPARED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some steps in a row."""

    first: int
    """Position of the first one in the sequence."""
    end: int
    times: int = 1
    """Number of times that the same steps come; 1 for a step without repetition."""

    @property
    def cycle(self) -> int:
        """Number of steps that come again."""
        return (self.end - self.first) // self.times


def stretches(steps: Sequence[Step]) -> Iterator[Stretch]:
    """Split a run where repetition begins and ends; every step is in one stretch, in order."""
    marks = [_mark(step) for step in steps]
    at = 0
    while at < len(marks):
        cycle, times = max(
            ((cycle, _times(marks, at, cycle)) for cycle in range(1, _LONGEST_CYCLE + 1)),
            key=lambda found: (found[1] >= _LEAST_TIMES, found[0] * found[1]),
        )
        if times < _LEAST_TIMES:
            cycle = times = 1
        yield Stretch(first=at, end=at + cycle * times, times=times)
        at += cycle * times


def _times(marks: Sequence[object], at: int, cycle: int) -> int:
    """Return how often the steps of a cycle come, one after the other."""
    end = at + cycle
    while end < len(marks) and marks[end] == marks[end - cycle]:
        end += 1
    return (end - at) // cycle


def _mark(step: Step) -> tuple[object, ...]:
    """Return what two repetitions of a step have in common."""
    text = step.input or step.output or step.error
    return (step.agent, step.kind, step.target, step.status, text[:_COMPARED])
