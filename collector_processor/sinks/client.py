"""HTTP client of the sinks: sends a sink's calls to its backend, once each. Not pure: sockets, clocks.

Redirects are not followed, because they would carry the credentials along. Reasons name the request and the
status, never what the backend said, which may quote a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
from yarl import URL

from collector_processor.core.scores import ScoreChange, unpack_change
from collector_processor.exporters.backend import read_retry_after, unanswered, unreached, untraced
from collector_processor.otlp import Delivered, Rejected, SendOutcome, Tenant, TryLater
from collector_processor.settings.value_types import ScoreTarget
from collector_processor.sinks import SINKS
from collector_processor.sinks.exchange import MOST_SCORES, Call, HumanScore, ScoredRun, UnexpectedAnswerError

TIMEOUT_S: Final = 30.0
MOST_BYTES: Final = 16 << 20
"""Size limit of one answer: MLflow's trace comes with all its assessments."""
PATIENCE_S: Final = 120.0
"""Seconds for which a trace that the backend does not have is expected: exporters send in batches, Phoenix
answers before it stores, and after an outage the spans queue for longer than their scores."""
MOST_WAIT_S: Final = 3600.0
"""Bound on the wait that a backend can request."""
TOO_OLD_S: Final = 7 * 86_400.0
"""Age at which a score is dropped that its backend never took, so that a backend gone for good fills no
disk."""
_BUSY: Final = frozenset({408, 425, 429, 502, 503, 504})
_REFUSED: Final = frozenset({401, 403})

T = TypeVar("T")


class _Failed(Exception):  # noqa: N818 - reads better at the ``raise``
    """The exchange cannot go on."""

    def __init__(self, outcome: TryLater | Rejected, *, passes: bool = False) -> None:
        super().__init__(outcome.reason)
        self.outcome: Final = outcome
        self.passes: Final = passes
        """Whether the backend is away or busy, so that other runs would fail too."""


class SinkOutlet:
    """Outlet to one backend; create it inside the running loop."""

    def __init__(
        self,
        target: ScoreTarget,
        *,
        wall_s: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target: Final = target
        self._sink: Final = SINKS[target.backend]
        self._wall_s: Final = wall_s
        self._now: Final = now
        self._well_since: float = now()
        self._session: Final = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "blamespan", "Accept": "application/json", **target.headers},
        )

    async def close(self) -> None:
        """Release the connections."""
        await self._session.close()

    async def send(self, body: bytes, tenant: Tenant, _hops: tuple[str, ...] = ()) -> SendOutcome:
        """Bring the backend to the state of one entry."""
        try:
            change = unpack_change(body)
        except ValueError as error:
            return Rejected(reason=str(error))
        if tenant != self._target.tenant:
            return Rejected(reason="these are another tenant's scores")
        try:
            await self._hold(self._sink.deliver(change))
        except _Failed as error:
            return self._settled(error, change)
        return Delivered()

    async def probe(self) -> SendOutcome:
        """Ask the backend whether it takes our credentials; changes nothing."""
        try:
            await self._answer(self._sink.probe)
        except _Failed as error:
            return error.outcome
        return Delivered()

    async def read(
        self, runs: Sequence[ScoredRun], since_ns: int
    ) -> Sequence[HumanScore] | TryLater | Rejected:
        """Return what people said about runs in the backend, in the order of time, or why it does not say.

        Args:
            runs: the runs; scores of others are left out.
            since_ns: Unix ns; earlier scores may be left out.
        """
        try:
            scores = await self._hold(self._sink.read(runs, since_ns))
        except _Failed as error:
            return error.outcome
        return sorted(scores, key=lambda score: score.said_ns)[-MOST_SCORES:]

    async def _hold(self, exchange: Generator[Call, Any, T]) -> T:
        answer: Any = None
        try:
            while True:
                answer = await self._answer(exchange.send(answer))
        except StopIteration as ended:
            returned: T = ended.value
            return returned
        except UnexpectedAnswerError as error:
            raise _Failed(Rejected(reason=f"unexpected answer: {error}")) from error

    def _settled(self, failed: _Failed, change: ScoreChange) -> SendOutcome:
        """Return whether to try again: not for ever, because the entries behind this one wait."""
        outcome, age_s = failed.outcome, self._wall_s() - change.decided_ns / 1e9
        if failed.passes:
            self._well_since = self._now()
        if isinstance(outcome, Rejected):
            return outcome
        is_hopeless = not failed.passes and min(age_s, self._now() - self._well_since) > PATIENCE_S
        return Rejected(reason=outcome.reason) if is_hopeless or age_s > TOO_OLD_S else outcome

    async def _answer(self, call: Call) -> Any:
        """Return the JSON of an answer; ``None`` if there is none.

        Raises:
            _Failed: the backend refused, or did not answer.
        """
        where = urlsplit(self._target.url).netloc
        query = f"?{urlencode(call.query)}" if call.query else ""
        try:
            with untraced():
                async with self._session.request(
                    call.method,
                    URL(f"{self._target.url}/{call.path}{query}", encoded=True),
                    json=call.body,
                    allow_redirects=False,
                ) as response:
                    status, headers = response.status, response.headers
                    body = await _bounded(response)
        except TimeoutError as error:
            raise _Failed(unanswered(where, TIMEOUT_S), passes=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failed(unreached(where, f"{type(error).__name__}: {error}"), passes=True) from error
        if status == 404 and call.may_be_absent:
            return None
        if not 200 <= status < 300:
            raise self._refused(call, status, headers.get("Retry-After", ""))
        return _json(body) if body else None

    def _refused(self, call: Call, status: int, retry_after: str) -> _Failed:
        what = f"HTTP {status} to {call.method} {call.path.partition('?')[0]}"
        if status in _REFUSED:
            names = ", ".join(self._target.variables)
            how = "does not take the credentials of" if self._target.headers else "asks for"
            return _Failed(TryLater(reason=f"{what}: {how} {names}"), passes=True)
        if 300 <= status < 400:
            return _Failed(TryLater(reason=f"{what}: redirects, expected the final address"), passes=True)
        if status in _BUSY:
            after_s = read_retry_after(retry_after, self._wall_s())
            bounded_s = None if after_s is None else min(after_s, MOST_WAIT_S)
            return _Failed(TryLater(reason=what, after_s=bounded_s), passes=True)
        if status == 404 or status >= 500:
            return _Failed(TryLater(reason=what))
        return _Failed(Rejected(reason=what))


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async for piece in response.content.iter_chunked(1 << 16):
        size += len(piece)
        if size > MOST_BYTES:
            raise _Failed(Rejected(reason=f"an answer is larger than {MOST_BYTES >> 20} MiB"))
        pieces.append(piece)
    return b"".join(pieces)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        is_page = body.lstrip()[:1] == b"<"
        reason = f"answers with {'a web page' if is_page else 'no JSON'}: is this the address of the API?"
        raise _Failed(TryLater(reason=reason), passes=is_page) from error
