"""Commands to the writer thread, sent from the event loop, and the release of held rows.

Waking the writer's thread costs more than most of its work, so a command that can wait is sent with the next
request. When the writer ends, everything that waits for it is resolved.

Releasing a held row is durable before the forwarder is notified: a row must not be sent twice in two forms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from collector_processor.journal.accounts import Accounts
from collector_processor.journal.chunks import Entry, Queue, by_segment, segment_of
from collector_processor.journal.log_format import Kind, positions
from collector_processor.otlp import RefusedError, Signal, TraceKey
from semconv.model import TraceId
from semconv.record import record

_BATCH_DELAY_S: Final = 0.05
"""Seconds a command may wait to be sent together with another one."""
_FAILED: Final = "the journal's writer has failed: restart blamespan; its log says why"
ENDED_RETRY_S: Final = 60.0
"""Retry delay sent to clients when blamespan must be restarted."""


class Stored(NamedTuple):
    """Number of a durable row, and its offset in its segment's log."""

    seq: int
    offset: int


@record
class Append:
    """Store these rows in one commit."""

    entries: tuple[Entry, ...]
    done: Callable[[Sequence[Stored] | RefusedError], Iterator[None] | None]
    """Called with the rows' places once they are durable, or with the error; done in steps."""

    @property
    def traces(self) -> frozenset[TraceId]:
        """The agent traces in it."""
        return frozenset(note.trace_id for entry in self.entries for note in entry.traces)


@record
class Note:
    """Write what became of rows to their segment's marks; repeated until the disk takes it."""

    segment: int
    kind: Kind
    body: bytes
    done: Callable[[], None] | None = None
    """Called once it is durable. A note without it is written later, with others, and not flushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Write a held row's new body to the marks, durably."""

    seq: int
    body: bytes
    done: Callable[[int | RefusedError], None]
    """Called with the offset of the new body in the marks, or with the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Write the collected notes of a segment, and flush them."""

    segment: int
    done: Callable[[bool], None]
    """Called with whether the disk took them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Stop using a segment that is about to be deleted."""

    segment: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipTo:
    """Begin a new segment, with at least this number."""

    segment: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Finish the queued commands and end the thread."""


Command: TypeAlias = Append | Note | Rewrite | Flush | Detach | SkipTo | Stop


class Dispatch:
    """Sends commands to the writer and tracks the futures that wait for it; used on one event loop."""

    def __init__(self, submit: Callable[[Command], None]) -> None:
        """Create it inside the running loop."""
        self._loop: Final = asyncio.get_running_loop()
        self._submit: Final = submit
        self._waiting: list[Command] = []
        self._timer: asyncio.TimerHandle | None = None
        self._answers: Final[set[asyncio.Future[Any]]] = set()
        """Futures that fail if the writer ends before it answers."""
        self._completions: Final[set[asyncio.Future[None]]] = set()
        """Futures that simply complete in that case: the next start repeats the work."""
        self._is_closed = False
        self.has_ended = False

    def now(self, *commands: Command) -> None:
        """Send commands, after the delayed ones."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for command in (*waiting, *commands):
            self._submit(command)

    def soon(self, command: Command) -> None:
        """Send a command together with the next one, or after a short delay."""
        self._waiting.append(command)
        if self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(_BATCH_DELAY_S, self.now)

    def close(self) -> None:
        """Stop sending delayed commands by timer; ``now`` still sends them."""
        self._is_closed = True

    # Waiting for the writer.

    def answer(self) -> asyncio.Future[Any]:
        """Return a future for the writer's answer; it raises if the writer ends first.

        Raises:
            RefusedError: the writer has ended already.
        """
        if self.has_ended:
            raise _refused()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._answers.add(future)
        future.add_done_callback(self._answers.discard)
        return future

    def completion(self) -> asyncio.Future[None]:
        """Return a future for the completion of a command; it also completes if the writer ends."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.has_ended:
            future.set_result(None)
        self._completions.add(future)
        future.add_done_callback(self._completions.discard)
        return future

    def ended(self) -> None:
        """Resolve every waiting future: the writer was stopped, or ended because of a bug."""
        self.has_ended = True
        for asking in tuple(self._answers):
            if not asking.done():
                asking.set_exception(_refused())
        for waiting in tuple(self._completions):
            if not waiting.done():
                waiting.set_result(None)


def _refused() -> RefusedError:
    return RefusedError(_FAILED, retry_after_s=ENDED_RETRY_S)


class HeldRows:
    """Releases rows that wait for a verdict, unchanged or rewritten; used on one event loop."""

    def __init__(
        self, accounts: Accounts, dispatch: Dispatch, on_released: Callable[[Queue, int], None]
    ) -> None:
        """Create it."""
        self._accounts: Final = accounts
        self._dispatch: Final = dispatch
        self._on_released: Final = on_released

    def release(self, key: TraceKey) -> list[asyncio.Future[None]]:
        """Release the trace's held rows unchanged; one future for each segment, completed when durable."""
        held = self._accounts.held(key)
        self._accounts.release(key, held)
        queue = Queue(Signal.TRACES, key.tenant)
        futures: list[asyncio.Future[None]] = []
        for number, seqs in by_segment(sorted(held)).items():
            futures.append(self._dispatch.completion())
            done = partial(self._released, futures[-1], queue, seqs)
            self._dispatch.now(Note(segment=number, kind=Kind.RELEASED, body=positions(seqs), done=done))
        return futures

    async def rewrite(self, seq: int, body: bytes) -> None:
        """Release one held row with ``body`` as its new body; no effect if the row is gone or was released.

        Raises:
            RefusedError: the disk refuses, or the writer has ended; the row is still held.
        """
        key = self._accounts.holder(seq)
        if key is None:
            return
        future = self._dispatch.answer()

        def done(answer: int | RefusedError) -> None:
            if isinstance(answer, RefusedError):
                if not future.done():
                    future.set_exception(answer)
                return
            self._accounts.segments.at(segment_of(seq)).rewritten.setdefault(seq, answer)
            self._accounts.release(key, (seq,))
            self._released(future, Queue(Signal.TRACES, key.tenant), (seq,))

        self._dispatch.now(Rewrite(seq=seq, body=body, done=done))
        await future

    def _released(self, future: asyncio.Future[None], queue: Queue, seqs: Sequence[int]) -> None:
        self._accounts.released(queue, seqs)
        self._on_released(queue, seqs[0])
        if not future.done():
            future.set_result(None)
