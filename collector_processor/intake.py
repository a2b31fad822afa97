"""The door's inner side: what arrives is checked, stored, acknowledged, handed on.

Nothing is decoded and nothing waits but for the disk. Agent traces are told to
the slow lane; in hold mode their spans are stored apart, to wait for a verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from collector_processor.assembler import TraceKey
from collector_processor.cutting import drop_invalid, extract, without
from collector_processor.journal import Journal
from collector_processor.journal.chunks import Chunk, Entry, State
from collector_processor.ledger import Ledger
from collector_processor.notes import TraceArrival, TraceNote
from collector_processor.otlp import Arrival, MalformedRequestError, Receipt, RefusedError, Signal
from collector_processor.survey import Survey, survey_signal
from collector_processor.wire import drop_oversize

logger = logging.getLogger(__name__)

_LOOP_RETRY_S: Final = 60.0
"""An endpoint is mended by a person."""


class LoopError(RefusedError):
    """The request has been through this very process before.

    Whoever sent it keeps it and asks again: nothing is lost until somebody mends an endpoint. Told
    never to ask again, it would have to drop spans that no backend has seen.
    """

    is_loop = True


class Offer(Protocol):
    """Takes rows that are durable and may be forwarded."""

    def offer(self, chunk: Chunk) -> None:
        """Take a row; never blocks."""
        ...


def holds_nothing(key: TraceKey) -> bool:
    """Late mode: no trace waits for its verdict."""
    del key
    return False


def _tell_nobody(arrival: TraceArrival) -> None:
    """No slow lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeRules:
    """What the intake asks and tells, and what it refuses."""

    instance_id: str
    """Ours, as it stands in the hops of requests that went through us."""
    now_ns: Callable[[], int]
    """Wall clock."""
    holds: Callable[[TraceKey], bool] = holds_nothing
    """Whether spans of an agent trace must wait for a verdict."""
    feed: Callable[[TraceArrival], None] = _tell_nobody
    """Told of agent traces' spans and log records once they are durable."""
    max_item_bytes: Mapping[Signal, int] = field(default_factory=dict)
    """The largest request that the backend takes; a single item beyond it is refused."""


@dataclass(frozen=True, slots=True)
class _Sound:
    """A request without what cannot be taken."""

    body: bytes
    survey: Survey
    rejected: int = 0
    message: str = ""


class Intake:
    """The ``Sink`` of the receivers."""

    def __init__(self, journal: Journal, ledger: Ledger, forwarder: Offer, rules: IntakeRules) -> None:
        self._journal: Final = journal
        self._ledger: Final = ledger
        self._forwarder: Final = forwarder
        self._rules: Final = rules
        self._said_loop = False

    async def accept(self, arrival: Arrival) -> Receipt:
        """Return once the arrival is durable.

        Raises:
            MalformedRequestError: the body is not such a request.
            RefusedError: it cannot be taken now, or it came round a loop.
        """
        sound = self._inspect(arrival)
        if sound.survey.item_count or sound.survey.max_item_bytes:
            await self._store(arrival, sound)
        if sound.rejected:
            self._ledger.refuse(arrival.signal, sound.rejected)
        return Receipt(rejected=sound.rejected, message=sound.message)

    def _inspect(self, arrival: Arrival) -> _Sound:
        """Survey a request and leave out what cannot be taken."""
        signal = arrival.signal
        known = self._journal.knows(arrival.tenant)
        try:
            found = survey_signal(signal, arrival.body, known)
        except MalformedRequestError:
            self._ledger.malformed_requests += 1
            raise
        self._refuse_loop(arrival, found)
        sound = _Sound(arrival.body, found)
        messages: list[str] = []
        if found.invalid:
            body, _ = drop_invalid(sound.body)
            messages.append(f"{found.invalid} with ids that OTLP calls invalid")
            sound = _Sound(body, survey_signal(signal, body, known))
        limit = self._rules.max_item_bytes.get(signal)
        if limit is not None and len(sound.body) > limit:
            body, dropped = drop_oversize(sound.body, limit)
            if dropped:
                messages.append(f"{dropped} larger than the backend's limit of {limit} bytes")
                sound = _Sound(body, survey_signal(signal, body, known))
        rejected = found.item_count + found.invalid - sound.survey.item_count
        return _Sound(
            sound.body, sound.survey, rejected, "rejected " + "; ".join(messages) if messages else ""
        )

    def _refuse_loop(self, arrival: Arrival, found: Survey) -> None:
        if self._rules.instance_id in arrival.hops:
            self._ledger.refuse(arrival.signal, found.item_count + found.invalid)
            reason = (
                f"this request has been through this blamespan ({self._rules.instance_id}) before: "
                "the endpoint it forwards to leads back to it"
            )
            if not self._said_loop:
                self._said_loop = True
                logger.error("spans go round in circles", extra={"reason": reason, "hops": arrival.hops})
            raise LoopError(reason, retry_after_s=_LOOP_RETRY_S)

    async def _store(self, arrival: Arrival, sound: _Sound) -> None:
        entries = self._entries(arrival, sound)

        def stored(chunks: tuple[Chunk, ...]) -> None:
            self._ledger.acknowledge(arrival.signal, sound.survey.item_count)
            for chunk, entry in zip(chunks, entries, strict=True):
                self._hand_on(chunk, entry)

        try:
            await self._journal.append(entries, stored)
        except RefusedError:
            self._ledger.refuse(arrival.signal, sound.survey.item_count + sound.rejected)
            raise

    def _hand_on(self, chunk: Chunk, entry: Entry) -> None:
        for note in entry.traces:
            self._rules.feed(
                TraceArrival(
                    seq=chunk.seq,
                    signal=entry.signal,
                    tenant=entry.tenant,
                    trace_id=note.trace_id,
                    received_ns=entry.received_ns,
                    byte_count=note.byte_count,
                    notes=note.spans,
                    is_held=entry.state is State.HELD,
                )
            )
        if entry.state is State.PENDING:
            self._forwarder.offer(chunk)

    def _entries(self, arrival: Arrival, sound: _Sound) -> tuple[Entry, ...]:
        """Return one row for the request, and in hold mode one more for each trace that waits."""
        known = self._journal.knows(arrival.tenant)
        notes = [
            note
            for note in sound.survey.traces
            if not note.is_only_carriers and (note.is_agent or note.trace_id in known)
        ]
        is_held = arrival.signal is Signal.TRACES
        held = [
            note for note in notes if is_held and self._rules.holds(TraceKey(arrival.tenant, note.trace_id))
        ]
        now_ns = self._rules.now_ns()
        entries = [self._held_entry(arrival, sound.body, note, now_ns) for note in held]
        rest = sound.survey.item_count - sum(note.span_count for note in held)
        if rest or not held:
            waiting = {note.trace_id for note in held}
            entries.append(
                Entry(
                    signal=arrival.signal,
                    tenant=arrival.tenant,
                    hops=arrival.hops,
                    received_ns=now_ns,
                    items=rest,
                    body=without(arrival.signal, sound.body, waiting) if held else sound.body,
                    traces=tuple(note for note in notes if note.trace_id not in waiting),
                )
            )
        return tuple(entries)

    @staticmethod
    def _held_entry(arrival: Arrival, body: bytes, note: TraceNote, now_ns: int) -> Entry:
        return Entry(
            signal=arrival.signal,
            tenant=arrival.tenant,
            hops=arrival.hops,
            received_ns=now_ns,
            items=note.span_count,
            body=extract(arrival.signal, body, (note.trace_id,)),
            state=State.HELD,
            traces=(note,),
        )
