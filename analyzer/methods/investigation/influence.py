"""Influence graph of a run: the earlier steps that each step builds on.

Edges come from the spans (enclosing step, link, calling step: ``Step.causes``), from
handoffs (to the target agent's next step), and from reused text (word sequences and
numbers that the earlier step introduced).

Source of the idea: information dependency graphs, arXiv:2510.10581; this one is built
without a model. Cost: no calls, linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from semconv.model import Step, StepKind, Trajectory

_HEAD: Final = 20_000
"""Compared characters of a step's text: a bound for dumps."""
_RUN: Final = 5
"""Length of a shared word sequence that counts as reused text."""
_LEAST_REUSE: Final = 2
"""Shared word sequences needed for an edge; one alone may be a common phrase. A number counts as two."""
_MOST_SOURCES: Final = 4
_LONGEST_SAMPLE: Final = 60
_WORD: Final = re.compile(r"\w+(?:[.,]\d+)*")
_FIGURE: Final = re.compile(r"\d[\d.,]{2,}|\w*\d\w*[a-z]\w*\d\w*")


class Tie(StrEnum):
    """Kind of evidence that one step builds on another; surest first."""

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
    """Part of the reused text, words only; empty for other kinds."""


InfluenceGraph: TypeAlias = Mapping[int, tuple[Influence, ...]]
"""Edges to the steps that each step builds on, surest first, then by step; by step index."""


def influence_graph(trajectory: Trajectory) -> InfluenceGraph:
    """Build the graph; one edge per pair of steps, the surest."""
    ranks = {tie: rank for rank, tie in enumerate(Tie)}
    edges: dict[tuple[int, int], Influence] = {}
    for edge in (*_spans(trajectory.steps), *_handoffs(trajectory.steps), *_reuse(trajectory)):
        edges.setdefault((edge.target, edge.source), edge)
    sources: defaultdict[int, list[Influence]] = defaultdict(list)
    for edge in edges.values():
        sources[edge.target].append(edge)
    return {
        step: tuple(sorted(found, key=lambda edge: (ranks[edge.tie], edge.source)))
        for step, found in sources.items()
    }


def _spans(steps: Sequence[Step]) -> Iterator[Influence]:
    known = {step.index for step in steps}
    for step in steps:
        for cause in step.causes:
            if cause in known and cause < step.index:
                yield Influence(source=cause, target=step.index, tie=Tie.SPAN)


def _handoffs(steps: Sequence[Step]) -> Iterator[Influence]:
    """Link each handoff to the next step of its target agent; a newer handoff to the same agent wins."""
    open_handoffs: dict[str, int] = {}
    for step in steps:
        source = open_handoffs.pop(step.agent, None)
        if source is not None:
            yield Influence(source=source, target=step.index, tie=Tie.HANDOFF)
        if step.kind is StepKind.HANDOFF and step.target:
            open_handoffs[step.target] = step.index


def _reuse(trajectory: Trajectory) -> Iterator[Influence]:
    """Link each step to the steps that introduced the text it reuses.

    Text of the task or of an agent's instructions is not attributed to any step.
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
    """Yield the features that identify reused text: word sequences with weight 1, numbers with 2."""
    words = _WORD.findall(text.casefold())
    for start in range(len(words) - _RUN + 1):
        yield " ".join(words[start : start + _RUN]), 1
    for word in words:
        if _FIGURE.fullmatch(word):
            yield word, _LEAST_REUSE


def _said(step: Step) -> str:
    """Return the text that a step introduces: its output and its tool arguments."""
    return step.output[:_HEAD] + (f"\n{step.input[:_HEAD]}" if step.kind is StepKind.TOOL else "")


def _used(step: Step) -> str:
    return f"{step.input[:_HEAD]}\n{step.output[:_HEAD]}"
