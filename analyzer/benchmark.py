"""Run a method over labelled runs and score it: the engine of ``blamespan bench``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from analyzer.conversation import Conversation
from analyzer.scoring import TOTAL, Score, score, summarise
from semconv.model import Attribution, Trajectory

Attribute: TypeAlias = Callable[[Trajectory], Awaitable[Attribution]]
Progress: TypeAlias = Callable[[Score], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A finished benchmark."""

    lines: tuple[dict[str, Any], ...]
    """One a subset, in order of first appearance, and the total last."""
    left_out: int
    """Runs whose label lacks an agent or a step."""


async def bench(
    runs: Sequence[Conversation],
    attribute: Attribute,
    *,
    dataset: str,
    method: str,
    model: str | None = None,
    concurrency: int = 8,
    progress: Progress = lambda _score: None,
) -> Benchmark:
    """Attribute every labelled run, at most ``concurrency`` at once, and score the verdicts.

    That the runs failed is taken as given: no triage. What ``attribute`` raises
    ends the benchmark.
    """
    scored = [run for run in runs if _is_labelled(run)]
    slots = asyncio.Semaphore(max(1, concurrency))

    async def one(run: Conversation) -> Score:
        async with slots:
            attribution = await attribute(run.trajectory)
        assert run.label is not None
        result = score(attribution, run.label, run.subset)
        progress(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(run)) for run in scored]
    scores = [task.result() for task in tasks]
    subsets = dict.fromkeys(result.subset for result in scores)
    parts = [(name, [s for s in scores if s.subset == name]) for name in subsets]
    lines = tuple(
        summarise(part, dataset=dataset, subset=name, method=method, model=model)
        for name, part in [*parts, (TOTAL, scores)]
    )
    return Benchmark(lines=lines, left_out=len(runs) - len(scored))


def _is_labelled(run: Conversation) -> bool:
    return run.label is not None and run.label.agent is not None and run.label.step is not None
