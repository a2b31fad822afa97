"""A recorded run with its label: input of data sets, ranker training and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from semconv.model import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The agent and step that an annotator blames; ``None`` if not given."""

    agent: str | None
    step: int | None
    """0-based index into the conversation."""
    category: str = ""
    """The kind of mistake, in the annotator's own taxonomy."""
    trust: float = 1.0
    """Weight in training: 1 for a person's label."""
    is_refuted: bool = False
    """An experiment showed that the step is not the decisive one; ``agent`` is then ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded run, with its label if it has one."""

    trajectory: Trajectory
    label: Label | None = None
    source: str = ""
    subset: str = ""
