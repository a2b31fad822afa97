"""``blamespan bench`` with a model over HTTP: cached replies, and a server that dies halfway."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.backends.forked import ran
from tests.e2e.line import environment
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.web_application import served

EVIDENCE = [{"step": 1, "quote": "B says"}]
RANKING = [{"step": 1, "probability": 0.6}]
JUDGED = Scripted(
    text=json.dumps({"reason": "r", "step": 1, "agent": "B", "ranking": RANKING, "evidence": EVIDENCE})
)
RUNS = 4
LIVES = 2
AT_ONCE = ("--concurrency", str(RUNS))


@dataclass(slots=True, kw_only=True)
class Dying(ModelServer):
    """Answers a few calls; then closes every connection, as if the process had been killed."""

    lives: int = LIVES

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer or close the connection."""
        if self.lives > 0:
            self.lives -= 1  # before any await: requests are concurrent
            return await ModelServer.handle(self, request)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    logs = [
        {
            "id": f"r{n}",
            "subset": "s",
            "question": "q",
            "history": [{"role": agent, "content": f"{agent} says {n}"} for agent in "ABC"],
            "label": {"agent": "B", "step": 1},
        }
        for n in range(RUNS)
    ]
    path.write_text("\n".join(json.dumps(log) for log in logs))
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    total: dict[str, Any]
    err: str


async def bench(dataset: Path, url: str, *options: str, method: str = "judge") -> Statement:
    data = str(dataset.parent / "data")
    model = {"OPENAI_API_BASE": url, "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "analyzer", "bench", str(dataset), "--method", method]
    command += ["--model", "openai/local", "--format", "json", *options]
    done = await asyncio.to_thread(ran, command, environ=environment(data_dir=data, **model))
    assert done.returncode == 0, done.stderr
    return Statement(total=json.loads(done.stdout.splitlines()[-1]), err=done.stderr)


async def test_a_second_run_makes_no_call_and_gives_the_same_figures(dataset: Path) -> None:
    kept = ("--cache", str(dataset.parent / "kept"))
    async with serve(JUDGED) as server:
        first = await bench(dataset, server.url, *kept)
        assert len(server.received) == RUNS
        second = await bench(dataset, server.url, *kept)
        assert len(server.received) == RUNS
        assert f"{RUNS} of {RUNS} replies came from the cache" in second.err
        assert first.total["step_accuracy"] == 1.0
        first.total.pop("duration_s")
        second.total.pop("duration_s")
        assert first.total == second.total
        await bench(dataset, server.url, *kept, "--no-cache")
        assert len(server.received) == 2 * RUNS


async def test_a_benchmark_spends_no_more_than_its_budget(dataset: Path) -> None:
    async with serve(JUDGED) as server:
        told = await bench(dataset, server.url, "--model", "openai/gpt-4o-mini", "--budget-usd", "0")
        assert (server.received, told.total["errors"]) == ([], RUNS)
        assert f"{RUNS} × " in told.err  # noqa: RUF001 - the sign as it is printed
        assert "the budget of $0 for this benchmark is used up" in told.err


async def test_a_server_killed_half_way_gives_errors_and_the_benchmark_resumes(dataset: Path) -> None:
    async with dying() as server:
        cut = await bench(dataset, server.url, *AT_ONCE)
        assert len(server.received) == LIVES
        assert (cut.total["fallbacks"], cut.total["errors"]) == (0, RUNS - LIVES)
        assert cut.total["step_accuracy"] == LIVES / RUNS, "an error is a wrong answer"
        assert f"{RUNS - LIVES} × model call failed" in cut.err  # noqa: RUF001 - the sign as it is printed
        server.lives = 1_000
        whole = await bench(dataset, server.url)
        assert len(server.received) == RUNS, "only what had failed was asked again"
        assert (whole.total["step_accuracy"], whole.total["errors"]) == (1.0, 0)


async def test_where_signals_answer_in_a_dead_models_place_the_figures_say_so(dataset: Path) -> None:
    async with dying() as server:
        cut = await bench(dataset, server.url, *AT_ONCE, method="auto")
        assert (cut.total["fallbacks"], cut.total["errors"]) == (RUNS - LIVES, 0)


@pytest.mark.parametrize(("method", "fallbacks"), [("judge", 0), ("auto", RUNS - LIVES)])
async def test_a_model_whose_process_is_killed_is_reported_and_counted(
    dataset: Path, method: str, fallbacks: int
) -> None:
    async with model_process() as model:
        measuring = asyncio.create_task(bench(dataset, model.url, *AT_ONCE, method=method))
        await model.has_answered()
        model.process.send_signal(signal.SIGKILL)
        assert await model.process.wait() == -signal.SIGKILL
        cut = await measuring
        lost = RUNS - LIVES
        assert (cut.total["fallbacks"], cut.total["errors"]) == (fallbacks, lost - fallbacks)
        assert cut.total["calls"] >= RUNS, "what was asked and never answered was asked all the same"
        if method == "judge":
            assert cut.total["step_accuracy"] == LIVES / RUNS
            assert f"{lost} × model call failed" in cut.err  # noqa: RUF001 - the sign as it is printed


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProcess:
    """A model in its own process: it answers ``LIVES`` calls and keeps all others waiting."""

    process: asyncio.subprocess.Process
    url: str

    async def has_answered(self) -> None:
        """Wait until its answers are sent and all other questions have arrived."""
        assert self.process.stdout is not None
        said = [await self.process.stdout.readline() for _ in range(RUNS)]
        assert sorted(said) == [b"answered\n"] * LIVES + [b"waiting\n"] * (RUNS - LIVES)


@asynccontextmanager
async def model_process() -> AsyncIterator[ModelProcess]:
    """Run ``tests.e2e.mortal_model`` until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.e2e.mortal_model", str(LIVES), JUDGED.text),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        yield ModelProcess(process=process, url=(await process.stdout.readline()).decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def dying() -> AsyncIterator[Dying]:
    """Run a server that dies after a few answers."""
    server = Dying(script=[JUDGED])
    application = web.Application()
    application.router.add_post("/v1/chat/completions", server.handle)
    async with served(application) as address:
        server.url = f"{address}/v1"
        yield server
