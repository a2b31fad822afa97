"""Checks that every model method applies to an answer before it becomes a verdict.

The step must exist in the run; the blamed agent is the actor of the blamed step;
a quote is evidence only if it occurs in the step; every correction is mentioned.

Prompt injection: may a model have obeyed the run that it judges? A working agent has no reason to mention
decisive errors, roles of a chat format or a judge's JSON. If a text does, the model may have been manipulated
even if its quotes are correct. The list has English patterns: an attack worded differently is not found. So a
verdict that only the model gives is not fully believed either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar

import re2

from analyzer.inquiry.match_agents import match_agent, same_agent
from analyzer.inquiry.method import Message, Prompt, Reply
from analyzer.methods.without_model import judge_by_signals
from semconv.model import (
    Abstention,
    Blame,
    Evidence,
    Ranked,
    Status,
    Step,
    Trajectory,
    agent_in_prose,
)

LONGEST_TASK: Final = 8_000
"""Characters of the task repeated in a prompt; a longer task counts as truncated."""
MOST_RANKED: Final = 5
"""Candidates in a verdict's ranking."""
_SPACE: Final = re.compile(r"\s+")
_QUOTED_REPLY: Final = 4_000
_SHOWN_REPLY: Final = 200
_SHORTEST_QUOTE: Final = 3
_LONG_QUOTE: Final = 16
"""Characters from which a quote identifies its step, even if other steps repeat it."""
_TELLING_QUOTE: Final = 6
"""Characters from which a quote identifies the first step that says it: later ones repeat a value."""
_MOST_QUOTES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Verified evidence, and the number of quotes that failed."""

    evidence: tuple[Evidence, ...]
    dropped: int


def step_at(trajectory: Trajectory, index: int) -> Step | None:
    """Return the step with that index; ``None`` if the run has no such step."""
    steps = trajectory.steps
    if 0 <= index < len(steps) and steps[index].index == index:
        return steps[index]
    return next((step for step in steps if step.index == index), None)


def no_such_step(trajectory: Trajectory, index: int | None) -> str:
    """Describe the problem with an index that is not a step of the run."""
    last = trajectory.steps[-1].index
    return f"step {index} does not exist: the run has steps 0 to {last}"


def contradiction(trajectory: Trajectory, named: str, step: Step) -> str:
    """Describe a mismatch between the named agent and the actor of the step; empty if they agree."""
    if same_agent(named, step.agent):
        return ""
    meant = match_agent(named, trajectory.agents)
    if meant is not None and same_agent(meant, step.agent):
        return ""
    known = "" if meant else ", which is not an agent of this run"
    return f"the model named {named!r}{known}, but step {step.index} is {agent_in_prose(step.agent)}'s"


def check_quotes(trajectory: Trajectory, quotes: Iterable[tuple[int, str]]) -> Checked:
    """Keep the quotes that occur in their step, ignoring white space, and that identify it.

    A short quote does so if it is all that the step says, if no other step says it, or if it has six
    characters and no earlier step says it; "the" shows nothing. Only the first 50 quotes count.
    """
    kept: list[Evidence] = []
    dropped = 0
    said: tuple[str, ...] = ()
    for index, quote in islice(quotes, _MOST_QUOTES):
        step, wanted = step_at(trajectory, index), _bare(quote)
        is_true = step is not None and len(wanted) >= _SHORTEST_QUOTE and says(step, quote)
        if is_true and len(wanted) < _LONG_QUOTE:
            said = said or tuple(_bare(f"{each.output}\n{each.error}") for each in trajectory.steps)
            is_true = _identifies(wanted, [each is step for each in trajectory.steps], said)
        if is_true:
            kept.append(Evidence(step=index, quote=quote.strip()))
        else:
            dropped += 1
    return Checked(evidence=tuple(dict.fromkeys(kept)), dropped=dropped)


def _identifies(wanted: str, is_own: Sequence[bool], said: Sequence[str]) -> bool:
    """Tell whether a short quote shows which step it is from, among what all steps said."""
    places = [place for place, text in enumerate(said) if wanted in text]
    own = is_own.index(True)
    is_first = len(wanted) >= _TELLING_QUOTE and places[:1] == [own]
    return wanted == said[own] or all(place == own for place in places) or is_first


def says(step: Step, quote: str) -> bool:
    """Tell whether a quote occurs in a step's texts, ignoring white space."""
    return _bare(quote) in _squeeze(f"{step.output}\n{step.input}\n{step.error}")


def rank(
    trajectory: Trajectory, blamed: Step, probability: float, others: Iterable[tuple[int, float]]
) -> tuple[Ranked, ...]:
    """Return a valid ranking: the blamed step first, existing steps only, each once, sum at most 1."""
    best = {index: share for index, share in others if step_at(trajectory, index) is not None}
    best.pop(blamed.index, None)
    left = max(0.0, 1.0 - probability)
    total = sum(best.values())
    scale = min(1.0, left / total) if total > 0 else 0.0
    rest = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    candidates = [(blamed.index, probability), *((index, share * scale) for index, share in rest)]
    return tuple(
        Ranked(step=index, agent=_agent(trajectory, index), probability=round(share, 4))
        for index, share in candidates
    )


def ranking_of(trajectory: Trajectory, shares: Iterable[tuple[int, float]]) -> tuple[Ranked, ...]:
    """Return a ranking from the first few (position, probability) pairs, which come best first."""
    steps = trajectory.steps
    return tuple(
        Ranked(step=steps[place].index, agent=steps[place].agent, probability=round(share, 4))
        for place, share in islice(shares, MOST_RANKED)
    )


def repair(prompt: Prompt, reply: Reply, problem: str, wanted: str) -> Prompt:
    """Return the follow-up prompt after a reply that cannot be used."""
    messages = (
        *prompt.messages,
        Message(role="assistant", content=reply.text[:_QUOTED_REPLY] or "(no text)"),
        Message(role="user", content=f"That answer cannot be used: {problem}. Answer again, {wanted}."),
    )
    return replace(prompt, messages=messages)


Parsed = TypeVar("Parsed")


def ask_until_read(
    prompt: Prompt, read: Callable[[Reply], Parsed | str], wanted: str
) -> Generator[Prompt, Reply, Parsed | Abstention]:
    """Ask, and repeat if the answer cannot be used; return the answer, or an abstention after two failures.

    ``read`` returns the problem as text if it cannot read a reply.
    """
    reply = yield prompt
    answer = read(reply)
    if isinstance(answer, str):
        reply = yield repair(prompt, reply, answer, wanted)
        answer = read(reply)
    return unreadable(answer, reply) if isinstance(answer, str) else answer


def unreadable(problem: str, reply: Reply) -> Abstention:
    """Return the error verdict of an inquiry with two unusable answers; never a guess."""
    shown = _squeeze(reply.text[: 2 * _SHOWN_REPLY])[:_SHOWN_REPLY]
    return Abstention(status=Status.ERROR, reason=f"unreadable reply: {problem}; it began {shown!r}")


def nothing_to_judge() -> Abstention:
    """Return the verdict on a run without steps."""
    return Abstention(status=Status.ERROR, reason="the run has no steps to blame")


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences into one reason, skipping empty ones."""
    return " ".join(
        part if part.endswith((".", "!", "?")) else f"{part}."
        for part in (s.strip() for s in sentences)
        if part
    )


def _agent(trajectory: Trajectory, index: int) -> str:
    step = step_at(trajectory, index)
    assert step is not None
    return step.agent


def _bare(text: str) -> str:
    return _squeeze(text).strip(" .…\"'")


def _squeeze(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


# --- prompt injection ---

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
