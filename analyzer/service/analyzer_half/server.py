"""The analyzer half: takes a run, returns its attribution. A shell; it keeps no run.

``POST /v1/analyse`` with a run as JSON is answered with the attribution as JSON. The
answer begins at once and white space comes every few seconds until it is there, so
that whoever waits can tell thinking from being gone, and proxies between cut nothing.
``GET /v1/offer`` says which methods and models a person may choose for such a question.
Who may ask is decided by the same guard as for the page and the API.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from prometheus_client import exposition

from analyzer.budget import HourlyBudget
from analyzer.errors import UnreadableInput
from analyzer.opinion import Choice, NotOffered, Opinions
from analyzer.remote.answers import Answers, BusyError, key_of
from analyzer.remote.bodies import TooLargeError, read_bounded
from analyzer.remote.codec import OFFER_PATH, PATH, read_choice, read_run, write_answer, write_offer
from analyzer.remote.metrics import AnalyzerMetrics
from analyzer.web.analyzer_pages import AnalyzerPages, analyzer_routes, open_sessions
from analyzer.web.guard import GuardRules, guarding
from collector_processor.analyst import Analyst
from collector_processor.otlp import RefusedError
from collector_processor.receivers import ListenError
from collector_processor.receivers.protocol_log import ProtocolLogger
from collector_processor.receivers.room import DEFAULT_CONNECTIONS, DEFAULT_ROOM_BYTES, Room, with_room
from collector_processor.settings import Address
from collector_processor.tls import ServerTls, TlsFiles, reason_of
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

BEAT_S: Final = 5.0
"""How often one who waits hears of us."""
_BODY_S: Final = 60.0
"""How long a run may take to come in."""
_INLINE_BYTES: Final = 256 << 10
"""Larger runs are read beside the event loop."""
_COME_BACK: Final = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerRules:
    """Who may ask, and how much at once."""

    at_once: int
    """Analyses."""
    max_run_bytes: int
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    room_bytes: int = DEFAULT_ROOM_BYTES
    """Of runs that are being read or analysed, as they came."""
    most_connections: int = DEFAULT_CONNECTIONS
    beat_s: float = BEAT_S


class AnalyzerServer:
    """Answers questions until it is stopped."""

    def __init__(
        self,
        analyst: Analyst,
        listen: Address,
        rules: AnalyzerRules,
        *,
        budget: HourlyBudget | None = None,
        opinions: Opinions | None = None,
        pages: AnalyzerPages | None = None,
    ) -> None:
        """Make it.

        Args:
            analyst: who analyses by the settings.
            listen: where.
            rules: who may ask, and how much at once.
            budget: what the hour's money is counted in, for the metrics.
            opinions: who answers people's own choices; ``None``: none can be made.
            pages: what people see with a browser; ``None``: nothing.
        """
        self._analyst: Final = analyst
        self._opinions: Final = opinions
        self._pages: Final = pages
        self._listen: Final = listen
        self._rules: Final = rules
        self._answers: Final = Answers(at_once=rules.at_once)
        self._room: Final = Room(rules.room_bytes)
        self.metrics: Final = AnalyzerMetrics(answers=self._answers, budget=budget)
        self._runner: Final = web.AppRunner(
            self._app(),
            access_log=None,
            logger=ProtocolLogger(f"{__name__}.protocol"),
            shutdown_timeout=1.0,
        )
        self._listener: asyncio.Server | None = None
        self._is_ready = False

    async def start(self) -> int:
        """Listen, and return the bound port.

        Raises:
            ListenError: the address is taken or not ours, or a TLS file cannot be read.
        """
        await self._runner.setup()
        assert self._runner.server is not None
        files = self._rules.tls
        try:
            # As for the page: one without a certificate is told so in words, and probes are answered.
            tls = ServerTls(files, ssl.CERT_OPTIONAL).context() if files else None
            connect = with_room(self._runner.server, self._rules.most_connections)
            self._listener = await asyncio.get_running_loop().create_server(
                connect, self._listen.host, self._listen.port, ssl=tls
            )
        except (OSError, ValueError) as error:
            raise ListenError(self._listen, reason_of(error)) from error
        self._is_ready = True
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self, within_s: float) -> None:
        """Take no more questions, and answer those under way within so many seconds."""
        self._is_ready = False
        ends_at = time.monotonic() + within_s
        if self._listener is not None:
            self._listener.close()
        await self._answers.drain(max(0.0, ends_at - time.monotonic()))
        if self._pages is not None and self._pages.jobs is not None:
            await self._pages.jobs.close()
        await self._runner.cleanup()

    def _app(self) -> web.Application:
        sessions = open_sessions(is_secure=self._rules.tls is not None)
        rules = GuardRules(
            token=self._rules.token,
            allowed_hosts=self._rules.allowed_hosts,
            wants_certificate=self._rules.tls is not None and self._rules.tls.client_ca is not None,
            is_signed_in=sessions.is_signed_in,
        )
        app = web.Application(middlewares=[guarding(rules)])
        app.add_routes(
            [
                web.get("/healthz", _healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._show_metrics),
                web.post(PATH, self._answer),
                web.get(OFFER_PATH, self._offer),
            ]
        )
        if self._pages is not None:
            routes = analyzer_routes(self._pages, sessions, self.metrics.registry, self._rules.token)
            app.add_routes(routes)
        return app

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(
            text="ready\n" if self._is_ready else "not ready\n", status=200 if self._is_ready else 503
        )

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        body = exposition.generate_latest(self.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            with self._room.lease() as lease:
                choice = await self._choice(request)
                body = await self._body(request, lease.hold)
                trajectory = await _read(body)
                answer = self._ask(body, trajectory, choice)
                del body
                self.metrics.asked("taken")
                return await self._tell(request, answer)
        except (BusyError, RefusedError) as error:
            self.metrics.asked("busy")
            raise web.HTTPTooManyRequests(text="busy: ask again\n", headers=_COME_BACK) from error
        except (UnreadableInput, NotOffered) as error:
            self.metrics.asked("refused")
            raise web.HTTPBadRequest(text=f"{error}\n") from error

    async def _offer(self, _request: web.Request) -> web.Response:
        if self._opinions is None:
            raise web.HTTPNotFound(text="nothing can be chosen here\n")
        body = write_offer(await self._opinions.offer())
        return web.Response(body=body, content_type="application/json")

    async def _choice(self, request: web.Request) -> Choice | None:
        """Read what a person chose, which must be something that is offered."""
        choice = read_choice(request.query)
        if choice is None:
            return None
        if self._opinions is None:
            raise NotOffered("nothing can be chosen here")
        (await self._opinions.offer()).require(choice)
        return choice

    def _ask(self, body: bytes, trajectory: Trajectory, choice: Choice | None) -> asyncio.Future[Attribution]:
        if not self._is_ready:
            raise web.HTTPServiceUnavailable(text="shutting down: ask another\n", headers=_COME_BACK)

        async def analyse() -> Attribution:
            try:
                attribution = await self._attributed(trajectory, choice)
            except Exception:  # one work item: the service lives on, and whoever asked sees a broken answer
                logger.exception("analysis failed", extra={"run_id": trajectory.run_id})
                raise
            self.metrics.made(attribution)
            return attribution

        return self._answers.ask(key_of(body + repr(choice).encode()), analyse)

    async def _attributed(self, trajectory: Trajectory, choice: Choice | None) -> Attribution:
        if choice is None or self._opinions is None:
            return (await self._analyst.analyse(trajectory)).attribution
        return await self._opinions.ask(trajectory, choice, lambda: None)

    async def _body(self, request: web.Request, hold: Callable[[int], None]) -> bytes:
        most = self._rules.max_run_bytes
        try:
            async with asyncio.timeout(_BODY_S):
                return await read_bounded(request.content, most, hold)
        except TooLargeError as error:
            self.metrics.asked("refused")
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=most + 1) from error
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text=f"expected the whole run within {_BODY_S:g} s\n") from error

    async def _tell(self, request: web.Request, answer: asyncio.Future[Attribution]) -> web.StreamResponse:
        """Send the answer when it is there, and signs of life until then.

        An analysis that fails by a fault of ours, or is ended by a shutdown, breaks the answer off.
        """
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while not (await asyncio.wait({answer}, timeout=self._rules.beat_s))[0]:
            await response.write(b"\n")
        if answer.cancelled():
            raise ConnectionResetError("the analysis was ended by a shutdown")
        await response.write(write_answer(answer.result()))
        await response.write_eof()
        return response


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _read(body: bytes) -> Trajectory:
    if len(body) < _INLINE_BYTES:
        return read_run(body)
    return await asyncio.to_thread(read_run, body)
