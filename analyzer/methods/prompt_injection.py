"""Prompt injection check: may a model have obeyed the run that it judges? Pure.

A working agent has no reason to mention decisive errors, roles of a chat format or a judge's JSON. If a text
does, the model may have been manipulated even if its quotes are correct. The list has English patterns: an
attack worded differently is not found. So a verdict that only the model gives is not fully believed either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import re2

from analyzer.methods.settle_answer import join_sentences, rank, step_at
from analyzer.methods.without_model import judge_by_signals
from semconv.model import Blame, Step, Trajectory

MOST_BELIEVED: Final = 0.5
"""Confidence of a model's verdict that nothing but the model says."""
_LONGEST: Final = 200_000
"""Characters examined per text."""
_SHOWN_STEPS: Final = 5
_FIRST: Final = 3
"""Candidates of the signals among which a model's step is believed; of a short run, half of its steps."""

_TO_A_JUDGE: Final = (
    (
        r"\b(?:blame|accuse)\s{1,4}(?:only\s{1,4})?(?:the\s{1,4})?"
        r"(?:step|writer|planner|\w+\s{1,4}(?:at|in)\s{1,4}step)\b"
    ),
    (
        r"\bstep\s{1,4}(?:number\s{1,4})?\d{1,6}\s{1,4}(?:is|was)\s{1,4}(?:the\s{1,4}one\s{1,4})?"
        r"(?:to\s{1,4}blame|guilty|(?:the\s{1,4})?decisive)"
    ),
    r"\bthe\s{1,4}decisive\s{1,4}(?:error|mistake|step|agent)\b",
    r"\bfailure\s{1,4}attribution\b",
    # Imitations of the prompt's structure.
    r"^#[\w-]{5,64}\s{1,4}(?:\[\d{1,6}\]|steps?\s{1,4}\d|end\b|the\s{1,4}task\b|your\s{1,4}note\b)",
)
"""Terms that only concern a judge."""
_ALTERNATIVES: Final = (
    *_TO_A_JUDGE,
    (
        r"\b(?:ignore|disregard|forget|override)\s{1,4}(?:\w+\s{1,4}){0,4}"
        r"(?:logs?|instructions?|prompts?|evidence|criteria|transcript|conversation|guidelines)\b"
    ),
    r"\b(?:blame|accuse)\s{1,4}(?:only\s{1,4})?(?:the\s{1,4})?agent\b",
    r"\bdecisive\s{1,4}(?:error|mistake|step|agent)\b",
    r"\broot[- ]cause\s{1,4}(?:error|mistake|step|agent)\b",
    (
        r"\b(?:dear|attention|hey|(?:note|message)\s{1,4}to(?:\s{1,4}the)?)\s{1,4}(?:ai\s{1,4})?"
        r"(?:judge|evaluator|grader|auditor|investigator|model|llm)\b"
    ),
    # Roles of chat formats.
    r"<(?:start|end)_of_turn>",
    r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant)(?:[ _-]?(?:prompt|message))?>",
    (
        r"(?:^|[.!?]\s{0,4})#{0,4}\s{0,4}(?-i:SYSTEM|System|ASSISTANT)"
        r"(?:\s{1,4}(?:prompt|message|override|note))?\s{0,4}:"
    ),
    # Imitations of the run's end, and verdicts to copy.
    r"\bend\s{1,4}of\s{1,4}(?:the\s{1,4})?(?:run|log|transcript)\b",
    r"\"(?:evidence|ranking)\"\s{0,4}:\s{0,4}\[",
)
_ADDRESS: Final = re2.compile("(?im)" + "|".join(_ALTERNATIVES))
"""RE2 pattern, for linear time: the text is hostile and may be long."""
_ADDRESS_IN_INSTRUCTIONS: Final = re2.compile("(?im)" + "|".join(_TO_A_JUDGE))
"""Agents' own instructions may legitimately match the other patterns: "ignore", chat roles, JSON, "blame the
agent", "decisive agent"."""


def speaking_steps(trajectory: Trajectory) -> tuple[int, ...]:
    """Return the steps whose text or names address a judge; -1 stands for the task."""
    task = (-1,) if _speaks((trajectory.task,)) else ()
    return (*task, *(step.index for step in trajectory.steps if _speaks_in(step)))


def address(trajectory: Trajectory) -> str:
    """Return which text of the run addresses a judge, as a clause; empty if none does."""
    speaking = speaking_steps(trajectory)
    return f"{_where(speaking)} to the judge" if speaking else ""


def limit_belief(blame: Blame, trajectory: Trajectory) -> Blame:
    """Lower a model's confidence where an order in the run's text may stand behind its verdict.

    That is so if the text addresses a judge, or if the signals, which text cannot instruct, have the step not
    among their first. The confidence is then at most ``MOST_BELIEVED``, and their candidates are appended.
    """
    step = step_at(trajectory, blame.step)
    hints = [(hint.step, hint.probability) for hint in judge_by_signals(trajectory).ranking]
    doubt = _doubt(trajectory, blame, [at for at, _ in hints])
    if not doubt or step is None:
        return blame
    confidence = min(blame.confidence, MOST_BELIEVED)
    return replace(
        blame,
        confidence=confidence,
        ranking=rank(trajectory, step, confidence, hints),
        reason=join_sentences([blame.reason, f"({doubt}; check the run yourself)"]),
    )


def _doubt(trajectory: Trajectory, blame: Blame, hints: list[int]) -> str:
    """Return why a model's verdict may be an obeyed order; empty if nothing says so."""
    if speaking := address(trajectory):
        return speaking
    first = hints[: min(_FIRST, -(-len(trajectory.steps) // 2))]
    is_fine = blame.step in first or blame.confidence <= MOST_BELIEVED
    return "" if is_fine else "no sign in the run points at this step first"


def _where(speaking: tuple[int, ...]) -> str:
    names = ["the task" if step < 0 else f"step {step}" for step in speaking[:_SHOWN_STEPS]]
    more = len(speaking) - len(names)
    listed = ", ".join([*names, f"{more} more"] if more else names)
    return f"the text of {listed} speaks"


def _texts(step: Step) -> tuple[str, ...]:
    return step.output, step.input, step.error, step.agent, step.name, step.target or ""


def _speaks_in(step: Step) -> bool:
    return _speaks(_texts(step)) or _speaks((step.instructions,), _ADDRESS_IN_INSTRUCTIONS)


def _speaks(texts: Iterable[str], pattern: Any = _ADDRESS) -> bool:
    # RE2 reads UTF-8, which cannot encode lone surrogates.
    readable = (text[:_LONGEST].encode(errors="replace").decode() for text in texts)
    return any(pattern.search(text) is not None for text in readable)
