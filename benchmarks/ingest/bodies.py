"""Ready-made requests, and the same with new ids for the traces of agents. Pure.

A plain trace may come again and again; an agent's is counted, kept and analysed, so
that each request holds runs nobody has seen before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from collector_processor.survey import survey
from tests.bench.wire import TRACES, make_request

_BODIES: Final = 8
_FEW_BODIES: Final = 25
"""Of 400 traces in so many requests, one in a hundred can be an agent's."""


@dataclass(frozen=True, slots=True)
class Body:
    """One request."""

    pieces: tuple[bytes, ...]
    """Between them stands an agent's trace id."""
    ids: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.pieces)) + sum(map(len, self.ids))

    def fresh(self, number: int) -> bytes:
        """Return the request with ids that stand in no other's; ``number`` is 1 or more."""
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
    """Return requests of 16 interleaved traces each, of which so many in a hundred are an agent's."""
    count = _BODIES if agent_percent in {0, 100} else _FEW_BODIES
    agents = round(count * TRACES * agent_percent / 100)
    shares = [agents // count + (number < agents % count) for number in range(count)]
    return tuple(_cut(make_request(spans, share, seed)) for seed, share in enumerate(shares))


def _cut(request: bytes) -> Body:
    ids = [bytes.fromhex(note.trace_id) for note in survey(request).traces]
    if not ids:
        return Body((request,), ())
    pieces = re.split(b"(" + b"|".join(map(re.escape, ids)) + b")", request)
    return Body(tuple(pieces[::2]), tuple(pieces[1::2]))
