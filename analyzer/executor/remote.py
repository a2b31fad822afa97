"""Client of remote analyzers, and the reader of bounded HTTP bodies."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Final, Protocol, TypeAlias

import aiohttp
from aiohttp import StreamReader

from analyzer.executor.analyst import analysis_of
from analyzer.executor.codec import (
    BEAT_S,
    MAX_ANSWER_BYTES,
    OFFER_PATH,
    PATH,
    PROGRESS,
    Progress,
    read_answer,
    read_offer,
    read_progress,
    write_choice,
    write_earned,
    write_run,
)
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.methods.choice import Choice, Offer
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Analyst, Earned
from collector_processor.core.untraced import untraced
from collector_processor.otlp import TOKEN_HEADER
from collector_processor.otlp.tls import ClientTls
from semconv.model import BLAMELESS, Attribution, Status, Trajectory


class TooLargeError(Exception):
    """A body exceeds the limit."""


async def read_bounded(
    content: StreamReader, limit: int, hold: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Return a whole body.

    Args:
        content: the stream of the body.
        limit: largest body in bytes.
        hold: called with the number of bytes so far; may raise to refuse.

    Raises:
        TooLargeError: the body is larger than ``limit``.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := await content.readany():
        size += len(piece)
        if size > limit:
            raise TooLargeError
        hold(size)
        pieces.append(piece)
    return b"".join(pieces)


Watch: TypeAlias = Callable[[Progress], None]


async def read_watched(content: StreamReader, limit: int, watch: Watch) -> bytes:
    """Return what follows the last line break of a body; lines before it are progress or empty.

    Args:
        content: the stream of the body.
        limit: largest body in bytes.
        watch: called with each progress.

    Raises:
        TooLargeError: the body is larger than ``limit``.
        UnreadableInput: a line is not progress.
    """
    rest = bytearray()
    size = 0
    while piece := await content.readany():
        size += len(piece)
        if size > limit:
            raise TooLargeError
        *lines, last = piece.split(b"\n")
        for line in lines:
            rest += line
            if rest.strip():
                watch(read_progress(bytes(rest)))
            rest.clear()
        rest += last
    return bytes(rest)


logger = logging.getLogger(__name__)

TRIES: Final = 5
"""Number of attempts, with pauses of 1, 2, 4 and 8 s: long enough for a pod to be replaced."""
_FIRST_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 5.0
_LEAST_S: Final = 0.001
"""Smallest timeout in seconds: aiohttp takes 0 as no limit."""
_SILENCE_S: Final = 4 * BEAT_S
"""Seconds of silence after which an analyzer counts as gone; a busy one sends a byte every ``BEAT_S``."""
_LONGEST_PAUSE_S: Final = 30.0
_OFFER_S: Final = 2.0
MAX_OFFER_BYTES: Final = 64 << 10
_REFUSALS: Final = range(300, 500)
_TOO_MANY: Final = 429
_OK: Final = 200


class AwayError(AnalyzerError):
    """No analyzer gave an answer; the message gives a short reason."""


class _LaterError(Exception):
    """This attempt failed; the next may succeed."""


class _BusyError(Exception):
    """The analyzer is healthy but has no capacity at the moment."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s: Final = pause_s


class Ask(Protocol):
    """Attributes one run elsewhere."""

    async def __call__(self, trajectory: Trajectory, *, earned: Earned = NOTHING_EARNED) -> Attribution:
        """Return the attribution; ``earned`` is what models have earned with the run's tenant.

        Raises:
            AnalyzerError: that is impossible.
        """
        ...


class ChoosingAsk(Protocol):
    """Asks other processes, by their settings or by a person's choice: over HTTP, or through the store."""

    async def __call__(
        self,
        trajectory: Trajectory,
        choice: Choice | None = None,
        watch: Watch | None = None,
        earned: Earned = NOTHING_EARNED,
    ) -> Attribution:
        """Return an attribution of a run; ``watch`` is called with its progress, where that is known.

        Raises:
            AnalyzerError: no analyzer answered in time.
        """
        ...

    async def offer(self) -> Offer:
        """Return the methods and models that can be chosen there.

        Raises:
            AnalyzerError: no analyzer answers.
        """
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAnalyst:
    """Analyst that asks remote analyzers."""

    ask: Ask
    local: Analyst
    """Analyst without a model: triage and signals."""

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Triage here and attribute remotely; by signals if no analyzer answers in time."""
        own = await self.local.analyse(trajectory)
        if own.attribution.status in {*BLAMELESS, Status.UNREADABLE}:
            return own
        try:
            attribution = await self.ask(trajectory, earned=earned)
        except AnalyzerError as error:
            logger.warning("no analyzer", extra={"run_id": trajectory.run_id, "reason": str(error)})
            fallback = f"{own.attribution.method}, because the analyzer failed: {error}"
            attribution = replace(own.attribution, fallback=fallback)
        return analysis_of(attribution, trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute at once, without a model."""
        return self.local.glance(trajectory)

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        """Return an ``error`` verdict: we could not analyse, and why."""
        return self.local.excuse(trajectory, reason)


class HttpAsk:
    """Asks the analyzers behind one address. Create it inside the running loop."""

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        token: str | None = None,
        tls: ClientTls | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a client; no connection is opened yet.

        Args:
            endpoint: ``http://host:port`` or ``https://…``, without a trailing slash.
            timeout_s: time limit for one run, all attempts included.
            token: the token that the analyzer requires.
            tls: trusted authorities and our certificate, if the endpoint uses TLS.
            pause: sleeps for the given seconds.
        """
        self._endpoint: Final = endpoint
        self._timeout_s: Final = timeout_s
        self._tls: Final = tls
        self._pause: Final = pause
        self._is_away = False
        """Whether the last request got no answer; until one does, requests are tried once, to avoid a
        queue."""
        self._session: Final = aiohttp.ClientSession(
            # One connection per request: pooled ones would all lead to the analyzers that were there first.
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "blamespan", "Content-Type": "application/json"}
            | ({TOKEN_HEADER: token} if token else {}),
        )

    async def close(self) -> None:
        """Release the connections."""
        await self._session.close()

    async def offer(self) -> Offer:
        """Return the other process's offer; requested only once, because a page waits for it.

        Raises:
            AwayError: no analyzer answers, or the version it runs has no offer.
            UnreadableInput: the reply is not an offer.
        """
        timeout = aiohttp.ClientTimeout(total=_OFFER_S)
        try:
            with untraced():
                async with self._session.get(
                    self._endpoint + OFFER_PATH, timeout=timeout, ssl=self._trust(), allow_redirects=False
                ) as response:
                    if response.status != _OK:
                        raise AwayError(f"it answered with HTTP {response.status}")
                    return read_offer(await read_bounded(response.content, MAX_OFFER_BYTES))
        except TooLargeError as error:
            raise UnreadableInput(f"expected an offer of at most {MAX_OFFER_BYTES} bytes") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise AwayError("timeout" if isinstance(error, TimeoutError) else type(error).__name__) from error

    async def __call__(
        self,
        trajectory: Trajectory,
        choice: Choice | None = None,
        watch: Watch | None = None,
        earned: Earned = NOTHING_EARNED,
    ) -> Attribution:
        """Return an analyzer's attribution of a run, by its settings or by a person's choice.

        ``watch`` is called with the calls and dollars so far, if the analyzer reports them.

        Raises:
            AwayError: no analyzer was available in time, or it refused.
            UnreadableInput: the run cannot be sent, or the reply is not an attribution of it.
        """
        body = await asyncio.to_thread(write_run, trajectory)
        ends_at = time.monotonic() + self._timeout_s
        tries, query = 0, write_choice(choice) | write_earned(earned)
        while True:
            try:
                answer = await self._once(body, ends_at - time.monotonic(), query, watch)
            except _BusyError as busy:
                wait_s, reason = busy.pause_s, "busy"
            except _LaterError as error:
                tries += 1
                wait_s, reason = _FIRST_PAUSE_S * 2.0 ** (tries - 1), str(error)
                if tries >= (1 if self._is_away else TRIES):
                    self._is_away = True
                    raise AwayError(reason) from error
            else:
                self._is_away = False
                return read_answer(answer, trajectory)
            wait_s = min(wait_s, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
            if time.monotonic() + wait_s >= ends_at:
                raise AwayError(f"no answer within {self._timeout_s:g} s: {reason}")
            await self._pause(wait_s)

    async def _once(self, body: bytes, left_s: float, query: Mapping[str, str], watch: Watch | None) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=max(left_s, _LEAST_S), sock_connect=_CONNECT_S, sock_read=_SILENCE_S
        )
        try:
            with untraced():
                # A redirect could send the run and the token elsewhere.
                async with self._session.post(
                    self._endpoint + PATH,
                    params=query if watch is None else {**query, PROGRESS: "yes"},
                    data=BytesIO(body),
                    timeout=timeout,
                    ssl=self._trust(),
                    allow_redirects=False,
                ) as response:
                    _require_ok(response)
                    if watch is not None:
                        return await read_watched(response.content, MAX_ANSWER_BYTES, watch)
                    return await read_bounded(response.content, MAX_ANSWER_BYTES)
        except TooLargeError as error:
            raise UnreadableInput(f"expected an attribution of at most {MAX_ANSWER_BYTES} bytes") from error
        except TimeoutError as error:
            raise _LaterError("timeout") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _LaterError(type(error).__name__) from error

    def _trust(self) -> ssl.SSLContext | bool:
        return self._tls.identity().context if self._tls else True


def _require_ok(response: aiohttp.ClientResponse) -> None:
    if response.status == _OK:
        return
    if response.status == _TOO_MANY:
        raise _BusyError(_seconds(response.headers.get("Retry-After", "")))
    if response.status in _REFUSALS:
        raise AwayError(f"it refused with HTTP {response.status}")
    raise _LaterError(f"HTTP {response.status}")


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else _FIRST_PAUSE_S
