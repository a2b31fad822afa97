"""What is done again for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.finding import QUOTE, Finding
from analyzer.reading import HEAD, Fault, Reading, Role
from semconv.model import StepKind


def repetition(reading: Reading) -> Iterator[Finding]:
    """The same call, or the same words, once more: a loop.

    A call that gave its result is done again for nothing: the repeat is marked. Words that
    brought nothing led into the loop: they are marked where they are first said. Trying
    again what failed is no loop: a fault since the last time excuses it.
    """
    first: dict[tuple[str, str, str], int] = {}
    marked: set[tuple[str, str, str]] = set()
    last_fault = -1
    for position, step in enumerate(reading.steps):
        if position and reading.faults[position - 1] is not Fault.NONE:
            last_fault = position - 1
        said = (
            reading.texts[position]
            if step.kind is not StepKind.TOOL
            else f"{step.target} {step.input[:HEAD]}"
        )
        if reading.roles[position] is Role.RELAYING or len(said) < 20:
            continue
        key = (step.agent, step.kind, said)
        if key in first and key not in marked and last_fault < first[key]:
            marked.add(key)
            yield _loop(reading, first[key], position, said)
        first.setdefault(key, position)


def _loop(reading: Reading, first: int, again: int, said: str) -> Finding:
    words = reading.steps[first].kind is not StepKind.TOOL
    led_nowhere = words and reading.steps[first + 1].kind is not StepKind.TOOL
    return Finding(
        step=first if led_nowhere else again,
        signal="loop",
        weight=0.7,
        reason=f"led nowhere: step {again} does it again, with the same words"
        if led_nowhere
        else f"does again what step {first} did, with the same words",
        quote=said[:QUOTE] if words else "",
    )
