"""Wrongly typed requests: the gateway refuses each as its API does, and marks the trial invalid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Answer
from analyzer.experiment.replay.trial import Change, Edit
from analyzer.experiment.replay.wire import WIRES, UnreadableRequest
from tests.scripted_upstream import Upstream, upstream
from tests.tapes import call, chat_body, tape

FIRST = call(0, "first")
NAMES = (
    *("messages", "input", "tools", "functions", "model", "stream", "stream_options", "instructions"),
    *("system", "background", "conversation", "previous_response_id", "web_search_options", "mcp_servers"),
    *("encoding_format", "role", "content", "type", "text", "name", "function", "parameters", "properties"),
    *("input_schema", "tool_calls", "tool_call_id", "call_id", "id", "arguments", "parts", "output", "n"),
    *("tool_use_id", "source", "data", "kwargs", "message", "summary", "thinking", "additional_kwargs"),
    *("function_call", "max_tokens", "temperature"),
)
WORDS = st.sampled_from(
    (
        *("user", "system", "tool", "text", "tool_use", "tool_result", "thinking", "function", "custom"),
        *("function_call", "function_call_output", "reasoning", "message", "image_url", "transfer_to_x"),
        *("first", "", "[{}]", '{"type": []}', "\ufffd\U0001f600", "[[[["),
    )
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
ODD: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
REAL: Mapping[str, Mapping[str, Any]] = {
    "chat/completions": {
        **chat_body(FIRST.messages),
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
    },
    "responses": {
        "model": "gpt",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "first"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
    },
    "embeddings": {"model": "e", "input": ["first"]},
    "messages": {
        "model": "claude",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "first"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
    },
}
"""A request of each API, in which one value is replaced."""


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths to all values inside a document."""
    found: list[tuple[Any, ...]] = []
    left: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while left:
        path, each = left.pop()
        pairs = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, inner in pairs:
            found.append((*path, key))
            left.append(((*path, key), inner))
    return found


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = json.loads(json.dumps(document))
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


@st.composite
def bodies(draw: st.DrawFn, api: str) -> Any:
    """A real request with up to three values replaced, or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    body = REAL[api]
    for _ in range(draw(st.integers(1, 3))):
        body = with_value(body, draw(st.sampled_from(places(body))), draw(ODD))
    return body


requests = st.sampled_from(sorted(WIRES)).flatmap(lambda api: st.tuples(st.just(api), bodies(api)))


@given(requests)
def test_a_wire_reads_a_request_or_says_what_it_expected(asked: tuple[str, Any]) -> None:
    api, body = asked
    if not isinstance(body, dict):
        return
    try:
        read = WIRES[api].read(body)
    except UnreadableRequest:
        return
    assert all(isinstance(name, str) for name in (*read.tools, *read.provider_tools, read.model))
    edited = WIRES[api].edited(body, Edit(hint="Check.", model="other", system="Be exact."))
    json.dumps(edited).encode()


def options(answers: Upstream) -> GatewayOptions:
    """Options of an experiment's gateway, whose ledger reads requests too."""
    ledger = Ledger(lambda _, sent, received: (sent + received) * 1e-9, budget_usd=1e9)
    return GatewayOptions(
        openai=answers.url, anthropic=answers.url, reserve=ledger.reserve, settle=ledger.settle
    )


async def _answers(asked: list[tuple[str, Any]]) -> None:
    async with (
        upstream(Upstream()) as answers,
        serving(options(answers)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        for api, body in asked:
            for change in (None, Change(call=0, edit=Edit(system="Be exact.", hint="Check.", model="m"))):
                opened = gateway.open(tape(FIRST), change, lifetime_s=3600)
                async with session.post(f"{opened.base_url}/{api}", json=body) as answer:
                    said = await answer.read()
                report = gateway.close(opened.trial)
                assert answer.status == 200 or 400 <= answer.status < 500, (api, body, answer.status)
                assert bool(report.invalid) == (answer.status != 200), (api, body, report)
                if answer.status != 200:
                    error = json.loads(said)["error"]
                    assert error["message"] == f"blamespan: {report.invalid}"
                    assert error["type"] == ("api_error" if api == "messages" else "blamespan")


@given(st.lists(requests, min_size=1, max_size=20))
@settings(max_examples=25)
def test_a_wrongly_typed_request_is_refused_in_its_apis_format_and_ends_the_trial(
    asked: list[tuple[str, Any]],
) -> None:
    asyncio.run(_answers(asked))


async def _after_the_change(asked: list[tuple[str, Any]]) -> None:
    async with (
        upstream(Upstream()) as answers,
        serving(options(answers)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        for api, body in asked:
            opened = gateway.open(tape(FIRST), Change(call=0, answer=Answer(text="changed")), lifetime_s=3600)
            first = {"model": "gpt", "messages": REAL["chat/completions"]["messages"]}
            async with session.post(f"{opened.base_url}/chat/completions", json=first) as answer:
                assert answer.status == 200
            before = len(answers.paths)
            async with session.post(f"{opened.base_url}/{api}", json=body) as answer:
                await answer.read()
            went_live = len(answers.paths) > before
            report = gateway.close(opened.trial)
            assert (answer.status, bool(report.invalid)) == ((200, False) if went_live else (409, True)), (
                api,
                body,
                report,
            )


@given(st.lists(requests, min_size=1, max_size=20))
@settings(max_examples=25)
def test_after_the_change_a_wrongly_typed_request_goes_live_or_ends_the_trial(
    asked: list[tuple[str, Any]],
) -> None:
    asyncio.run(_after_the_change(asked))
