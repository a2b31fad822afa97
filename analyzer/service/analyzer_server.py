"""HTTP server of the analyzer half: takes a run, returns its attribution. Not pure; keeps no run.

``POST /v1/analyse`` with a run as JSON is answered with the attribution as JSON. The response begins at once
and white space follows every few seconds until the answer is ready, so that the client can tell a busy
analyzer from a dead one, and proxies do not time out. With ``?progress=yes`` lines with the calls and dollars
so far come before the answer. ``GET /v1/offer`` lists the methods and models that a
person may choose. Access is decided by the same guard as for the pages and the API.

Pending answers are shared and recent ones cached, because a collector half repeats a request when an answer
was lost, and after a restart. The repeated request has
the same bytes, so its hash is the key; a process's settings do not change and need not be part of the key. An
analysis continues when the client disconnects: it is already being paid for. An answer with a failure is not
cached, because the next attempt may succeed.

The metrics count what this process did and spent itself, also on answers that never arrived; the collector
half counts verdicts and the cost of runs, over all analyzers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.executor.codec import (
    BEAT_S,
    OFFER_PATH,
    PATH,
    PROGRESS,
    Progress,
    read_choice,
    read_earned,
    read_run,
    write_answer,
    write_offer,
    write_progress,
)
from analyzer.executor.models.budget import HourlyBudget
from analyzer.executor.remote import TooLargeError, read_bounded
from analyzer.inquiry.errors import UnreadableInput
from analyzer.methods.choice import Choice, NotOffered, Offer, Opinions
from analyzer.telemetry import metric_table as table
from analyzer.telemetry.metric import ANSWERS
from analyzer.telemetry.process_stats import ProcessStats
from analyzer.web.app import common_routes
from analyzer.web.guard import GuardRules, Sessions, guarding
from analyzer.web.pages.analyzer_half import AnalyzerPages, analyzer_routes
from collector_processor.core.analysis import NOTHING_EARNED, Analyst, Earned
from collector_processor.core.http_server import HttpServer
from collector_processor.otlp import Address, RefusedError
from collector_processor.otlp.tls import TlsFiles
from collector_processor.receivers.overload import DEFAULT_BUFFER_BYTES, BufferBudget
from collector_processor.store.jobs import NO_JOBS, Waiting
from semconv.model import Attribution, Status, Trajectory

logger = logging.getLogger(__name__)

_BODY_S: Final = 60.0
"""Seconds that a request's body may take to arrive."""
_GRACE_S: Final = 1.0
_INLINE_BYTES: Final = 256 << 10
"""Bytes from which a run is parsed in a thread instead of on the event loop."""
_LOOK_S: Final = 1.0
"""Seconds between two lines of progress."""
_COME_BACK: Final = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerRules:
    """Access rules and limits."""

    at_once: int
    """Limit on concurrent analyses."""
    max_run_bytes: int
    token: str | None = field(default=None, repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    room_bytes: int = DEFAULT_BUFFER_BYTES
    """Bound on the bytes of all runs being received or analysed."""
    beat_s: float = BEAT_S


class AnalyzerServer:
    """Serves analysis requests until it is stopped."""

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
        """Create the server; it does not listen yet.

        Without ``opinions`` no choice is offered; without ``pages`` no pages are served; ``budget`` is for
        metrics.
        """
        self._analyst: Final = analyst
        self._opinions: Final = opinions
        self._pages: Final = pages
        self._rules: Final = rules
        self._answers: Final = Answers(at_once=rules.at_once)
        self._room: Final = BufferBudget(rules.room_bytes)
        self.metrics: Final = AnalyzerMetrics(answers=self._answers, budget=budget)
        self._progress: Final[dict[bytes, Progress]] = {}
        """Progress of each running analysis, by the key of its request."""
        self._is_ready = False
        self._server: Final = HttpServer(self._app(), listen, rules.tls, grace_s=_GRACE_S)

    async def start(self) -> int:
        """Listen, and return the bound port; raises as ``HttpServer.start``."""
        port = await self._server.start()
        self._is_ready = True
        return port

    async def stop(self, within_s: float) -> None:
        """Refuse new requests, and answer those in progress within the given seconds."""
        self._is_ready = False
        self._server.close()
        await self._answers.drain(within_s)
        if self._pages is not None and self._pages.jobs is not None:
            await self._pages.jobs.close()
        await self._server.stop()

    def _app(self) -> web.Application:
        sessions = Sessions(clock=time.monotonic, is_secure=self._rules.tls is not None)
        rules = GuardRules(
            token=self._rules.token,
            metrics_token=self._rules.metrics_token,
            allowed_hosts=self._rules.allowed_hosts,
            wants_certificate=self._rules.tls is not None and self._rules.tls.client_ca is not None,
            is_signed_in=sessions.is_signed_in,
        )
        app = web.Application(middlewares=[guarding(rules)])
        app.add_routes(
            [
                *common_routes(lambda: self._is_ready, self.metrics.registry),
                web.post(PATH, self._answer),
                web.get(OFFER_PATH, self._offer),
            ]
        )
        if self._pages is not None:
            routes = analyzer_routes(self._pages, sessions, self.metrics.registry, self._rules.token)
            app.add_routes(routes)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            with self._room.lease() as lease:
                choice, earned = await self._choice(request), read_earned(request.query)
                body = await self._body(request, lease.hold)
                trajectory = await _read(body)
                key = key_of(body + repr(choice).encode())
                answer = self._ask(key, trajectory, choice, earned)
                del body
                self.metrics.asked("taken")
                return await self._tell(request, answer, key)
        except (BusyError, RefusedError) as error:
            self.metrics.asked("busy")
            raise web.HTTPTooManyRequests(text="busy: try again later\n", headers=_COME_BACK) from error
        except (UnreadableInput, NotOffered) as error:
            self.metrics.asked("refused")
            raise web.HTTPBadRequest(text=f"{error}\n") from error

    async def offer(self) -> Offer:
        """Return the methods and models that a person may choose; none without ``opinions``."""
        return Offer(methods=()) if self._opinions is None else await self._opinions.offer()

    async def _offer(self, _request: web.Request) -> web.Response:
        if self._opinions is None:
            raise web.HTTPNotFound(text="nothing can be chosen here\n")
        body = write_offer(await self.offer())
        return web.Response(body=body, content_type="application/json")

    async def _choice(self, request: web.Request) -> Choice | None:
        """Read a person's choice, which must be one of those offered."""
        choice = read_choice(request.query)
        if choice is None:
            return None
        if self._opinions is None:
            raise NotOffered("nothing can be chosen here")
        (await self._opinions.offer()).require(choice)
        return choice

    def _ask(
        self, key: bytes, trajectory: Trajectory, choice: Choice | None, earned: Earned
    ) -> asyncio.Future[Attribution]:
        if not self._is_ready:
            raise web.HTTPServiceUnavailable(text="shutting down: try another analyzer\n", headers=_COME_BACK)
        return self.begin(key, trajectory, choice, earned)

    def room(self) -> int:
        """Return how many more analyses may begin now."""
        return self._rules.at_once - self._answers.under_way if self._is_ready else 0

    def progress(self, key: bytes) -> Progress:
        """Return what the analysis in progress under a key has spent so far."""
        return self._progress.get(key, Progress())

    def begin(
        self, key: bytes, trajectory: Trajectory, choice: Choice | None, earned: Earned = NOTHING_EARNED
    ) -> asyncio.Future[Attribution]:
        """Begin an analysis, or join the one in progress with the same key.

        Raises:
            BusyError: the limit of concurrent analyses is reached, or the server is being stopped.
        """
        if not self._is_ready:
            raise BusyError

        async def analyse() -> Attribution:
            try:
                attribution = await self._attributed(key, trajectory, choice, earned)
            except Exception:  # the service continues; the client sees a broken response
                logger.exception("analysis failed", extra={"run_id": trajectory.run_id})
                raise
            finally:
                self._progress.pop(key, None)
            self.metrics.made(attribution)
            return attribution

        return self._answers.ask(key, analyse)

    async def _attributed(
        self, key: bytes, trajectory: Trajectory, choice: Choice | None, earned: Earned
    ) -> Attribution:
        if choice is None or self._opinions is None:
            return (await self._analyst.analyse(trajectory, earned)).attribution

        def called(calls: int, usd: float) -> None:
            so_far = self.progress(key)
            spent = max(0.0, so_far.cost_usd + usd)
            self._progress[key] = Progress(calls=so_far.calls + calls, cost_usd=spent)

        return await self._opinions.ask(trajectory, choice, called, earned)

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

    async def _tell(
        self, request: web.Request, answer: asyncio.Future[Attribution], key: bytes
    ) -> web.StreamResponse:
        """Send the answer when it is ready; until then keep-alive white space, or progress if wanted.

        If an analysis fails because of a bug, or is stopped by a shutdown, the response is broken off.
        """
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        wants_progress = request.query.get(PROGRESS) == "yes"
        beat_s = min(_LOOK_S, self._rules.beat_s) if wants_progress else self._rules.beat_s
        while not (await asyncio.wait({answer}, timeout=beat_s))[0]:
            so_far = self._progress.get(key) if wants_progress else None
            await response.write(b"\n" if so_far is None else write_progress(so_far))
        if answer.cancelled():
            raise ConnectionResetError("the analysis was ended by a shutdown")
        await response.write(write_answer(answer.result()))
        await response.write_eof()
        return response


async def _read(body: bytes) -> Trajectory:
    if len(body) < _INLINE_BYTES:
        return read_run(body)
    return await asyncio.to_thread(read_run, body)


MAX_KEPT: Final = 1_000
"""Cached answers, of some KiB each."""

Analyse = Callable[[], Awaitable[Attribution]]


class BusyError(Exception):
    """The limit of concurrent analyses is reached."""


def key_of(body: bytes) -> bytes:
    """Return a key that two requests share only if they are identical."""
    return hashlib.blake2b(body, digest_size=16).digest()


@dataclass(slots=True, kw_only=True)
class Answers:
    """Pending analyses and recent results. Used from one event loop."""

    at_once: int
    """Limit of concurrent analyses; requests for the same analysis count once."""
    max_kept: int = MAX_KEPT
    shared: int = 0
    """Requests answered with the analysis of another request."""
    _under_way: dict[bytes, asyncio.Task[Attribution]] = field(default_factory=dict)
    _kept: OrderedDict[bytes, Attribution] = field(default_factory=OrderedDict)

    @property
    def under_way(self) -> int:
        """Number of analyses in progress."""
        return len(self._under_way)

    def ask(self, key: bytes, analyse: Analyse) -> asyncio.Future[Attribution]:
        """Return the future answer; callers must await it behind a shield.

        Raises:
            BusyError: the limit of concurrent analyses is reached.
        """
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self.shared += 1
            known: asyncio.Future[Attribution] = asyncio.get_running_loop().create_future()
            known.set_result(kept)
            return known
        if (task := self._under_way.get(key)) is not None:
            self.shared += 1
            return task
        if len(self._under_way) >= self.at_once:
            raise BusyError
        task = asyncio.create_task(self._made(key, analyse))
        # Mark a failure as retrieved even if no client waits any more: ``analyse`` has logged it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way[key] = task
        return task

    async def drain(self, within_s: float) -> None:
        """Wait for pending analyses, and cancel those not done in time."""
        tasks = list(self._under_way.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _made(self, key: bytes, analyse: Analyse) -> Attribution:
        try:
            attribution = await analyse()
        finally:
            del self._under_way[key]
        if attribution.status is not Status.ERROR and attribution.fallback is None:
            self._kept[key] = attribution
            if len(self._kept) > self.max_kept:
                self._kept.popitem(last=False)
        return attribution


@dataclass(eq=False, slots=True, kw_only=True)
class AnalyzerMetrics(Collector):
    """Counts of one analyzer, and values read from its parts at each scrape."""

    answers: Answers
    budget: HourlyBudget | None = None
    waiting: Callable[[], Waiting] = lambda: NO_JOBS
    """Returns the jobs that wait in the store; none if this analyzer takes none from there."""
    process: ProcessStats = field(default_factory=ProcessStats)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _questions: Counter[str] = field(default_factory=Counter)
    _analyses: Counter[str] = field(default_factory=Counter)
    _cost_usd: float = 0.0

    def __post_init__(self) -> None:
        self.registry.register(self)

    def asked(self, answer: str) -> None:
        """Count a request, by one of ``ANSWERS``."""
        self._questions[answer] += 1

    def made(self, attribution: Attribution) -> None:
        """Count an analysis and its cost."""
        self._analyses[attribution.status.value] += 1
        self._cost_usd += attribution.effort.cost_usd or 0.0

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self.process.collect()
        yield table.QUESTIONS.family(((answer,), self._questions[answer]) for answer in ANSWERS)
        yield table.ANALYSES.family(((status.value,), self._analyses[status.value]) for status in Status)
        yield table.SHARED.single(self.answers.shared)
        yield table.UNDER_WAY.single(self.answers.under_way)
        yield table.SPENT.single(self._cost_usd)
        found = self.waiting()
        yield table.OLDEST_ACTIONABLE.single(found.oldest_age_s)
        yield table.JOBS_WAITING.single(found.count)
        if self.budget is not None:
            yield table.BUDGET_REFUSALS.single(self.budget.refused)
            yield table.SUSPECT_USAGE.single(self.budget.suspect)
            yield table.BUDGET_SPENT.single(self.budget.spent_usd)
            yield table.BUDGET_LIMIT.single(self.budget.usd)
