"""Traces that wait for others of their run, and the order of examinations. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from collector_processor.assembly.assembler import Released
from collector_processor.otlp import TraceKey
from semconv.model import Completion


class Waits:
    """Complete traces that wait until another trace of their run is examined."""

    def __init__(self) -> None:
        self._awaited: Final[dict[TraceKey, frozenset[TraceKey]]] = {}
        """The traces that each waits for."""
        self._waiters: Final[defaultdict[TraceKey, set[TraceKey]]] = defaultdict(set)
        """Waiting traces, by the traces that they wait for."""
        self._resumed: Final[dict[TraceKey, None]] = {}
        """Traces that need not wait any more, in order, until they are taken."""

    def __contains__(self, key: TraceKey) -> bool:
        """Return whether the trace waits."""
        return key in self._awaited

    def __len__(self) -> int:
        """Return the number of traces that wait."""
        return len(self._awaited)

    def wait(self, key: TraceKey, awaited: frozenset[TraceKey]) -> None:
        """Let a trace wait for any of these."""
        self.stop(key)
        self._awaited[key] = awaited
        for one in awaited:
            self._waiters[one].add(key)

    def stop(self, key: TraceKey) -> None:
        """Let a trace wait no longer; no effect if it does not wait."""
        for one in self._awaited.pop(key, ()):
            self._waiters[one].discard(key)
            if not self._waiters[one]:
                del self._waiters[one]

    def settle(self, settled: Iterable[TraceKey]) -> bool:
        """Resume the traces that wait for these; return whether there are any."""
        found = [key for one in settled for key in self._waiters.get(one, ())]
        self._resumed.update(dict.fromkeys(found))
        return bool(found)

    def take_resumed(self) -> Iterator[TraceKey]:
        """Remove and yield the resumed traces, except those whose wait has already ended."""
        for key in tuple(self._resumed):
            del self._resumed[key]
            if key in self._awaited:
                self.stop(key)
                yield key


class ExaminationOrder:
    """Traces under examination, in the order in which their examinations began.

    Final and provisional examinations are kept apart: none waits for one of the other kind.
    """

    def __init__(self) -> None:
        self._numbers: Final = count()
        self._final: Final[dict[TraceKey, int]] = {}
        self._provisional: Final[dict[TraceKey, int]] = {}
        self._behind: Final[defaultdict[TraceKey, list[TraceKey]]] = defaultdict(list)
        """Traces whose provisional verdict waits for another's, by that trace."""

    def begin(self, released: Released) -> None:
        """Add the traces of an examination behind all others."""
        keys = (released.key, *released.along)
        self._of(released).update(dict.fromkeys(keys, next(self._numbers)))

    def end(self, released: Released) -> Sequence[TraceKey]:
        """Remove the traces of an examination, if they are there; return those that followed it."""
        for key in (released.key, *released.along):
            self._of(released).pop(key, None)
        return self._behind.pop(released.key, ())

    def follow(self, leader: TraceKey, key: TraceKey) -> None:
        """Let the provisional verdict of a trace wait for that of another under examination."""
        self._behind[leader].append(key)

    def is_ahead(self, released: Released, other: TraceKey) -> bool:
        """Return whether the other trace's examination began before that of ``released``."""
        begun = self._of(released)
        return other in begun and begun[other] < begun[released.key]

    def _of(self, released: Released) -> dict[TraceKey, int]:
        return self._provisional if released.completion is Completion.IDLE_OPEN else self._final
