"""Model calls that are no step, since the agent has handed over and nobody hears what it says.

Strands' loop lets the model speak once more after ``handoff_to_agent``: the swarm passes on the
handoff's message, the task and who worked on it, not these words (``Swarm._build_node_input``, 1.62).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from collector_processor.trajectory.acts import Act
from collector_processor.trajectory.handoffs import plain
from collector_processor.trajectory.leaves import Leaf
from semconv.dialects import ActionKind
from semconv.dialects.conversation import last_answer

_TOOLS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})
_MOST_BETWEEN: Final = 100
"""Steps looked at after a handoff; bounds what a hostile trace can cost."""


def without_epilogues(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the steps without an agent's closing words after it handed over.

    What goes is the last call of the agent's run, if it asks for no tool, did not fail, came when
    nothing but tools had happened since the handoff, and is not quoted by the agent that took over.
    """
    dropped = {
        found
        for index, leaf in enumerate(leaves)
        if (found := _epilogue(leaves, index, leaf.act)) is not None
    }
    return [leaf for index, leaf in enumerate(leaves) if index not in dropped]


def _epilogue(leaves: Sequence[Leaf], index: int, handoff: Act) -> int | None:
    """Return the place of the closing words that follow ``handoff``, if it is one and they do."""
    if handoff.action.kind is not ActionKind.HANDOFF or handoff.action.failed or handoff.runner is None:
        return None
    closing, following = _after(leaves, index, handoff.runner)
    if closing is None or following is None:
        return None
    act, taking_over = leaves[closing].act, leaves[following].act
    is_last = act.action.kind is ActionKind.LLM and not act.action.requested and not act.action.failed
    if is_last and _takes_over(taking_over, handoff, act) and not _quotes(taking_over, act):
        return closing
    return None


def _after(leaves: Sequence[Leaf], index: int, runner: Act) -> tuple[int | None, int | None]:
    """Return the places of the first call after a handoff in the same run, and of the next run."""
    closing: int | None = None
    for place in range(index + 1, min(len(leaves), index + _MOST_BETWEEN)):
        act = leaves[place].act
        if act.runner is not runner:
            return closing, place
        if closing is not None:
            return None, None  # the run went on
        if act.action.kind not in _TOOLS:
            closing = place
    return None, None


def _takes_over(act: Act, handoff: Act, closing: Act) -> bool:
    target = handoff.action.target
    is_target = target is None or (act.agent is not None and plain(act.agent) == plain(target))
    return is_target and act.agent != handoff.agent and act.span.start_ns >= closing.span.end_ns


def _quotes(act: Act, closing: Act) -> bool:
    said = last_answer(closing.action.said) or closing.action.output
    return bool(said) and any(said in text for text in _heard(act))


def _heard(act: Act) -> Iterator[str]:
    yield act.action.input
    for message in act.action.heard:
        yield message.text
