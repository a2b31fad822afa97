"""Failed and empty results: the crash that ended a run, what nobody mended, what an agent passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.figures import numbers
from analyzer.finding import QUOTE, Finding
from analyzer.reading import HEAD, Fault, Reading, Role
from analyzer.wording import CLAIMS_DONE
from semconv.model import SpanStatus, Step, StepKind

_STATED: Final = 4.0
"""An error that the span itself states, and nothing mends: a fact, where words are only a mark."""
_ADMITS_FAULT: Final = re.compile(
    r"\b(?:error|fail\w*|issue|exception|did(?:n't| not)|could(?:n't| not)|unable|empty|nothing|no results?"
    r"|not found|unavailable|timed? ?out|retry\w*|again|instead|wrong|incorrect|unexpected"
    r"|fix\w*|correct(?:ed)?)\b",
    re.IGNORECASE,
)


def crash(reading: Reading) -> Iterator[Finding]:
    """The failure after which nothing succeeded: it ended the run."""
    for position in range(len(reading.steps) - 1, -1, -1):
        if reading.faults[position] is not Fault.FAILED:
            if reading.roles[position] is not Role.RELAYING:
                return
            continue
        if not reading.repaired[position]:
            step = reading.steps[position]
            yield Finding(
                step=reading.authors[position],
                quoted_step=position,
                signal="unhandled_error",
                weight=5.0 if reading.roles[position] is not Role.RELAYING else 1.5,
                reason=f"{_what(step)} failed, nothing mended it, the run ended: {_error_words(step)}",
                quote=_fault_quote(step),
            )
            return


def unrepaired_fault(reading: Reading) -> Iterator[Finding]:
    """A failed or empty result that no later step of the same tool or agent made good."""
    for position, fault in enumerate(reading.faults):
        if fault is Fault.NONE or reading.repaired[position]:
            continue
        step = reading.steps[position]
        failed = fault is Fault.FAILED
        yield Finding(
            step=reading.authors[position],
            quoted_step=position,
            signal="unrepaired_error" if failed else "empty_result",
            weight=_STATED if _states_error(step) else 1.0 if failed else 0.8,
            reason=f"{_what(step)} {'failed' if failed else 'returned nothing'} and was not repaired later"
            + (f": {_error_words(step)}" if failed else ""),
            quote=_fault_quote(step),
        )


def ignored_fault(reading: Reading) -> Iterator[Finding]:
    """An agent that goes on after a failed or empty result as if there had been one."""
    for position in range(1, len(reading.steps)):
        before = position - 1
        if reading.faults[before] is Fault.NONE or reading.repaired[before]:
            continue
        text = reading.texts[position]
        if reading.roles[position] is not Role.ACTING or not text or _ADMITS_FAULT.search(text):
            continue
        if not CLAIMS_DONE.search(text) and not numbers(text) - numbers(reading.texts[before]):
            continue
        yield Finding(
            step=position,
            signal="ignored_error",
            weight=2.0,
            reason=f"went on as if {_what(reading.steps[before])} had given a result, though it had not",
            quote=text[:QUOTE],
        )


def _what(step: Step) -> str:
    if step.kind is StepKind.TOOL:
        return f"the tool {step.target}" if step.target else f"{step.agent}'s call"
    return f"{step.agent}'s step"


def _states_error(step: Step) -> bool:
    return step.status is SpanStatus.ERROR or bool(step.error)


def _error_words(step: Step) -> str:
    return (step.error or _fault_quote(step) or "no message")[:QUOTE]


def _fault_quote(step: Step) -> str:
    lines = [line.strip() for line in step.output[:HEAD].splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|exception|fail|exit", line, re.IGNORECASE)]
    return (telling[-1] if telling else lines[0] if lines else "")[:QUOTE]
