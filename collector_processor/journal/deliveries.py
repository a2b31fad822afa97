"""Runs the writer's callbacks on the event loop, in slices, so that a small request passes a large one.

Requests that share a trace are handled in the order of their commits. A request that shares no trace with
those under way is handled at once: its acknowledgement does not wait for 100,000 traces of another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Final, TypeAlias

from semconv.model import TraceId

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
