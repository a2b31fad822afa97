"""The recording gateway passes everything on byte for byte, keeps both sides, and no header."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest
from yarl import URL

from analyzer.programs.child import child_environment
from analyzer.programs.model_call import read_model_call
from analyzer.programs.recording_gateway import recording, refused_key, unrecorded, upstreams
from tests.scripted_upstream import Upstream, upstream

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "größer?"}]}).encode()


async def test_a_call_passes_byte_for_byte_and_both_sides_are_kept() -> None:
    chunks = (b'data: {"choices": []}\n\n', b"data: [DO", b"NE]\n\n")
    headers = {"Content-Type": "text/event-stream", "x-request-id": "r-1"}
    async with (
        upstream(Upstream(chunks=chunks, headers=headers)) as provider,
        recording({"OPENAI_BASE_URL": f"{provider.url}/my/v1?version=2"}) as gateway,
        aiohttp.ClientSession() as client,
    ):
        base, _, query = gateway.environment()["OPENAI_BASE_URL"].partition("?")
        url = f"{base}/chat/completions?{query}&x=%2F"
        async with client.post(
            URL(url, encoded=True), data=BODY, headers={"Authorization": "Bearer sk-1"}
        ) as answer:
            assert await answer.read() == b"".join(chunks)
            assert (answer.status, answer.headers["x-request-id"]) == (200, "r-1")
        assert provider.paths == ["/my/v1/chat/completions?version=2&x=%2F"]
        assert provider.bodies == [BODY]
        assert provider.seen_headers[0]["Authorization"] == "Bearer sk-1"
    (call,) = gateway.calls
    assert (call.path, call.request, call.answer) == ("/my/v1/chat/completions", BODY, b"".join(chunks))
    assert call.start_ns <= call.end_ns
    assert "sk-1" not in repr(call)


async def test_a_stream_passes_as_it_comes() -> None:
    may_go_on = asyncio.Semaphore(0)
    script = Upstream(chunks=(b"one", b"two"), may_go_on=may_go_on)
    async with (
        upstream(script) as provider,
        recording({"ANTHROPIC_BASE_URL": provider.url}) as gateway,
        aiohttp.ClientSession() as client,
        client.post(f"{gateway.environment()['ANTHROPIC_BASE_URL']}/v1/messages", data=BODY) as answer,
    ):
        assert await answer.content.readexactly(3) == b"one"  # the second has not been sent
        may_go_on.release()
        assert await answer.content.read() == b"two"


@pytest.mark.parametrize(
    ("script", "status", "kept"),
    [
        (Upstream(status=429, chunks=(b'{"error": {"message": "slow down"}}',)), 429, 429),
        (Upstream(closes=True), 502, 0),
    ],
    ids=["refused", "closed"],
)
async def test_an_error_of_the_provider_is_passed_on_and_kept(
    script: Upstream, status: int, kept: int
) -> None:
    async with (
        upstream(replace(script)) as provider,
        recording({"OPENAI_API_BASE": f"{provider.url}/v1"}) as gateway,
        aiohttp.ClientSession() as client,
    ):
        url = f"{gateway.environment()['OPENAI_BASE_URL']}/chat/completions"
        async with client.post(url, data=BODY) as answer:
            assert answer.status == status
        told = "" if kept else provider.url
    assert [(call.status, call.silent) for call in gateway.calls] == [(kept, told)]


async def test_an_address_where_nothing_listens_is_named() -> None:
    async with (
        recording({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}) as gateway,
        aiohttp.ClientSession() as client,
    ):
        url = f"{gateway.environment()['OPENAI_BASE_URL']}/chat/completions"
        async with client.post(url, data=BODY) as answer:
            told = (await answer.json())["error"]["message"]
    assert told == "blamespan: http://127.0.0.1:9 did not answer (unavailable)"
    (passed,) = gateway.calls
    call = read_model_call(passed)
    assert call is not None
    assert call.error == "http://127.0.0.1:9 did not answer"


async def test_other_paths_and_methods_pass_and_foreign_hosts_do_not() -> None:
    async with (
        upstream(Upstream()) as provider,
        recording({"OPENAI_BASE_URL": f"{provider.url}/v1"}) as gateway,
        aiohttp.ClientSession() as client,
    ):
        base = gateway.environment()["OPENAI_BASE_URL"]
        async with client.post(f"{base}/files", data=b"x") as answer:
            assert answer.status == 200
        async with client.get(f"{base}/models") as answer:
            assert answer.status == 405  # the provider's word
        async with client.get(f"{base}/models", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        root = base.removesuffix("/v1").rpartition("/")[0]
        async with client.get(f"{root}/99/v1/models") as answer:
            assert answer.status == 404
    assert provider.paths == ["/v1/files"]


def test_the_users_address_stands_for_both_variables_of_openai() -> None:
    usual = upstreams({})
    assert usual["OPENAI_BASE_URL"] == usual["OPENAI_API_BASE"] == "https://api.openai.com/v1"
    assert usual["ANTHROPIC_BASE_URL"] == "https://api.anthropic.com"
    assert "AZURE_OPENAI_ENDPOINT" not in usual
    own = upstreams({"OPENAI_API_BASE": "http://mine/v1", "AZURE_OPENAI_ENDPOINT": "https://x.azure.com"})
    assert own["OPENAI_BASE_URL"] == own["OPENAI_API_BASE"] == "http://mine/v1"
    assert own["AZURE_OPENAI_ENDPOINT"] == "https://x.azure.com"


HERE = "http://127.0.0.1:1"


def test_the_users_own_settings_are_kept() -> None:
    usual = child_environment({"A": "b"}, HERE, "app")
    assert (usual["A"], usual["OTEL_EXPORTER_OTLP_ENDPOINT"], usual["OTEL_SERVICE_NAME"]) == (
        "b",
        HERE,
        "app",
    )
    assert usual["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] == "true"
    assert usual["NO_PROXY"] == "127.0.0.1"
    wishes = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://backend:4317",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=mine",
        "OTEL_BSP_SCHEDULE_DELAY": "5000",
        "no_proxy": "intranet",
    }
    found = child_environment(wishes, HERE, "app")
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == HERE
    assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" not in found
    assert (found["OTEL_EXPORTER_OTLP_PROTOCOL"], found["OTEL_BSP_SCHEDULE_DELAY"]) == ("grpc", "5000")
    assert "OTEL_SERVICE_NAME" not in found
    assert found["no_proxy"] == "intranet,127.0.0.1"


@pytest.mark.parametrize(
    ("key", "may_pass"),
    [("sk-proj-1", True), ("sk-1", True), ("ollama", False), ("", False), ("sk-or-v1-1", False)],
)
def test_a_key_of_another_provider_never_reaches_the_usual_one(key: str, may_pass: bool) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    assert (refused_key("https://api.openai.com", headers) == "") is may_pass
    assert refused_key("http://localhost:11434", headers) == ""
    assert refused_key("https://api.anthropic.com", {"x-api-key": "sk-ant-1"}) == ""
    assert refused_key("https://api.anthropic.com", {"x-api-key": key})


@pytest.mark.parametrize("url", ["127.0.0.1:8080/v1", "http://u:p@127.0.0.1/v1", "http://[::1/v1", "ftp://x"])
def test_an_address_that_is_no_plain_url_is_left_as_it_is(url: str) -> None:
    environ = {"AZURE_OPENAI_ENDPOINT": url, "GROQ_BASE_URL": "https://groq.example", "OPENAI_BASE_URL": ""}
    assert "AZURE_OPENAI_ENDPOINT" not in upstreams(environ)
    assert unrecorded(environ) == ("AZURE_OPENAI_ENDPOINT",)


@pytest.mark.parametrize("path", ["/00/v1/x", "/01/v1/x", "/0v1/x", "/1/v1/x", "/99/x"])
async def test_no_path_changes_where_a_request_goes(path: str) -> None:
    async with (
        upstream(Upstream()) as provider,
        recording(dict.fromkeys(("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"), provider.url)) as gateway,
        aiohttp.ClientSession() as client,
    ):
        root = gateway.environment()["OPENAI_BASE_URL"].rpartition("/")[0]
        async with client.post(f"{root}{path}", data=b"x") as answer:
            assert answer.status == 404
    assert provider.paths == []
