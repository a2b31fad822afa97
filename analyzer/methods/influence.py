"""Which steps a step builds on: an influence graph over a run.

Edges come from the spans (enclosing step, link, the call that asked: ``Step.causes``), from
handoffs (to the next step of the agent that was handed over to), and from text that is used
again (runs of words, and figures, that the earlier step was the first to bring in).
Source of the idea: information dependency graphs, arXiv:2510.10581; ours are built without a
model. Cost: no calls, linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from semconv.model import Step, StepKind, Trajectory

_HEAD: Final = 20_000
"""Characters of a step's text that are compared: a bound for dumps."""
_RUN: Final = 5
"""Words that must follow one another to count as text used again."""
_LEAST_REUSE: Final = 2
"""Runs of words that must be shared; one alone is a turn of phrase. A figure counts as two."""
_MOST_SOURCES: Final = 4
_LONGEST_SAMPLE: Final = 60
_WORD: Final = re.compile(r"\w+(?:[.,]\d+)*")
_FIGURE: Final = re.compile(r"\d[\d.,]{2,}|\w*\d\w*[a-z]\w*\d\w*")


class Tie(StrEnum):
    """How one step is known to build on another; surest first."""

    SPAN = "span"
    HANDOFF = "handoff"
    REUSE = "reuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """One edge: ``target`` builds on ``source``, an earlier step."""

    source: int
    target: int
    tie: Tie
    sample: str = ""
    """Some of the text that is used again, words only; empty for other ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceGraph:
    """All edges of a run; by step index."""

    sources: Mapping[int, tuple[Influence, ...]] = field(default_factory=dict)
    """What each step builds on, surest tie first, then by step."""
    uses: Mapping[int, tuple[Influence, ...]] = field(default_factory=dict)
    """What builds on each step, earliest first."""

    def upstream(self, step: int) -> frozenset[int]:
        """Return every step that ``step`` builds on, near or far."""
        found: set[int] = set()
        waiting = [step]
        while waiting:
            for edge in self.sources.get(waiting.pop(), ()):
                if edge.source not in found:
                    found.add(edge.source)
                    waiting.append(edge.source)
        return frozenset(found)


def influence_graph(trajectory: Trajectory) -> InfluenceGraph:
    """Build the graph; one edge a pair of steps, the surest there is."""
    ranks = {tie: rank for rank, tie in enumerate(Tie)}
    edges: dict[tuple[int, int], Influence] = {}
    for edge in (*_spans(trajectory.steps), *_handoffs(trajectory.steps), *_reuse(trajectory)):
        edges.setdefault((edge.target, edge.source), edge)
    sources: defaultdict[int, list[Influence]] = defaultdict(list)
    uses: defaultdict[int, list[Influence]] = defaultdict(list)
    for edge in edges.values():
        sources[edge.target].append(edge)
        uses[edge.source].append(edge)
    return InfluenceGraph(
        sources={
            step: tuple(sorted(found, key=lambda edge: (ranks[edge.tie], edge.source)))
            for step, found in sources.items()
        },
        uses={step: tuple(sorted(found, key=lambda edge: edge.target)) for step, found in uses.items()},
    )


def _spans(steps: Sequence[Step]) -> Iterator[Influence]:
    known = {step.index for step in steps}
    for step in steps:
        for cause in step.causes:
            if cause in known and cause < step.index:
                yield Influence(source=cause, target=step.index, tie=Tie.SPAN)


def _handoffs(steps: Sequence[Step]) -> Iterator[Influence]:
    """Tie each handoff to the next step of the agent it names; a newer one to the same agent wins."""
    open_handoffs: dict[str, int] = {}
    for step in steps:
        source = open_handoffs.pop(step.agent, None)
        if source is not None:
            yield Influence(source=source, target=step.index, tie=Tie.HANDOFF)
        if step.kind is StepKind.HANDOFF and step.target:
            open_handoffs[step.target] = step.index


def _reuse(trajectory: Trajectory) -> Iterator[Influence]:
    """Tie each step to the steps that first brought in what it says again.

    What the task or an agent's instructions say was brought in by nobody.
    """
    first: dict[str, int] = {}
    for text in (trajectory.task, *(step.instructions for step in trajectory.steps)):
        first.update((mark, -1) for mark, _ in _marks(text[:_HEAD]))
    for step in trajectory.steps:
        shared: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        seen: set[str] = set()
        for mark, weight in _marks(_used(step)):
            source = first.get(mark, -1)
            if source >= 0 and mark not in seen:
                shared[source].append((mark, weight))
            seen.add(mark)
        yield from _strongest(step.index, shared)
        for mark, _ in _marks(_said(step)):
            first.setdefault(mark, step.index)


def _strongest(step: int, shared: Mapping[int, Sequence[tuple[str, int]]]) -> Iterator[Influence]:
    weights = {source: sum(weight for _, weight in marks) for source, marks in shared.items()}
    order = sorted(weights, key=lambda source: (-weights[source], source))
    for source in order[:_MOST_SOURCES]:
        if weights[source] >= _LEAST_REUSE:
            telling = max(shared[source], key=lambda mark: mark[1])[0]
            yield Influence(source=source, target=step, tie=Tie.REUSE, sample=telling[:_LONGEST_SAMPLE])


def _marks(text: str) -> Iterator[tuple[str, int]]:
    """Yield what a text can be known again by: runs of words with weight 1, figures with 2."""
    words = _WORD.findall(text.casefold())
    for start in range(len(words) - _RUN + 1):
        yield " ".join(words[start : start + _RUN]), 1
    for word in words:
        if _FIGURE.fullmatch(word):
            yield word, _LEAST_REUSE


def _said(step: Step) -> str:
    """What a step brings in: its output, and the arguments it gave a tool."""
    return step.output[:_HEAD] + (f"\n{step.input[:_HEAD]}" if step.kind is StepKind.TOOL else "")


def _used(step: Step) -> str:
    return f"{step.input[:_HEAD]}\n{step.output[:_HEAD]}"
