"""Rendering of a trajectory as text for a model: indexed, structured, fenced, and folded to fit.

Deterministic: the same trajectory and budget give the same text. Every step
keeps its index and the head of its text with any budget; each fold leaves a
note in its place and is counted in ``coverage``.

The text of a trace is hostile. Structure is given by marker lines that begin with a word supplied by the
caller: too long and random to occur in the trace, and never searched for there. So no step can pose as
another, end its own quotation, or impersonate the prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final

from analyzer.inquiry.visible import visible
from semconv.model import ContentState, Step, StepKind, Stop, Trajectory

_NAME: Final = 80
_INSTRUCTION_SHARE: Final = 0.25
"""Largest share of the budget for agents' instructions and tools; the rest is for the steps."""
_LONGEST_TOOLS: Final = 1_200
"""Bound in characters on the tools of all agents together."""
NO_REMARKS: Final[Mapping[int, str]] = MappingProxyType({})
_HEAD_SHARE: Final = 0.7
"""Share of a folded text's kept characters that comes from its beginning."""
_FOLD_NOTE: Final = 40
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A trajectory's text and the share of the original that it shows."""

    text: str
    marker: str
    """Word that begins every structure line and no other line."""
    truncated: bool
    coverage: float
    """Share of the texts' characters shown, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A piece of hostile text below its marker line."""

    heading: str
    text: str


def render(
    trajectory: Trajectory, *, max_bytes: int, marker: str, remarks: Mapping[int, str] = NO_REMARKS
) -> Rendering:
    """Render a run's agents and steps in at most about ``max_bytes`` of UTF-8.

    The bound is exceeded only if the steps' marker lines alone are larger. ``remarks``,
    by step index, are added to the step's marker line; they must not hold raw trace text.
    """
    about = [*_instructions(trajectory), *_tools(trajectory)]
    parts = [part for group in _groups(trajectory.steps) for part in _step_parts(group, trajectory, remarks)]
    texts = [part.text for part in parts]
    wanted = [part.text for part in about]
    budget = _in_characters(max_bytes, [*texts, *wanted])
    budget -= sum(len(part.heading) + len(marker) + 3 for part in [*parts, *about])
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
    """Render some of a run's steps under its marker, whole or folded (with a note) to ``max_chars``."""
    parts = [part for step in steps for part in _step_parts((step,), trajectory, NO_REMARKS)]
    budget = max_chars - sum(len(part.heading) + len(marker) + 3 for part in parts)
    return "\n".join(_lines(parts, fold([part.text for part in parts], max(0, budget)).texts, marker))


def _lines(parts: Sequence[_Part], texts: Sequence[str], marker: str) -> list[str]:
    return [
        f"{marker} {part.heading}\n{text}" if text else f"{marker} {part.heading}"
        for part, text in zip(parts, texts, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Texts shortened to a common length, and the number of their own characters that are left."""

    texts: tuple[str, ...]
    kept: int


def fold(texts: Sequence[str], budget: int) -> Folded:
    """Shorten the longest texts until all fit: short ones stay whole, none is dropped.

    ``budget`` is the total length of the texts, in characters.
    """
    if sum(len(text) for text in texts) <= budget:
        return Folded(texts=tuple(texts), kept=sum(len(text) for text in texts))
    limit = _common_limit([len(text) for text in texts], budget)
    shortened = [_shorten(text, limit) for text in texts]
    return Folded(texts=tuple(text for text, _ in shortened), kept=sum(kept for _, kept in shortened))


def _common_limit(lengths: Sequence[int], budget: int) -> int:
    """Return the length to which the longest texts are cut so that all fit (water filling)."""
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
    if room <= 0:  # no room for a note: keep only the head; the cut shows in the coverage
        return text[:limit], limit
    head = max(1, int(room * _HEAD_SHARE))
    tail = room - head
    note = f" …[{len(text) - room} characters folded]… "
    return text[:head] + note + (text[-tail:] if tail else ""), head + tail


def content_marker(trajectory: Trajectory) -> str:
    """Return a marker that is the same for the same run: 128 bits of a digest of all of its text.

    A text that contains it would have to contain its own digest. Used for cached prompts.
    """
    digest = hashlib.blake2b(digest_size=16)
    texts = [trajectory.task, trajectory.reference or "", trajectory.output]
    for text in (*texts, *(text for step in trajectory.steps for text in _all_texts(step))):
        digest.update(f"{len(text)}\x00{text}".encode(errors="replace"))
    return f"#{digest.hexdigest()}"


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
    """Return the tools available to each agent; shortened, since a step's own text shows its call."""
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
    """Yield consecutive steps of one agent."""
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


_STOPPED: Final = {
    Stop.WAITING: "waited for a person or a result from outside, no failure",
    Stop.CANCELLED: "cancelled from outside, no failure",
    Stop.HANDED_OVER: "handed over by an exception, no failure",
    Stop.GUARDED: "stopped by a guardrail, no failure",
}


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
    if step.is_failed:
        words.append("failed")
    elif step.stop is not None:
        words.append(_STOPPED[step.stop])
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
    """Return whether an earlier step already shows this step's input."""
    return any(entered in earlier.output for earlier in trajectory.steps[max(0, step.index - 3) : step.index])


def one_line(text: str) -> str:
    """Return a name in a form safe for a marker line."""
    return _SPACE.sub(" ", visible(text)).strip()[:_NAME]


def _in_characters(max_bytes: int, texts: Sequence[str]) -> int:
    """Convert a byte budget to characters: tokenisers use about one token for three bytes in any script."""
    characters = sum(len(text) for text in texts)
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return max_bytes if not size else int(max_bytes * characters / size)
