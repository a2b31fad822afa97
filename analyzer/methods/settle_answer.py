"""Checks that every model method applies to an answer before it becomes a verdict.

The step must exist in the run; the blamed agent is the actor of the blamed step;
a quote is evidence only if it occurs in the step; every correction is mentioned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from analyzer.inquiry.match_agents import match_agent, same_agent
from analyzer.inquiry.method import Message, Prompt, Reply
from semconv.model import (
    Abstention,
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
