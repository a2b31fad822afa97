"""Verdicts do not depend on irrelevant details: names and the layout of texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from analyzer.methods.without_model import judge_by_signals
from semconv.model import Blame, Step, StepKind, Trajectory, Verdict
from tests.tokens import recorded_failures

EVERY: Final = 4
"""Only every n-th recorded run is tested."""


def renamed(trajectory: Trajectory) -> Trajectory:
    names = {agent: f"\u5c02\u9580\u5bb6 {place}" for place, agent in enumerate(trajectory.agents)}
    steps = tuple(
        replace(step, agent=names[step.agent], target=names.get(step.target or "", step.target))
        for step in trajectory.steps
    )
    return replace(trajectory, steps=steps, agents=tuple(names.values()))


def said(change: Callable[[Step], str]) -> Callable[[Trajectory], Trajectory]:
    def changed(trajectory: Trajectory) -> Trajectory:
        steps = tuple(replace(step, output=change(step)) for step in trajectory.steps)
        return replace(trajectory, steps=steps)

    return changed


def capitals(step: Step) -> str:
    return step.output if step.kind is StepKind.TOOL else step.output.upper()


CHANGES: Final = {
    "other names": renamed,
    "lines end as on Windows": said(lambda step: step.output.replace("\n", "\r\n")),
    "blank lines around": said(lambda step: f"\n\n  {step.output} \n\n"),
    "blanks that do not break": said(lambda step: step.output.replace(" ", "\u00a0")),
    "curly quotes": said(lambda step: step.output.replace("'", "\u2019")),
    "agents that shout": said(capitals),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_says_nothing_about_a_failure_moves_no_verdict(
    change: Callable[[Trajectory], Trajectory],
) -> None:
    runs = [replace(one.trajectory, reference=None) for one in recorded_failures()[::EVERY]]
    before, after = (
        [judge_by_signals(run) for run in which] for which in (runs, [change(run) for run in runs])
    )
    assert len(runs) > 10
    assert all(isinstance(verdict, Blame) for verdict in before)
    moved = [
        run.run_id
        for run, one, other in zip(runs, map(_step, before), map(_step, after), strict=True)
        if one != other
    ]
    assert moved == []


def _step(verdict: Verdict) -> int | None:
    return verdict.step if isinstance(verdict, Blame) else None
