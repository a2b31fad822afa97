"""Ready-made requests, and the same requests with new ids for agents' traces. Pure.

A plain trace may be repeated; an agent's trace is counted, kept and analysed, so each request must hold new
runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from benchmarks.resources.wire import TRACES, make_request
from collector_processor.wire.scan import scan_traces

_BODIES: Final = 8
_FEW_BODIES: Final = 25
"""Number of distinct requests: of their 400 traces, one in a hundred can be an agent's."""


@dataclass(frozen=True, slots=True)
class Body:
    """One request."""

    pieces: tuple[bytes, ...]
    """Parts of the request, separated by an agent's trace id."""
    ids: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(map(len, self.pieces)) + sum(map(len, self.ids))

    def fresh(self, number: int) -> bytes:
        """Return the request with unique ids; ``number`` is 1 or more."""
        if not self.ids:
            return self.pieces[0]
        head = number.to_bytes(8, "big")
        new = {old: head + old[8:] for old in set(self.ids)}
        woven: list[bytes] = []
        for piece, old in zip(self.pieces, self.ids, strict=False):
            woven += (piece, new[old])
        return b"".join((*woven, self.pieces[-1]))


@cache
def make_bodies(spans: int, agent_percent: int) -> tuple[Body, ...]:
    """Return requests of 16 interleaved traces each, of which ``agent_percent`` are an agent's."""
    count = _BODIES if agent_percent in {0, 100} else _FEW_BODIES
    agents = round(count * TRACES * agent_percent / 100)
    shares = [agents // count + (number < agents % count) for number in range(count)]
    return tuple(_cut(make_request(spans, share, seed)) for seed, share in enumerate(shares))


def _cut(request: bytes) -> Body:
    ids = [bytes.fromhex(note.trace_id) for note in scan_traces(request).traces]
    if not ids:
        return Body((request,), ())
    pieces = re.split(b"(" + b"|".join(map(re.escape, ids)) + b")", request)
    return Body(tuple(pieces[::2]), tuple(pieces[1::2]))
