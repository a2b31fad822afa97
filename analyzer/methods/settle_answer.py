"""From a model's answer to a verdict that holds: what every model method owes the run it judges.

A step must be one of the run's; the blamed agent is the actor of the blamed step;
a quote is evidence only if it is in the step; whatever had to be put right is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from analyzer.agent_names import match_agent, same_agent
from analyzer.method import Message, Prompt, Reply
from semconv.model import Abstention, Evidence, Ranked, Status, Step, Trajectory

LONGEST_TASK: Final = 8_000
"""Characters of the task that a prompt repeats; a longer one counts as truncated."""
MOST_RANKED: Final = 5
"""Candidates that a verdict names."""
_SPACE: Final = re.compile(r"\s+")
_QUOTED_REPLY: Final = 4_000
_SHOWN_REPLY: Final = 200
_SHORTEST_QUOTE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Evidence that holds, and how much did not."""

    evidence: tuple[Evidence, ...]
    dropped: int


def step_at(trajectory: Trajectory, index: int) -> Step | None:
    """Return the step with that index; ``None`` if the run has none such."""
    steps = trajectory.steps
    if 0 <= index < len(steps) and steps[index].index == index:
        return steps[index]
    return next((step for step in steps if step.index == index), None)


def no_such_step(trajectory: Trajectory, index: int | None) -> str:
    """Say what is wrong with a step that the run does not have."""
    last = trajectory.steps[-1].index
    return f"step {index} does not exist: the run has steps 0 to {last}"


def contradiction(trajectory: Trajectory, named: str, step: Step) -> str:
    """Say how the named agent and the actor of the named step differ; empty if they do not."""
    if same_agent(named, step.agent):
        return ""
    meant = match_agent(named, trajectory.agents)
    if meant is not None and same_agent(meant, step.agent):
        return ""
    known = "" if meant else ", which is no agent of this run"
    return f"the model named {named!r}{known}, but step {step.index} is {step.agent}'s"


def check_quotes(trajectory: Trajectory, quotes: Iterable[tuple[int, str]]) -> Checked:
    """Keep the quotes that stand in the step they are said to be from, white space aside."""
    kept: list[Evidence] = []
    dropped = 0
    for index, quote in quotes:
        step = step_at(trajectory, index)
        wanted = _squeeze(quote).strip(" .…\"'")
        if step is not None and len(wanted) >= _SHORTEST_QUOTE and wanted in _squeeze(_whole(step)):
            kept.append(Evidence(step=index, quote=quote.strip()))
        else:
            dropped += 1
    return Checked(evidence=tuple(dict.fromkeys(kept)), dropped=dropped)


def rank(
    trajectory: Trajectory, blamed: Step, probability: float, others: Iterable[tuple[int, float]]
) -> tuple[Ranked, ...]:
    """Return a sound ranking: the blamed step first, real steps only, each once, at most 1 in sum."""
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
    """Return the likeliest few of (position, probability) pairs that come best first."""
    steps = trajectory.steps
    return tuple(
        Ranked(step=steps[place].index, agent=steps[place].agent, probability=round(share, 4))
        for place, share in islice(shares, MOST_RANKED)
    )


def repair(prompt: Prompt, reply: Reply, problem: str, wanted: str) -> Prompt:
    """Return the one further prompt that a reply gets which cannot be used."""
    return Prompt(
        messages=(
            *prompt.messages,
            Message(role="assistant", content=reply.text[:_QUOTED_REPLY] or "(no text)"),
            Message(role="user", content=f"That answer cannot be used: {problem}. Answer again, {wanted}."),
        ),
        max_output_tokens=prompt.max_output_tokens,
        response_schema=prompt.response_schema,
        truncated=prompt.truncated,
        coverage=prompt.coverage,
        sample=prompt.sample,
    )


def unreadable(problem: str, reply: Reply) -> Abstention:
    """Return the end of an inquiry whose answer could not be used, twice: an error, never a guess."""
    shown = _squeeze(reply.text[: 2 * _SHOWN_REPLY])[:_SHOWN_REPLY]
    return Abstention(status=Status.ERROR, reason=f"unreadable reply: {problem}; it began {shown!r}")


def nothing_to_judge() -> Abstention:
    """Return the verdict on a run without steps."""
    return Abstention(status=Status.ERROR, reason="the run has no steps to blame")


def join_sentences(sentences: Sequence[str]) -> str:
    """Join what there is to say into one reason."""
    return " ".join(
        part if part.endswith((".", "!", "?")) else f"{part}."
        for part in (s.strip() for s in sentences)
        if part
    )


def _agent(trajectory: Trajectory, index: int) -> str:
    step = step_at(trajectory, index)
    assert step is not None
    return step.agent


def _whole(step: Step) -> str:
    return f"{step.output}\n{step.input}\n{step.error}"


def _squeeze(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
