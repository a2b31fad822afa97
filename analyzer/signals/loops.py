"""Loops: the same call, or the same words, repeated without effect. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, compress
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.texts.normalize import plain_typography
from analyzer.texts.run_view import HEAD, QUOTE, Finding, Reading, Role, only_calls
from analyzer.texts.tool_results import Fault
from semconv.model import StepKind

_PATIENCE: Final = 4
"""Number of equal calls with equal results that count as a loop, even if each result was an error or
empty."""
_SHORT: Final = 20
"""Number of characters below which equal words may be chance."""

_MOST_WORDED: Final = 200
"""Number of repeated texts that are compared with what people said; a run that loops repeats a few."""


def repetition(reading: Reading) -> Iterator[Finding]:
    """Find loops: the same call, or the same words, repeated.

    Repeating a call that already gave its result is pointless: the repetition gets the finding. Repeated
    words without effect started the loop: their first use gets it. Retrying after a failure is not a loop,
    unless the call is repeated ``_PATIENCE`` times with the same result. Nor is a call whose second result
    differs, or asking an agent again after its model call failed: that call broke the run.
    """
    last_fault = _last_faults(reading)
    for places in repeats_of(reading):
        if all(_broke_another(reading, place) for place in places[:-1]):
            continue
        if len(places) >= _PATIENCE and len({_result(reading, place) for place in places}) == 1:
            yield _stuck(reading, places)
        elif last_fault[places[1]] < places[0] and _gets_nothing_new(reading, *places[:2]):
            yield _loop(reading, *places[:2])


def repeats_of(reading: Reading) -> list[tuple[int, ...]]:
    """Return groups of two or more positions with equal calls, or equal words, of the same agent.

    Words that the agent was given are left out: frameworks repeat templates in every prompt or reply.
    """
    places: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for position, step in enumerate(reading.steps):
        said = _said(reading, position)
        if reading.roles[position] is not Role.RELAYING and len(said) >= _SHORT:
            places[step.agent, step.kind, said].append(position)
    groups = [tuple(equal) for equal in places.values() if len(equal) > 1]
    worded = [equal for equal in groups if not _is_call(reading, equal[0])]
    kept = {equal for equal in groups if _is_call(reading, equal[0])}
    if worded:
        given = Given(reading)
        kept.update(equal for equal in worded[:_MOST_WORDED] if not given.has(equal[0]))
    return [equal for equal in groups if equal in kept]


class Given:
    """What people said in a run, and what each agent was told."""

    def __init__(self, reading: Reading) -> None:
        """Join the words of people once: each repeated text is searched for in them."""
        self._reading: Final = reading
        people = (step.kind is StepKind.HUMAN for step in reading.steps)
        self._people: Final = "\n".join(compress(reading.texts, people))
        self._task: Final = _collapsed(reading.trajectory.task)

    def has(self, position: int) -> bool:
        """Tell whether a step's words are part of its agent's instructions or of a person's words."""
        said, told = self._reading.texts[position], self._reading.steps[position].instructions
        return (
            said in self._people
            or said in self._task
            or (len(told) >= len(said) and said in _collapsed(told))
        )


def _collapsed(text: str) -> str:
    return " ".join(plain_typography(text[:HEAD]).split())


def _gets_nothing_new(reading: Reading, first: int, again: int) -> bool:
    """Tell whether a repeated call returned the same; what repeated words led to is judged elsewhere."""
    is_tool = reading.steps[first].kind is StepKind.TOOL
    return not is_tool or _result(reading, first) == _result(reading, again)


def _said(reading: Reading, position: int) -> str:
    step = reading.steps[position]
    return f"{step.target} {step.input[:HEAD]}" if step.kind is StepKind.TOOL else reading.texts[position]


def _result(reading: Reading, position: int) -> str:
    """Return the result of a step: a tool's own output; for an agent's words, the text of the next step."""
    if reading.steps[position].kind is StepKind.TOOL:
        return reading.texts[position] or reading.steps[position].error
    return reading.texts[position + 1] if position + 1 < len(reading.texts) else ""


def _last_faults(reading: Reading) -> list[int]:
    """Return, for each position, the position of the latest fault before it; -1 without any."""
    faulty = [at if fault is not Fault.NONE else -1 for at, fault in enumerate(reading.faults)]
    return [-1, *accumulate(faulty, max)]


def _broke_another(reading: Reading, position: int) -> bool:
    """Say whether another agent's model call failed right after a step."""
    after = reading.steps[position + 1] if position + 1 < len(reading.steps) else None
    is_call = (
        after is not None and after.kind is StepKind.LLM and after.agent != reading.steps[position].agent
    )
    return is_call and reading.faults[position + 1] is Fault.FAILED


def _stuck(reading: Reading, places: tuple[int, ...]) -> Finding:
    is_call = _is_call(reading, places[0])
    return Finding(
        step=places[1],
        quoted_step=places[0],
        signal="loop",
        weight=2.5,
        reason=f"{repeated(reading, places)}, with the same result each time",
        quote="" if is_call else beginning(_said(reading, places[0]), QUOTE),
    )


def repeated(reading: Reading, places: tuple[int, ...]) -> str:
    """Return which agent repeated what, in words."""
    what = "made the same call" if _is_call(reading, places[0]) else "wrote the same text"
    first, again, last = places[0], places[1], places[-1]
    return f"{what} {len(places)} times, in steps {first} to {last} (step {again} is the first repetition)"


def _is_call(reading: Reading, position: int) -> bool:
    step = reading.steps[position]
    return step.kind is StepKind.TOOL or only_calls(step)


def _loop(reading: Reading, first: int, again: int) -> Finding:
    words = reading.steps[first].kind is not StepKind.TOOL
    led_nowhere = words and reading.steps[first + 1].kind is not StepKind.TOOL
    return Finding(
        step=first if led_nowhere else again,
        signal="loop",
        weight=0.7,
        reason=f"wrote a text that it repeated word for word in step {again}"
        if led_nowhere
        else f"repeated the {'text' if words else 'call'} of step {first} and got no new result",
        quote=beginning(_said(reading, again), QUOTE) if words else "",
    )
