"""Client of the live model: forwards a request, and returns its answer byte for byte as it arrives.

The provider's keys pass through in the headers; nothing of a request or an answer is stored or logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from analyzer.experiment.replay.gateway_options import LiveUsage
from analyzer.experiment.replay.trial import CLIENT_GONE
from semconv.record import record

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"}
    | {"trailer", "trailers", "transfer-encoding", "upgrade"}
)
"""RFC 9110, 7.6.1: these concern one connection only."""
_OURS: Final = "x-blamespan-"
_SET_ANEW: Final = frozenset({"host", "content-length", "content-encoding", "accept-encoding", "expect"})
"""Response headers that no longer apply, because the server has decoded the body."""
_IDENTITY: Final = "identity"
"""The only encoding requested, so that the usage can be read from the passing bytes; if an upstream encodes
anyway, its answer is passed on with its ``content-encoding``."""
_INPUT: Final = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*(\d{1,9})')
_OUTPUT: Final = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d{1,9})')
_KEPT_BYTES: Final = 64 << 10
"""Bytes read of each answer's beginning and end: Anthropic reports input first, all report output last."""
_SAID: Final = re.compile(
    rb'"(?:content|text|delta|arguments|name|thinking|partial_json)"\s*:\s*"((?:[^"\\]|\\.)*)"'
)
_COMPARED_BYTES: Final = 1 << 20
"""Bytes of an answer's beginning used for its digest."""
_RATE_LIMITED: Final = 429

TIMEOUT: Final = "timeout"
"""Failure name for an upstream that is silent for too long, or that spends the trial's time."""
Within: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Bounds what happens inside it by the end of the trial; raises ``TimeoutError``."""


@record
class Sending:
    """A request on its way to the upstream."""

    url: str
    headers: CIMultiDict[str]
    body: bytes
    method: str = "POST"


class NoAnswer(Exception):  # noqa: N818 - a noun reads better where it is caught
    """The upstream did not begin to answer; ``failure`` is its low-cardinality name."""

    def __init__(self, failure: str) -> None:
        super().__init__(failure)
        self.failure: Final = failure


def forwarded_headers(given: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return the headers to forward: all but those of this connection and our own."""
    kept = _end_to_end(given)
    for name in [name for name in kept if name.lower() in _SET_ANEW or name.lower().startswith(_OURS)]:
        kept.popall(name, None)
    kept["Accept-Encoding"] = _IDENTITY
    return kept


def _end_to_end(given: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for value in given.getall("Connection", ()) for name in value.split(",")}
    dropped = _HOP_BY_HOP | named
    return CIMultiDict((name, value) for name, value in given.items() if name.lower() not in dropped)


class _Usage:
    """Reads the tokens used from the bytes that pass, within a bound."""

    def __init__(self) -> None:
        self._beginning = bytearray()
        self._end = b""

    def see(self, chunk: bytes) -> None:
        """Keep bytes that may contain the usage."""
        if len(self._beginning) < _COMPARED_BYTES:
            self._beginning += chunk
        self._end = (self._end + chunk)[-_KEPT_BYTES:]

    def result(self, failure: str) -> LiveUsage:
        """Return the usage, with the failure."""
        seen = bytes(self._beginning[:_KEPT_BYTES]) + b"\n" + self._end
        said = b"".join(_SAID.findall(bytes(self._beginning)))
        return LiveUsage(
            input_tokens=_most(_INPUT, seen),
            output_tokens=_most(_OUTPUT, seen),
            failure=failure,
            said_bytes=len(said),
            answer=hashlib.sha256(said).hexdigest(),
        )


def _most(pattern: re.Pattern[bytes], seen: bytes) -> int:
    return max((int(found) for found in pattern.findall(seen)), default=0)


def _ignore(_piece: bytes) -> None:
    pass


class Upstream:
    """Connections to the providers."""

    def __init__(self, timeout_s: float, *, by_proxy: bool = False) -> None:
        """Prepare connections; call within an event loop.

        Args:
            timeout_s: longest silence of an upstream.
            by_proxy: whether to use the proxy that the environment names, if it does.
        """
        self._session: Final = aiohttp.ClientSession(
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=by_proxy,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(30.0, timeout_s), sock_read=timeout_s),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def pass_on(
        self,
        sending: Sending,
        request: web.Request,
        within: Within,
        answering: Callable[[], None],
        watch: Callable[[bytes], None] = _ignore,
    ) -> tuple[web.StreamResponse, LiveUsage]:
        """Forward a request and its answer; return the completed response and the usage.

        An answer that the upstream cuts off is cut off for the client too.

        Args:
            sending: the request to send.
            request: the client's request.
            within: bounds the time until the answer begins, and until it ends.
            answering: called before the first byte of an answer that is not an error.
            watch: called with each piece of the answer as it passes.

        Raises:
            NoAnswer: the upstream did not begin to answer; nothing was sent to the client.
        """
        async with await self._answer(sending, within) as answer:
            if not _failure_of(answer.status):
                answering()
            return await _passed_back(answer, request, within, watch)

    async def rewritten(
        self, sending: Sending, within: Within, rewrite: Callable[[bytes], bytes]
    ) -> web.Response:
        """Forward a request and return its complete answer, rewritten.

        Raises:
            NoAnswer: the upstream did not answer.
        """
        async with await self._answer(sending, within) as answer:
            try:
                async with within():
                    body = rewrite(await answer.read())
            except (aiohttp.ClientError, TimeoutError):
                raise NoAnswer("unavailable") from None
            headers = _end_to_end(answer.headers)
            headers.popall("Content-Length", None)
            return web.Response(body=body, status=answer.status, headers=headers)

    async def _answer(self, sending: Sending, within: Within) -> aiohttp.ClientResponse:
        try:
            async with within():
                return await self._session.request(
                    sending.method,
                    URL(sending.url, encoded=True),
                    data=sending.body or None,
                    headers=sending.headers,
                    allow_redirects=False,
                )
        except TimeoutError:
            raise NoAnswer(TIMEOUT) from None
        except (aiohttp.ClientError, aiohttp.InvalidURL, ValueError):
            raise NoAnswer("unavailable") from None


async def _passed_back(
    answer: aiohttp.ClientResponse, request: web.Request, within: Within, watch: Callable[[bytes], None]
) -> tuple[web.StreamResponse, LiveUsage]:
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers)
    )
    usage, failure = _Usage(), _failure_of(answer.status)
    try:
        async with within():
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                usage.see(chunk)
                watch(chunk)
                await response.write(chunk)
            await response.write_eof()
    except ConnectionResetError:
        failure = CLIENT_GONE
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError):
        failure = "cut"
        if request.transport is not None:
            request.transport.abort()
    return response, usage.result(failure)


def _failure_of(status: int) -> str:
    if 200 <= status < 300:  # a redirect is not followed, so it is no answer
        return ""
    return "rate_limited" if status == _RATE_LIMITED else f"http_{status}"


NO_ANSWER_STATUS: Final[Mapping[str, int]] = {TIMEOUT: 504, "unavailable": 502}
"""HTTP status for the client, by failure."""
