"""Intake of received requests: check, store in the journal, acknowledge, pass to the forwarder.

Nothing is decoded, and requests wait only for the disk. Agent traces are reported to the slow lane; in hold
mode their spans are stored in rows of their own, which wait for a verdict.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from collector_processor.core.fair import Turns
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal.chunks import TRACES_A_STEP, Chunk, Entry, State
from collector_processor.otlp import (
    Arrival,
    MalformedRequestError,
    Receipt,
    RefusedError,
    Signal,
    Tenant,
    TraceKey,
)
from collector_processor.wire.agent_markers import USUAL_HINTS, Hints, TooCostlyError
from collector_processor.wire.facts import ScanResult, TraceArrival, TraceNote
from collector_processor.wire.scan import scan_request
from collector_processor.wire.split import TraceIndex, drop_invalid, drop_oversize, exclude, split_for_reading
from semconv.model import TraceId
from semconv.record import record, replace

logger = logging.getLogger(__name__)

_INLINE_BYTES: Final[Mapping[Signal, int]] = {
    Signal.TRACES: 96 << 10,
    Signal.LOGS: 24 << 10,
    Signal.METRICS: 24 << 10,
}
"""Larger requests wait for their turn: one of each client at a time, and other work comes in between."""
_LOOP_BYTES: Final = 1 << 20
"""Larger requests are checked in a thread: searching spans for markers takes up to 10 ms at this size. In a
thread, checking costs more: its searches release Python's lock and wait for it."""
_INLINE_STEPS: Final = 5_000
"""Requests whose scan takes more steps wait for their turn and a thread; a step takes about a microsecond."""
_ANY_STEPS: Final = sys.maxsize
_LARGE_AT_ONCE: Final = 4
"""Large requests checked concurrently, one for each client; the event loop shares its core with them."""
_MOST_HELD: Final = 4_096
"""Bound on the traces of one request that are held: each is a row of the journal."""
_LOOP_RETRY_S: Final = 60.0
"""Retry delay for looped requests: a person must correct the endpoint."""


class LoopError(RefusedError):
    """The request went through this process before.

    Retryable: the sender keeps it, so that nothing is lost until the endpoint is corrected. A permanent
    error would make it drop spans that no backend has received.
    """

    is_loop = True


class RowStore(Protocol):
    """Durable store of requests: the journal, or Kafka."""

    def knows(self, tenant: Tenant) -> Container[TraceId]:
        """Return the trace ids of the tenant's agent traces, as far as they are known here."""
        ...

    async def append(
        self, entries: Sequence[Entry], then: Callable[[Chunk, Entry], Iterator[None]]
    ) -> tuple[Chunk, ...]:
        """Return once the rows are durable; ``then`` gets those that this process must handle."""
        ...


class Offer(Protocol):
    """Receives durable rows that may be forwarded."""

    def offer(self, chunk: Chunk) -> None:
        """Take a row; never blocks."""
        ...


def holds_nothing(key: TraceKey) -> bool:
    """Return false: in late mode, no trace waits for its verdict."""
    del key
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeRules:
    """Callbacks and limits of the intake."""

    instance_id: str
    """Our id in the hop header, by which loops are recognised."""
    now_ns: Callable[[], int]
    """Returns Unix ns."""
    holds: Callable[[TraceKey], bool] = holds_nothing
    """Returns whether spans of an agent trace must wait for a verdict."""
    feed: Callable[[TraceArrival], None]
    """Called with agent traces' spans and log records once they are durable."""
    hints: Hints = USUAL_HINTS
    """Signs of a model call in spans without a marker; with users' mappings, their attributes too."""
    max_item_bytes: Mapping[Signal, int] = field(default_factory=dict)
    """Largest request that the backend takes, by signal; a larger item is rejected."""


@record
class _Sound:
    """A request without its rejected items."""

    body: bytes
    scan: ScanResult
    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A request that was checked and not stored."""

    entries: tuple[Entry, ...]
    """Its rows."""
    rejected: int
    """Items that cannot be accepted."""


class Intake:
    """The ``Sink`` of the receivers."""

    def __init__(self, journal: RowStore, ledger: Ledger, forwarder: Offer, rules: IntakeRules) -> None:
        self._journal: Final = journal
        self._ledger: Final = ledger
        self._forwarder: Final = forwarder
        self._rules: Final = rules
        self._logged_loop = False
        self._turns: Final = Turns(_LARGE_AT_ONCE)

    async def accept(self, arrival: Arrival) -> Receipt:
        """Return once the arrival is durable.

        Raises:
            MalformedRequestError: the body is not an OTLP request of its signal.
            RefusedError: it cannot be stored now, or it went through a forwarding loop.
        """
        try:
            sound, entries = await self._look(arrival)
        except MalformedRequestError:
            self._ledger.malformed_requests += 1
            raise
        self._refuse_loop(arrival, sound)
        if sound.scan.item_count or sound.scan.max_item_bytes:
            await self._store(arrival, sound, entries)
        if sound.rejected:
            self._ledger.refuse(arrival.signal, sound.rejected)
        return Receipt(rejected=sound.rejected, message=sound.message)

    async def look(self, arrival: Arrival) -> Looked:
        """Check a request that is durable elsewhere.

        Raises:
            MalformedRequestError: the body is not an OTLP request of its signal.
            RefusedError: it went through this process before.
        """
        sound, entries = await self._look(arrival)
        self._refuse_loop(arrival, sound)
        is_empty = not (sound.scan.item_count or sound.scan.max_item_bytes)
        return Looked(entries=() if is_empty else entries, rejected=sound.rejected)

    async def _look(self, arrival: Arrival) -> tuple[_Sound, tuple[Entry, ...]]:
        """Check a request; costly ones in a thread, which yields to others between its steps."""
        size = len(arrival.body)
        is_small = size <= _INLINE_BYTES[arrival.signal]
        if is_small:
            with suppress(TooCostlyError):
                return self._look_at(arrival, _INLINE_STEPS)
        async with self._turns.turn(arrival.client):
            if not is_small and arrival.signal is Signal.TRACES and size <= _LOOP_BYTES:
                with suppress(TooCostlyError):
                    looked = self._look_at(arrival, _INLINE_STEPS)
                    await asyncio.sleep(0)  # before this client's next one
                    return looked
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, self._look_at, arrival, _ANY_STEPS)

    def _look_at(self, arrival: Arrival, most_steps: int) -> tuple[_Sound, tuple[Entry, ...]]:
        """Return the acceptable part of a request, and its rows; may be called in a thread."""
        known = self._journal.knows(arrival.tenant)
        sound = _sift(arrival, known, self._rules, most_steps)
        return sound, self._entries(arrival, sound, known)

    def _refuse_loop(self, arrival: Arrival, sound: _Sound) -> None:
        if self._rules.instance_id in arrival.hops:
            self._ledger.refuse(arrival.signal, sound.scan.item_count + sound.rejected)
            reason = (
                f"this request already went through this blamespan ({self._rules.instance_id}): "
                "correct the endpoint it forwards to, which leads back to it"
            )
            if not self._logged_loop:
                self._logged_loop = True
                logger.error(
                    "forwarding loop: requests are refused until the endpoint is corrected",
                    extra={"reason": reason, "hops": arrival.hops},
                )
            raise LoopError(reason, retry_after_s=_LOOP_RETRY_S)

    async def _store(self, arrival: Arrival, sound: _Sound, entries: tuple[Entry, ...]) -> None:
        stored = 0

        def hand_on(chunk: Chunk, entry: Entry) -> Iterator[None]:
            nonlocal stored
            stored += entry.items
            return self._hand_on(chunk, entry)

        try:
            await self._journal.append(entries, hand_on)
        except RefusedError:  # the first rows of a large request may be stored: the client sends them again
            self._ledger.refuse(arrival.signal, sound.scan.item_count + sound.rejected - stored)
            raise

    def _hand_on(self, chunk: Chunk, entry: Entry) -> Iterator[None]:
        self.offer(chunk, entry)
        return self.feed(chunk, entry)

    def offer(self, chunk: Chunk, entry: Entry) -> None:
        """Count a durable row, and pass it to the forwarder unless it waits for a verdict."""
        self._ledger.acknowledge(entry.signal, entry.items)
        if entry.state is State.PENDING:
            self._forwarder.offer(chunk)

    def feed(self, chunk: Chunk, entry: Entry) -> Iterator[None]:
        """Report the agent traces of a durable row to the slow lane; yields before every few of them."""
        feed, is_held = self._rules.feed, entry.state is State.HELD
        for at in range(0, len(entry.traces), TRACES_A_STEP):
            yield
            for note in entry.traces[at : at + TRACES_A_STEP]:
                feed(
                    TraceArrival(
                        seq=chunk.seq,
                        key=TraceKey(entry.tenant, note.trace_id),
                        received_ns=entry.received_ns,
                        byte_count=note.byte_count,
                        notes=note.spans,
                        is_held=is_held,
                    )
                )

    def _entries(self, arrival: Arrival, sound: _Sound, known: Container[TraceId]) -> tuple[Entry, ...]:
        """Return one row for the request, and in hold mode another for each held trace."""
        notes = [
            note
            for note in sound.scan.traces
            if not note.is_only_carriers and (note.is_agent or note.trace_id in known)
        ]
        received_ns = self._rules.now_ns()

        def row(body: bytes, items: int, notes: Sequence[TraceNote], state: State) -> Entry:
            return Entry(
                signal=arrival.signal,
                tenant=arrival.tenant,
                hops=arrival.hops,
                received_ns=received_ns,
                items=items,
                body=body,
                state=state,
                traces=tuple(notes),
            )

        if not notes:
            return (row(sound.body, sound.scan.item_count, (), State.PENDING),)
        held, pieces, body = self._hold(arrival, sound.body, notes)
        entries = [
            row(piece, note.span_count, (note,), State.HELD) for note, piece in zip(held, pieces, strict=True)
        ]
        rest = sound.scan.item_count - sum(note.span_count for note in held)
        if rest or not held:
            waiting = {note.trace_id for note in held}
            passing = [note for note in notes if note.trace_id not in waiting]
            entries += [
                row(piece, items, trace_notes, State.PENDING)
                for piece, items, trace_notes in _pieces(arrival.signal, body, rest, passing)
            ]
        return tuple(entries)

    def _hold(
        self, arrival: Arrival, body: bytes, notes: Sequence[TraceNote]
    ) -> tuple[Sequence[TraceNote], Sequence[bytes], bytes]:
        """Return the traces to hold, a request for each, and the request without them."""
        if arrival.signal is not Signal.TRACES or self._rules.holds is holds_nothing:
            return (), (), body
        held = [note for note in notes if self._rules.holds(TraceKey(arrival.tenant, note.trace_id))]
        pieces, rest = _cut(arrival.signal, body, held) if held else ((), body)
        return held[: len(pieces)], pieces, rest


def _sift(arrival: Arrival, known: Container[TraceId], rules: IntakeRules, most_steps: int) -> _Sound:
    """Scan a request and drop items that cannot be accepted.

    Args:
        arrival: the request.
        known: agent traces seen before.
        rules: what marks agents, and the largest request that the backend takes.
        most_steps: bound on the scan.

    Raises:
        MalformedRequestError: the body is not an OTLP request of its signal.
        TooCostlyError: the scan takes more steps.
    """
    body, limit = arrival.body, rules.max_item_bytes.get(arrival.signal)
    found = scan_request(arrival.signal, body, known, most_steps, rules.hints)
    if not found.invalid and (limit is None or len(body) <= limit):
        return _Sound(body=body, scan=found)
    messages: list[str] = []
    if found.invalid:
        body, _ = drop_invalid(body)
        messages.append(f"{found.invalid} with invalid trace or span ids")
    if limit is not None and len(body) > limit:
        body, dropped = drop_oversize(body, limit)
        if dropped:
            messages.append(f"{dropped} larger than the backend's limit of {limit} bytes")
    if not messages:
        return _Sound(body=body, scan=found)
    scan = scan_request(arrival.signal, body, known, hints=rules.hints)
    rejected = found.item_count + found.invalid - scan.item_count
    return _Sound(body=body, scan=scan, rejected=rejected, message="rejected " + "; ".join(messages))


def _pieces(
    signal: Signal, body: bytes, items: int, notes: Sequence[TraceNote]
) -> Iterator[tuple[bytes, int, Sequence[TraceNote]]]:
    """Yield a request's rows, each with its number of items and its notes.

    Traces are read separately, and a large row shared by many traces would be parsed for each of them.
    """
    pieces = split_for_reading(body, items) if len(notes) > 1 else (body,)
    if len(pieces) == 1:
        yield body, items, notes
        return
    whole = {note.trace_id: note for note in notes}
    for piece in pieces:
        index = TraceIndex(signal, piece)
        own = [whole[trace_id] for trace_id in index.trace_ids if trace_id in whole]
        yield piece, index.item_count, own
        # A trace's notes go with its first row: its spans arrived together.
        whole |= {note.trace_id: replace(note, span_count=0, byte_count=0, spans=()) for note in own}


def _cut(signal: Signal, body: bytes, held: Sequence[TraceNote]) -> tuple[Sequence[bytes], bytes]:
    """Return a request for each held trace, and the request without them.

    Each has a copy of its Resource and scope. If that would take far more than the request, or there are very
    many traces, no trace is held: the verdicts come late.
    """
    index = TraceIndex(signal, body)
    trace_ids = [note.trace_id for note in held]
    if len(held) > _MOST_HELD or index.is_too_much(trace_ids):
        logger.warning("traces of one request are not held: too many share it", extra={"traces": len(held)})
        return (), body
    return [index.extract(trace_id) for trace_id in trace_ids], exclude(signal, body, trace_ids)
