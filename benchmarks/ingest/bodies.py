"""Ready-made requests, and the same requests with new ids for agents' traces. Pure.

A plain trace may be repeated; an agent's trace is counted, kept and analysed, so each request must hold new
runs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.wire.scan import scan_traces
from tests.otlp_requests import request, span

_SPAN_BYTES: Final = 1400
_TRACES: Final = 16
_WORDS: Final = ("select", "order", "total", "from", "items", "where", "price", "customer", "and", "shipped")
SIGNS: Final[Mapping[str, Mapping[str, str | int]]] = {
    "agent": {},  # see ``_span``
    "count": {"http.usage.input_tokens": 12},
    "text": {"db.query.text": "select input_tokens, total from usage where day > 7"},
}
"""What the spans of an agent's traces carry: a marker, or what may look like a sign of a model call."""
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
def make_bodies(spans: int, agent_percent: int, sign: str = "agent") -> tuple[Body, ...]:
    """Return requests of 16 interleaved traces each, of which ``agent_percent`` carry a sign."""
    count = _BODIES if agent_percent in {0, 100} else _FEW_BODIES
    agents = round(count * _TRACES * agent_percent / 100)
    shares = [agents // count + (number < agents % count) for number in range(count)]
    return tuple(_cut(make_request(spans, share, seed, sign)) for seed, share in enumerate(shares))


def _cut(body: bytes) -> Body:
    ids = [bytes.fromhex(note.trace_id) for note in scan_traces(body).traces]
    if not ids:
        return Body((body,), ())
    pieces = re.split(b"(" + b"|".join(map(re.escape, ids)) + b")", body)
    return Body(tuple(pieces[::2]), tuple(pieces[1::2]))


def make_request(spans: int, agent_traces: int, seed: int = 1, sign: str = "agent") -> bytes:
    """Return one request; ``agent_traces`` of its 16 traces carry the attributes of ``SIGNS[sign]``."""
    chance = random.Random(seed)
    first = chance.getrandbits(60) | 1
    signs = [sign if n % _TRACES < agent_traces else "" for n in range(spans)]
    return request(*(_span(n, first, chance, sign) for n, sign in enumerate(signs)))


def _span(number: int, first: int, chance: random.Random, sign: str) -> Span:
    attributes: dict[str, str | int | bool] = {
        "http.request.method": "GET",
        "url.path": f"/api/v1/items/{number}",
        "server.address": "shop.internal",
        "server.port": 8080,
        "http.response.status_code": 200,
        "thread.name": f"worker-{number % 8}",
        "enduser.id": f"user-{chance.randrange(10**6)}",
    }
    attributes |= SIGNS.get(sign, {})
    if sign == "agent":
        attributes |= {"gen_ai.operation.name": "chat" if number >= _TRACES else "invoke_workflow"}
    made = span(
        chance.getrandbits(63),
        trace=first * 1000 + number % _TRACES,
        parent=first if number >= _TRACES else None,
        attributes=attributes,
        name="GET /api/v1/items",
    )
    room = _SPAN_BYTES - made.ByteSize() - 20
    text = " ".join(chance.choices(_WORDS, k=room // 5))
    made.attributes.add(key="db.statement").value.string_value = text[:room]
    return made
