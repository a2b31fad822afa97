"""An analysis by another process: nothing is lost or paid twice, and its answers are checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from analyzer.executor.analyst import RunAnalyst, analysis_of
from analyzer.executor.codec import (
    PATH,
    Progress,
    read_answer,
    read_earned,
    read_run,
    write_answer,
    write_earned,
    write_run,
)
from analyzer.executor.remote import TRIES, AwayError, HttpAsk, RemoteAnalyst
from analyzer.inquiry.errors import UnreadableInput
from analyzer.methods.attribution import Attributor
from analyzer.service.analyzer_server import AnalyzerRules, AnalyzerServer, Answers, BusyError
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Earned, TrackRecord
from collector_processor.otlp import Address
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Evidence,
    Pooled,
    Ranked,
    SpanId,
    SpanStatus,
    Status,
    Step,
    StepKind,
    TraceId,
    Trajectory,
)
from tests.web_application import served

HERE: Final = Address(host="127.0.0.1", port=0)
LOCAL: Final = RunAnalyst(attributor=Attributor())
FAILED: Final = Trajectory(
    run_id="a" * 32,
    task="add up <b>“42”</b>\x00",
    output="43",
    steps=(
        Step(index=0, agent="planner", kind=StepKind.LLM, output="ask the calculator", tools="add"),
        Step(
            index=1,
            agent="calculator",
            kind=StepKind.TOOL,
            trace_id=TraceId("a" * 32),
            span_id=SpanId("b" * 16),
            status=SpanStatus.ERROR,
            error="overflow",
            start_ns=1,
            end_ns=2**63,
            causes=(0,),
        ),
    ),
    root_status=SpanStatus.ERROR,
    root_error="overflow",
    warnings=("a clock was wrong",),
)
BLAME: Final = Blame(
    agent="calculator",
    step=1,
    reason="it overflowed",
    confidence=0.75,
    evidence=(Evidence(step=1, quote="overflow"),),
    ranking=(Ranked(step=1, agent="calculator", probability=0.75),),
)


POOLED: Final = Pooled(
    step=1,
    agent="calculator",
    own_step=0,
    own_agent="planner",
    weight=0.25,
    accuracy=0.2,
    right=1,
    labelled=4,
)
EARNED: Final[Earned] = {"provider/large": TrackRecord(labelled=4.5, right=2, won=1, lost=1)}


def attribution(verdict: Blame | Abstention = BLAME) -> Attribution:
    return Attribution(run_id=FAILED.run_id, verdict=verdict, method="judge", model="scripted")


@dataclass(slots=True, kw_only=True)
class Thinking:
    """An analyst with scripted answers, given when the test allows; counts the questions."""

    says: Attribution = field(default_factory=attribution)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    earned: Earned = field(default_factory=dict)

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        self.asked += 1
        self.earned = earned
        self.begun.set()
        await self.may_answer.wait()
        return analysis_of(self.says, trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        return LOCAL.glance(trajectory)

    def excuse(self, trajectory: Trajectory, reason: str) -> Analysis:
        return LOCAL.excuse(trajectory, reason)


@asynccontextmanager
async def serving(analyst: Thinking, *, at_once: int = 4, max_run_bytes: int = 1 << 20) -> AsyncIterator[str]:
    rules = AnalyzerRules(at_once=at_once, max_run_bytes=max_run_bytes)
    server = AnalyzerServer(analyst, HERE, rules)
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(0.0)


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def asking(url: str, timeout_s: float = 20.0) -> AsyncIterator[HttpAsk]:
    ask = HttpAsk(url, timeout_s=timeout_s, pause=no_pause)
    try:
        yield ask
    finally:
        await ask.close()


@asynccontextmanager
async def answering(handler: Callable[[web.Request], web.Response]) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve the handler's answers; the list holds a line per request."""
    came: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        came.append(request.path)
        return handler(request)

    async with served(_app(handle)) as address:
        yield address, came


def _app(handle: Callable[[web.Request], object]) -> web.Application:
    app = web.Application()
    app.router.add_post(PATH, handle)  # type: ignore[arg-type]
    return app


def test_a_run_arrives_as_it_was() -> None:
    assert read_run(write_run(FAILED)) == FAILED


@pytest.mark.parametrize(
    "verdict", [BLAME, Abstention(status=Status.UNDETERMINED, reason="two look alike", ranking=BLAME.ranking)]
)
def test_an_attribution_arrives_as_it_was(verdict: Blame | Abstention) -> None:
    assert read_answer(write_answer(attribution(verdict)), FAILED) == attribution(verdict)


def test_what_was_pooled_arrives_as_it_was() -> None:
    told = replace(attribution(), pooled=POOLED)
    assert read_answer(write_answer(told), FAILED) == told


def test_what_models_have_earned_arrives_as_it_was() -> None:
    assert read_earned(write_earned(EARNED)) == EARNED
    assert write_earned({}) == {}
    assert read_earned({}) == {}


def test_many_models_and_long_names_leave_room_in_the_address() -> None:
    many = {f"model {n}": TrackRecord(labelled=n) for n in range(100)} | {
        "x" * 9_000: TrackRecord(labelled=1e3)
    }
    assert list(read_earned(write_earned(many))) == [f"model {n}" for n in range(99, 91, -1)]


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[]",
        '{"m": 1}',
        '{"m": {"labelled": -1}}',
        '{"m": {"labelled": 1, "right": 2}}',
        '{"m": {"labelled": 2, "right": 1, "won": 2}}',
        '{"m": {"labelled": "NaN"}}',
        '{"m": {"labelled": 1e300}}',
        "[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_is_refused(told: str) -> None:
    with pytest.raises(UnreadableInput):
        read_earned({"earned": told})


async def test_the_analyzer_is_told_what_models_have_earned() -> None:
    analyst = Thinking()
    analyst.may_answer.set()
    async with serving(analyst) as url, asking(url) as ask:
        await RemoteAnalyst(ask=ask, local=LOCAL).analyse(FAILED, EARNED)
        assert analyst.earned == EARNED


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"run_id": 1, "steps": []}', b"\xff", b"[" * 100_000])
def test_what_is_no_run_is_refused_without_being_quoted(body: bytes) -> None:
    with pytest.raises(UnreadableInput, match="expected a run as JSON"):
        read_run(body)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(replace(attribution(), run_id="b" * 32), id="another run"),
        pytest.param(
            replace(attribution(), pooled=replace(POOLED, step=2)), id="a model's step there is not"
        ),
        pytest.param(
            replace(attribution(), pooled=replace(POOLED, right=5.0)), id="right more than labelled"
        ),
        pytest.param(replace(attribution(), pooled=replace(POOLED, weight=1.5)), id="more than full weight"),
        pytest.param(attribution(replace(BLAME, step=2)), id="a step there is not"),
        pytest.param(attribution(replace(BLAME, step=-1)), id="a step before the first"),
        pytest.param(attribution(replace(BLAME, confidence=1.5)), id="more than certain"),
        pytest.param(
            attribution(replace(BLAME, status=Status.SUSPECTED, failed_probability=1.5)),
            id="more than certainly failed",
        ),
        pytest.param(attribution(replace(BLAME, failed_probability=0.9)), id="perhaps failed, but blamed"),
        pytest.param(
            attribution(replace(BLAME, evidence=(Evidence(step=9, quote=""),))), id="evidence elsewhere"
        ),
    ],
)
def test_an_attribution_that_cannot_be_of_this_run_is_not_believed(told: Attribution) -> None:
    with pytest.raises(UnreadableInput):
        read_answer(write_answer(told), FAILED)


async def test_a_question_asked_again_while_it_is_thought_about_and_after_is_analysed_once() -> None:
    analyst = Thinking()
    async with serving(analyst) as url, asking(url) as ask:
        both = [asyncio.create_task(ask(FAILED)) for _ in range(2)]
        await analyst.begun.wait()
        analyst.may_answer.set()
        assert await asyncio.gather(*both) == [attribution()] * 2
        assert await ask(FAILED) == attribution()
        assert analyst.asked == 1


async def test_an_analysis_goes_on_when_whoever_asked_hangs_up_and_is_there_for_the_next() -> None:
    analyst = Thinking()
    async with serving(analyst) as url, asking(url) as ask:
        first = asyncio.create_task(ask(FAILED))
        await analyst.begun.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        analyst.may_answer.set()
        assert await ask(FAILED) == attribution()
        assert analyst.asked == 1


async def test_an_answer_in_which_a_model_failed_is_not_kept() -> None:
    analyst = Thinking(says=replace(attribution(), fallback="signals, because judge failed: HTTP 500"))
    analyst.may_answer.set()
    async with serving(analyst) as url, asking(url) as ask:
        await ask(FAILED)
        await ask(FAILED)
    assert analyst.asked == 2


async def test_kept_answers_are_bounded() -> None:
    answers = Answers(at_once=1, max_kept=2)
    asked: list[bytes] = []

    def asking_for(key: bytes) -> asyncio.Future[Attribution]:
        async def analyse() -> Attribution:
            asked.append(key)
            return attribution()

        return answers.ask(key, analyse)

    for key in (b"1", b"2", b"3", b"1"):
        await asking_for(key)
    assert asked == [b"1", b"2", b"3", b"1"]


async def test_beyond_what_is_analysed_at_once_the_next_is_told_to_come_again() -> None:
    answers = Answers(at_once=1)

    async def analyse() -> Attribution:
        await asyncio.Event().wait()
        return attribution()

    answers.ask(b"1", analyse)
    with pytest.raises(BusyError):
        answers.ask(b"2", analyse)
    await answers.drain(0.0)
    assert answers.under_way == 0


async def test_a_busy_analyzer_is_asked_until_it_has_room() -> None:
    analyst, other = Thinking(), replace(FAILED, run_id="c" * 32)
    async with serving(analyst, at_once=1) as url, asking(url) as ask:
        first = asyncio.create_task(ask(FAILED))
        await analyst.begun.wait()
        second = asyncio.create_task(ask(other))
        for _ in range(10 * TRIES):
            await asyncio.sleep(0.01)
        assert not second.done()
        analyst.says = replace(attribution(), run_id=other.run_id)
        analyst.may_answer.set()
        await asyncio.gather(first, return_exceptions=True)
        assert (await second).run_id == other.run_id


async def test_signs_of_life_come_before_the_answer() -> None:
    analyst = Thinking()
    server = AnalyzerServer(analyst, HERE, AnalyzerRules(at_once=1, max_run_bytes=1 << 20, beat_s=0.01))
    port = await server.start()
    url = f"http://127.0.0.1:{port}{PATH}"
    async with aiohttp.ClientSession() as session, session.post(url, data=write_run(FAILED)) as response:
        assert await response.content.readexactly(3) == b"\n\n\n"
        analyst.may_answer.set()
        assert read_answer(await response.read(), FAILED) == attribution()
    await server.stop(1.0)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"", []),
        (b"\n\n", []),
        (b'{"calls":1,"cost_usd":0.5}\n\n{"calls":2,"cost_usd":0.75}\n', [(1, 0.5), (2, 0.75)]),
    ],
)
async def test_progress_comes_before_the_answer_or_not_at_all(
    lines: bytes, told: list[tuple[int, float]]
) -> None:
    found: list[Progress] = []
    body = lines + write_answer(attribution())
    async with answering(lambda _request: web.Response(body=body)) as (url, _), asking(url) as ask:
        assert await ask(FAILED, None, found.append) == attribution()
    assert [(one.calls, one.cost_usd) for one in found] == told


@pytest.mark.parametrize(
    "line",
    [b"no JSON", b'{"calls":-1}', b'{"calls":1e99}', b'{"cost_usd":NaN}', b'{"cost_usd":-1}', b"[" * 99_999],
)
async def test_a_line_that_is_no_progress_is_refused(line: bytes) -> None:
    body = line + b"\n" + write_answer(attribution())
    async with answering(lambda _request: web.Response(body=body)) as (url, _), asking(url) as ask:
        with pytest.raises(UnreadableInput, match="expected a line of progress"):
            await ask(FAILED, None, lambda _: None)


async def test_a_run_that_is_too_large_or_none_is_refused_and_not_sent_again() -> None:
    analyst = Thinking()
    async with serving(analyst, max_run_bytes=100) as url, asking(url) as ask:
        with pytest.raises(AwayError, match="HTTP 413"):
            await ask(FAILED)
        async with aiohttp.ClientSession() as session, session.post(url + PATH, data=b"{}") as response:
            assert (response.status, await response.text()) == (
                400,
                "expected a run as JSON, as a collector half writes it\n",
            )
    assert analyst.asked == 0


async def test_a_faulty_analyzer_is_tried_a_few_times_and_the_next_run_does_not_wait_as_long() -> None:
    async with answering(lambda _request: web.Response(status=500)) as (url, came), asking(url) as ask:
        with pytest.raises(AwayError, match="HTTP 500"):
            await ask(FAILED)
        assert len(came) == TRIES
        with pytest.raises(AwayError):
            await ask(FAILED)
        assert len(came) == TRIES + 1


@pytest.mark.parametrize("status", [307, 401, 404])
async def test_a_refusal_is_not_argued_with_and_a_redirect_not_followed(status: int) -> None:
    def elsewhere(_request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": PATH})

    async with answering(elsewhere) as (url, came), asking(url) as ask:
        with pytest.raises(AwayError, match=f"HTTP {status}"):
            await ask(FAILED)
        assert len(came) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"x" * (5 << 20)], ids=["none", "page", "empty", "large"]
)
async def test_what_is_no_attribution_leaves_the_verdict_to_signals_and_says_so(body: bytes) -> None:
    async with answering(lambda _request: web.Response(body=body)) as (url, _), asking(url) as ask:
        analysis = await RemoteAnalyst(ask=ask, local=LOCAL).analyse(FAILED)
    assert analysis.attribution.method == "signals"
    assert (analysis.attribution.fallback or "").startswith("signals, because the analyzer failed: ")
    assert '"fallback": "signals, because' in analysis.document


async def test_a_run_that_went_well_is_not_sent() -> None:
    well = replace(FAILED, steps=FAILED.steps[:1], root_status=SpanStatus.OK, root_error="")
    async with answering(lambda _request: web.Response(status=500)) as (url, came), asking(url) as ask:
        analysis = await RemoteAnalyst(ask=ask, local=LOCAL).analyse(well)
    assert analysis.attribution.status is Status.NO_FAILURE
    assert came == []
