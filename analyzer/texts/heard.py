"""Tool failures that only a later model call shows: no span of the tool can be read.

Many programs run tools without a span, or hide what they return. The next model call of the same agent then
receives the failure in a message of the tool. The call that requested the tool is responsible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from analyzer.texts.wordings import Kind, said
from semconv.model import Step, StepKind

_LABEL: Final = re.compile(r"^\W*\w*(?:Error|Exception)\W+", re.IGNORECASE)
_LONGEST_REASON: Final = 300
_SHORTEST_REASON: Final = 12
"""Characters of a result within which it may be the reason for giving up."""
_HEAD: Final = 20_000
_LONGEST: Final = 2_000
"""Characters of a result that are kept and searched for an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardFault:
    """A tool's failure that a model call receives and no tool step shows."""

    asker: int
    """Position of the model call that requested the tool."""
    hearer: int
    """Position of the model call that receives the failure."""
    tool: str
    """Empty if several tools were requested at once."""
    text: str
    is_repaired: bool
    """Whether a later result of the same tool, received by the same agent, is not a failure.

    A call requested at the same time repairs nothing: it is for something else.
    """


def failures_told(steps: Sequence[Step]) -> frozenset[int]:
    """Return the positions of the tool calls whose result their agent then gives as its reason to give up.

    Frameworks hand an exception to the model as a plain text (Spring AI), without an error on any span.
    """
    return frozenset(
        position
        for position, (step, after) in enumerate(pairwise(steps))
        if step.kind is StepKind.TOOL
        and after.kind is StepKind.LLM
        and after.agent == step.agent
        and _is_reason(step.error or step.output, after.output[:_HEAD])
    )


def _is_reason(result: str, words: str) -> bool:
    if len(result) > _LONGEST_REASON:
        return False
    reason = " ".join(_LABEL.sub("", result).strip(" \n.\"'").split())
    if len(reason) < _SHORTEST_REASON or reason.casefold() not in " ".join(words.split()).casefold():
        return False
    return said(Kind.GIVING_UP, words) is not None


def heard_faults(steps: Sequence[Step], is_fault: Callable[[str, str, str], bool]) -> tuple[HeardFault, ...]:
    """Return the failures that only model calls show, in the order in which they are received.

    ``is_fault`` is given a result, and the tool and the arguments of its call as far as they are known.
    """
    turns = sorted({*_turns(steps), *((at, at) for at, step in enumerate(steps) if step.said)})
    heard = [(asker, hearer, *each) for asker, hearer in turns for each in _results(steps, asker, hearer)]
    faults: list[HeardFault] = []
    succeeded: dict[tuple[str, str], int] = {}  # where agents and tools last ask for what succeeds
    for asker, hearer, tool, arguments, text in reversed(heard):
        pair = steps[hearer].agent, tool
        if is_fault(text, tool, arguments):
            is_one_of_several = sum(call.name == tool for call in steps[asker].calls) > 1
            is_later = asker == hearer or not is_one_of_several or succeeded.get(pair, -1) > asker
            is_repaired = pair in succeeded and is_later
            faults.append(
                HeardFault(asker=asker, hearer=hearer, tool=tool, text=text, is_repaired=is_repaired)
            )
        else:
            succeeded.setdefault(pair, asker)
    return tuple(reversed(faults))


def _turns(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Yield each model call whose requested tools have no steps, and the agent's next call."""
    last: dict[str, int] = {}
    shown: set[str] = set()
    for position, step in enumerate(steps):
        if step.kind is StepKind.TOOL:
            shown.add(step.agent)
        elif step.kind is StepKind.LLM:
            asker = last.get(step.agent)
            if asker is not None and step.agent not in shown and steps[asker].calls:
                yield asker, position
            shown.discard(step.agent)
            last[step.agent] = position


def _results(steps: Sequence[Step], asker: int, hearer: int) -> Iterator[tuple[str, str, str]]:
    """Yield the results that a model call receives, each after its tool and the arguments, if known.

    A call that asks and hears itself holds a whole loop: its output has the results.
    """
    calls, step = steps[asker].calls, steps[hearer]
    known = {call.call_id: call for call in calls if call.call_id}
    text, messages = (step.output, step.said) if asker == hearer else (step.input, step.heard)
    for message in messages:
        if message.role != "tool":
            continue
        call = next((known[answered] for answered in message.answers if answered in known), None)
        call = call or (calls[0] if len(calls) == 1 and message.author in ("", calls[0].name) else None)
        tool, arguments = (call.name, call.arguments) if call else (message.author, "")
        yield tool, arguments, text[message.start : message.end].strip()[:_LONGEST]
