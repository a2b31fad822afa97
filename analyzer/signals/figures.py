"""Figures: calculations that do not add up, and figures of the answer that come from nowhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from analyzer.denial import disowned
from analyzer.figures import derivable, numbers, said_figures, written_out
from analyzer.finding import Finding
from analyzer.reading import HEAD, Reading, Role, final_answer
from analyzer.sums import WrongSum, wrong_sums
from semconv.model import StepKind

_MOST_FIGURES: Final = 40
_RECENT_FIGURES: Final = 12


def wrong_sum(reading: Reading) -> Iterator[Finding]:
    """A calculation that does not add up, where it is first made.

    Not where it is only repeated from the task or a person, or quoted to be denied:
    then whoever stated its result before is marked. What a tool returns excuses
    nobody: its text is anybody's, and an agent that takes over a sum answers for it.
    """
    seen = {error.stated for error in wrong_sums(reading.trajectory.task[:HEAD])}
    for position, step in enumerate(reading.steps):
        relayed = reading.roles[position] is Role.RELAYING
        if relayed and step.kind is not StepKind.HUMAN:
            continue
        entered = step.input[:HEAD] if step.kind is StepKind.TOOL else ""
        for text, written in ((reading.outputs[position], step.output), (entered, entered)):
            for error in wrong_sums(text):
                if error.stated in seen:
                    continue
                if not relayed and disowned(text, error.start, error.end, error.stated):
                    yield from _refuted(reading, position, error)
                    continue
                seen.add(error.stated)
                if not relayed:
                    yield Finding(
                        step=position,
                        signal="wrong_computation",
                        weight=6.0,
                        reason=f"the calculation “{error.quote}” is wrong: it gives {error.right:g}",
                        quote=written[error.start : error.end],
                    )


def _refuted(reading: Reading, position: int, error: WrongSum) -> Iterator[Finding]:
    """The first agent that stated what a later step shows to be a wrong result."""
    if reading.roles[position] is Role.CALL or error.stated in _ordinary(reading.trajectory.task):
        return  # what a tool returns accuses nobody either
    for earlier in range(position):
        acts = reading.roles[earlier] in (Role.ACTING, Role.COORDINATING)
        if acts and error.stated in numbers(reading.outputs[earlier]):
            yield Finding(
                step=earlier,
                quoted_step=position,
                signal="wrong_computation",
                weight=3.0,
                reason=f"states {error.stated:g}, and “{error.quote}” is wrong, as a later step says:"
                f" it gives {error.right:g}",
                quote=error.quote,
            )
            return


def unsupported_figure(reading: Reading) -> Iterator[Finding]:
    """A figure of the final answer that appears from nowhere: no tool, person or input showed it.

    The run failed, so its answer is taken to be wrong; the step that brought the
    figure in is where it went wrong. A figure that two plain operations on known
    ones give may have been worked out, and counts for less.
    """
    answer = said_figures(final_answer(reading.trajectory)[:HEAD]) - _ordinary(reading.trajectory.task)
    if not answer or len(answer) > _MOST_FIGURES:
        return  # no figures, or a dump, not an answer
    known = _known(reading.trajectory.task[:HEAD])
    recent = deque(sorted(known), maxlen=_RECENT_FIGURES)
    blamed: set[float] = set()
    for position, step in enumerate(reading.steps):
        if not answer - known - blamed:
            return
        entered = _known(step.input[:HEAD])
        recent.extend(sorted(entered - known))
        known |= entered
        stated = numbers(reading.outputs[position])
        scaled = written_out(reading.outputs[position]) if stated else {}
        if reading.roles[position] in (Role.ACTING, Role.COORDINATING):
            same = {value for value, full in scaled.items() if full in known}
            for value in sorted((answer & stated) - known - blamed - same):
                blamed.add(value)
                worked_out = derivable(value, recent)
                yield Finding(
                    step=position,
                    signal="unsupported_figure",
                    weight=0.8 if worked_out else 3.0,
                    reason=f"brings in {value:g}, which ends up in the answer and which "
                    + (
                        "can only have been worked out here"
                        if worked_out
                        else "nothing before it shows or gives"
                    ),
                    quote=_around(step.output, value),
                )
        recent.extend(sorted(stated - known))
        known |= stated | set(scaled.values())


def _known(text: str) -> set[float]:
    found = numbers(text)
    return {*found, *written_out(text).values()} if found else set()


def _ordinary(task: str) -> frozenset[float]:
    """Figures that say nothing: those of the task, and the smallest whole numbers (list markers)."""
    return numbers(task[:HEAD]) | frozenset(float(n) for n in range(4))


def _around(text: str, value: float) -> str:
    shown = f"{value:,.10g}" if f"{value:,.10g}" in text else f"{value:.10g}"
    at = text.find(shown)
    return text[max(0, at - 60) : at + 60].strip() if at >= 0 else ""
