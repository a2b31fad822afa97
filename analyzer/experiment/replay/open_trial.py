"""Open trial of a gateway: its address, its end, and the requests that end with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from analyzer.experiment.replay.stdio import StandIns
from analyzer.experiment.replay.trial import Trial, TrialReport
from analyzer.experiment.replay.upstream import TIMEOUT
from semconv.record import record

_HANGING_SHARE: Final = 0.5
"""A live call that its client gave up counts as the upstream's failure if it took this share of the trial's
time: in a workflow that loops until the time limit, a call has nearly always just begun."""


@record
class OpenTrial:
    """A trial that may be used until it expires."""

    trial: str
    """128 random bits; any client that knows the id may use the trial."""
    root_url: str
    """``http://HOST:PORT/t/TRIAL``"""

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI's clients; Anthropic's append ``/v1`` themselves."""
        return f"{self.root_url}/v1"


class RunningTrial:
    """One open trial in the gateway: its requests under way, and when it ends."""

    def __init__(self, trial: Trial, lifetime_s: float, stand_ins: StandIns) -> None:
        self.trial: Final = trial
        self.expires_s: Final = time.monotonic() + lifetime_s
        self._hanging_s: Final = lifetime_s * _HANGING_SHARE
        self.stand_ins: Final = stand_ins
        self.served: Final[dict[str, list[Any]]] = {}
        """The conversation up to each served response of OpenAI's responses API, by its id."""
        self.live: Final[dict[int, float]] = {}
        """Start times of live calls under way, by serial number."""
        self._under_way: Final[set[asyncio.Timeout]] = set()

    @asynccontextmanager
    async def until_its_end(self) -> AsyncIterator[None]:
        """Bound a request to an upstream by the trial: an answer may trickle without end.

        Raises:
            TimeoutError: the trial expired or was closed meanwhile.
        """
        async with asyncio.timeout(max(0.0, self.expires_s - time.monotonic())) as limit:
            self._under_way.add(limit)
            try:
                yield
            finally:
                self._under_way.discard(limit)

    def is_hanging(self, began_s: float) -> bool:
        """Say whether a live call takes so long that the trial's time is spent on it."""
        return time.monotonic() - began_s >= self._hanging_s

    def end(self) -> TrialReport:
        """End its requests under way, and return its report."""
        for serial in [serial for serial, began_s in self.live.items() if self.is_hanging(began_s)]:
            del self.live[serial]
            self.trial.failed(serial, TIMEOUT)
        for limit in self._under_way:
            if not limit.expired():
                limit.reschedule(0.0)
        self.stand_ins.remove()
        return self.trial.report()
