"""Redaction of a run: all its texts pass through one redactor, and replacements are counted.

Names of agents and tools are kept: verdicts refer to them, and people must find them in the trace. Ids and
times are kept too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from threading import Lock
from typing import Any, Final

from collector_processor.rebuild.redaction import Redactor, RunRedactor, describe
from semconv.dialects.reading.messages import render_call
from semconv.model import Heard, Step, ToolCall, Trajectory, at_marks, marks_of
from semconv.record import replace

_STEP_TEXTS: Final = ("name", "instructions", "tools", "input", "output", "error")
"""Texts of a step. What it heard stands in ``input``; calls and their arguments most often in ``output``."""
_texts_of_step: Final[Callable[[Step], tuple[str, ...]]] = attrgetter(*_STEP_TEXTS)


class Cleaner:
    """Redacts runs, and counts the replacements over all of them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor: Final = redactor
        self._counts: Final[Counter[str]] = Counter()
        self._lock: Final = Lock()  # runs are redacted in several threads

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of secrets to redact, each once."""
        return tuple(dict.fromkeys(rule.kind for rule in self._redactor.rules))

    def count(self, kind: str) -> int:
        """Return the number of replacements of a kind so far."""
        return self._counts[kind]

    @property
    def counts(self) -> Mapping[str, int]:
        """Replacements so far, by kind."""
        return dict(self._counts)

    def empty_copy(self) -> Cleaner:
        """Return a cleaner with the same rules and empty counts."""
        return Cleaner(self._redactor)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another cleaner."""
        if counts:
            with self._lock:
                self._counts.update(counts)

    def for_run(self) -> RunRedactor:
        """Return a redactor for all texts of one run."""
        return self._redactor.for_run()

    def __call__(self, trajectory: Trajectory, redact: RunRedactor | None = None) -> Trajectory:
        """Return the redacted run, with a warning that states the replacements by kind.

        Args:
            trajectory: the run.
            redact: redacts its texts; if given, it is also used for the run's spans.
        """
        redact = redact or self.for_run()
        if redact.find_clean(_texts_of(trajectory)):
            return trajectory
        cleaned = _cleaned(trajectory, redact)
        if cleaned == trajectory:
            return trajectory
        self.add(redact.counts)
        told = describe(redact.counts)  # empty if only half characters were replaced
        return replace(cleaned, warnings=(*trajectory.warnings, *filter(None, [told])))


def _cleaned(trajectory: Trajectory, redact: RunRedactor) -> Trajectory:
    # The task first: secrets are numbered in reading order.
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
        around = (redact(step.name), redact(step.instructions), redact(step.tools))
        given, heard = redact.marked(step.input, marks_of(step.heard))
        wrote, said = redact.marked(step.output, marks_of(step.said))
        changes: Any = dict(zip(_STEP_TEXTS, (*around, given, wrote, redact(step.error)), strict=True))
        cleaned = replace(
            step,
            **changes,
            heard=_clean_authors(at_marks(step.heard, heard), redact),
            said=_clean_authors(at_marks(step.said, said), redact),
            calls=tuple([_clean_call(call, redact) for call in step.calls]),
            failed_evaluations=tuple(map(redact, step.failed_evaluations)),
        )
        yield step if cleaned == step else cleaned


def _clean_authors(messages: Iterable[Heard], redact: RunRedactor) -> tuple[Heard, ...]:
    return tuple([replace(one, author=redact.again(one.author)[0]) for one in messages])


def _clean_call(call: ToolCall, redact: RunRedactor) -> ToolCall:
    """Redact a call's arguments beside its name, which may tell that they are a secret."""
    line = render_call(call)
    end = len(line) - 1
    text, (start, end) = redact.again(line, (end - len(call.arguments), end))
    return replace(call, arguments=redact.again(text[start:end])[0])


def _texts_of(trajectory: Trajectory) -> Iterable[str]:
    yield trajectory.task
    for step in trajectory.steps:
        yield from _texts_of_step(step)
        yield from map(render_call, step.calls)  # texts may be shortened, calls are not
        yield from step.failed_evaluations
        yield from (one.author for one in (*step.heard, *step.said))
    yield from (trajectory.output, trajectory.reference or "", trajectory.root_error)
