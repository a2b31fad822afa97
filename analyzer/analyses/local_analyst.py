"""Analysts that judge in this process or its workers: what the service needs to know of them. Not pure.

The worker processes judge the runs of a service. Its own process and that of the pages judge only what no
worker takes, so they import all that judges a run when they first need it, in a thread: that takes a quarter
of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, Self, Unpack, runtime_checkable

from analyzer.analyses.consulting import Consulting, Order, Stepping
from analyzer.inquiry.method import Steps
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Analyst, Earned

if TYPE_CHECKING:
    from analyzer.analyses.analyst import RunAnalyst
    from analyzer.inquiry.method import Model
    from analyzer.methods.ranker import Ranker
    from semconv.model import Attribution, Trajectory


@runtime_checkable
class LocalAnalyst(Analyst, Protocol):
    """An analyst whose work a worker process of this machine can do."""

    @property
    def model(self) -> Model | None:
        """The model that it asks."""
        ...

    @property
    def ranker(self) -> Ranker | None:
        """The trained ranker that it uses."""
        ...

    @property
    def knows_runs(self) -> bool:
        """Whether it compares a run with others of its workflow."""
        ...

    def in_steps(self, stepping: Callable[[Callable[[Order], Steps]], Stepping]) -> Self:
        """Return the analyst with its analyses run by ``stepping``, which is given how one begins."""
        ...

    async def consult(
        self, trajectory: Trajectory, method: str, model: Model | None, **how: Unpack[Consulting]
    ) -> Attribution:
        """Triage and attribute by a method and a model; computation does not block the event loop."""
        ...

    def unasked(self, trajectory: Trajectory) -> Analysis | None:
        """Triage and attribute a run; ``None`` if that might need a model."""
        ...


class LateAnalyst:
    """An analyst without model and ranker that is opened when this process first judges a run."""

    model: Final = None
    ranker: Final = None
    knows_runs: Final = False

    def __init__(self, open_now: Callable[[], RunAnalyst]) -> None:
        """Create it; ``open_now`` imports and opens the analyst, and must not fail."""
        self._open_now: Final = open_now

    @cached_property
    def opened(self) -> RunAnalyst:
        """The analyst; opened by the first caller, which should be in a thread."""
        return self._open_now()

    def in_steps(self, stepping: Callable[[Callable[[Order], Steps]], Stepping]) -> LateAnalyst:
        """Return the analyst with its analyses run by ``stepping``."""
        return LateAnalyst(lambda: self.opened.in_steps(stepping))

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Triage and attribute a run with all configured methods."""
        return await (await self._ready()).analyse(trajectory, earned)

    async def consult(
        self, trajectory: Trajectory, method: str, model: Model | None, **how: Unpack[Consulting]
    ) -> Attribution:
        """Triage and attribute by a method and a model."""
        return await (await self._ready()).consult(trajectory, method, model, **how)

    def unasked(self, trajectory: Trajectory) -> Analysis | None:
        """Triage and attribute a run; called in threads."""
        return self.opened.unasked(trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute a run that has not ended; called in threads."""
        return self.opened.glance(trajectory)

    async def _ready(self) -> RunAnalyst:
        return await asyncio.to_thread(lambda: self.opened)


__all__ = ["LateAnalyst", "LocalAnalyst"]
