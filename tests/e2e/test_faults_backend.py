"""A backend that is slow, flaps, fails for some requests, or refuses: its answers are obeyed, and nothing
else suffers."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

import grpc
import pytest

from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.e2e.backend import Request
from tests.e2e.line import Line, StartLine
from tests.e2e.scripted_backend import CONTENT, Mood, Moody, Protocol, moody
from tests.e2e.spans import placed
from tests.e2e.traffic import send
from tests.factories import span, span_id
from tests.otlp_requests import log_request, record

PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")
RETRYABLE: dict[str, list[Mood]] = {
    "http/protobuf": [Mood(status=status) for status in (429, 503)],
    "grpc": [
        Mood(code=grpc.StatusCode.UNAVAILABLE),
        Mood(code=grpc.StatusCode.RESOURCE_EXHAUSTED, after_s=0.1),
    ],
}
PERMANENT: dict[str, list[Mood]] = {
    "http/protobuf": [Mood(status=status) for status in (400, 500)],
    "grpc": [  # RESOURCE_EXHAUSTED without RetryInfo is permanent
        Mood(code=code) for code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    ],
}


def plain(number: int) -> bytes:
    return encode([span(number)])


def numbered(count: int) -> list[str]:
    return [str(span_id(number)) for number in range(1, count + 1)]


def send_plain(line: Line, numbers: Iterable[int]) -> None:
    for number in numbers:
        send(line, plain(number))


def to(backend: Moody, protocol: Protocol) -> dict[str, str]:
    return {"forward_endpoint": backend.url, "forward_protocol": protocol}


def ids_in(request: Request) -> set[str]:
    return {one.id for one in placed(request.body)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_retryable_code_is_waited_out_and_a_permanent_one_costs_its_own_span(
    start_line: StartLine, protocol: Protocol
) -> None:
    """Each span meets one code, once; it arrives once if the code is retryable, and is counted if it is
    permanent. What each code means is in ``tests/contract/test_exporters.py``."""
    moods = [*RETRYABLE[protocol], *PERMANENT[protocol]]
    due: dict[str, Mood] = {span_id(number): mood for number, mood in enumerate(moods, 1)}

    def answer(request: Request) -> Mood:
        (met,) = ids_in(request)
        mood = due.get(met, CONTENT)
        if mood in RETRYABLE[protocol]:
            due.pop(met)
        return mood

    with moody(protocol) as backend:
        backend.answer = answer
        line = start_line(**to(backend, protocol))
        for number in range(1, len(moods) + 1):
            send_plain(line, (number,))
            wait_for_settled(line, number)
        kept = numbered(len(RETRYABLE[protocol]))
        assert backend.taken() == kept
        refused = len(PERMANENT[protocol])
        line.await_balance(
            received=len(moods), acknowledged=len(moods), forwarded=len(kept), rejected=refused
        )
        assert len(line.said("backend rejected items for good: they are not retried")) == refused
        assert len(backend.asked) == 2 * len(kept) + refused


def wait_for_settled(line: Line, count: int) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end:
        balance = line.balance()
        if balance.get("received") == count and "held" not in balance:
            return
        time.sleep(0.05)
    raise AssertionError(f"not settled: {line.balance()}")


def test_a_flapping_backend_gets_everything_once_and_what_came_first_first(start_line: StartLine) -> None:
    chance = random.Random(5)
    with moody("grpc") as backend:
        down = Mood(code=grpc.StatusCode.UNAVAILABLE)
        backend.answer = lambda _: down if chance.random() < 0.4 else CONTENT
        line = start_line(**to(backend, "grpc"))
        for number in range(1, 61):
            send_plain(line, (number,))
            time.sleep(0.02)
        taken = backend.await_taken(60)
        assert sorted(taken) == numbered(60)
        late = sum(1 for place, one in enumerate(taken) if abs(place - int(one, 16) + 1) > 40)
        assert late == 0
        line.await_items("forwarded", 60)


def test_a_throttled_tenant_and_a_dead_signal_hold_up_only_themselves(start_line: StartLine) -> None:
    busy = Mood(status=429, code=grpc.StatusCode.RESOURCE_EXHAUSTED, after_s=60)

    def answer(request: Request) -> Mood:
        is_throttled = request.headers.get("x-scope-orgid") == "slow"
        return busy if is_throttled or request.signal is Signal.LOGS else CONTENT

    with moody("grpc") as backend:
        backend.answer = answer
        line = start_line(**to(backend, "grpc"), shutdown_s=1)
        trace = TraceId("e" * 32)
        for number in range(1, 21):
            send(line, encode([span(number, trace_id=trace)]), headers={"x-scope-orgid": "slow"})
            send(line, log_request(record()), signal=Signal.LOGS)
            send(line, plain(100 + number), headers={"x-scope-orgid": "quick"})
        backend.await_taken(20)
        line.await_balance(received=40, acknowledged=40, forwarded=20, held=20)
        line.await_balance(Signal.LOGS, received=20, acknowledged=20, held=20)
        assert 1 <= len([asked for asked in backend.asked if not asked.mood.takes]) <= 16
