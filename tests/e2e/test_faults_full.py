"""Both disk quotas used up: of spans to be forwarded, and of spans kept for analysis."""

from __future__ import annotations

from collections.abc import Callable
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from collector_processor.otlp import Signal, grpc_path, http_path
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.scripted_backend import CONTENT, Mood, moody
from tests.e2e.traffic import send
from tests.factories import agent, chat, span, span_id, workflow
from tests.otlp_requests import log_request, record

QUOTA = 4 << 20
TEXT = "x" * 100_000
MANY = 10 * QUOTA // len(TEXT)
"""Number of requests; the quota holds only some of them."""


def large(number: int) -> bytes:
    return encode([span(number, attributes={"text": TEXT})])


def refused_over_grpc(line: Line, body: bytes) -> float | None:
    """Send it; return after how long it may be retried, or ``None`` if it was accepted."""
    with grpc.insecure_channel(line.grpc.removeprefix("http://")) as channel:
        call: Callable[..., Callable[..., bytes]] = channel.unary_unary
        try:
            call(grpc_path(Signal.TRACES))(body, timeout=300)
        except grpc.RpcError as error:
            refusal: grpc.Call = error  # type: ignore[assignment] # what a call raises is one
            assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            details = dict(refusal.trailing_metadata() or ())["grpc-status-details-bin"]
            return _retry_delay(details)
    return None


def _retry_delay(details: str | bytes) -> float:
    assert isinstance(details, bytes)
    status, info = Status.FromString(details), RetryInfo()
    assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    (told,) = [one for one in status.details if one.Unpack(info)]
    return info.retry_delay.seconds + info.retry_delay.nanos / 1e9 if told else 0


def refused_over_http(line: Line, body: bytes) -> float | None:
    """Do the same over HTTP."""
    url = line.http + http_path(Signal.TRACES)
    request = Request(url, data=body, headers={"Content-Type": "application/x-protobuf"}, method="POST")
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=300):
            return None
    except HTTPError as error:
        refusal = error
    with refusal:
        assert refusal.code in {429, 503}
        return float(refusal.headers["Retry-After"])


@pytest.mark.parametrize("refused", [refused_over_grpc, refused_over_http])
def test_a_full_journal_refuses_before_it_acknowledges_and_says_when_to_come_again(
    start_line: StartLine, refused: Callable[[Line, bytes], float | None]
) -> None:
    """The backend is away. Logs, the API and acknowledged spans are unaffected."""
    with moody("grpc") as backend:
        away = Mood(code=grpc.StatusCode.UNAVAILABLE)
        backend.answer = lambda request: away if request.signal is Signal.TRACES else CONTENT
        line = start_line(forward_endpoint=backend.url, max_pending_bytes=QUOTA)
        taken: list[int] = []
        while (wait_s := refused(line, large(len(taken) + 1))) is None:
            taken.append(len(taken) + 1)
            assert len(taken) < MANY, "nothing was refused"
        assert wait_s > 0
        assert len(taken) > 1
        assert refused(line, large(len(taken) + 1)) is not None
        counts = line.balance()
        assert counts["acknowledged"] == counts["held"] == len(taken)
        assert (counts["received"], counts["refused"]) == (len(taken) + 2, 2)

        send(line, log_request(record()), signal=Signal.LOGS)
        line.await_items("forwarded", 1, Signal.LOGS)
        assert line.runs() == []

        backend.answer = lambda _: CONTENT
        expected = [str(span_id(number)) for number in taken]
        assert sorted(backend.await_taken(len(taken))) == expected  # several requests were under way
        line.await_items("held", 0)
        assert refused(line, large(len(taken) + 1)) is None
        line.await_items("held", 0)  # else its end waits for the backend


def test_where_more_is_open_than_may_be_kept_the_oldest_runs_lose_their_verdict_and_nothing_else(
    start_line: StartLine,
) -> None:
    names = [TraceId(f"{number:032x}") for number in range(1, MANY + 1)]
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, max_retained_bytes=QUOTA)
        for name in names:
            send(line, encode([chat(3, parent=2, answer=TEXT, trace_id=name)]))
        wait_until(lambda: line.sample("blamespan_traces_evicted") > 0, what="an eviction", timeout_s=300)
        newest = names[-1]
        end = (agent(2, "planner", trace_id=newest), workflow(1, trace_id=newest, error="no good"))
        send(line, encode(end))
        assert line.verdict(newest)["status"] == "attributed"
        evicted = line.verdict(names[0])
        assert evicted["status"] == "error"
        assert "evicted" in evicted["reason"]
        line.await_items("forwarded", MANY + len(end))
        assert line.sample("blamespan_traces_evicted") < MANY
        assert "lost" not in line.balance()
