"""Baselines, which read no content: a method must beat them to be of use. Pure. Source: this project."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.inquiry.match_agents import normalise
from analyzer.inquiry.method import Inquiry, answered
from semconv.model import Abstention, Blame, Ranked, Status, Step, StepKind, Trajectory, Verdict

_RANKED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStep:
    """Blames a step drawn uniformly at random, always the same one for the same content."""

    name: str = "random"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        order = sorted(trajectory.steps, key=draw)
        return answered(_verdict(order, 1 / max(1, len(order)), "drawn at random"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAgentStep:
    """Blames the first step after step 0 that is neither a tool's nor a person's."""

    name: str = "first-agent-step"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        silent = (StepKind.TOOL, StepKind.HUMAN, StepKind.OTHER)
        order = sorted(
            trajectory.steps, key=lambda step: (step.index == 0 or step.kind in silent, step.index)
        )
        return answered(_verdict(order, 1 / max(1, len(order)), "the first step of an agent after step 0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantStep:
    """Blames the same step in every run; the next best if a run is too short."""

    name: str = "constant"
    steps: tuple[int, ...] = (1,)
    """Best first."""
    shares: tuple[float, ...] = ()
    """Share of the counted runs in which each step was decisive."""

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        place = {step: number for number, step in enumerate(self.steps)}
        order = sorted(
            trajectory.steps,
            key=lambda step: (place.get(step.index, len(place)), abs(step.index - self.steps[0]), step.index),
        )
        share = dict(zip(self.steps, self.shares, strict=False)).get(order[0].index if order else -1)
        probability = 1 / max(1, len(order)) if share is None else share
        return answered(_verdict(order, probability, f"always step {self.steps[0]}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantAgent:
    """Blames the first step of the same agent in every run, or of the next best agent that the run has."""

    name: str = "constant-agent"
    agents: tuple[str, ...] = ()
    """Normalised names, best first; if empty, the first step after step 0 is blamed."""
    shares: tuple[float, ...] = ()
    """Share of the counted runs in which each agent's first step was decisive."""

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Return the verdict at once, without yielding a prompt."""
        place = {agent: number for number, agent in enumerate(self.agents)}

        def rank(step: Step) -> tuple[int, bool, int]:
            return place.get(normalise(step.agent), len(place)), step.index == 0, step.index

        order = sorted(trajectory.steps, key=rank)
        shares = dict(zip(self.agents, self.shares, strict=False))
        share = shares.get(normalise(order[0].agent)) if order else None
        probability = 1 / max(1, len(order)) if share is None else share
        return answered(_verdict(order, probability, "the first step of the agent most often to blame"))


def draw(step: Step) -> bytes:
    """Rank by a digest of the content: no random generator, no state, no seed."""
    return hashlib.sha256(f"{step.index}\x00{step.agent}\x00{step.output}".encode()).digest()


def _verdict(order: Sequence[Step], probability: float, reason: str) -> Verdict:
    if not order:
        return Abstention(status=Status.ERROR, reason="the run has no steps to blame")
    others = min(probability, (1 - probability) / max(1, len(order[:_RANKED]) - 1))
    ranking = tuple(
        Ranked(step=step.index, agent=step.agent, probability=round(others if place else probability, 4))
        for place, step in enumerate(order[:_RANKED])
    )
    first = ranking[0]
    return Blame(
        agent=first.agent, step=first.step, reason=reason, confidence=first.probability, ranking=ranking
    )
