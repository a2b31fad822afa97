"""Signals on what a step did, for runs in which nothing else stands out. Pure.

A run fails by what an agent does: a call that changes something, code that runs, an answer that others use.
Words that lead to no deed yet, such as a plan before the first call, can be taken back by the same agent's
next words. In a dialogue, a question to the person or a look-up changes nothing either. Such steps are
``is_idle``: less suspect themselves, and no chance to fail that a later step has survived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.texts.run_view import THINKING, Finding, Reading, Role
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from semconv.model import Step, StepKind

_TURNS: Final = 2
"""Number of a person's turns from which a run is a dialogue."""
_CODE: Final = "```"


def preparation(reading: Reading) -> Iterator[Finding]:
    """Find words that only prepare a deed: their agent speaks again before a tool or another agent does.

    They call nothing and hold no code. Words that only the end of the run follows are part of its answer.
    """
    following: int | None = None
    leads_to_deed = False
    for position in range(len(reading.steps) - 1, -1, -1):
        step = reading.steps[position]
        if step.kind is StepKind.OTHER:
            continue
        goes_on = following is not None and _same_speaker(reading, position, following)
        if goes_on and not _acts(reading, position):
            if leads_to_deed:
                yield Finding(step=position, signal="preparation", weight=-1.0, reason="", is_idle=True)
        else:
            leads_to_deed = _speaks(reading, position) and (following is not None or _acts(reading, position))
        following = position


def _speaks(reading: Reading, position: int) -> bool:
    return reading.steps[position].kind in THINKING and reading.roles[position] is Role.ACTING


def _same_speaker(reading: Reading, position: int, following: int) -> bool:
    agents = reading.steps[position].agent, reading.steps[following].agent
    return agents[0] == agents[1] and _speaks(reading, position) and _speaks(reading, following)


def _acts(reading: Reading, position: int) -> bool:
    """Tell whether a step calls something, holds code, or tried and failed."""
    failed = reading.faults[position] is not Fault.NONE
    return failed or bool(reading.steps[position].calls) or _CODE in reading.outputs[position]


def deeds_in_dialogue(reading: Reading) -> Iterator[Finding]:
    """Weigh the steps of a dialogue by what they did: only calls that change something last."""
    if sum(step.kind is StepKind.HUMAN for step in reading.steps) < _TURNS:
        return
    for position, tools in enumerate(_called(reading.steps)):
        if reading.roles[position] is not Role.ACTING:
            continue
        changing = next((tool for tool in tools if deed_of(tool)), "")
        if changing:
            reason = f"called {changing}, and only such calls change anything in a dialogue"
            yield Finding(step=position, signal="deed", weight=1.5, reason=reason)
        elif not tools:
            yield Finding(step=position, signal="talk", weight=-1.0, reason="", is_idle=True)
        elif all(looks_up(tool) for tool in tools):
            yield Finding(step=position, signal="looking_up", weight=-0.5, reason="", is_idle=True)


def _called(steps: Sequence[Step]) -> list[list[str]]:
    """Return the tools that each step called: as recorded, and those of the tool steps after it."""
    found: list[list[str]] = [[call.name for call in step.calls] for step in steps]
    caller: int | None = None
    for position, step in enumerate(steps):
        if step.kind in THINKING:
            caller = position
        elif step.kind is StepKind.HUMAN:
            caller = None
        elif step.kind is StepKind.TOOL and caller is not None:
            found[caller].append(_tool_name(step))
    return found


def _tool_name(step: Step) -> str:
    """Return a tool's name; a conversation log may have only a speaker such as ``tool:cancel_order``."""
    return step.target or step.agent.rpartition(":")[2]
