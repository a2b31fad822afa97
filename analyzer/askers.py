"""Who asked for a tool's work: the step that answers for what something else carried out.

The trace's own ties come first (``Step.causes``: the request's id), then a request with the same name
and arguments, then the same agent's latest word. What another agent said before, and did not ask for,
never counts. Only where nothing tells who ran the tool (a conversation log, in which a terminal speaks
in turn) is position all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semconv.model import UNKNOWN_AGENT, Step, StepKind

_ARGUMENTS: Final = 200
"""Characters of the arguments that are compared: enough to tell two calls apart."""


def authors(steps: Sequence[Step], relaying: Sequence[bool], asked: Sequence[int | None]) -> tuple[int, ...]:
    """Return, for each step, the position of the one that answers for it: itself, or who asked for it.

    A tool that another agent's call asked for is laid at that call; one's own call stands for itself.
    """
    found: list[int] = []
    last: int | None = None
    for position, step in enumerate(steps):
        asker = asked[position]
        if asker is not None and (relaying[position] or steps[asker].agent != step.agent):
            found.append(asker)
        else:
            found.append(last if relaying[position] and last is not None else position)
        if not relaying[position]:
            last = position
    return tuple(found)


def askers(steps: Sequence[Step]) -> tuple[int | None, ...]:
    """Return the position of the model call that asked for each tool step, where the run shows one."""
    requested: dict[str, int] = {}
    found: list[int | None] = []
    for position, step in enumerate(steps):
        found.append(_tied(steps, step) if step.kind is StepKind.TOOL else None)
        if step.kind is StepKind.TOOL and found[-1] is None and step.target:
            found[-1] = requested.get(_call(step.target, step.input))
        for line in step.output.splitlines() if step.kind is StepKind.LLM else ():
            if line.startswith("call "):
                name, _, arguments = line.removeprefix("call ").removesuffix(")").partition("(")
                requested[_call(name, arguments)] = position
    return tuple(found)


def _tied(steps: Sequence[Step], step: Step) -> int | None:
    """The latest model call that the spans tie it to, of its agent or with a request for this tool."""
    for cause in reversed(step.causes):
        asker = steps[cause] if 0 <= cause < len(steps) else None
        if asker is None or asker.kind is not StepKind.LLM:
            continue
        own = asker.agent == step.agent != UNKNOWN_AGENT
        if own or (step.target and f"call {step.target}(" in asker.output):
            return cause
    return None


def _call(name: str, arguments: str) -> str:
    return f"{name}({''.join(arguments.split())[:_ARGUMENTS]}"
