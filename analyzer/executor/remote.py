"""An analyst that asks another process, and answers by itself where that fails. A shell.

A run is triaged here first: one that went well is not sent at all. Signals, which cost
milliseconds, are looked at in any case; where no analyzer can be had in time they are the
verdict, and it says so. Nobody but this run's verdict waits for an analyzer.

The same bytes are sent at each try, so that an analyzer that answered once, and whose
answer got lost, need not analyse again (``answers.py``).
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Final, Protocol

import aiohttp

from analyzer.analyst import analysis_of
from analyzer.errors import AnalyzerError, UnreadableInput
from analyzer.opinion import Choice, Offer
from analyzer.remote.bodies import TooLargeError, read_bounded
from analyzer.remote.codec import (
    MAX_ANSWER_BYTES,
    OFFER_PATH,
    PATH,
    read_answer,
    read_offer,
    write_choice,
    write_run,
)
from analyzer.remote.server import BEAT_S
from collector_processor.analyst import Analysis, Analyst
from collector_processor.exporters.untraced import untraced
from collector_processor.otlp import TOKEN_HEADER
from collector_processor.tls import ClientTls
from semconv.model import Attribution, Status, Trajectory

logger = logging.getLogger(__name__)

TRIES: Final = 5
"""With a second, two, four and eight between them: a pod that is being replaced is waited for."""
_FIRST_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 5.0
_LEAST_S: Final = 0.001
"""None at all would mean no limit to aiohttp."""
_SILENCE_S: Final = 4 * BEAT_S
"""An analyzer that thinks is heard of every ``BEAT_S``; one that is silent this long is gone."""
_LONGEST_PAUSE_S: Final = 30.0
_OFFER_S: Final = 2.0
MAX_OFFER_BYTES: Final = 64 << 10
_REFUSALS: Final = range(300, 500)
_TOO_MANY: Final = 429
_OK: Final = 200


class AwayError(AnalyzerError):
    """No analyzer gave an answer; the message says why in a few words of ours."""


class _LaterError(Exception):
    """This try failed; the next may not."""


class _BusyError(Exception):
    """The analyzer is well, and has no room at the moment."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s: Final = pause_s


class Ask(Protocol):
    """Gets one run attributed elsewhere; raises ``AnalyzerError`` where it cannot be."""

    async def __call__(self, trajectory: Trajectory) -> Attribution:
        """Return the attribution."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAnalyst:
    """Analyses by asking; see the file's docstring."""

    ask: Ask
    local: Analyst
    """Knows no model: triage and signals."""

    async def analyse(self, trajectory: Trajectory) -> Analysis:
        """Triage here, attribute there; by signals where nobody answers in time."""
        own = await self.local.analyse(trajectory)
        if own.attribution.status is Status.NO_FAILURE:
            return own
        try:
            attribution = await self.ask(trajectory)
        except AnalyzerError as error:
            logger.warning("no analyzer", extra={"run_id": trajectory.run_id, "reason": str(error)})
            fallback = f"{own.attribution.method}, because the analyzer failed: {error}"
            attribution = replace(own.attribution, fallback=fallback)
        return analysis_of(attribution, trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute with no model, at once."""
        return self.local.glance(trajectory)

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        """Return an ``error`` verdict: we could not analyse, and why."""
        return self.local.excuse(trajectory, reason)


class HttpAsk:
    """Asks the analyzers behind one address. Made inside the running loop."""

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        token: str | None = None,
        tls: ClientTls | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; no connection is opened yet.

        Args:
            endpoint: ``http://host:port`` or ``https://…``, without a slash at its end.
            timeout_s: for one run, with all tries.
            token: what the analyzer asks for.
            tls: whom we trust and what we show, where the endpoint speaks TLS.
            pause: waits so many seconds.
        """
        self._endpoint: Final = endpoint
        self._timeout_s: Final = timeout_s
        self._tls: Final = tls
        self._pause: Final = pause
        self._is_away = False
        """Nobody answered the last question: until somebody does, each has one try, lest a queue forms."""
        self._session: Final = aiohttp.ClientSession(
            # A connection a question: those kept would all lead to the analyzers that were there first.
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "blamespan", "Content-Type": "application/json"}
            | ({TOKEN_HEADER: token} if token else {}),
        )

    async def close(self) -> None:
        """Release the connections."""
        await self._session.close()

    async def offer(self) -> Offer:
        """Return what can be chosen there; asked once, for somebody looks at a page meanwhile.

        Raises:
            AwayError: none answers, or it is of a version that has nothing to choose.
            UnreadableInput: what came back says nothing of the kind.
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

    async def __call__(self, trajectory: Trajectory, choice: Choice | None = None) -> Attribution:
        """Return what an analyzer says of a run, by its settings or by a person's choice.

        Raises:
            AwayError: none could be had in time, or it refused.
            UnreadableInput: the run cannot be sent, or what came back is no attribution of it.
        """
        body = await asyncio.to_thread(write_run, trajectory)
        ends_at = time.monotonic() + self._timeout_s
        tries = 0
        while True:
            try:
                answer = await self._once(body, ends_at - time.monotonic(), write_choice(choice))
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

    async def _once(self, body: bytes, left_s: float, query: Mapping[str, str]) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=max(left_s, _LEAST_S), sock_connect=_CONNECT_S, sock_read=_SILENCE_S
        )
        try:
            with untraced():
                # A redirected POST may take run and token elsewhere.
                async with self._session.post(
                    self._endpoint + PATH,
                    params=query,
                    data=BytesIO(body),
                    timeout=timeout,
                    ssl=self._trust(),
                    allow_redirects=False,
                ) as response:
                    _require_ok(response)
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
