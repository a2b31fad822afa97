"""Recording gateway: passes a program's model calls on to the provider, and keeps both sides. Not pure.

Each provider's base URL gets an address here, so that the path that the user chose is kept:
``OPENAI_BASE_URL`` of ``https://models.example/v1`` becomes ``http://127.0.0.1:PORT/0/v1``. Answers pass byte
for byte as they arrive. Keys pass in the headers, and no header is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from analyzer.experiment.replay.gateway_options import ANTHROPIC, OPENAI
from analyzer.experiment.replay.upstream import (
    NO_ANSWER_STATUS,
    NoAnswer,
    Sending,
    Upstream,
    forwarded_headers,
)
from analyzer.programs.model_call import PassedCall
from collector_processor.core.headers import names_this_machine
from semconv.record import record

_MOST_REQUEST: Final = 1 << 30
_MOST_KEPT: Final = 16 << 20
"""Bytes of one answer that are kept; all of it passes."""
_MOST_BYTES: Final = 512 << 20
"""Bytes of all calls that are kept; later calls pass, and are counted only."""
_MISDIRECTED: Final = 421
"""HTTP status of a request that the server at this address is not meant for (RFC 9110, 15.5.20)."""
_SILENCE_S: Final = 600.0
"""Longest silence of a provider: the SDKs' own default timeout."""


@record
class BaseUrl:
    """A variable that tells a client where its provider is."""

    variable: str
    usual: str
    """The provider's own base URL; empty if clients do not use the variable unless it is set."""


BASE_URLS: Final = (
    BaseUrl(variable="OPENAI_BASE_URL", usual=f"{OPENAI}/v1"),
    BaseUrl(variable="OPENAI_API_BASE", usual=f"{OPENAI}/v1"),
    BaseUrl(variable="ANTHROPIC_BASE_URL", usual=ANTHROPIC),
    BaseUrl(variable="ANTHROPIC_API_BASE", usual=""),
    BaseUrl(variable="AZURE_OPENAI_ENDPOINT", usual=""),
    BaseUrl(variable="OPENROUTER_API_BASE", usual=""),
    BaseUrl(variable="GROQ_BASE_URL", usual=""),
    BaseUrl(variable="MISTRAL_API_BASE", usual=""),
    BaseUrl(variable="DEEPSEEK_API_BASE", usual=""),
)
"""``OPENAI_BASE_URL``: openai's clients in Python and Node, and what builds on them; ``OPENAI_API_BASE``:
litellm and openai before 1.0; ``ANTHROPIC_BASE_URL``: anthropic's clients."""


def upstreams(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the base URL of each variable: the user's, else the provider's own.

    A variable whose value is no plain URL (no scheme, or a password in it) is left out, and so as it is
    (``unrecorded``).

    A client that reads two variables takes the first one that is set, so a user's ``OPENAI_API_BASE`` also
    stands for ``OPENAI_BASE_URL``, and the other way round.
    """
    found = {each.variable: environ.get(each.variable, "").strip() or each.usual for each in BASE_URLS}
    first, second = (environ.get(name, "").strip() for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"))
    if first or second:
        found |= {"OPENAI_BASE_URL": first or second, "OPENAI_API_BASE": second or first}
    return {name: url for name, url in found.items() if _is_plain(url)}


def unrecorded(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that the user set to addresses which no call can be recorded on the way to."""
    given = {base_url.variable: environ.get(base_url.variable, "").strip() for base_url in BASE_URLS}
    return tuple(name for name, url in given.items() if url and not _is_plain(url))


def _is_plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def refused_key(url: str, headers: Mapping[str, str]) -> str:
    """Return why a key must not be sent to a provider's own address that nobody named; empty if it may.

    A program may name its provider in its code, as a default for an unset variable, which is set now: its
    key and texts are for Ollama, vLLM or another service, and never for OpenAI or Anthropic.
    """
    key = headers.get("Authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "")
    prefix = next((prefix for origin, prefix in _KEYS.items() if url.startswith(origin)), "")
    if not prefix or (key.startswith(prefix) and not key.startswith(_OTHERS)):
        return ""
    return (
        "blamespan run: this key is not of the provider that the client would use by default. The program"
        " seems to name another one in its code: set OPENAI_BASE_URL or ANTHROPIC_BASE_URL to it, or give"
        " --no-gateway"
    )


_KEYS: Final = {OPENAI: "sk-", ANTHROPIC: "sk-ant-"}
"""How the providers' own keys begin."""
_OTHERS: Final = ("sk-or-", "sk-lf-")
"""Keys of OpenRouter and Langfuse, which begin alike."""


class RecordingGateway:
    """A running gateway. Call its methods in its event loop."""

    def __init__(self, upstream: Upstream, urls: Mapping[str, str], clock_ns: Callable[[], int]) -> None:
        """Create it for these base URLs, by variable."""
        self._upstream: Final = upstream
        self._origins: Final[list[str]] = sorted({_origin(url) for url in urls.values()})
        self._urls: Final = dict(urls)
        self._clock_ns: Final = clock_ns
        self._port = 0
        self._kept_bytes = 0
        self.calls: Final[list[PassedCall]] = []
        """The calls that have ended, in the order of their end."""
        self.left_out = 0
        """Calls that passed after ``_MOST_BYTES``."""

    def bound(self, port: int) -> None:
        """Set the port it listens on."""
        self._port = port

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a program's clients here."""
        return {name: self._address(url) for name, url in self._urls.items()}

    def _address(self, url: str) -> str:
        parts = urlsplit(url)
        query = f"?{parts.query}" if parts.query else ""
        return f"http://127.0.0.1:{self._port}/{self._origins.index(_origin(url))}{parts.path}{query}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and its answer back."""
        if not names_this_machine(request.headers.get("Host", ""), ()):
            raise web.HTTPForbidden(text="expected a Host header that names this machine\n")
        number = int(request.match_info["origin"])
        path = request.rel_url.raw_path.removeprefix(f"/{number}")
        if number >= len(self._origins) or (path and not path.startswith("/")):
            raise web.HTTPNotFound(text="no such address\n")
        query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
        if reason := refused_key(self._origins[number], request.headers):
            return web.json_response({"error": {"message": reason}}, status=_MISDIRECTED)
        body = await request.read()
        sending = Sending(
            url=f"{self._origins[number]}{path}{query}",
            headers=forwarded_headers(request.headers),
            body=body,
            method=request.method,
        )
        return await self._passed(sending, request, path)

    async def _passed(self, sending: Sending, request: web.Request, path: str) -> web.StreamResponse:
        began_ns, answer = self._clock_ns(), bytearray()
        ended_ns = began_ns

        def watch(piece: bytes) -> None:
            nonlocal ended_ns
            ended_ns = self._clock_ns()
            answer.extend(piece[: _MOST_KEPT - len(answer)])

        response: web.StreamResponse
        status, content_type, encoding, failure, silent = 0, "", "", "", ""
        try:
            response, usage = await self._upstream.pass_on(sending, request, nullcontext, _nothing, watch)
            status, failure = response.status, usage.failure
            content_type = response.headers.get("Content-Type", "")
            encoding = response.headers.get("Content-Encoding", "")
        except NoAnswer as error:
            ended_ns = self._clock_ns()
            silent = "/".join(sending.url.split("/")[:3])  # no password: ``unrecorded`` leaves those out
            told = {"error": {"message": f"blamespan: {silent} did not answer ({error.failure})"}}
            response = web.json_response(told, status=NO_ANSWER_STATUS[error.failure])
        self._keep(
            PassedCall(
                path=path,
                request=sending.body,
                answer=bytes(answer),
                content_type=content_type,
                status=status,
                start_ns=began_ns,
                end_ns=ended_ns,
                failure=failure,
                encoding=encoding,
                silent=silent,
            )
        )
        return response

    def forget(self) -> None:
        """Forget the calls that have ended, which makes room for more."""
        self.calls.clear()
        self._kept_bytes = 0

    def _keep(self, call: PassedCall) -> None:
        size = len(call.request) + len(call.answer)
        if self._kept_bytes + size > _MOST_BYTES:
            self.left_out += 1
            return
        self._kept_bytes += size
        self.calls.append(call)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _nothing() -> None:
    pass


@asynccontextmanager
async def recording(environ: Mapping[str, str], *, by_proxy: bool = True) -> AsyncIterator[RecordingGateway]:
    """Run a recording gateway on a free port of loopback until the block ends.

    Args:
        environ: the program's environment, which may name providers.
        by_proxy: whether calls take the proxy that our own environment names; False if all stay here.
    """
    upstream = Upstream(_SILENCE_S, by_proxy=by_proxy)
    gateway = RecordingGateway(upstream, upstreams(environ), time.time_ns)
    app = web.Application(client_max_size=_MOST_REQUEST)
    app.router.add_route("*", r"/{origin:0|[1-9]\d?}/{tail:.*}", gateway.answer)
    app.router.add_route("*", r"/{origin:0|[1-9]\d?}", gateway.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        gateway.bound(runner.addresses[0][1])
        yield gateway
    finally:
        await runner.cleanup()
        await asyncio.shield(upstream.close())
