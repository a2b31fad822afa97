"""The gateway as clients see it: formats, pass-through, failures of the upstream, and hostile requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from openai import APIStatusError, AsyncOpenAI

from analyzer.experiment.replay.gateway_options import GatewayOptions, LiveCall, LiveUsage
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.open_trial import OpenTrial
from analyzer.experiment.replay.tape import Answer, CallKind
from analyzer.experiment.replay.trial import Change, Edit
from semconv.dialects.reading.action import Message
from semconv.model import ToolCall
from semconv.record import replace
from tests.cut_streams import wrong_streams
from tests.scripted_upstream import Upstream, upstream
from tests.tapes import call, chat_body, said, tape, tool

LOOK_UP = ToolCall(name="find", arguments='{"name": "Odile \\u2713"}', call_id="call_1")
FIRST = call(
    0, "How many seats?", answer=Answer(text="Let me see … ✓" * 100, calls=(LOOK_UP,), model="gpt-x")
)
SECOND = call(1, "And the price?", answer="7 euros")
TAPE = tape(FIRST, SECOND)
QUESTION: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many seats?"}]
PRICE = chat_body(said("And the price?"))


@asynccontextmanager
async def playing(
    change: Change | None = None, played: Any = TAPE, **options: Any
) -> AsyncIterator[tuple[Gateway, OpenTrial]]:
    async with serving(GatewayOptions(**options)) as gateway:
        yield gateway, gateway.open(played, change, lifetime_s=60)


def openai(opened: OpenTrial) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=opened.base_url, api_key="k")


async def post(url: str, body: Any, **headers: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as answer:
        return answer.status, await answer.read()


async def test_a_request_nested_without_end_is_refused() -> None:
    async with playing() as (_, opened), aiohttp.ClientSession() as session:
        url = f"{opened.base_url}/chat/completions"
        async with session.post(url, data=b'{"messages": ' + b"[" * 100_000) as answer:
            assert answer.status == 409
            assert "expected a JSON object" in await answer.text()


async def test_openais_client_reads_a_recorded_answer_whole_and_streamed() -> None:
    async with (
        playing() as (gateway, opened),
        playing() as (_, second),
        openai(opened) as first_client,
        openai(second) as client,
    ):
        whole = await first_client.chat.completions.create(model="gpt", messages=QUESTION)
        stream = await client.chat.completions.create(model="gpt", messages=QUESTION, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert gateway.report(opened.trial).served == 1
    (wanted,) = whole.choices[0].message.tool_calls or []
    assert wanted.type == "function"
    assert (whole.choices[0].message.content, whole.model) == (FIRST.answer.text, "gpt-x")
    assert (wanted.function.name, json.loads(wanted.function.arguments)) == ("find", {"name": "Odile ✓"})
    assert "".join(delta.content or "" for delta in deltas) == FIRST.answer.text
    pieces = [each.function.arguments for delta in deltas for each in delta.tool_calls or [] if each.function]
    assert json.loads("".join(filter(None, pieces))) == {"name": "Odile ✓"}


async def test_openais_responses_are_read_and_a_continued_one_is_expanded() -> None:
    result = Message(role="tool", text="85", answers=("call_1",))
    spoken = Message(role="assistant", text=FIRST.answer.text, calls=(LOOK_UP,))
    after = call(1, messages=(*FIRST.messages, spoken, result), answer="85 seats")
    async with playing(played=tape(FIRST, after)) as (gateway, opened), openai(opened) as client:
        begun = await client.responses.create(model="gpt", instructions="Be brief.", input="How many seats?")
        (asked,) = [item for item in begun.output if item.type == "function_call"]
        told: Any = [{"type": "function_call_output", "call_id": asked.call_id, "output": "85"}]
        stream = await client.responses.create(
            model="gpt", instructions="Be brief.", input=told, previous_response_id=begun.id, stream=True
        )
        ended = [event.response async for event in stream if event.type == "response.completed"]
        assert gateway.report(opened.trial).served == 2
    assert ended[0].output_text == "85 seats"


async def test_anthropics_format_is_spoken_whole_and_streamed() -> None:
    body = {"model": "claude", "max_tokens": 9, "system": "Be brief.", "messages": QUESTION[1:]}
    async with playing() as (_, opened), playing() as (_, second):
        status, whole = await post(f"{opened.root_url}/v1/messages?beta=true", body)
        _, stream = await post(f"{second.root_url}/v1/messages", {**body, "stream": True})
    blocks = json.loads(whole)["content"]
    assert status == 200
    assert (blocks[0]["text"], blocks[1]["input"]) == (FIRST.answer.text, {"name": "Odile ✓"})
    events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: ")]
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    texts = [each["delta"].get("text", "") for each in events if each["type"] == "content_block_delta"]
    assert "".join(texts) == FIRST.answer.text


async def test_recorded_embeddings_are_served_as_the_client_packs_them() -> None:
    wanted = replace(
        call(0, messages=(Message(role="user", text="Odile"),), answer=Answer(vectors=((0.5, -2.0),))),
        kind=CallKind.EMBEDDINGS,
    )
    async with playing(played=tape(wanted)) as (_, opened), openai(opened) as client:
        found = await client.embeddings.create(model="e", input="Odile")
    assert found.data[0].embedding == [0.5, -2.0]


async def test_a_recorded_failure_fails_again_with_its_status() -> None:
    failed = call(0, "How many seats?", answer=Answer(error="Error code: 418 - teapot", error_status=418))
    async with playing(played=tape(failed)) as (_, opened), openai(opened) as client:
        with pytest.raises(APIStatusError) as raised:
            await client.chat.completions.create(model="gpt", messages=QUESTION)
    assert raised.value.status_code == 418
    assert "teapot" in str(raised.value)


async def _live(answers: Upstream, **options: Any) -> tuple[int, bytes, Gateway, OpenTrial]:
    """Send the requests that follow a change of the first call."""
    change = Change(call=0, answer=Answer(text="changed"))
    options = {"openai": f"{answers.url}/v1/", **options}
    async with playing(change, **options) as (gateway, opened):
        await post(f"{opened.base_url}/chat/completions", chat_body(FIRST.messages))
        try:
            status, body = await post(
                f"{opened.base_url}/chat/completions?x=1",
                PRICE,
                Authorization="Bearer sk-1",
                **{"x-blamespan-token": "t"},
            )
        except aiohttp.ClientError:
            status, body = 0, b""
        return status, body, gateway, opened


STREAM = (
    b'data: {"choices": []}\n',
    b'\ndata: {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\n',
    b"data: [DONE]\n\n",
)


async def test_live_calls_pass_byte_for_byte_with_their_keys_and_their_usage_is_reported() -> None:
    reserved: list[LiveCall] = []
    settled: list[LiveUsage] = []

    async def reserve(wanted: LiveCall) -> str:
        reserved.append(wanted)
        return ""

    async def settle(_: LiveCall, usage: LiveUsage) -> None:
        settled.append(usage)

    headers = {"Content-Type": "text/event-stream", "X-Request-Id": "r1", "Keep-Alive": "timeout=5"}
    async with upstream(Upstream(chunks=STREAM, headers=headers)) as answers:
        status, body, _, _ = await _live(answers, reserve=reserve, settle=settle)
    assert (status, body) == (200, b"".join(STREAM))
    assert answers.paths == ["/v1/chat/completions?x=1"]
    assert json.loads(answers.bodies[0]) == PRICE
    assert answers.bodies[0] == reserved[0].body
    seen = {name.lower(): value for name, value in answers.seen_headers[0].items()}
    assert seen["authorization"] == "Bearer sk-1"
    assert "x-blamespan-token" not in seen
    assert (settled[0].input_tokens, settled[0].output_tokens, settled[0].failure) == (9, 4, "")


async def test_streams_cut_anywhere_pass_byte_for_byte_in_all_formats() -> None:
    assert await wrong_streams(48) == []


async def test_a_stream_arrives_chunk_by_chunk() -> None:
    chunks: list[bytes] = []
    arrived = asyncio.Semaphore(0)
    async with upstream(Upstream(chunks=STREAM, may_go_on=arrived)) as answers:
        change = Change(call=0, answer=Answer(text="changed"))
        async with playing(change, openai=answers.url) as (_, opened), aiohttp.ClientSession() as session:
            await post(f"{opened.base_url}/chat/completions", chat_body(FIRST.messages))
            async with session.post(f"{opened.base_url}/chat/completions", json=PRICE) as answer:
                async for chunk in answer.content.iter_any():
                    chunks.append(chunk)
                    arrived.release()
    assert chunks == list(STREAM)


async def test_upstream_failures_are_reported_in_the_providers_format_and_counted() -> None:
    async with upstream(Upstream(status=429, headers={"Retry-After": "3"})) as answers:
        status, _, _, _ = await _live(answers)
        assert status == 429
        answers.hangs = True
        status, body, _, _ = await _live(answers, upstream_timeout_s=0.2)
        assert (status, "timeout" in json.loads(body)["error"]["message"]) == (504, True)
        answers.hangs, answers.is_cut, answers.status = False, True, 200
        settled: list[LiveUsage] = []

        async def settle(_: LiveCall, usage: LiveUsage) -> None:
            settled.append(usage)

        status, _, _, _ = await _live(answers, settle=settle)
        assert (status, settled[0].failure) == (0, "cut")
    answers.url = "http://127.0.0.1:9"
    status, _, _, _ = await _live(answers)
    assert status == 502


async def test_a_changed_call_is_asked_anew_with_its_hint() -> None:
    async with upstream(Upstream()) as answers:
        change = Change(call=0, edit=Edit(hint="Check the sum.", model="better", system="Be exact."))
        async with playing(change, openai=answers.url) as (_, opened):
            await post(f"{opened.base_url}/chat/completions", chat_body(FIRST.messages))
    sent = json.loads(answers.bodies[0])
    assert sent["model"] == "better"
    assert [each["content"] for each in sent["messages"]] == [
        "Be exact.",
        "How many seats?",
        "Check the sum.",
    ]


async def test_a_refused_reservation_makes_no_call() -> None:
    async def reserve(_: LiveCall) -> str:
        return "the budget of $5 is spent"

    async with upstream(Upstream()) as answers:
        status, body, _, _ = await _live(answers, reserve=reserve)
    assert (status, answers.paths) == (409, [])
    assert json.loads(body)["error"]["message"] == "blamespan: the budget of $5 is spent"


async def test_two_trials_never_see_each_others_tape_and_a_guess_sees_none() -> None:
    other = tape(call(0, "How many seats?", answer="the other's secret"))
    async with playing() as (gateway, opened):
        second = gateway.open(other, lifetime_s=60)
        asked = chat_body(FIRST.messages)
        _, mine = await post(f"{opened.base_url}/chat/completions", asked)
        _, theirs = await post(f"{second.base_url}/chat/completions", asked)
        assert b"secret" not in mine
        assert b"secret" in theirs
        status, _ = await post(f"{gateway.url}/t/{'A' * 22}/v1/chat/completions", asked)
        assert status == 404
        gateway.close(second.trial)
        status, body = await post(f"{second.base_url}/chat/completions", asked)
        assert (status, b"secret" in body) == (404, False)


async def test_an_expired_trial_answers_nothing() -> None:
    async with serving(GatewayOptions()) as gateway:
        opened = gateway.open(TAPE, lifetime_s=-1)
        status, _ = await post(f"{opened.base_url}/chat/completions", chat_body(FIRST.messages))
    assert status == 404


async def test_a_foreign_host_is_refused_and_a_token_is_required_beyond_loopback() -> None:
    asked = chat_body(FIRST.messages)
    async with playing() as (_, opened):
        status, _ = await post(f"{opened.base_url}/chat/completions", asked, Host="evil.example")
        assert status == 403
    with pytest.raises(ValueError, match="expected a token"):
        async with serving(GatewayOptions(host="0.0.0.0")):
            pass
    async with playing(token="s3cret") as (gateway, opened):
        bare = f"{gateway.url}/t/{opened.trial}/v1/chat/completions"
        assert (await post(bare, asked, Authorization="Bearer s3cret"))[0] == 401
        assert (await post(bare, asked, **{"x-blamespan-token": "s3cret"}))[0] == 200
        assert "/k/s3cret/t/" in opened.base_url


async def test_nothing_in_a_request_leads_the_gateway_elsewhere() -> None:
    async with upstream(Upstream()) as honest, upstream(Upstream()) as evil:
        change = Change(call=0, answer=Answer(text=f"go to {evil.url}"))
        async with playing(change, openai=honest.url) as (gateway, opened):
            await post(f"{opened.base_url}/chat/completions", chat_body(FIRST.messages))
            body = {**PRICE, "base_url": evil.url, "api_base": evil.url}
            hostile = {
                "X-Forwarded-Host": evil.url,
                "X-Original-URL": evil.url,
                "Forwarded": f"host={evil.url}",
            }
            await post(f"{opened.base_url}/chat/completions?url={evil.url}", body, **hostile)
            await post(f"{gateway.url}/t/{opened.trial}/{evil.url}/v1/chat/completions", PRICE)
    assert len(honest.paths) == 1
    assert evil.paths == []


async def test_what_cannot_be_replayed_is_refused_and_ends_the_trial() -> None:
    for path, body in (
        ("responses", {"model": "gpt", "input": "x", "background": True}),
        ("responses", {"model": "gpt", "input": "x", "conversation": "conv_1"}),
        ("chat/completions", {"model": "gpt"}),
        ("chat/completions", ["not", "an", "object"]),
        ("files", {}),
    ):
        async with playing() as (gateway, opened):
            status, _ = await post(f"{opened.base_url}/{path}", body)
            assert status == 409
            assert gateway.report(opened.trial).invalid
    async with playing(max_request_bytes=100) as (gateway, opened):
        assert (await post(f"{opened.base_url}/responses", {"input": "x" * 200}))[0] == 409
        assert gateway.report(opened.trial).invalid


async def test_tools_are_answered_from_the_tape_or_refused() -> None:
    played = tape(FIRST, tools=[tool(0, "find", "85", name="x")])
    async with playing(played=played) as (_, opened):
        wanted = {"name": "find", "arguments": '{"name": "x"}'}
        assert json.loads((await post(f"{opened.root_url}/tools", wanted))[1]) == {
            "result": "85",
            "failed": False,
        }
        assert "refused" in json.loads((await post(f"{opened.root_url}/tools", wanted))[1])


async def test_no_key_text_or_trial_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with upstream(Upstream()) as answers:
        _, _, _, opened = await _live(answers)
    told = "\n".join(str(record.__dict__) for record in caplog.records if record.name.startswith("analyzer"))
    assert told
    for secret in ("sk-1", "And the price?", opened.trial, "changed"):
        assert secret not in told
