"""Issues in a running service: counted for metrics, announced to receivers.

Not pure. Runs are counted where their verdicts are committed (``beside_verdicts.py``); all other writes
use the store's thread too, and reads have a thread and a connection of their own. Counts for ``/metrics`` are
read periodically and shown without waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from analyzer.inquiry.verdict import FailureMode
from analyzer.issues.agent_counts import AgentCounts
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.notifier import DeliveryCounters, InDb, Notifier, NotifierRules, opened_session
from analyzer.issues.receivers import Receiver
from analyzer.issues.recurrence import Issue, IssueState, Notice
from analyzer.issues.report import IssueReports, Wanted
from analyzer.issues.workflow_reports import WorkflowReport, WorkflowReports
from analyzer.telemetry.metric import as_label
from analyzer.telemetry.metric_table import MAX_STANDING
from analyzer.telemetry.verdict_counters import Move
from collector_processor.core.disk import StoreError
from collector_processor.core.records import StoredVerdict, VerdictSummary
from collector_processor.store.database.connection import StoreThread

logger = logging.getLogger(__name__)

WORKFLOWS_EVERY_S: Final = 300
"""Seconds between readings of workflows, which take up to a second."""
EVERY_S: Final = 15.0
"""Seconds between reads: the scrape interval of the shipped Prometheus."""

Series = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCounts:
    """Issues, alarms and shares at one moment."""

    states: Mapping[str, int] = field(default_factory=dict)
    """Number of issues in each state."""
    standing: Series = field(default_factory=dict)
    """1 for each issue that is new or regressed, and not muted, by ``issue_metrics.STANDING``."""
    alarms: Series = field(default_factory=dict)
    """1 for each agent with an alarm, by the labels of ``issue_metrics.ALARM``."""
    shares_low: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """Lower bounds of agents' shares of failures, by the labels of ``issue_metrics.SHARE_LOW``."""
    regressed: Series = field(default_factory=dict)
    """1 for each workflow whose newest version fails more often, by ``issue_metrics.WORKFLOW_REGRESSED``."""
    passed_shares: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """Shares of passed runs, by the labels of ``issue_metrics.WORKFLOW_PASSED``."""


def standing_of(issues: Iterable[Issue], now_ns: int) -> Series:
    """Return the series of issues that are new or regressed, and not muted; the newest ``MAX_STANDING``."""
    news = {IssueState.NEW, IssueState.REGRESSED}
    shown = [issue for issue in issues if issue.state in news and not issue.is_muted(now_ns)]
    shown.sort(key=lambda issue: issue.since_ns, reverse=True)
    marks = ((issue.fingerprint, issue.state) for issue in shown[:MAX_STANDING])
    return {
        (as_label(mark.service), as_label(mark.agent), _mode(mark.mode), mark.id, state.value): 1
        for mark, state in marks
    }


def alarms_of(agents: Iterable[tuple[str, str]]) -> Series:
    """Return the series of agents with an alarm, given as service and agent, the newest first; bounded."""
    pairs = dict.fromkeys((as_label(service), as_label(agent)) for service, agent in agents)
    return dict.fromkeys(list(pairs)[:MAX_STANDING], 1)


def lows_of(shares: Iterable[tuple[str, str, float]]) -> Mapping[tuple[str, ...], float]:
    """Return the highest lower bounds, given as service, agent and bound; one per label pair, limited."""
    largest: dict[tuple[str, ...], float] = {}
    for service, agent, low in sorted(shares, key=lambda one: one[2], reverse=True):
        if len(largest) < MAX_STANDING:
            largest.setdefault((as_label(service), as_label(agent)), low)
    return largest


def regressed_of(reports: Iterable[WorkflowReport]) -> Series:
    """Return the series of workflows whose newest version fails more often."""
    return {
        (as_label(report.service), as_label(report.workflow), as_label(report.versions[-1].release)): 1
        for report in reports
        if report.newest is not None and report.newest.is_alarm
    }


def passed_of(reports: Iterable[WorkflowReport]) -> Mapping[tuple[str, ...], float]:
    """Return the share of recent runs that passed, for each workflow with recent runs of known outcome."""
    return {
        (as_label(report.service), as_label(report.workflow)): report.recent[0] / report.recent[1]
        for report in reports
        if report.recent[1]
    }


def _mode(name: str) -> str:
    return name if name in {"", *FailureMode} else FailureMode.OTHER.value


@dataclass(slots=True, kw_only=True)
class IssueCountsReader:
    """Caches the counts last read from the store; empty before the first read."""

    read: Callable[[], Awaitable[IssueCounts]]
    every_s: float = EVERY_S
    _counts: IssueCounts = field(default_factory=IssueCounts)

    def counts(self) -> IssueCounts:
        """Return the counts of the last read."""
        return self._counts

    async def run(self) -> None:
        """Read until cancelled; while the store fails, the last counts are shown."""
        while True:
            try:
                self._counts = await self.read()
            except StoreError as error:
                logger.warning("issues cannot be counted", extra={"reason": str(error)})
            await asyncio.sleep(self.every_s)


T = TypeVar("T")

_PRUNE_EVERY_S: Final = 3600.0
_COMPANY_S: Final = 0.2
"""Pause before receivers are notified: runs that are counted together are announced together."""
_MOST_COUNTED: Final = 1_000
"""Bound on issues read for the counts; new and regressed ones are read first."""


@dataclass(eq=False, slots=True, kw_only=True)
class IssueService:
    """Issues of one process."""

    counting: IssueCounting
    """Counts runs, on the connection that writes."""
    store: IssueStore
    """The store, on the connection that writes."""
    reader: IssueStore
    """The store, on a connection of its own that is closed with the service."""
    in_db: InDb
    receivers: tuple[Receiver, ...] = ()
    moved: Callable[[Move], None] = lambda _move: None
    """Called on the event loop for each run counted or moved; must be quick and must not raise."""
    now_ns: Callable[[], int] = time.time_ns
    delivery: tuple[DeliveryCounters, ...] = field(init=False)
    """Delivery counts of notices, for each receiver."""
    _reports: IssueReports = field(init=False)
    _watches: AgentCounts = field(init=False)
    _workflow_reports: WorkflowReports = field(init=False)
    _workflows: tuple[int, Sequence[WorkflowReport]] = (0, ())
    """The last reading of workflows, and its time."""
    _thread: StoreThread = field(default_factory=lambda: StoreThread(name="issues"))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _notifiers: list[Notifier] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reports = IssueReports(self.reader, is_fair_sample=self.counting.rules.is_fair_sample)
        self._watches = AgentCounts(self.reader)
        self._workflow_reports = WorkflowReports(self.reader)
        self.delivery = tuple(DeliveryCounters(receiver=receiver.name) for receiver in self.receivers)

    def close(self) -> None:
        """Stop the reading thread and close its connection."""
        self._thread.close()
        self.reader.close()

    def counted(self) -> None:
        """Process the counts made so far: update the metrics and notify receivers."""
        for move in self.counting.take_moves():
            self.moved(move)
        self._changed.set()

    def committed(self, _gist: VerdictSummary, _verdict: StoredVerdict) -> None:
        """Handle a committed verdict, whose run has been counted."""
        self.counted()

    async def run(self) -> None:
        """Notify receivers and delete old data until cancelled."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for notifier in await self._open_notifiers(stack):
                group.create_task(notifier.run())
            group.create_task(self._prune())
            while True:
                await self._changed.wait()
                await asyncio.sleep(_COMPANY_S)
                self._changed.clear()
                self._look()

    async def _prune(self) -> None:
        while True:
            try:
                await self.in_db(self.store.prune, self.now_ns())
            except StoreError as error:
                logger.warning("old issues cannot be pruned", extra={"reason": str(error)})
            await asyncio.sleep(_PRUNE_EVERY_S)

    async def counts(self) -> IssueCounts:
        """Return the number of issues in each state, the new or regressed ones, and agents with an alarm."""

        def read() -> IssueCounts:
            now_ns = self.now_ns()
            issues = [issue for _, issue in self._reports.issues(Wanted(limit=_MOST_COUNTED), now_ns)]
            states = Counter(issue.state for issue in issues)
            alarms = reversed(self._watches.alarms())  # newest first
            return IssueCounts(
                states={state.value: states[state] for state in IssueState},
                standing=standing_of(issues, now_ns),
                alarms=alarms_of((alarm.place.service, alarm.place.agent) for alarm in alarms),
                shares_low=lows_of(self._reports.lows(now_ns)),
                regressed=regressed_of(self._workflows_now(now_ns)),
                passed_shares=passed_of(self._workflows_now(now_ns)),
            )

        return await self._in_thread(read)

    def _workflows_now(self, now_ns: int) -> Sequence[WorkflowReport]:
        """Return the workflows, read at most every ``WORKFLOWS_EVERY_S``; none if the sample is unfair."""
        read_ns, reports = self._workflows
        is_due = not reports or now_ns - read_ns >= WORKFLOWS_EVERY_S * 10**9
        if self.counting.rules.is_fair_sample and is_due:
            reports = self._workflow_reports.reports(now_ns)
            self._workflows = (now_ns, reports)
        return reports

    @property
    def repetitions(self) -> int:
        """Number of failures since the process started in issues that had already been reported."""
        return self.counting.repetitions

    async def announce(self, notice: Notice) -> None:
        """Queue a notice that no counted run causes, for every receiver."""

        def queue() -> None:
            with self.store.db.transaction():
                for receiver in self.receivers:
                    self.store.queue_notice(receiver.name, notice)

        if self.receivers:
            await self.in_db(queue)
            self._look()

    def _look(self) -> None:
        for notifier in self._notifiers:
            notifier.wake()

    async def _open_notifiers(self, stack: AsyncExitStack) -> list[Notifier]:
        if not self.receivers:
            return []
        session = await stack.enter_async_context(opened_session())
        for receiver, counters in zip(self.receivers, self.delivery, strict=True):
            rules, send = NotifierRules(name=receiver.name), receiver.open(session)
            notifier = Notifier(rules, send, self.store, self.in_db, self.now_ns, counters=counters)
            self._notifiers.append(notifier)
        return self._notifiers

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        return await self._thread.run(call, *args)
