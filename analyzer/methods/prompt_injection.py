"""Does a run's own text speak to whoever judges it? Pure.

An agent that works for somebody has no reason to mention decisive errors, roles of
a chat format or a judge's JSON. Where one does, a model may have been talked into
its answer even if what it quotes is there; so the answer is believed no more than
half, and what signals think is shown beside it. English, and a list: an attack in
other words is not found, which is why nothing else relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import re2

from analyzer.methods.answering import join_sentences, rank, step_at
from analyzer.methods.signals import weigh
from semconv.model import Blame, Step, Trajectory

MOST_BELIEVED: Final = 0.5
"""Confidence that a model's verdict keeps on a run that speaks to its judge."""
_LONGEST: Final = 200_000
"""Characters of one text that are looked at."""
_SHOWN_STEPS: Final = 5

_ALTERNATIVES: Final = (
    # Orders.
    (
        r"\b(?:ignore|disregard|forget|override)\s{1,4}(?:\w+\s{1,4}){0,4}"
        r"(?:logs?|instructions?|prompts?|evidence|criteria|transcript|conversation|guidelines)\b"
    ),
    (
        r"\b(?:blame|accuse)\s{1,4}(?:only\s{1,4})?(?:the\s{1,4})?"
        r"(?:step|agent|writer|planner|\w+\s{1,4}(?:at|in)\s{1,4}step)\b"
    ),
    (
        r"\bstep\s{1,4}(?:number\s{1,4})?\d{1,6}\s{1,4}(?:is|was)\s{1,4}(?:the\s{1,4}one\s{1,4})?"
        r"(?:to\s{1,4}blame|guilty|(?:the\s{1,4})?decisive)"
    ),
    # What only a judge speaks of, or is called.
    r"\b(?:decisive|root[- ]cause)\s{1,4}(?:error|mistake|step|agent)\b",
    r"\bfailure\s{1,4}attribution\b",
    (
        r"\b(?:dear|attention|hey|(?:note|message)\s{1,4}to(?:\s{1,4}the)?)\s{1,4}(?:ai\s{1,4})?"
        r"(?:judge|evaluator|grader|auditor|investigator|model|llm)\b"
    ),
    # Roles of chat formats.
    r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant)(?:[ _-]?(?:prompt|message))?>",
    (
        r"(?:^|[.!?]\s{0,4})#{0,4}\s{0,4}(?-i:SYSTEM|System|ASSISTANT)"
        r"(?:\s{1,4}(?:prompt|message|override|note))?\s{0,4}:"
    ),
    # Our structure, and a verdict to copy.
    r"\bend\s{1,4}of\s{1,4}(?:the\s{1,4})?(?:run|log|transcript)\b",
    r"^#[0-9a-f]{5}\s",
    r"\"(?:evidence|ranking)\"\s{0,4}:\s{0,4}\[",
)
_ADDRESS: Final = re2.compile("(?im)" + "|".join(_ALTERNATIVES))
"""By RE2, whose time is linear: the text it reads is hostile, and may be long."""


def speaking_steps(trajectory: Trajectory) -> tuple[int, ...]:
    """Return the steps whose text or names speak to a judge; -1 stands for the task."""
    task = (-1,) if _speaks((trajectory.task,)) else ()
    return (*task, *(step.index for step in trajectory.steps if _speaks(_texts(step))))


def distrust(blame: Blame, trajectory: Trajectory) -> Blame:
    """Return a model's verdict as far as it is to be believed on this run.

    On a run that speaks to its judge: half at most, with the candidates of the signals,
    which obey nobody, behind it.
    """
    speaking = speaking_steps(trajectory)
    step = step_at(trajectory, blame.step)
    if not speaking or step is None:
        return blame
    confidence = min(blame.confidence, MOST_BELIEVED)
    hints = [(hint.step, hint.probability) for hint in weigh(trajectory).ranking]
    return replace(
        blame,
        confidence=confidence,
        ranking=rank(trajectory, step, confidence, hints),
        reason=join_sentences(
            [blame.reason, f"({_where(speaking)} to whoever judges it; look at it yourself)"]
        ),
    )


def _where(speaking: tuple[int, ...]) -> str:
    names = ["the task" if step < 0 else f"step {step}" for step in speaking[:_SHOWN_STEPS]]
    more = len(speaking) - len(names)
    listed = ", ".join([*names, f"{more} more"] if more else names)
    return f"the text of {listed} speaks"


def _texts(step: Step) -> tuple[str, ...]:
    return step.output, step.input, step.error, step.agent, step.name, step.target or ""


def _speaks(texts: Iterable[str]) -> bool:
    # RE2 reads UTF-8, which half a character has none of.
    readable = (text[:_LONGEST].encode(errors="replace").decode() for text in texts)
    return any(_ADDRESS.search(text) is not None for text in readable)
