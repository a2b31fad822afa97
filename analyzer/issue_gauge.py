"""Issues and alarms for ``/metrics``, how many and which: read now and then, shown at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from analyzer.metric_table import MAX_STANDING
from analyzer.modes import FailureMode
from analyzer.recurrence import Issue, IssueState
from analyzer.tallies.names import as_label
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

EVERY_S: Final = 15.0
"""As often as the shipped Prometheus asks."""


Series = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCounts:
    """What stands at one moment."""

    states: Mapping[str, int] = field(default_factory=dict)
    """How many issues are in each state."""
    standing: Series = field(default_factory=dict)
    """Issues to be told, by the labels of ``metric_table.STANDING``."""
    alarms: Series = field(default_factory=dict)
    """Agents with an alarm, by the labels of ``metric_table.ALARM``."""
    shares_low: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """What share agents surely break, by the labels of ``metric_table.SHARE_LOW``."""


def standing_of(issues: Iterable[Issue], now_ns: int) -> Series:
    """Return the series of those that are new or came back, and not muted; the newest, each once."""
    news = {IssueState.NEW, IssueState.REGRESSED}
    told = [issue for issue in issues if issue.state in news and not issue.is_muted(now_ns)]
    told.sort(key=lambda issue: issue.since_ns, reverse=True)
    marks = ((issue.fingerprint, issue.state) for issue in told[:MAX_STANDING])
    return {
        (as_label(mark.service), as_label(mark.agent), _mode(mark.mode), mark.id, state.value): 1
        for mark, state in marks
    }


def alarms_of(agents: Iterable[tuple[str, str]]) -> Series:
    """Return the series of agents with an alarm, given as service and agent, the newest first."""
    pairs = dict.fromkeys((as_label(service), as_label(agent)) for service, agent in agents)
    return dict.fromkeys(list(pairs)[:MAX_STANDING], 1)


def lows_of(shares: Iterable[tuple[str, str, float]]) -> Mapping[tuple[str, ...], float]:
    """Return the series of shares, given with service and agent; of those of one name the largest."""
    largest: dict[tuple[str, ...], float] = {}
    for service, agent, low in sorted(shares, key=lambda one: one[2], reverse=True):
        if len(largest) < MAX_STANDING:
            largest.setdefault((as_label(service), as_label(agent)), low)
    return largest


def _mode(name: str) -> str:
    return name if name in {"", *FailureMode} else FailureMode.OTHER.value


@dataclass(slots=True, kw_only=True)
class IssueGauge:
    """The counts as they were read last; none before the first time."""

    read: Callable[[], Awaitable[IssueCounts]]
    every_s: float = EVERY_S
    _counts: IssueCounts = field(default_factory=IssueCounts)

    def counts(self) -> IssueCounts:
        """Return what stood when it was last read."""
        return self._counts

    async def run(self) -> None:
        """Read until cancelled; while the store refuses, what was read before stands."""
        while True:
            try:
                self._counts = await self.read()
            except StoreError as error:
                logger.warning("issues cannot be counted", extra={"reason": str(error)})
            await asyncio.sleep(self.every_s)
