"""Between event loop and writer thread: commands there, callbacks back, and the release of held rows.

Waking the writer's thread costs more than most of its work, so a command that can wait is sent with the next
request. When the writer ends, everything that waits for it is resolved.

The writer's callbacks run in slices, so that a small request passes a large one. Requests that share a trace
are handled in the order of their commits. A request that shares no trace with those under way is handled at
once: its acknowledgement does not wait for 100,000 traces of another one.

Releasing a held row is durable before the forwarder is notified: a row must not be sent twice in two forms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
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


_STEPS_AT_ONCE: Final = 32
"""Steps done before other tasks get the event loop: about a millisecond. A step is a row, or a few traces."""
_FIRST_STEPS: Final = 12
"""Steps of a new callback done first; one that takes more continues in turn with the others."""

Step: TypeAlias = Callable[[], Iterator[None] | None]
"""Work for the event loop. If it takes long it returns an iterator, which yields between its steps."""
Delivery: TypeAlias = tuple[Step, frozenset[TraceId] | None]
"""Work, and the traces whose order matters; ``None`` if it waits for all work posted before it."""


class _Work:
    """One callback; ``steps`` is ``None`` until it begins."""

    def __init__(self, number: int, step: Step, traces: frozenset[TraceId] | None) -> None:
        self.number: Final = number
        self.step: Final = step
        self.traces: Final = traces
        self.steps: Iterator[None] | None = None

    def advance(self, most: int) -> int:
        """Do some steps; fewer than ``most`` if it has ended."""
        if self.steps is None:
            self.steps = iter(self.step() or ())
        done = 0
        for _ in islice(self.steps, most):  # ``sum`` over a generator takes twice as long
            done += 1
        return done


class Deliveries:
    """Callbacks of the writer that are new, under way, or wait for an earlier one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create it for the event loop that runs the callbacks."""
        self._loop: Final = loop
        self._numbers: Final = count()
        self._new: Final[deque[_Work]] = deque()
        self._under_way: Final[deque[_Work]] = deque()
        """Callbacks that have begun, in turn."""
        self._blocked: Final[deque[_Work]] = deque()
        """Callbacks that have not begun because of an earlier one; begun in order."""
        self._blocked_traces: Final[set[TraceId]] = set()
        """Their traces, and traces of those that were blocked with them."""
        self._is_scheduled = False

    def post(self, *works: Delivery) -> None:
        """Run these; called from other threads."""
        self._loop.call_soon_threadsafe(self._take, works)

    def post_last(self, step: Step) -> None:
        """Run this after all callbacks posted before; called from other threads."""
        self.post((step, None))

    async def finish(self) -> None:
        """Run all posted callbacks without yielding to other tasks; used at the end."""
        await asyncio.sleep(0)  # so that the last posted callbacks are taken
        while self._is_waiting:
            self._go_on(_STEPS_AT_ONCE)

    @property
    def _is_waiting(self) -> bool:
        return bool(self._new or self._under_way or self._blocked)

    def _take(self, works: Iterable[Delivery]) -> None:
        self._new.extend(_Work(next(self._numbers), step, traces) for step, traces in works)
        if not self._is_scheduled:
            self._turn()

    def _turn(self) -> None:
        self._is_scheduled = True
        try:
            self._go_on(_STEPS_AT_ONCE)
        finally:  # an error is logged by the loop; other callbacks still run
            self._is_scheduled = self._is_waiting
            if self._is_scheduled:
                self._loop.call_soon(self._turn)

    def _go_on(self, left: int) -> None:
        """Do some steps: half of them for new callbacks, so that those under way end too."""
        most = left // 2 if self._under_way or self._blocked else left
        while self._new and most > 0:
            done = self._begin(self._new.popleft())
            most, left = most - done, left - done
        while left > 0 and (work := self._next_in_turn()):
            left -= 1 + self._advance(work, _FIRST_STEPS)

    def _begin(self, work: _Work) -> int:
        if self._must_wait(work) or (work.traces is None and self._blocked):
            self._blocked.append(work)
            self._blocked_traces.update(work.traces or ())
            return 1
        return 1 + self._advance(work, _FIRST_STEPS)

    def _next_in_turn(self) -> _Work | None:
        if self._blocked and not self._is_after_another(self._blocked[0]):
            work = self._blocked.popleft()
            if not self._blocked:
                self._blocked_traces.clear()
            return work
        return self._under_way.popleft() if self._under_way else None

    def _must_wait(self, work: _Work) -> bool:
        shares = work.traces is not None and not self._blocked_traces.isdisjoint(work.traces)
        return shares or self._is_after_another(work)

    def _is_after_another(self, work: _Work) -> bool:
        """Return whether an earlier callback is under way that must end before this one begins."""
        return bool(self._under_way) and any(
            one.number < work.number
            and (work.traces is None or not work.traces.isdisjoint(one.traces or frozenset()))
            for one in self._under_way
        )

    def _advance(self, work: _Work, most: int) -> int:
        done = work.advance(most)
        if done == most:
            self._under_way.append(work)
        return done
