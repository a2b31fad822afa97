"""Issues in a running service: notes runs, counts them, heeds labels, has people told.

A shell: one task and one thread for the store. Whatever goes wrong here, with a disk or
a receiver, is logged and tried again; no span and no verdict waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from analyzer.issue_gauge import IssueCounts, alarms_of, lows_of, standing_of
from analyzer.issues.counting import CountingRules, IssueCounting, Sources
from analyzer.issues.report import IssueReports, Wanted, to_json
from analyzer.issues.rows import NotedRow, NotedRun, noted_row
from analyzer.issues.store import IssueStore
from analyzer.labels.store import LabelStore
from analyzer.notifiers import (
    Courier,
    NoticeTally,
    Poster,
    Standing,
    opened_session,
)
from analyzer.notifiers.alertmanager import Alert, of_issue, of_watch
from analyzer.notifiers.opening import Receivers
from analyzer.recurrence import Issue, IssueState
from analyzer.tallies import Move
from collector_processor.analyst import Analysis
from collector_processor.otlp import Tenant
from collector_processor.runstore import RunStore
from collector_processor.store_thread import StoreThread
from collector_processor.stored import StoredVerdict
from collector_processor.stores import StoreError
from collector_processor.writeback import Gist
from semconv.model import Status, Trajectory

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY_S: Final = 2.0
"""How often labels are looked for: another process may have written some."""
_COMPANY_S: Final = 0.2
"""How long a committed verdict waits for others to be counted with it: nobody waits for the count."""
_PRUNE_EVERY_S: Final = 3600.0
_STORE_PAUSE_S: Final = 10.0
_MOST_COUNTED: Final = 1_000
"""Of more, those that are new or came back are counted before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskParts:
    """What the desk is made from."""

    store: IssueStore
    rules: CountingRules
    receivers: Receivers = field(default_factory=Receivers)
    moved: Callable[[Move], None] = lambda _move: None
    """Called on the event loop for each run counted or moved; must be quick and must not raise."""
    now_ns: Callable[[], int] = time.time_ns


class IssueDesk:
    """Issues of one process."""

    def __init__(self, parts: DeskParts, open_verdicts: Callable[[], RunStore], labels: LabelStore) -> None:
        """Make it.

        Args:
            parts: what it is made from.
            open_verdicts: opens the run store once more: this thread has a connection of its own.
            labels: likewise its own.
        """
        self._store: Final = parts.store
        self._verdicts: Final = open_verdicts()
        self._labels: Final = labels
        self._now_ns: Final = parts.now_ns
        self._moved: Final = parts.moved
        self._receivers: Final = parts.receivers
        sources = Sources(issues=parts.store, verdicts=self._verdicts, labels=labels)
        self._counting: Final = IssueCounting(sources, parts.rules)
        self._reports: Final = IssueReports(parts.store, is_fair_sample=parts.rules.is_fair_sample)
        self._thread: Final = StoreThread(name="issues")
        self._unnoted: Final[deque[Sequence[NotedRow]]] = deque()
        self._wake: Final = asyncio.Event()
        self._tellers: list[Courier | Standing] = []
        names = [rules.name for rules in parts.receivers.couriers]
        names += ["alertmanager"] if parts.receivers.alertmanager else []
        self.tallies: Final = tuple(NoticeTally(receiver=name) for name in names)
        """What became of notices, for each receiver."""

    def close(self) -> None:
        """End the thread and close the files."""
        self._thread.close()
        self._store.close()
        self._verdicts.close()
        self._labels.close()

    async def keep(self, tenant: Tenant, analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
        """Note runs whose verdicts are about to be committed; where the disk refuses, they do not count."""
        await self.keep_noted(self._counting.rows_of(tenant, analyses))

    async def keep_noted(self, rows: Sequence[NotedRow]) -> None:
        """Do the same with runs that were made ready for it."""
        self._unnoted.append(rows)
        try:
            await self._in_thread(self._note)
        except StoreError as error:
            logger.warning("runs cannot be counted in issues", extra={"reason": str(error)})

    def _note(self) -> None:
        """Note all that waits: what came during a commit goes together in the next."""
        waiting: list[NotedRow] = []
        while self._unnoted:
            waiting += self._unnoted.popleft()
        if waiting:
            self._counting.note(waiting, self._now_ns())

    def committed(self, gist: Gist, verdict: StoredVerdict) -> None:
        """Handle a committed verdict; a run that could not be read was not noted before, so note it here."""
        if verdict.status == Status.ERROR and not gist.acting:
            noted = NotedRun(tenant=verdict.tenant, run_id=verdict.run_id, status=verdict.status, agents=())
            self._unnoted.append([noted_row(noted)])
        self._wake.set()

    async def run(self) -> None:
        """Count and tell until cancelled."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for teller in await self._open_tellers(stack):
                group.create_task(teller.run())
            await self._count()

    async def _count(self) -> None:
        prune_at = 0.0
        while True:
            self._wake.clear()
            try:
                if time.monotonic() >= prune_at:
                    await self._in_thread(self._store.prune, self._now_ns())
                    prune_at = time.monotonic() + _PRUNE_EVERY_S
                await self.count_some()
            except StoreError as error:
                logger.warning("issues wait for the store", extra={"reason": str(error)})
                await asyncio.sleep(_STORE_PAUSE_S)
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_COMPANY_S)

    async def count_some(self) -> None:
        """Count what is noted and durable, move what was labelled, and have tellers look."""

        def count() -> int:
            self._note()
            return self._counting.settle(self._now_ns()) + self._counting.heed_labels()

        try:
            changed = await self._in_thread(count)
        finally:  # what was counted before the disk refused stays counted
            for move in self._counting.take_moves():
                self._moved(move)
        for teller in self._tellers:
            if changed or isinstance(teller, Courier):  # a command may have resolved one
                teller.wake()

    async def issues(self, wanted: Wanted) -> list[tuple[Tenant, Issue, tuple[int, ...]]]:
        """Return issues as they stand now, each with its failures a day."""

        def read() -> list[tuple[Tenant, Issue, tuple[int, ...]]]:
            now_ns = self._now_ns()
            found = self._reports.issues(wanted, now_ns)
            return [(tenant, issue, self._reports.trend(tenant, issue, now_ns)) for tenant, issue in found]

        return await self._in_thread(read)

    async def counts(self) -> IssueCounts:
        """Return how many issues are in each state now, which are news, and who has an alarm."""

        def read() -> IssueCounts:
            now_ns = self._now_ns()
            issues = [issue for _, issue in self._reports.issues(Wanted(limit=_MOST_COUNTED), now_ns)]
            states = Counter(issue.state for issue in issues)
            alarms = reversed(self._counting.counts.alarms())  # the newest first
            return IssueCounts(
                states={state.value: states[state] for state in IssueState},
                standing=standing_of(issues, now_ns),
                alarms=alarms_of((one.place.service, one.place.agent) for one in alarms),
                shares_low=lows_of(self._reports.lows(now_ns)),
            )

        return await self._in_thread(read)

    @property
    def repetitions(self) -> int:
        """How many failures were counted in issues that had been told of, since the process began."""
        return self._counting.repetitions

    async def documents(self, wanted: Wanted) -> list[dict[str, Any]]:
        """Return issues as programs get them."""

        def read() -> list[dict[str, Any]]:
            now_ns = self._now_ns()
            return [to_json(report, now_ns) for report in self._reports.reports(wanted, now_ns)]

        return await self._in_thread(read)

    async def tenants_of(self, issue_id: str) -> list[Tenant]:
        """Return who has an issue of this id."""
        return await self._in_thread(self._store.tenants_of, issue_id)

    async def resolve(self, tenant: Tenant, issue_id: str) -> bool:
        """Close an issue; ``False`` where there is none of this id."""
        found = await self._in_thread(self._counting.resolve, tenant, issue_id, self._now_ns())
        self._look()
        return found is not None

    async def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        """Tell nobody of an issue until then; ``False`` where there is none of this id."""
        found = await self._in_thread(self._counting.mute, tenant, issue_id, until_ns)
        self._look()
        return found is not None

    def _look(self) -> None:
        for teller in self._tellers:
            teller.wake()

    async def _standing(self) -> Sequence[Alert]:
        def read() -> list[Alert]:
            now_ns = self._now_ns()
            found = self._reports.issues(Wanted(), now_ns)
            alerts = [alert for tenant, issue in found if (alert := of_issue(tenant, issue, now_ns))]
            return [of_watch(watched) for watched in self._counting.counts.alarms()] + alerts

        return await self._in_thread(read)

    async def _open_tellers(self, stack: AsyncExitStack) -> list[Courier | Standing]:
        receivers = self._receivers
        if not receivers.urls and not receivers.alertmanager:
            return []
        session = await stack.enter_async_context(opened_session())
        tallies = iter(self.tallies)
        for rules, url in zip(receivers.couriers, receivers.urls, strict=True):
            poster = Poster(url=url, session=session, secret=receivers.secret)
            tally = next(tallies)
            self._tellers.append(
                Courier(rules, poster, self._store, self._in_thread, self._now_ns, tally=tally)
            )
        if receivers.alertmanager:
            poster = Poster(url=receivers.alertmanager, session=session)
            standing = Standing(
                poster,
                receivers.links,
                self._standing,
                self._now_ns,
                receivers.every_s,
                tally=next(tallies),
            )
            self._tellers.append(standing)
        return self._tellers

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        return await self._thread.run(call, *args)


def both(
    one: Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]],
    other: Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]],
) -> Callable[[Tenant, Sequence[tuple[Trajectory, Analysis]]], Awaitable[None]]:
    """Return what keeps runs in two places."""

    async def keep(tenant: Tenant, analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
        await asyncio.gather(one(tenant, analyses), other(tenant, analyses))

    return keep
