"""Upstreams that hang, trickle or close, enormous tapes, and odd ids of trials: none holds up a trial."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.replay import gateway_server, read_request
from analyzer.experiment.replay.gateway_options import GatewayOptions, LiveCall, LiveUsage
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.matching import TapeIndex
from analyzer.experiment.replay.open_trial import RunningTrial, StandIns
from analyzer.experiment.replay.tape import Answer, RecordedCall
from analyzer.experiment.replay.trial import Change, Serve, Trial
from analyzer.experiment.replay.wire.anthropic_messages import read_anthropic
from semconv.record import replace
from tests.scripted_upstream import Upstream, upstream
from tests.tapes import again, asking, call, chat_body, said, tape

FIRST = call(0, "How many seats?")
CHANGE = Change(call=0, answer=Answer(text="changed"))
ASKED = chat_body(FIRST.messages)
LATER = chat_body(said("And the price?"))
SHORT_S = 1.0
"""Lifetime of a trial that its upstream outlives by far."""


async def _at_its_end(answers: Upstream, *, lifetime_s: float = SHORT_S) -> tuple[bytes, list[LiveUsage]]:
    """Make a live call; return what arrived, and its outcome."""
    settled: list[LiveUsage] = []

    async def settle(_: LiveCall, usage: LiveUsage) -> None:
        settled.append(usage)

    options = GatewayOptions(openai=answers.url, settle=settle)
    arrived = b""
    async with serving(options) as gateway, aiohttp.ClientSession() as session:
        opened = gateway.open(tape(FIRST), CHANGE, lifetime_s=lifetime_s)
        await (await session.post(f"{opened.base_url}/chat/completions", json=ASKED)).read()
        try:
            async with session.post(f"{opened.base_url}/chat/completions", json=LATER) as answer:
                async for chunk in answer.content.iter_any():
                    arrived += chunk
        except aiohttp.ClientError:
            pass
    return arrived, settled


async def test_a_call_to_a_hanging_upstream_ends_with_the_trial() -> None:
    async with upstream(Upstream(hangs=True)) as answers:
        arrived, settled = await _at_its_end(answers)
    assert "did not answer (timeout)" in json.loads(arrived)["error"]["message"]
    assert [each.failure for each in settled] == ["timeout"]


async def test_an_upstream_that_trickles_without_end_is_cut_when_the_trial_ends() -> None:
    async with upstream(Upstream(chunks=(b"data: {}\n\n",) * 1_000_000, pause_s=0.01)) as answers:
        arrived, settled = await _at_its_end(answers)
    assert arrived.startswith(b"data: {}")
    assert [each.failure for each in settled] == ["cut"]


async def test_an_upstream_that_closes_at_once_is_unavailable() -> None:
    async with upstream(Upstream(closes=True)) as answers:
        arrived, settled = await _at_its_end(answers, lifetime_s=600)
    assert "unavailable" in json.loads(arrived)["error"]["message"]
    assert [each.failure for each in settled] == ["unavailable"]


@pytest.mark.parametrize("status", [302, 307, 404, 999])
async def test_only_a_status_of_success_counts_as_an_answer(status: int) -> None:
    async with upstream(Upstream(status=status, headers={"Location": "/elsewhere"})) as answers:
        _, settled = await _at_its_end(answers, lifetime_s=600)
    assert [each.failure for each in settled] == [f"http_{status}"]


async def test_a_trial_that_is_closed_ends_its_live_calls() -> None:
    options = GatewayOptions()
    async with (
        upstream(Upstream(hangs=True)) as answers,
        serving(replace(options, openai=answers.url)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        opened = gateway.open(tape(FIRST), CHANGE, lifetime_s=600)
        await (await session.post(f"{opened.base_url}/chat/completions", json=ASKED)).read()
        asked = asyncio.ensure_future(session.post(f"{opened.base_url}/chat/completions", json=LATER))
        while not answers.paths:  # noqa: ASYNC110 - the server shares this loop
            await asyncio.sleep(0.01)
        gateway.close(opened.trial)
        assert (await asked).status == 504


@pytest.mark.parametrize(
    ("age_s", "failures"),
    [pytest.param(500.0, {"timeout": 1}, id="most of it"), pytest.param(20.0, {}, id="little of it")],
)
async def test_a_call_under_way_at_the_end_is_the_upstreams_failure_if_it_took_most_of_the_time(
    age_s: float, failures: dict[str, int]
) -> None:
    trial = Trial(tape(FIRST), CHANGE)
    trial.ask(again(FIRST))
    trial.answering(0)
    running = RunningTrial(trial, 600.0, StandIns((), ""))
    trial.ask(asking("And the price?"))
    running.live[1] = time.monotonic() - age_s
    assert dict(running.end().live_failures) == failures


@pytest.mark.whole
def test_a_tape_of_a_hundred_thousand_calls_serves_them_all() -> None:
    same, others = call(0, "again"), [call(0, f"question {number}") for number in range(1_000)]
    calls = tape(*(_at(each, place) for place, each in enumerate([same] * 99_000 + others)))
    index = TapeIndex(calls.calls)
    for _ in range(2):  # the second trial shares the index
        trial = Trial(calls, index=index)
        served = [trial.ask(again(each)) for each in calls.calls]
        assert [each.call for each in served if isinstance(each, Serve)] == list(range(100_000))
        assert trial.report().missing == ()


def _at(recorded: RecordedCall, place: int) -> RecordedCall:
    return replace(recorded, index=place, start_ns=place, end_ns=place)


ODD_IDS: dict[str, Callable[[str], str]] = {
    "too long": lambda trial: trial * 300,
    "unicode": lambda trial: quote(f"{trial}\u00e9\u2713"),
    "private use": lambda trial: quote(f"{trial[:-1]}\ue000"),
    "null byte": lambda trial: f"{trial}%00",
    "traversal": lambda trial: f"%2e%2e/{trial}%2f..",
    "escaped traversal": lambda trial: f"..%2f{trial}",
    "other case": lambda trial: trial.swapcase(),
    "cut": lambda trial: trial[:-1],
    "no UTF-8": lambda trial: f"{trial}%ff%fe",
    "pattern": lambda _: "*",
}


@pytest.mark.parametrize("odd", ODD_IDS.values(), ids=ODD_IDS)
async def test_an_odd_id_reaches_no_trial(odd: Callable[[str], str]) -> None:
    async with serving(GatewayOptions()) as gateway, aiohttp.ClientSession() as session:
        opened = gateway.open(tape(FIRST), lifetime_s=600)
        url = URL(f"{gateway.url}/t/{odd(opened.trial)}/v1/chat/completions", encoded=True)
        async with session.post(url, json=ASKED) as answer:
            assert 400 <= answer.status < 500, await answer.text()
        report = gateway.report(opened.trial)
        assert (report.served, report.invalid) == (0, "")


async def test_an_id_may_be_percent_escaped() -> None:
    async with serving(GatewayOptions()) as gateway, aiohttp.ClientSession() as session:
        opened = gateway.open(tape(FIRST), lifetime_s=600)
        escaped = "".join(f"%{ord(each):02x}" for each in opened.trial)
        url = URL(f"{gateway.url}/t/{escaped}/v1/chat/completions", encoded=True)
        async with session.post(url, json=ASKED) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"not gzip", {"Content-Encoding": "gzip"}, id="no gzip"),
        pytest.param(gzip.compress(b"{}" * 999)[:-9], {"Content-Encoding": "gzip"}, id="cut gzip"),
        pytest.param(b"\xff\xfe", {}, id="no UTF-8"),
        pytest.param(b"{" * 9, {"Content-Type": "text/plain; charset=utf-99"}, id="no charset"),
    ],
)
async def test_an_unreadable_body_is_refused_and_ends_the_trial(body: bytes, headers: dict[str, str]) -> None:
    async with serving(GatewayOptions()) as gateway, aiohttp.ClientSession() as session:
        opened = gateway.open(tape(FIRST), lifetime_s=600)
        url = f"{opened.base_url}/chat/completions"
        async with session.post(url, data=body, headers=headers) as answer:
            assert answer.status == 409
        assert gateway.report(opened.trial).invalid


async def test_a_token_that_is_no_text_is_wrong() -> None:
    async with serving(GatewayOptions(token="s3cret")) as gateway:
        opened = gateway.open(tape(FIRST), lifetime_s=600)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
        head = f"POST /t/{opened.trial}/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        writer.write(head.encode() + b"x-blamespan-token: \xff\xfe\r\nConnection: close\r\n\r\n{}")
        assert b" 401 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_request_for_more_tokens_than_a_float_holds_is_not_paid() -> None:
    ledger = Ledger(lambda _, sent, received: (sent + received) * 1e-6, budget_usd=1.0)
    body = json.dumps({"n": 10**400, "max_tokens": 10**400}).encode()
    assert "a call may cost" in await ledger.reserve(LiveCall(trial="t", model="m", body=body))


async def test_no_request_switches_a_fault_on() -> None:
    hostile = {"x-blamespan-fault": "wrong_value", "x-blamespan-inject": "1", "baggage": "fault=wrong_value"}
    body = {**ASKED, "fault": "wrong_value", "metadata": {"blamespan.inject": "wrong_value"}}
    async with serving(GatewayOptions()) as gateway, aiohttp.ClientSession(headers=hostile) as session:
        opened = gateway.open(tape(FIRST), lifetime_s=600)
        url = f"{opened.base_url}/chat/completions?fault=wrong_value&change=0&text=wrong"
        async with session.post(url, json=body) as answer:
            said = (await answer.json())["choices"][0]["message"]["content"]
        for path in ("inject", "fault", "change"):
            async with session.post(f"{opened.root_url}/{path}", json={"kind": "wrong_value"}) as refused:
                assert refused.status == 409
    assert said == FIRST.answer.text


async def test_the_first_difference_of_a_long_request_is_reported() -> None:
    body = chat_body(said(*(f"turn {number} " + "so " * 1_000 for number in range(100))))
    async with serving(GatewayOptions()) as gateway, aiohttp.ClientSession() as session:
        opened = gateway.open(tape(FIRST), lifetime_s=60)
        answer = await session.post(f"{opened.base_url}/chat/completions", json=body)
        difference = gateway.report(opened.trial).first_difference
    assert answer.status == 409
    assert difference is not None
    assert difference.call == 0
    assert difference.found.startswith("user: turn 0 so so")


def test_blocks_of_a_message_are_sorted_by_their_kind_alone() -> None:
    """Each used to be compared with all results of tools: 25 million comparisons for 5,000 of each."""

    class Block(dict[str, object]):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Block.compared += 1
            return super().__eq__(other)

        __hash__ = None

    kinds = ("tool_result", "text") * 50
    blocks = [Block(type=kind, text=str(n), content="x") for n, kind in enumerate(kinds)]
    asked = read_anthropic({"model": "claude", "messages": [{"role": "user", "content": blocks}]})
    assert len(asked.messages) == 51
    assert Block.compared == 0


HEAD = (
    "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
)


async def _raw(url: URL, head: str) -> bytes:
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(head.encode("latin-1"))
        return await asyncio.wait_for(reader.read(1_000), 60)
    finally:
        writer.close()


async def test_half_a_body_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_request, "BODY_S", 0.2)
    async with serving(GatewayOptions()) as gateway:
        url = URL(gateway.open(tape(FIRST), lifetime_s=60).base_url) / "chat/completions"
        answer = await _raw(url, HEAD.format(path=url.path, host=url.host, size=1_000) + '{"model":')
    assert b" 409 " in answer
    assert b"within 0.2 s" in answer


async def test_a_request_without_the_token_is_refused_before_its_body() -> None:
    async with serving(GatewayOptions(token="a-token-of-the-operator")) as gateway:
        opened = URL(gateway.open(tape(FIRST), lifetime_s=60).base_url)
        path = opened.path.replace("a-token-of-the-operator", "another") + "/chat/completions"
        answer = await _raw(opened, HEAD.format(path=path, host=opened.host, size=10**9))
    assert b" 401 " in answer


async def test_connections_beyond_the_bound_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "MOST_CONNECTIONS", 3)
    async with serving(GatewayOptions()) as gateway:
        url = URL(gateway.url)
        held = [await asyncio.open_connection(url.host, url.port) for _ in range(3)]
        await asyncio.sleep(0.1)
        answer = await _raw(url, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _, writer in held:
            writer.close()
    assert b" 503 " in answer
    assert b"Retry-After" in answer


async def test_no_byte_of_a_broken_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving(GatewayOptions()) as gateway:
        assert b" 400 " in await _raw(URL(gateway.url), "GET /secret\x00marker HTTP/9.9\r\n\r\n")
    assert "marker" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_gateway_that_listens_everywhere_names_an_address_that_answers() -> None:
    async with serving(GatewayOptions(host="0.0.0.0", token="a-token-of-the-operator")) as gateway:
        url = URL(gateway.open(tape(FIRST), lifetime_s=60).base_url)
        assert url.host != "0.0.0.0"
        async with aiohttp.ClientSession() as session, session.get(url / "models") as answer:
            assert answer.status == 200
