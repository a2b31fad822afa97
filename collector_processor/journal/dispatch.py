"""Commands to the writer thread, sent from the event loop, and the release of held rows.

Waking the writer's thread costs more than most of its work, so a command that can wait is sent with the next
request. When the writer ends, everything that waits for it is resolved.

Releasing a held row is durable before the forwarder is notified: a row must not be sent twice in two forms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from collector_processor.journal.accounts import Accounts
from collector_processor.journal.chunks import Entry, Queue, State, by_segment
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import RefusedError, Signal, TraceKey
from semconv.model import TraceId
from semconv.record import record

_BATCH_DELAY_S: Final = 0.05
"""Seconds a command may wait to be sent together with another one."""
_FAILED: Final = "the journal's writer has failed: restart blamespan; its log says why"
ENDED_RETRY_S: Final = 60.0
"""Retry delay sent to clients when blamespan must be restarted."""


@record
class Append:
    """Store these rows in one commit."""

    entries: tuple[Entry, ...]
    done: Callable[[tuple[int, ...] | RefusedError], Iterator[None] | None]
    """Called with the rows' seqs once they are durable, or with the error; done in steps."""

    @property
    def traces(self) -> frozenset[TraceId]:
        """The agent traces in it."""
        return frozenset(note.trace_id for entry in self.entries for note in entry.traces)


@record
class Mark:
    """Set the state of rows of one segment; written with the next commit or after a delay."""

    segment: int
    seqs: tuple[int, ...]
    state: State
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Replace a held row's body and release it, in a transaction of its own."""

    seq: int
    body: bytes
    done: Callable[[RefusedError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove a trace from the index of rows of one segment; written as ``Mark`` is."""

    segment: int
    seqs: tuple[int, ...]
    trace_id: TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Stop using a segment that is about to be deleted, and return its connection."""

    segment: int
    done: Callable[[SegmentFile | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Write the collected changes of state of a segment at once."""

    segment: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBack:
    """Record that a segment's WAL was copied to its file."""

    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipTo:
    """Begin a new segment, with at least this number."""

    segment: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Finish the queued commands and end the thread."""


Command: TypeAlias = Append | Mark | Rewrite | Forget | Flush | Detach | WrittenBack | SkipTo | Stop


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
            done = partial(self._released, futures[-1], queue, seqs[0])
            self._dispatch.now(Mark(segment=number, seqs=seqs, state=State.PENDING, done=done))
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

        def done(refused: RefusedError | None) -> None:
            if refused is not None:
                if not future.done():
                    future.set_exception(refused)
                return
            self._accounts.release(key, (seq,))
            self._released(future, Queue(Signal.TRACES, key.tenant), seq)

        self._dispatch.now(Rewrite(seq=seq, body=body, done=done))
        await future

    def _released(self, future: asyncio.Future[None], queue: Queue, seq: int) -> None:
        self._on_released(queue, seq)
        if not future.done():
            future.set_result(None)
