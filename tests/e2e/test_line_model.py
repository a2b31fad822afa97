"""The service with a scripted language model over real HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from semconv.attributes import (
    EVALUATIONS_0_EVALUATION_ANNOTATOR_KIND,
    FAILURE_AGENT_NAME,
    FAILURE_EXPLANATION,
    FAILURE_FALLBACK,
    FAILURE_METHOD,
    FAILURE_MODEL,
    FAILURE_STEP_INDEX,
)
from semconv.markers import OWN_CALL_TRACE_PREFIX
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.e2e.spans import Placed, by_id, originals, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, play_demo, send, without_mistake

T = TypeVar("T")

MODEL: Final = "openai/scripted"
VERDICT: Final = json.dumps(
    {
        "reason": "the calculator misreported what its tool returned.",
        "step": 9,
        "agent": "calculator",
        "mode": "wrong_computation",
        "fix": "copy the tool's result",
        "evidence": [{"step": 9, "quote": "9,266.14"}],
        "ranking": [{"step": 9, "probability": 0.9}],
    }
)


@contextmanager
def in_background(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter an async context on an event loop in a separate thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        entered = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(60)
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(_end_others(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_others() -> None:
    """End the remaining tasks of this loop: aiohttp cancels its connections' tasks and does not wait for
    them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def settings_for(server: ModelServer) -> dict[str, str]:
    """Settings of a user with a local OpenAI-compatible server."""
    return {"model": MODEL, "OPENAI_API_BASE": server.url, "OPENAI_API_KEY": "none"}


def told_by(spans: list[Placed]) -> dict[str, Any]:
    (decisive,) = (one for one in spans if one.is_decisive)
    return decisive.attributes


def test_a_judges_verdict_is_on_the_carrier_with_the_models_name(start_line: StartLine) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as server:
        line = start_line(forward_endpoint=backend.url, **settings_for(server))
        well, played = play_demo(without_mistake), play_demo()
        send(line, well.body)
        send(line, played.body)

        spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

        carrier = told_by(spans)
        assert (carrier[FAILURE_METHOD], carrier[FAILURE_MODEL], carrier[FAILURE_FALLBACK]) == (
            "judge+signals",
            MODEL,
            "none",
        )
        assert (carrier[FAILURE_AGENT_NAME], carrier[FAILURE_STEP_INDEX]) == ("calculator", 9)
        assert carrier[FAILURE_EXPLANATION] == "the calculator misreported what its tool returned."
        assert carrier[EVALUATIONS_0_EVALUATION_ANNOTATOR_KIND] == "LLM"
        assert line.verdict(well.trace_id)["status"] == "no_failure"
        (asked,) = server.received  # and nothing about the run that went well
        assert asked.headers["traceparent"].split("-")[1].startswith(OWN_CALL_TRACE_PREFIX)
        assert originals(spans) == by_id(placed(played.body))


ENDLESS_IMPORT: Final = """
import pathlib, time
while not pathlib.Path(__file__).with_name("go on").exists():
    time.sleep(0.05)
LITELLM_EXCEPTION_TYPES = (TimeoutError,)
model_cost = {}
async def acompletion(**_):
    raise TimeoutError
"""
PATIENCE_S: Final = 20.0


def test_a_run_that_arrives_while_the_model_is_imported_delays_no_other(
    start_line: StartLine, tmp_path: Path
) -> None:
    """After a restart with a backlog, the loop waited for the import, and the probe had the pod killed."""
    (tmp_path / "litellm.py").write_text(ENDLESS_IMPORT)
    line = start_line(model=MODEL, PYTHONPATH=str(tmp_path))
    failed, well = play_demo(), play_demo(without_mistake)
    send(line, failed.body)
    send(line, well.body)
    wait_until(
        lambda: status_of(f"{line.web}/api/runs/{well.trace_id}") == 200, what="the run without a model"
    )
    for _ in range(20):
        assert status_of(f"{line.web}/healthz") == 200
        assert status_of(f"{line.web}/readyz") == 503
        time.sleep(0.1)
    (tmp_path / "go on").touch()
    wait_until(lambda: status_of(f"{line.web}/readyz") == 200, what="a service that is ready")


def status_of(url: str) -> int:
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        with refusal:
            return refusal.code
