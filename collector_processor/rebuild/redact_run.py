"""A run without its secrets: every text of it goes through one redactor, and what went is counted.

Names (agents, tools, spans) stay: they are what a verdict is about, and what is
looked for in the trace. Ids and times stay too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Final, TypeAlias

from collector_processor.redaction import Redactor, RunRedactor, describe
from semconv.model import Step, Trajectory

CleanRun: TypeAlias = Callable[[Trajectory], Trajectory]


def as_it_is(trajectory: Trajectory) -> Trajectory:
    """Return the run unchanged."""
    return trajectory


class Cleaner:
    """Cleans runs, and keeps count over all of them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor: Final = redactor
        self._counts: Final[Counter[str]] = Counter()
        self._lock: Final = Lock()  # runs are cleaned on several threads

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are looked for, each once."""
        return tuple(dict.fromkeys(rule.kind for rule in self._redactor.rules))

    def count(self, kind: str) -> int:
        """Return how often something of a kind was taken out so far."""
        return self._counts[kind]

    @property
    def counts(self) -> Mapping[str, int]:
        """How often something of each kind was taken out so far."""
        return dict(self._counts)

    def alike(self) -> Cleaner:
        """Return one with the same rules that has counted nothing."""
        return Cleaner(self._redactor)

    def add(self, counts: Mapping[str, int]) -> None:
        """Count what another took out."""
        if counts:
            with self._lock:
                self._counts.update(counts)

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """Return the run without what the rules find; a warning on it says how much that was."""
        redact = self._redactor.for_run()
        if redact.look_over(_texts_of(trajectory)):
            return trajectory
        cleaned = _cleaned(trajectory, redact)
        if not redact.counts:
            return trajectory
        self.add(redact.counts)
        return replace(cleaned, warnings=(*trajectory.warnings, describe(redact.counts)))


def _cleaned(trajectory: Trajectory, redact: RunRedactor) -> Trajectory:
    # The task first: secrets are numbered in the order in which a reader meets them.
    task = redact(trajectory.task)
    return replace(
        trajectory,
        task=task,
        steps=tuple(_clean_steps(trajectory.steps, redact)),
        output=redact(trajectory.output),
        reference=None if trajectory.reference is None else redact(trajectory.reference),
        root_error=redact(trajectory.root_error),
    )


def _clean_steps(steps: Iterable[Step], redact: RunRedactor) -> Iterable[Step]:
    for step in steps:
        before = (step.instructions, step.tools, step.input, step.output, step.error)
        instructions, tools, heard, said, error = after = tuple(map(redact, before))
        is_clean = after == before  # as most are
        yield (
            step
            if is_clean
            else replace(step, instructions=instructions, tools=tools, input=heard, output=said, error=error)
        )


def _texts_of(trajectory: Trajectory) -> Iterable[str]:
    yield trajectory.task
    for step in trajectory.steps:
        yield from (step.instructions, step.tools, step.input, step.output, step.error)
    yield from (trajectory.output, trajectory.reference or "", trajectory.root_error)
