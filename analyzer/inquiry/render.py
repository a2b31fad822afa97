"""A trajectory as text for a model: indexed, structured, fenced, and folded to fit.

Deterministic: the same trajectory and budget give the same text. Every step
keeps its index and the head of its text, whatever the budget; what is folded
away is said where it was, and counted in ``coverage``.

The text of a trace is hostile. Structure is told by marker lines that begin
with a word that occurs nowhere in the trace, so no step can pose as another, end
its own quotation, or speak as the prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final

from analyzer.visible import visible
from semconv.model import ContentState, SpanStatus, Step, StepKind, Trajectory

MARKER_LENGTH: Final = 6
_NAME: Final = 80
_INSTRUCTION_SHARE: Final = 0.25
"""Most of the budget that agents' instructions and tools may take; the steps are what is judged."""
_LONGEST_TOOLS: Final = 1_200
"""Characters for all agents' tools together."""
NO_REMARKS: Final[Mapping[int, str]] = MappingProxyType({})
_HEAD_SHARE: Final = 0.7
"""Of a folded text, how much of what is kept comes from its beginning."""
_FOLD_NOTE: Final = 40
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A trajectory's text, and how much of it there is."""

    text: str
    marker: str
    """The word with which every line of structure begins, and no other line can."""
    truncated: bool
    coverage: float
    """Share of the texts' characters that is shown, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A stretch of hostile text under the marker line that says what it is."""

    heading: str
    text: str


def render(trajectory: Trajectory, *, max_bytes: int, remarks: Mapping[int, str] = NO_REMARKS) -> Rendering:
    """Render a run's agents and steps into at most about ``max_bytes`` of UTF-8.

    The bound is exceeded only when the marker lines of the steps alone are larger. ``remarks``,
    by step index, are ours and join the step's marker line; they must not hold raw text.
    """
    marker = _marker(trajectory)
    about = [*_instructions(trajectory), *_tools(trajectory)]
    parts = [part for group in _groups(trajectory.steps) for part in _step_parts(group, trajectory, remarks)]
    texts = [part.text for part in parts]
    wanted = [part.text for part in about]
    budget = _in_characters(max_bytes, [*texts, *wanted])
    budget -= sum(len(part.heading) + MARKER_LENGTH + 3 for part in [*parts, *about])
    shown_about = fold(wanted, max(0, min(int(budget * _INSTRUCTION_SHARE), budget)))
    shown_steps = fold(texts, max(0, budget - sum(len(text) for text in shown_about.texts)))
    lines = _lines([*about, *parts], [*shown_about.texts, *shown_steps.texts], marker)
    total = sum(len(text) for text in [*wanted, *texts])
    kept = shown_about.kept + shown_steps.kept
    return Rendering(
        text="\n".join([*lines, f"{marker} end of the run"]),
        marker=marker,
        truncated=kept < total,
        coverage=kept / total if total else 1.0,
    )


def excerpt(trajectory: Trajectory, steps: Sequence[Step], marker: str, *, max_chars: int) -> str:
    """Render some of a run's steps whole, or folded to ``max_chars`` and said to be, under its marker."""
    parts = [part for step in steps for part in _step_parts((step,), trajectory, NO_REMARKS)]
    budget = max_chars - sum(len(part.heading) + MARKER_LENGTH + 3 for part in parts)
    return "\n".join(_lines(parts, fold([part.text for part in parts], max(0, budget)).texts, marker))


def _lines(parts: Sequence[_Part], texts: Sequence[str], marker: str) -> list[str]:
    return [
        f"{marker} {part.heading}\n{text}" if text else f"{marker} {part.heading}"
        for part, text in zip(parts, texts, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Texts cut to a common length, and how many of their own characters are left."""

    texts: tuple[str, ...]
    kept: int


def fold(texts: Sequence[str], budget: int) -> Folded:
    """Shorten the longest texts until all fit: short ones stay whole, none is dropped for another.

    ``budget`` is in characters, for the texts together.
    """
    if sum(len(text) for text in texts) <= budget:
        return Folded(texts=tuple(texts), kept=sum(len(text) for text in texts))
    limit = _common_limit([len(text) for text in texts], budget)
    shortened = [_shorten(text, limit) for text in texts]
    return Folded(texts=tuple(text for text, _ in shortened), kept=sum(kept for _, kept in shortened))


def _common_limit(lengths: Sequence[int], budget: int) -> int:
    """The length to which the longest are cut so that all fit (water filling)."""
    left, waiting = budget, len(lengths)
    for length in sorted(lengths):
        if length * waiting > left:
            return max(0, left // waiting)
        left -= length
        waiting -= 1
    return max(lengths, default=0)


def _shorten(text: str, limit: int) -> tuple[str, int]:
    if len(text) <= limit:
        return text, len(text)
    room = limit - _FOLD_NOTE
    if room <= 0:  # no room for a note: the head alone, and the cut is seen in the coverage
        return text[:limit], limit
    head = max(1, int(room * _HEAD_SHARE))
    tail = room - head
    note = f" …[{len(text) - room} characters folded]… "
    return text[:head] + note + (text[-tail:] if tail else ""), head + tail


def _marker(trajectory: Trajectory) -> str:
    """A word that is nowhere in the run: a digest of it, renewed until that is so."""
    digest = hashlib.sha256()
    for step in trajectory.steps:
        digest.update(f"{step.agent}\x00{step.input}\x00{step.output}\x00".encode(errors="replace"))
    texts = [trajectory.task, trajectory.reference or ""]
    texts += [text for step in trajectory.steps for text in _all_texts(step)]
    while True:
        digest.update(b"\x01")
        marker = f"#{digest.hexdigest()[: MARKER_LENGTH - 1]}"
        if not any(marker in text for text in texts):
            return marker


def _all_texts(step: Step) -> tuple[str, ...]:
    texts = (step.agent, step.input, step.output, step.error, step.instructions, step.tools, step.name)
    return (*texts, step.target or "")


def _instructions(trajectory: Trajectory) -> list[_Part]:
    first = {step.agent: step.instructions for step in reversed(trajectory.steps) if step.instructions}
    return [
        _Part(heading=f"instructions given to {one_line(agent)}", text=first[agent].strip())
        for agent in sorted(first, key=lambda agent: _appearance(trajectory, agent))
    ]


def _tools(trajectory: Trajectory) -> list[_Part]:
    """What each agent could call; shortened, since a step's own text shows what it did call."""
    most = {step.agent: step.tools for step in sorted(trajectory.steps, key=lambda s: len(s.tools))}
    agents = sorted(
        (agent for agent, tools in most.items() if tools), key=lambda agent: _appearance(trajectory, agent)
    )
    shown = fold([most[agent] for agent in agents], _LONGEST_TOOLS)
    return [
        _Part(heading=f"tools that {one_line(agent)} could call", text=text)
        for agent, text in zip(agents, shown.texts, strict=True)
    ]


def _appearance(trajectory: Trajectory, agent: str) -> int:
    return next(step.index for step in trajectory.steps if step.agent == agent)


def _groups(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Consecutive steps of one agent."""
    for _, group in groupby(steps, key=lambda step: step.agent):
        yield tuple(group)


def _step_parts(group: Sequence[Step], trajectory: Trajectory, remarks: Mapping[int, str]) -> Iterator[_Part]:
    agent = one_line(group[0].agent)
    if len(group) > 1:
        yield _Part(heading=f"steps {group[0].index}-{group[-1].index} are all by {agent}", text="")
    for step in group:
        who = "" if len(group) > 1 else f" {agent}"
        remark = f" {remarks[step.index]}" if step.index in remarks else ""
        heading = f"[{step.index}]{who}{_manner(step)}{remark}"
        yield _Part(heading=heading, text=_step_text(step, trajectory))


def _manner(step: Step) -> str:
    words: list[str] = []
    if step.kind is StepKind.HANDOFF and step.target:
        words.append(f"hands over to {one_line(step.target)}")
    elif step.kind is StepKind.TOOL:
        words.append(f"tool {one_line(step.target)}" if step.target else "tool")
    elif step.kind is StepKind.HUMAN:
        words.append("human")
    if step.group is not None:
        words.append(f"at the same time as the others of group {step.group}")
    if step.status is SpanStatus.ERROR or step.error:
        words.append("failed")
    if step.content in (ContentState.REDACTED, ContentState.DROPPED, ContentState.TRUNCATED):
        words.append(f"text {step.content}")
    return f" ({', '.join(words)})" if words else ""


def _step_text(step: Step, trajectory: Trajectory) -> str:
    lines: list[str] = []
    entered = step.input.strip()
    if entered and entered != trajectory.task.strip() and not _already_shown(entered, step, trajectory):
        lines.append(f"input: {entered}")
    if step.output.strip():
        lines.append(f"output: {step.output.strip()}" if lines else step.output.strip())
    if step.error.strip() and step.error.strip() not in step.output:
        lines.append(f"error: {step.error.strip()}")
    return "\n".join(lines)


def _already_shown(entered: str, step: Step, trajectory: Trajectory) -> bool:
    """What an earlier step said last need not be said again as this one's input."""
    return any(entered in earlier.output for earlier in trajectory.steps[max(0, step.index - 3) : step.index])


def one_line(text: str) -> str:
    """Return a name made safe for a line of structure."""
    return _SPACE.sub(" ", visible(text)).strip()[:_NAME]


def _in_characters(max_bytes: int, texts: Sequence[str]) -> int:
    """Bytes count because tokenisers spend about one token on three of them in any script."""
    characters = sum(len(text) for text in texts)
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return max_bytes if not size else int(max_bytes * characters / size)
