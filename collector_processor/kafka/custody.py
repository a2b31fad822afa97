"""Custody of the assigned partitions: hands records to the lanes, and decides which offsets are committed.

Lives on the event loop; ``reader`` calls it from its thread. Neighbouring records of one origin are taken as
one request. Rows are kept in the journal of this process; when a partition is revoked, those not forwarded
are given back, its open traces are dropped, and the next owner reads both again. The
traces' spilled parts (``spilling``) are recalled before the analysis, and if the store is there, before
records are read. Unreadable records are put aside in a folder, because reading them again would not help.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from collector_processor.core.records import SpilledPart
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import Journal
from collector_processor.journal.chunks import Chunk, Entry
from collector_processor.kafka.progress import Mark, Progress, Range, Span
from collector_processor.kafka.record_form import Place, Record, request_of, runs_of
from collector_processor.kafka.spilling import Spilling, by_trace, is_large, unpack
from collector_processor.otlp import Arrival, MalformedRequestError, RefusedError, Signal, TraceKey
from collector_processor.receivers.intake import Intake

logger = logging.getLogger(__name__)

_REVOKE_S: Final = 3.0
"""Longest wait for a revoked partition's rows to be forwarded; the rest is given back."""
_LOOK_S: Final = 0.02
_RECALL_S: Final = 10.0
"""Longest wait for the spilled parts of new partitions: spans do not wait for an unreachable store."""
NO_ROOM_S: Final = 60.0
"""Longest time for which verdicts wait while a full journal takes no spilled parts."""
_SLACK: Final = 16
"""Journal segments that the previous owner may have begun since its last commit."""
_MOST_EVICTED: Final = 10_000


class Lanes(Protocol):
    """The methods of the slow lane that deal with partitions."""

    def is_unsettled(self, key: TraceKey) -> bool:
        """Return whether a trace is open, or its analysis is not committed."""
        ...

    def abandon(self, keys: Iterable[TraceKey]) -> None:
        """Forget traces without a verdict."""
        ...


class Discards(Protocol):
    """The fast lane, which gives up the rows of a partition that was revoked."""

    def discard(self, seqs: Iterable[int]) -> frozenset[int]:
        """Stop sending rows; return those that are not under way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row of the journal that is not forwarded yet."""

    place: Place
    progress: Progress
    span: Span
    chunk: Chunk
    """Without its body."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts since the start of the process."""

    read: int = 0
    """Records read for the first time."""
    reread: int = 0
    """Records that the previous owner had forwarded; read for the analysis only."""
    aside: int = 0
    """Unreadable records."""
    expired: int = 0
    """Records that Kafka deleted before they were forwarded: its retention is too short."""
    stale_commits: int = 0
    """Commits that Kafka refused because the partition belonged to another process by then."""
    failed_commits: int = 0
    """Commits that failed for another reason, such as an unreachable coordinator."""


class Custody:
    """The assigned partitions; create it before the lanes, and ``attach`` them before anything is read."""

    def __init__(
        self,
        journal: Journal,
        signals: Mapping[str, Signal],
        tenant_names: tuple[str, ...],
        aside: Path,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        no_room_s: float = NO_ROOM_S,
    ) -> None:
        """Create it.

        Args:
            journal: keeps rows until they are forwarded and analysed.
            signals: each topic's signal.
            tenant_names: names of the headers that identify a tenant.
            aside: folder for unreadable records.
            pause: sleeps for the given seconds.
            monotonic: returns seconds.
            no_room_s: longest time for which verdicts wait while the journal is full.
        """
        self._journal: Final = journal
        self._signals: Final = signals
        self._tenant_names: Final = tenant_names
        self._aside: Final = Aside(aside)
        self._pause: Final = pause
        self._monotonic: Final = monotonic
        self._no_room_s: Final = no_room_s
        self._recalls: Final[set[asyncio.Task[None]]] = set()
        self._awaited: Final[set[asyncio.Future[None]]] = set()
        """One future for each recall that verdicts wait for."""
        self._progress: Final[dict[Place, Progress]] = {}
        self._rows: Final[dict[int, _Row]] = {}
        self._owner: Final[dict[TraceKey, set[Place]]] = {}
        self._evicted: Final[OrderedDict[TraceKey, None]] = OrderedDict()
        self._lanes: tuple[Intake, Discards, Ledger, Lanes] | None = None
        self.spilling: Spilling | None = None
        """Set before anything is read; without it, open traces hold the commit back."""
        self.counts: Final = Counts()
        journal.on_done = self._forwarded
        journal.until_whole = self._recalled

    def attach(self, intake: Intake, forwarder: Discards, ledger: Ledger, pipeline: Lanes) -> None:
        """Set the lanes that take what is read."""
        self._lanes = (intake, forwarder, ledger, pipeline)

    def owns(self, key: TraceKey) -> bool:
        """Return whether the trace's spans are here: false once its partition went to another process."""
        return key in self._owner

    @property
    def places(self) -> Sequence[Place]:
        """The assigned partitions."""
        return tuple(self._progress)

    # Called by the reader.

    async def assigned(self, marks: Mapping[Place, Mark]) -> Mapping[Place, Mark]:
        """Take partitions over; return what is to be committed for them at once."""
        newest = max((mark.segment for mark in marks.values()), default=0)
        await self._journal.skip_to(newest + _SLACK)
        for place, mark in marks.items():
            self._progress[place] = Progress(before=mark)
        if self.spilling is not None:
            awaited = asyncio.get_running_loop().create_future()
            self._awaited.add(awaited)
            awaited.add_done_callback(self._awaited.discard)
            recall = asyncio.create_task(self._recall(tuple(marks), self.spilling, awaited))
            self._recalls.add(recall)
            recall.add_done_callback(partial(self._recall_ended, awaited))
            with suppress(TimeoutError):
                async with asyncio.timeout(_RECALL_S):
                    await self._recalled()
        segment = self._journal.next_segment
        return {place: replace(mark, segment=segment) for place, mark in marks.items()}

    async def spill(self) -> None:
        """Spill what is due; called every second."""
        if self.spilling is not None and not self._recalls:
            await self.spilling.turn(self._progress, self._attached[3].is_unsettled)

    async def take(self, records: Sequence[Record]) -> None:
        """Hand records on; returns once all are on disk here.

        Partitions are taken side by side, so that one commit of the journal serves them all.
        """
        by_place: dict[Place, list[Record]] = {}
        for record in records:
            by_place.setdefault(record.place, []).append(record)
        async with asyncio.TaskGroup() as group:
            for place, some in by_place.items():
                group.create_task(self._take_in_order(place, some))

    async def _take_in_order(self, place: Place, records: Sequence[Record]) -> None:
        progress = self._progress.get(place)
        for run in runs_of(records, progress.before.is_forwarded) if progress is not None else ():
            if self._progress.get(place) is progress and progress is not None:
                await self._take_run(progress, run)

    async def marks(self) -> Mapping[Place, Mark]:
        """Return what may be committed now."""
        _, _, _, pipeline = self._attached
        segment = self._journal.next_segment
        return {
            place: progress.mark(pipeline.is_unsettled, segment) for place, progress in self._progress.items()
        }

    async def revoked(self, places: Iterable[Place], *, wait_s: float = _REVOKE_S) -> Mapping[Place, Mark]:
        """Give partitions back; return what is to be committed for them.

        Args:
            places: the partitions.
            wait_s: longest wait for what is under way to the backend.
        """
        _, forwarder, ledger, pipeline = self._attached
        gone = {place: self._progress[place] for place in places if place in self._progress}
        for _ in range(int(wait_s / _LOOK_S)):
            if all(progress.is_forwarded for progress in gone.values()):
                break
            await self._pause(_LOOK_S)
        rows = {seq: row for seq, row in self._rows.items() if row.place in gone}
        for seq in forwarder.discard(rows):
            row = self._rows.pop(seq)
            ledger.settle(row.chunk.queue.signal, returned=row.chunk.items)
            self._journal.mark_done((row.chunk,))
        marks = await self.marks()
        for place in gone:
            del self._progress[place]
        for recall in () if self._progress else self._recalls:
            recall.cancel()
        self._drop({key for key, own in self._owner.items() if own & gone.keys()}, pipeline)
        return {place: marks[place] for place in gone}

    # Called by the journal.

    def evicted(self, keys: Iterable[TraceKey]) -> None:
        """Record that traces lost their rows to the quota."""
        for key in keys:
            self._evicted[key] = None
        while len(self._evicted) > _MOST_EVICTED:
            self._owner.pop(self._evicted.popitem(last=False)[0], None)

    def _forwarded(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            row = self._rows.pop(chunk.seq, None)
            if row is not None:
                row.progress.done(row.span)

    # One request.

    @property
    def _attached(self) -> tuple[Intake, Discards, Ledger, Lanes]:
        assert self._lanes is not None
        return self._lanes

    async def _take_run(self, progress: Progress, run: Sequence[Record]) -> None:
        """Take neighbouring records of one origin; an unreadable one is set aside alone."""
        intake, _, ledger, _ = self._attached
        signal = self._signals[run[0].place.topic]
        range_ = Range(run[0].offset, run[-1].offset)
        is_reread = progress.before.is_forwarded(range_.first)
        try:
            looked = await intake.look(request_of(signal, run, self._tenant_names))
        except (MalformedRequestError, RefusedError) as error:  # the latter: a forwarding loop
            if len(run) == 1:
                self.counts.aside += 1
                self._aside.keep(run[0], str(error))
                progress.taken(range_)
            else:
                for record in run:
                    await self._take_run(progress, (record,))
            return
        self.counts.reread += len(run) if is_reread else 0
        self.counts.read += 0 if is_reread else len(run)
        if looked.rejected and not is_reread:
            ledger.acknowledge(signal, looked.rejected)
            ledger.settle(signal, rejected=looked.rejected)
        entries = [entry for entry in looked.entries if entry.traces or not is_reread]
        if await self._stored(progress, run[0].place, Span(range_), entries, is_reread=is_reread):
            progress.taken(range_)

    async def _stored(
        self, progress: Progress, place: Place, span: Span, entries: Sequence[Entry], *, is_reread: bool
    ) -> bool:
        """Write rows to the journal, retrying while it is full; ``False`` if the partition is revoked."""
        if not entries:
            return True

        def hand_on(chunk: Chunk, entry: Entry) -> Iterator[None]:
            return self._hand_on(progress, place, span, chunk, entry, is_reread=is_reread)

        for _ in entries if not is_reread else ():
            progress.wait_for(span)
        while self._progress.get(place) is progress:
            try:
                await self._journal.append(entries, hand_on)
            except RefusedError as refusal:  # full: Kafka keeps the rest
                await self._pause(min(1.0, refusal.retry_after_s))
            else:
                return True
        return False

    def _hand_on(
        self,
        progress: Progress,
        place: Place,
        span: Span,
        chunk: Chunk,
        entry: Entry,
        *,
        is_reread: bool,
    ) -> Iterator[None]:
        intake, _, _, _ = self._attached
        is_ours = self._progress.get(place) is progress
        if is_reread or not is_ours:
            self._journal.mark_done((chunk,))
        else:
            self._rows[chunk.seq] = _Row(
                place=place, progress=progress, span=span, chunk=replace(chunk, body=b"")
            )
            intake.offer(chunk, entry)
        if not is_ours:
            return
        for note in entry.traces:
            key = TraceKey(entry.tenant, note.trace_id)
            self._owner.setdefault(key, set()).add(place)
            progress.opened(key, span, chunk.seq, self._monotonic(), note.byte_count)
        yield from intake.feed(chunk, entry)

    # What was spilled.

    async def _recalled(self) -> None:
        """Wait until the partitions' spilled parts are read, or no room for them was found in time."""
        while self._awaited:
            await asyncio.wait(self._awaited)

    def _recall_ended(self, awaited: asyncio.Future[None], task: asyncio.Task[None]) -> None:
        self._recalls.discard(task)
        _complete(awaited)
        if not task.cancelled() and task.exception() is not None:
            logger.error("spilled parts cannot be recalled", exc_info=task.exception())

    def _wait_no_longer(self, awaited: asyncio.Future[None]) -> None:
        """Let verdicts be made without the remaining parts: once read, their traces are analysed again."""
        logger.warning(
            "no room in the journal for spilled parts: analysing without them", extra={"s": self._no_room_s}
        )
        _complete(awaited)

    async def _recall(
        self, places: Sequence[Place], spilling: Spilling, awaited: asyncio.Future[None]
    ) -> None:
        """Take the partitions' spilled parts, spans first: log records of unknown traces are not noted."""
        loop = asyncio.get_running_loop()
        for place in sorted(places, key=lambda one: self._signals[one.topic] is not Signal.TRACES):
            progress = self._progress.get(place)
            if progress is None:
                continue
            async for page in spilling.recall(place, progress.before.offset, self._pause):
                if self._progress.get(place) is not progress:
                    break
                late = loop.call_later(self._no_room_s, self._wait_no_longer, awaited)
                try:
                    async with asyncio.TaskGroup() as group:  # side by side, in few commits of the journal
                        for parts in by_trace(page):
                            group.create_task(self._take_parts(progress, place, parts, spilling))
                finally:
                    late.cancel()

    async def _take_parts(
        self, progress: Progress, place: Place, parts: Sequence[SpilledPart], spilling: Spilling
    ) -> None:
        signal, (intake, _, _, _) = self._signals[place.topic], self._attached
        for part in parts:
            try:
                body = await asyncio.to_thread(unpack, part.packed) if is_large(part) else unpack(part.packed)
                looked = await intake.look(Arrival(signal=signal, body=body, tenant=part.key.tenant))
            except (MalformedRequestError, RefusedError, ValueError) as error:
                spilling.counts.damaged += 1
                logger.warning("spilled part is damaged: analysing without it", extra={"reason": str(error)})
                continue
            span = Span(Range(part.first, part.last), is_spilled=True)
            entries = [entry for entry in looked.entries if entry.traces]
            if await self._stored(progress, place, span, entries, is_reread=True):
                spilling.recalled(part)
                spilling.counts.recalled += 1

    def _drop(self, keys: set[TraceKey], pipeline: Lanes) -> None:
        pipeline.abandon(keys)
        if self.spilling is not None:
            self.spilling.lost(keys)
        for key in keys:
            self._owner.pop(key, None)
            self._journal.forget(key)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_MOST: Final = 1_000
"""Records kept in files; further ones are only logged."""
_MOST_BYTES: Final = 64 << 20
"""Likewise in bytes: a client that writes to a topic must not fill the disk."""


class Aside:
    """Unreadable records, the first ones in files."""

    def __init__(self, folder: Path) -> None:
        """Start without records; the first one creates the folder."""
        self._folder: Final = folder
        self._count = 0
        self._bytes = 0

    def keep(self, record: Record, reason: str) -> None:
        """Log a record, and keep it if there is room."""
        self._count += 1
        name = f"{record.place.topic}-{record.place.partition}-{record.offset}"
        context = {"record": name, "bytes": len(record.value), "reason": reason}
        logger.error("record cannot be read: set aside", extra=context)
        size = self._bytes + len(record.value)
        if self._count <= _MOST and size <= _MOST_BYTES:
            self._bytes = size
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._folder / name).touch(mode=0o600)
                (self._folder / name).write_bytes(record.value)
            except OSError as error:
                logger.warning("record cannot be kept aside", extra={"record": name, "reason": str(error)})
