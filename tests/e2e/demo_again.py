"""Source of runs for load tests: the demo's run, repeated under new ids."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.e2e.traffic import Played, play_demo, request, without_mistake


@dataclass(frozen=True, slots=True)
class Again:
    """The bytes of one run."""

    trace_id: str
    before: bytes
    """A request with all its spans but the root."""
    root: bytes
    """A request with the root, whose end completes the run."""


class DemoAgain:
    """Source of runs."""

    def __init__(self, *, is_failing: bool = True) -> None:
        played = play_demo() if is_failing else play_demo(without_mistake)
        self.spans = len(played.spans)
        self._played = _Bytes.of(played)
        self._chance = random.Random(played.trace_id)

    def next(self) -> Again:
        """Return the run under a new trace id."""
        trace_id, old = self._chance.randbytes(16), self._played.trace_id
        return Again(
            trace_id.hex(),
            self._played.before.replace(old, trace_id),
            self._played.root.replace(old, trace_id),
        )


@dataclass(frozen=True, slots=True)
class _Bytes:
    trace_id: bytes
    before: bytes
    root: bytes

    @classmethod
    def of(cls, played: Played) -> _Bytes:
        return cls(bytes.fromhex(played.trace_id), request(played.spans[:-1]), request(played.spans[-1:]))
