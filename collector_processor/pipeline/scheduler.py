"""The slow lane: arrivals in, verdicts committed. The shell around the pure stages.

One task owns the assembler and the hold deadlines; examinations run beside it,
a bounded number at once, one at a time for each trace. Whatever goes wrong
here, the fast lane has acknowledged and forwarded: telemetry never waits for it
in late mode, and at most ``hold_max`` in hold mode.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from collector_processor.assembler import Assembler, AssemblerLimits, Released, TraceKey
from collector_processor.examine import MAX_ANALYSES, Examined, Examiner
from collector_processor.inbox import Inbox, key_of
from collector_processor.notes import TraceArrival
from collector_processor.store_thread import STORE_RETRY_S, patiently
from collector_processor.stores import StoreError, is_refusal

logger = logging.getLogger(__name__)

_MAX_GIVEN_UP: Final = 500
"""Evicted traces of which one transaction says so."""
_MAX_LOST: Final = 100_000
"""Those beyond get no verdict where no disk takes one; they are counted like all."""
_BATCH: Final = 500
"""Arrivals that are taken up with one question to the store."""
_COMPANY_S: Final = 0.02
"""Between two looks at what came and what is due: traces that end together are examined together."""
_MAX_LET_GO: Final = 100_000
"""Traces remembered as no longer held; a forgotten one would be held once more, to no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """How the slow lane behaves."""

    assembler: AssemblerLimits
    hold_max_s: float | None = None
    """Seconds an agent trace may wait for its verdict; ``None`` is late mode."""
    concurrency: int = 16
    rewrites_max_s: float = 2.0
    """What a shutdown may take beyond its deadline for committed replacements: disk, and no model."""
    releases_max_s: float = 10.0
    """The same, for all else that is held: a disk that takes nothing may never let it go."""
    max_inbox_bytes: int = 64 << 20
    """Of notes that are not looked up yet: a quarter of a million spans."""


class Pipeline:
    """The slow lane of one process; lives on one event loop."""

    def __init__(
        self,
        examiner: Examiner,
        limits: PipelineLimits,
        monotonic: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._examiner: Final = examiner
        self._limits: Final = limits
        self._monotonic: Final = monotonic
        self._pause: Final = pause
        self._assembler: Final = Assembler(limits.assembler)
        self._inbox: Final = Inbox(limits.max_inbox_bytes)
        self._wake: Final = asyncio.Event()
        self._busy: set[TraceKey] = set()
        self._queue: Final[OrderedDict[TraceKey, Released]] = OrderedDict()
        """Those of ``_busy`` that wait for a free place: only while the journal keeps their spans."""
        self._examined_now = 0
        self._lost: Final[dict[TraceKey, None]] = {}
        """Evicted, and no verdict says so yet."""
        self.evictions = 0
        """Traces that were evicted before they were analysed."""
        self._is_giving_up = False
        self._waiting: dict[TraceKey, frozenset[TraceKey]] = {}
        """Complete traces whose run has other traces that are still open, and these."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._holds: dict[TraceKey, float] = {}
        self._hold_timers: list[tuple[float, TraceKey]] = []
        self._claimed: Final[set[TraceKey]] = set()
        """Held for a verdict that is being committed; no deadline lets go of them."""
        self._let_go: OrderedDict[TraceKey, None] = OrderedDict()
        self._releases: Final[set[asyncio.Task[None]]] = set()
        """Held rows on their way to the forwarder, whoever waits for that."""

    @property
    def open_traces(self) -> int:
        """Traces that wait for their completion."""
        return len(self._assembler)

    @property
    def under_way(self) -> int:
        """Traces being examined, or waiting for a free place."""
        return len(self._busy)

    def holds(self, key: TraceKey) -> bool:
        """Whether spans of this trace must wait for a verdict (asked by the fast lane)."""
        return self._limits.hold_max_s is not None and key not in self._let_go

    def feed(self, arrival: TraceArrival) -> None:
        """Take note of spans that are durable now. Called on the event loop; never blocks."""
        if arrival.is_held:  # at once: a shutdown lets go of what this has not looked up yet, too
            self._hold(key_of(arrival), self._monotonic())
        for oldest in self._inbox.put(arrival):
            # As if it were new: how often it was analysed, its examination will see (``too_early``).
            self._open_or_add(oldest, 0)
        self._wake.set()

    def evicted(self, keys: Iterable[TraceKey]) -> None:
        """Take note that traces lost their spans to the retention quota. Called on the event loop."""
        gone = frozenset(keys)
        unanalysed = {key for key in gone if self._assembler.is_open(key) or key in self._waiting}
        for key in unanalysed:  # the others have their verdict, or are at it
            self._assembler.forget(key)
            self._waiting.pop(key, None)
        for key in gone & self._queue.keys():  # analyses may be slower than runs for days
            along = self._queue.pop(key).along
            self._busy.difference_update((key, *along))
            unanalysed.add(key)  # perhaps open as well: a glance at it was due
            for left in along:  # runs by themselves now; those evicted too say so at their turn
                self._assembler.receive(left, (), 0, self._monotonic())
                self._wake.set()
        if unanalysed:
            logger.warning("traces evicted before their analysis", extra={"traces": len(unanalysed)})
            self._lose(unanalysed)
        self._look_again(gone)

    async def recover(self, arrivals: Iterable[TraceArrival]) -> None:
        """Resume where the last process stopped.

        Args:
            arrivals: what the journal still knows of agent traces, oldest first.
        """
        await self._examiner.finish_rewrites()
        absent = await self._examiner.absent_parents()
        arriving = await self._examiner.arriving_parents()
        self._assembler.learned.recall(((one.tenant, one.kind) for one in absent), arriving)
        coming = iter(arrivals)
        while batch := tuple(islice(coming, _BATCH)):
            known = await self._examiner.analyses_of(map(key_of, batch))
            freed: set[TraceKey] = set()
            for arrival in batch:
                is_decided = arrival.seq <= known[key_of(arrival)][1]
                if is_decided:
                    self._assembler.remember(key_of(arrival), arrival.notes, self._monotonic())
                else:
                    self.feed(arrival)
                # Killed before it could be let go, or held by a process that ran in hold mode.
                if arrival.is_held and (is_decided or self._limits.hold_max_s is None):
                    freed.add(key_of(arrival))
            await asyncio.gather(*map(self._examiner.let_go, freed))
            await self._absorb()  # all that is kept for analysis would be more than may wait

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._sleep()
            await self.turn()
            await asyncio.sleep(_COMPANY_S)

    async def turn(self) -> None:
        """Do what is due now, without waiting for the examinations that it starts."""
        await self._absorb()
        now = self._monotonic()
        if arrived := self._assembler.learned.take_arrived():
            self._start(self._examiner.parents_arrived(arrived))
        for released in self._assembler.take_ready(now):
            self._begin(released)
        await self._release_overdue(now)

    async def settle(self) -> None:
        """Wait until no examination is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, deadline_s: float) -> None:
        """Wait for examinations under way, until the deadline; then let go of what is held.

        Traces that are not complete stay in the journal: the next start resumes them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self.settle()
        self._queue.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._finish_rewrites()
        try:
            async with asyncio.timeout(self._limits.releases_max_s):
                await self._let_go_of_all(self._holds)
                await asyncio.gather(*self._releases)  # those too for which nobody waits any more
        except TimeoutError:
            logger.warning("stopped before all that was held could go on: the next start takes it up")

    async def _finish_rewrites(self) -> None:
        """Let go of what a verdict is being committed for, as what was committed; if need be that waits."""
        if self._claimed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.rewrites_max_s):
                    await patiently(self._examiner.finish_rewrites, self._pause)
                    await self._let_go_of_all(self._claimed)

    async def _sleep(self) -> None:
        deadlines = [at for at in (self._assembler.next_deadline(), self._next_hold()) if at is not None]
        wait = max(0.0, min(deadlines) - self._monotonic()) if deadlines else None
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _next_hold(self) -> float | None:
        return self._hold_timers[0][0] if self._hold_timers else None

    async def _absorb(self) -> None:
        for _ in range(0, len(self._inbox), _BATCH):  # and not what comes meanwhile: timers are due too
            batch = self._inbox.take(_BATCH)
            analyses = await self._analyses(map(key_of, batch))
            for arrival in batch:
                await self._take_up(arrival, analyses)

    async def _take_up(self, arrival: TraceArrival, before: Mapping[TraceKey, int]) -> None:
        key = key_of(arrival)
        analyses = 0 if self._assembler.is_open(key) else before.get(key, 0)
        if analyses < MAX_ANALYSES:
            self._open_or_add(arrival, analyses)
        elif arrival.is_held:
            await self._let_go_of(key)

    def _open_or_add(self, arrival: TraceArrival, analyses: int) -> None:
        key, now = key_of(arrival), self._monotonic()
        self._assembler.receive(
            key,
            arrival.notes,
            arrival.byte_count,
            now,
            analyses=analyses,
            received_ns=arrival.received_ns,
        )
        if arrival.is_held:
            self._hold(key, now)

    async def _analyses(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, int]:
        """Return how often traces were analysed before; one under way or put off counts as a first."""
        closed = {key: key in self._busy or key in self._waiting for key in keys if not self._is_open(key)}
        if not closed:
            return {}
        try:
            known = await self._examiner.analyses_of(closed)
        except StoreError as error:  # timers wait for no disk, and an examination sees it
            logger.warning("earlier analyses cannot be looked up", extra={"reason": str(error)})
            return closed
        return {key: max(known[key][0], was_complete) for key, was_complete in closed.items()}

    def _hold(self, key: TraceKey, now: float) -> None:
        if self._limits.hold_max_s is not None and key not in self._holds:
            self._holds[key] = now + self._limits.hold_max_s
            heappush(self._hold_timers, (self._holds[key], key))

    def _begin(self, released: Released) -> None:
        keys = (released.key, *released.along)
        if not self._busy.isdisjoint(
            keys
        ):  # more spans came during its analysis: wait for the analysis to end
            for key in keys:
                self._assembler.receive(key, (), 0, self._monotonic(), analyses=1)
            return
        self._busy.update(keys)
        self._queue[released.key] = released
        self._fill_places()

    def _fill_places(self) -> None:
        while self._queue and self._examined_now < self._limits.concurrency:
            _, released = self._queue.popitem(last=False)
            self._examined_now += 1
            self._start(self._contain(released))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("slow lane cannot record a verdict", exc_info=task.exception())

    async def _contain(self, released: Released) -> None:
        """The containment line: one trace's examination fails alone, and is said."""
        try:
            while not await self._is_through(released):
                await self._pause(STORE_RETRY_S)
        finally:
            self._busy.difference_update((released.key, *released.along))
            self._examined_now -= 1
            self._fill_places()

    async def _is_through(self, released: Released) -> bool:
        """Examine a trace; ``False`` where the disk refused, and it is to be examined anew."""
        key, claimed = released.key, {released.key}
        try:
            examined = await self._examiner.examine(
                released, is_open=self._is_open, claim=lambda held: self._claim(held, claimed)
            )
            await self._note(released, examined)
        except Exception as error:
            for held in claimed:  # telemetry waits for no disk of ours
                await self._let_go_of(held)
            if is_refusal(error):
                told = {"trace_id": key.trace_id, "reason": str(error)}
                logger.warning("examination waits for the disk", extra=told)
                return False
            logger.exception("examination failed", extra={"trace_id": key.trace_id})
            reason = f"internal error: {type(error).__name__}"
            for one in (key, *released.along):
                await patiently(partial(self._examiner.give_up, one, reason), self._pause)
            self._look_again(frozenset((key, *released.along)))
        return True

    def _lose(self, keys: Collection[TraceKey]) -> None:
        """Have it said that traces were evicted; as much as may be remembered of that."""
        self.evictions += len(keys)
        self._lost.update(dict.fromkeys(keys))
        while len(self._lost) > _MAX_LOST:
            del self._lost[next(iter(self._lost))]
        if not self._is_giving_up:
            self._is_giving_up = True
            self._start(self._give_up_lost())

    async def _give_up_lost(self) -> None:
        """Say so of many at a time: a flood is evicted quicker than single verdicts are on the disk."""
        try:
            while self._lost:
                lost = tuple(islice(self._lost, _MAX_GIVEN_UP))
                for key in lost:
                    del self._lost[key]
                await patiently(partial(self._examiner.give_up_evicted, lost), self._pause)
                for key in lost:
                    await self._let_go_of(key)
        finally:
            self._is_giving_up = False

    async def _note(self, released: Released, examined: Examined) -> None:
        key = released.key
        if examined.awaited:
            self._waiting.update(dict.fromkeys((key, *released.along), examined.awaited))
            self._put_off(examined.awaited)
        if examined.too_early:
            for one in (key, *released.along):
                self._assembler.receive(one, (), 0, self._monotonic(), analyses=examined.too_early)
            self._wake.set()
        for left in set(released.along) - examined.done if examined.done else ():
            self._assembler.receive(
                left, (), 0, self._monotonic()
            )  # not part of this analysis: treat it as a separate run
            self._wake.set()
        for done in examined.done:
            self._waiting.pop(done, None)
            await self._let_go_of(done)
        self._look_again(examined.done)

    def _put_off(self, awaited: frozenset[TraceKey]) -> None:
        """Have a run's open traces wait anew: another of its traces came, and perhaps more do."""
        for key in awaited:
            if self._assembler.is_open(key):
                self._assembler.receive(key, (), 0, self._monotonic())

    def _look_again(self, settled: frozenset[TraceKey]) -> None:
        """Take up the traces that waited for these, and were not examined along with them."""
        for key, awaited in tuple(self._waiting.items()):
            if awaited & settled:
                del self._waiting[key]
                self._assembler.receive(key, (), 0, self._monotonic(), analyses=1)
                self._wake.set()

    def _is_open(self, key: TraceKey) -> bool:
        return self._assembler.is_open(key)

    def _claim(self, key: TraceKey, claimed: set[TraceKey]) -> bool:
        """Stop the hold deadline of a trace whose verdict is there; ``False`` if it was let go already."""
        if self._holds.pop(key, None) is None:
            return False
        claimed.add(key)
        self._claimed.add(key)
        return True

    async def _release_overdue(self, now: float) -> None:
        overdue: list[TraceKey] = []
        while self._hold_timers and self._hold_timers[0][0] <= now:
            deadline, key = heappop(self._hold_timers)
            if self._holds.get(key) == deadline:
                logger.warning("held trace let go without a verdict", extra={"trace_id": key.trace_id})
                overdue.append(key)
        await self._let_go_of_all(overdue)

    async def _let_go_of_all(self, keys: Iterable[TraceKey]) -> None:
        """Let go of many together: they share a commit, and do not wait for one another's."""
        await asyncio.gather(*map(self._let_go_of, tuple(keys)))

    async def _let_go_of(self, key: TraceKey) -> None:
        """Later spans of the trace pass straight through; those held go on now."""
        if self._limits.hold_max_s is None:
            return
        self._let_go[key] = None
        while len(self._let_go) > _MAX_LET_GO:
            self._let_go.popitem(last=False)
        self._holds.pop(key, None)
        self._claimed.discard(key)
        release = asyncio.create_task(self._examiner.let_go(key))
        self._releases.add(release)
        release.add_done_callback(self._releases.discard)
        await asyncio.shield(release)
