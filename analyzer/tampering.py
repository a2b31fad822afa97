"""Does a run's own text speak to whoever judges it? Pure.

An agent that works for somebody has no reason to mention decisive errors, roles of
a chat format or a judge's JSON. Where one does, a model may have been talked into
its answer even if what it quotes is there; so the answer is believed no more than
half, and what signals think is shown beside it. English, and a list: an attack in
other words is not found, which is why nothing else relies on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from analyzer.methods.answering import join_sentences, rank, step_at
from analyzer.methods.signals import weigh
from semconv.model import Blame, Step, Trajectory

MOST_BELIEVED: Final = 0.5
"""Confidence that a model's verdict keeps on a run that speaks to its judge."""
_LONGEST: Final = 200_000
"""Characters of one text that are looked at."""
_SHOWN_STEPS: Final = 5

_ADDRESS: Final = re.compile(
    r"""(?ix)
    \b(?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,4}
        (?:log|logs|instructions?|prompts?|evidence|criteria|transcript|conversation|guidelines)\b
    | \b(?:blame|accuse)\s+(?:only\s+)?(?:the\s+)?(?:step|agent|writer|planner|\w+\s+(?:at|in)\s+step)\b
    | \bstep\s+(?:number\s+)?\d+\s+(?:is|was)\s+(?:the\s+one\s+)?(?:to\s+blame|guilty|(?:the\s+)?decisive)
    | \b(?:decisive|root[- ]cause)\s+(?:error|mistake|step|agent)\b
    | \bfailure\s+attribution\b
    | \b(?:dear|attention|hey|note\s+to(?:\s+the)?|message\s+to(?:\s+the)?)\s+(?:ai\s+)?
        (?:judge|evaluator|grader|auditor|investigator|model|llm)\b
    | <\|[a-z_]{2,20}\|> | \[/?INST\] | <</?SYS>> | </?(?:system|assistant)(?:[ _-]?(?:prompt|message))?>
    | (?:^|[\n.!?]\s*)\#{0,4}\s*(?-i:SYSTEM|System|ASSISTANT)(?:\s+(?:prompt|message|override|note))?\s*:
    | \bend\s+of\s+(?:the\s+)?(?:run|log|transcript)\b
    | ^\#[0-9a-f]{5}\s
    """,
    re.MULTILINE,
)
_VERDICT: Final = re.compile(r'"(?:evidence|ranking)"\s{0,5}:\s{0,5}\[')


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
    return any(_ADDRESS.search(text[:_LONGEST]) or _VERDICT.search(text[:_LONGEST]) for text in texts)
