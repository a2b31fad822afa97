"""The slow lane: takes arrivals and commits verdicts, by running the pure stages and their side effects.

One task owns the assembler and the hold deadlines (``arrivals.Holds``); examinations run concurrently, up to
a bound, and one at a time for each trace. Errors here do not affect the fast lane, which acknowledges and
forwards: telemetry never waits for the slow lane in late mode, and at most ``hold_max`` in hold mode.

Arrivals go from the inbox into the assembler in batches, each with its number of earlier analyses, so that
one query to the store serves hundreds of traces. Timers go on between batches: a tenant that sends without
pause delays no other tenant's traces.

In a flood, traces are evicted by the retention quota faster than single verdicts can be stored, so many are
recorded in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from analyzer.analyses.arrivals import ExaminationOrder, Holds, Inbox, Waits
from analyzer.analyses.early import EarlyLooks
from analyzer.analyses.examine import Awaits, Done, Examined, Examiner, Glanced, TooEarly
from analyzer.analyses.load import MAX_ANALYSES, Others
from collector_processor.assembly.assembler import Assembler, AssemblerLimits, Released
from collector_processor.core.disk import STORE_RETRY_S, StoreError, is_refusal, patiently
from collector_processor.core.fair import FairQueue, Places
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival
from semconv.model import Completion

logger = logging.getLogger(__name__)

_BATCH: Final = 500
"""Arrivals looked up with one query to the store."""
_AT_ONCE: Final = 64
"""Arrivals, due traces or releases handled before other tasks get the event loop: some milliseconds."""
_NOTES_AT_ONCE: Final = 1_000
"""The same for notes of spans."""
_COMPANY_S: Final = 0.02
"""Seconds between checks for arrivals and due traces: traces that complete together are examined together."""
_MORE_COMPANY_S: Final = 0.04
"""Further seconds, at most, while examinations are running: those that follow would wait for them."""

_MAX_TOGETHER: Final = 500
"""Maximum number of evicted traces recorded in one transaction."""
_MAX_WAITING: Final = 100_000
"""Bound on evicted traces that wait for a full disk; those beyond get no verdict but are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """Parameters of the slow lane."""

    assembler: AssemblerLimits
    hold_max_s: float | None = None
    """Seconds an agent trace may wait for its verdict; ``None`` means late mode."""
    concurrency: int = 16
    rewrites_max_s: float = 2.0
    """Extra seconds at shutdown for committed replacements, which need the disk but no model."""
    releases_max_s: float = 10.0
    """The same for all other held rows, because on a full disk their release might never end."""
    max_inbox_bytes: int = 64 << 20
    """Bound on notes not looked up yet; enough for 250,000 spans."""


class Pipeline:
    """The slow lane of one process; used on one event loop."""

    def __init__(
        self,
        examiner: Examiner,
        limits: PipelineLimits,
        monotonic: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._examiner: Final = examiner
        self._committer: Final = examiner.committer
        self._limits: Final = limits
        self._monotonic: Final = monotonic
        self._pause: Final = pause
        self._assembler: Final = Assembler(limits.assembler)
        self._inbox: Final = Inbox(limits.max_inbox_bytes)
        self._wake: Final = asyncio.Event()
        self._busy: set[TraceKey] = set()
        self._queue: Final[FairQueue[Tenant, TraceKey, Released]] = FairQueue()
        """Traces of ``_busy`` that wait for a free slot; dropped if the journal evicts their spans."""
        self._actionable_since: Final[dict[TraceKey, float]] = {}
        """Times at which the traces of ``_queue`` were put there, the earliest first."""
        self._places: Final[Places[Tenant]] = Places(limits.concurrency)
        self._waiting: Final = Waits()
        self._order: Final = ExaminationOrder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._holds: Final = Holds(limits.hold_max_s, examiner.committer.source.release_held)
        self._absorbing: frozenset[TraceKey] = frozenset()
        """Traces being looked up: no longer in the inbox, and not yet in the assembler."""
        self._unrecorded: Final[OrderedDict[TraceKey, None]] = OrderedDict()
        """Evicted traces without a verdict yet."""
        self._is_recording = False
        self.evictions = 0
        """Number of traces evicted before they were analysed."""
        self.looks: Final = (
            None
            if examiner.early is None
            else EarlyLooks(
                self._look_early, is_busy=lambda: self.oldest_actionable_s > 0, monotonic=monotonic
            )
        )
        """Looks at open traces; ``None`` if early warnings are off."""

    @property
    def open_traces(self) -> int:
        """Number of traces that are not complete yet."""
        return len(self._assembler)

    @property
    def under_way(self) -> int:
        """Number of traces that are being examined, or wait for a free slot."""
        return len(self._busy)

    @property
    def oldest_actionable_s(self) -> float:
        """Seconds for which the first of the complete traces has waited for a free slot; 0 if none waits."""
        since = next(iter(self._actionable_since.values()), None)
        return 0.0 if since is None else max(0.0, self._monotonic() - since)

    def holds(self, key: TraceKey) -> bool:
        """Return whether spans of this trace must wait for a verdict; called by the fast lane."""
        return self._holds.holds(key)

    def feed(self, arrival: TraceArrival) -> None:
        """Record spans that are durable now. Called on the event loop; never blocks."""
        self._feed(arrival)
        if self.looks is not None:
            self.looks.feed(arrival)

    def _feed(self, arrival: TraceArrival) -> None:
        if arrival.is_held:  # at once: a shutdown also releases traces that have not been looked up yet
            self._holds.hold(arrival.key, self._monotonic())
        for oldest in self._inbox.put(arrival):
            # Treated as new: its examination finds out how often it was analysed (``too_early``).
            for _ in self._open_or_add(oldest, 0):
                pass
        self._wake.set()

    def evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record that traces lost their spans to the retention quota. Called on the event loop."""
        gone = frozenset(keys)
        unanalysed = {key for key in gone if self._assembler.is_open(key) or key in self._waiting}
        for key in unanalysed:  # the others have a verdict, or are being examined
            self._assembler.forget(key)
            self._waiting.stop(key)
        for key in gone:  # analysis may lag behind for days
            queued = self._queue.discard(key.tenant, key)
            if queued is None:
                continue
            along = queued.along
            self._actionable_since.pop(key, None)
            self._busy.difference_update((key, *along))
            unanalysed.add(key)  # it may also be open, waiting for a provisional verdict
            for left in along:  # separate runs from now on; evicted ones get their own error verdict
                self._reopen(left)
                self._wake.set()
        if unanalysed:
            logger.warning("traces evicted before their analysis", extra={"traces": len(unanalysed)})
            self._record_evicted(unanalysed)
        self._look_again(gone)

    def is_unsettled(self, key: TraceKey) -> bool:
        """Return whether a trace is open, or its analysis is not committed yet."""
        is_open = self._assembler.is_open(key) or key in self._inbox or key in self._absorbing
        return is_open or self._is_examined(key)

    def _is_examined(self, key: TraceKey) -> bool:
        """Return whether a trace is being examined, or waits for that or for another trace."""
        return key in self._busy or key in self._waiting

    async def _look_early(self, key: TraceKey) -> None:
        if self._owns(key) and self.is_unsettled(key):
            await self._examiner.look_early(key, Others(is_open=self.is_unsettled))

    def abandon(self, keys: Iterable[TraceKey]) -> None:
        """Forget traces without a verdict: another process has their spans now."""
        gone = frozenset(keys)
        for key in gone:
            self._assembler.forget(key)
            self._waiting.stop(key)
            if queued := self._queue.discard(key.tenant, key):
                self._actionable_since.pop(key, None)
                self._busy -= {key, *queued.along}
                for left in set(queued.along) - gone:
                    self._reopen(left)
        self._look_again(gone)
        self._wake.set()

    async def recover(self, arrivals: Iterable[TraceArrival]) -> None:
        """Resume where the last process stopped.

        Args:
            arrivals: agent traces that are still in the journal, oldest first.
        """
        await self._committer.finish_rewrites()
        absent = await self._examiner.absent_parents()
        arriving = await self._examiner.arriving_parents()
        self._assembler.learned.recall(((parent.tenant, parent.kind) for parent in absent), arriving)
        coming = iter(arrivals)
        while batch := tuple(islice(coming, _BATCH)):
            analyses = await self._examiner.analyses_of([arrival.key for arrival in batch])
            freed: set[TraceKey] = set()
            for arrival in batch:
                is_decided = arrival.seq <= analyses[arrival.key][1]
                if is_decided:
                    self._assembler.remember(arrival.key, arrival.notes, self._monotonic())
                else:
                    self._feed(arrival)
                # Killed before it was released, or held by a process that ran in hold mode.
                if arrival.is_held and (is_decided or self._holds.is_off):
                    freed.add(arrival.key)
            await asyncio.gather(*map(self._committer.source.release_held, freed))
            await self._absorb()  # the inbox cannot hold all traces that are kept for analysis

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._sleep()
            await self.turn()
            await asyncio.sleep(_COMPANY_S)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_MORE_COMPANY_S)

    async def turn(self) -> None:
        """Do all work that is due now, without waiting for the examinations that it starts."""
        await self._resume()
        await self._absorb(self._release_due)
        if arrived := self._assembler.learned.take_arrived():
            self._start(self._examiner.parents_arrived(arrived))
        await self._release_due()
        await self._holds.release_overdue(self._monotonic())

    async def _absorb(self, release: Callable[[Container[Tenant]], Awaitable[None]] | None = None) -> None:
        """Move arrivals from the inbox into the assembler.

        Args:
            release: called between batches with the tenants that have further arrivals; releases the due
                traces of all others.
        """
        for at in range(0, len(self._inbox), _BATCH):  # not those that arrive meanwhile: timers are due
            if at and release:
                await release(self._inbox.tenants)
            batch = self._inbox.take(_BATCH)
            self._absorbing = frozenset([arrival.key for arrival in batch])
            await self._take_up(batch, await self._analyses(self._absorbing))
            self._absorbing = frozenset()

    async def _take_up(self, batch: Sequence[TraceArrival], before: Mapping[TraceKey, int]) -> None:
        """Add the spans of arrivals to their traces; those of traces analysed too often are only let go."""
        for number, arrival in enumerate(batch, start=1):
            key = arrival.key
            analyses = before.get(key, 0)  # does not matter if the trace is open
            if analyses < MAX_ANALYSES or self._assembler.is_open(key):
                for _ in self._open_or_add(arrival, analyses):
                    await asyncio.sleep(0)
            elif arrival.is_held:
                await self._holds.release(key)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _open_or_add(self, arrival: TraceArrival, analyses: int) -> Iterator[None]:
        """Add the spans of an arrival to its trace; yields after each thousand.

        If another process has the trace's spans now (Kafka), they are dropped: the root arrives there, so the
        trace would stay open here.
        """
        key, now, notes = arrival.key, self._monotonic(), arrival.notes
        if not self._owns(key):
            return
        if arrival.is_held:
            self._holds.hold(key, now)
        byte_count = arrival.byte_count
        for at in range(0, max(1, len(notes)), _NOTES_AT_ONCE):
            self._assembler.receive(
                key,
                notes[at : at + _NOTES_AT_ONCE],
                byte_count,
                now,
                analyses=analyses,
                received_ns=arrival.received_ns,
            )
            byte_count = 0
            if at + _NOTES_AT_ONCE < len(notes):
                yield

    async def _analyses(self, keys: Iterable[TraceKey]) -> Mapping[TraceKey, int]:
        """Return each trace's number of analyses; one that is running or postponed counts as the first."""
        closed = {key: self._is_examined(key) for key in keys if not self._assembler.is_open(key)}
        if not closed:
            return {}
        try:
            analyses = await self._examiner.analyses_of(closed)
        except StoreError as error:  # timers do not wait for the disk, and an examination checks it again
            logger.warning("earlier analyses cannot be looked up", extra={"reason": str(error)})
            return closed
        return {key: max(analyses[key][0], was_complete) for key, was_complete in closed.items()}

    async def _release_due(self, but: Container[Tenant] = ()) -> None:
        now = self._monotonic()
        while self._assembler.is_due(now):
            for released in self._assembler.take_ready(now, most=_AT_ONCE, but=but):
                self._begin(released)
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Wait until no examination is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, deadline_s: float) -> None:
        """Wait for running examinations until the deadline; then release all held rows.

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
                await self._holds.release_everything()
        except TimeoutError:
            logger.warning("stopped before all held spans were released: the next start releases them")

    async def _finish_rewrites(self) -> None:
        """Release rows whose verdict is being committed, in their committed form; waits if necessary."""
        if self._holds.claimed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.rewrites_max_s):
                    await patiently(self._committer.finish_rewrites, self._pause)
                    await self._holds.release_all(self._holds.claimed)

    async def _sleep(self) -> None:
        deadlines = [
            at for at in (self._assembler.next_deadline(), self._holds.next_deadline) if at is not None
        ]
        wait = max(0.0, min(deadlines) - self._monotonic()) if deadlines else None
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _begin(self, released: Released) -> None:
        keys = (released.key, *released.along)
        if not self._busy.isdisjoint(keys):  # more spans arrived meanwhile: wait for the analysis to end
            for key in keys:
                self._reopen(key, analyses=1)
            return
        self._busy.update(keys)
        self._queue.put(released.key.tenant, released.key, released)
        self._actionable_since[released.key] = self._monotonic()
        self._fill_places()

    def _fill_places(self) -> None:
        while (released := self._places.take_from(self._queue)) is not None:
            self._actionable_since.pop(released.key, None)
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
        """Contain a failure: if the examination of one trace fails, log it and continue with the others."""
        self._order.begin(released)
        try:
            while not await self._is_through(released):
                await self._pause(STORE_RETRY_S)
        finally:
            self._finish(released)
            self._busy.difference_update((released.key, *released.along))
            self._places.leave(released.key.tenant)
            self._fill_places()

    async def _is_through(self, released: Released) -> bool:
        """Examine a trace; return ``False`` if the disk refused and the trace must be examined again."""
        key, claimed = released.key, {released.key}

        def claim(held: TraceKey) -> bool:
            is_held = self._holds.claim(held)
            if is_held:
                claimed.add(held)
            return is_held

        try:
            others = Others(is_open=self._assembler.is_open, is_ahead=partial(self._order.is_ahead, released))
            begun = self._monotonic()
            examined = await self._examiner.examine(released, others=others, claim=claim)
            self._finish(released, examined.traces if isinstance(examined, Glanced) else ())
            if released.completion is Completion.IDLE_OPEN:
                self._note_glance(released, examined, begun)
            else:
                await self._note(released, examined)
        except Exception as error:
            for held in claimed:  # telemetry does not wait for our disk
                await self._holds.release(held)
            if is_refusal(error):
                context = {"trace_id": key.trace_id, "reason": str(error)}
                logger.warning("examination waits for the disk", extra=context)
                return False
            logger.exception("examination failed", extra={"trace_id": key.trace_id})
            reason = f"internal error: {type(error).__name__}"
            for one in (key, *released.along):
                await patiently(partial(self._committer.give_up, one, reason), self._pause)
            self._look_again(frozenset((key, *released.along)))
        return True

    def _finish(self, released: Released, glanced: Iterable[TraceKey] = ()) -> None:
        """Let no more traces wait for this examination; look again at those that it did not cover."""
        for key in set(self._order.end(released)).difference(glanced):
            self._assembler.glance_again(key, self._monotonic())
            self._wake.set()

    def _record_evicted(self, keys: Collection[TraceKey]) -> None:
        """Schedule the verdicts of evicted traces, many in one transaction."""
        self.evictions += len(keys)
        self._unrecorded.update(dict.fromkeys(keys))
        while len(self._unrecorded) > _MAX_WAITING:
            self._unrecorded.popitem(last=False)
        if not self._is_recording:
            self._is_recording = True
            self._start(self._record_all_evicted())

    async def _record_all_evicted(self) -> None:
        try:
            while self._unrecorded:
                keys = tuple(islice(self._unrecorded, _MAX_TOGETHER))
                for key in keys:
                    del self._unrecorded[key]
                await patiently(partial(self._committer.give_up_evicted, keys), self._pause)
                await self._holds.release_all(keys)
        finally:
            self._is_recording = False

    def _note_glance(self, released: Released, examined: Examined, begun: float) -> None:
        """Record the traces that have a provisional verdict now: they need no other until spans arrive."""
        match examined:
            case Awaits(leaders):
                for leader in leaders:
                    self._order.follow(leader, released.key)
            case Glanced(traces):
                for key in traces:
                    self._assembler.was_glanced(key, begun)
                    self._leave_glance(key)
            case _:
                return

    def _leave_glance(self, key: TraceKey) -> None:
        """Take a trace out of the queue if it waits only for a provisional verdict."""
        queued = self._queue.discard(key.tenant, key)
        if queued is not None and queued.completion is Completion.IDLE_OPEN:
            self._busy.discard(key)
            self._actionable_since.pop(key, None)
        elif queued is not None:
            self._queue.put(key.tenant, key, queued)

    async def _note(self, released: Released, examined: Examined) -> None:
        """Act on the outcome of a final examination."""
        self._wake.set()
        keys = (released.key, *released.along)
        match examined:
            case Awaits(awaited):
                for waiter in keys:
                    self._waiting.wait(waiter, awaited)
                for one in filter(self._assembler.is_open, awaited):  # more may follow its last span
                    self._reopen(one)
            case TooEarly(analyses):
                for one in keys:
                    self._reopen(one, analyses)
            case Done(done):
                for left in set(released.along) - done:  # separate runs
                    self._reopen(left)
                for one in done:
                    self._waiting.stop(one)
                    await self._holds.release(one)
                self._look_again(done)
            case Glanced():
                message = "a final examination glanced"
                raise AssertionError(message)

    def _look_again(self, settled: frozenset[TraceKey]) -> None:
        """Resume traces that waited for these and were not examined together with them."""
        if self._waiting.settle(settled):
            self._wake.set()

    async def _resume(self) -> None:
        """Open the resumed traces, in slices: a hundred thousand may have waited for the same trace."""
        for number, key in enumerate(self._waiting.take_resumed(), start=1):
            self._reopen(key, analyses=1)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _owns(self, key: TraceKey) -> bool:
        """Return whether this process has the trace's spans; with Kafka, another one may have them now."""
        return self._examiner.owns(key)

    def _reopen(self, key: TraceKey, analyses: int = 0) -> None:
        """Open a trace again, or delay its release, unless another process has its spans now."""
        if self._owns(key):
            self._assembler.receive(key, (), 0, self._monotonic(), analyses=analyses)
