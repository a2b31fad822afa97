"""Decisions of ``blamespan experiment`` on the example systems, with their frameworks and real processes.

A failed run is recorded over OTLP by the system's own instrumentation, then passed to the command as a
file. Environments are those of ``tests.frameworks.install``, created if necessary.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.methods.without_model import judge_by_signals
from benchmarks.experiment.systems import Order, decisive, known, order, scripted_model, succeeded
from collector_processor.rebuild.stages import rebuild
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import install

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "systems"
ENVIRONMENTS: Final = {
    "pipeline": "openai_agents_openinference",
    "orchestrator": "langgraph_openinference",
    "debate": "ag2_native",
}
"""The run script whose environment holds the system's framework and instrumentation."""
PLAY_S: Final = 120.0


async def through_command(system: str, number: int, out: Path) -> None:
    """Measure a number of failed runs of one system; append them to the file."""
    command = [str(install(catalogue()[ENVIRONMENTS[system]])), str(EXAMPLES / f"{system}.py")]
    done = [each for each in known(out) if each["system"] == system]
    task = max((each["order"] for each in done), default=-1)
    async with scripted_model(seed=1) as url, receiver() as (endpoint, bodies):
        while len(done) < number:
            task += 1
            bodies.clear()
            recording = {"OPENAI_BASE_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
            said, _ = await run_program([*command, str(task)], recording, PLAY_S)
            if succeeded(order(task), said):
                continue
            done.append(await _measured(system, order(task), b"".join(bodies), command, url))
            with out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")


async def retried_through_command(system: str, number: int) -> None:
    """Record runs of a system's framework, passing and failing, and print ``experiment --retry`` on them."""
    python = str(install(catalogue()[ENVIRONMENTS[system]]))
    program = [python, str(EXAMPLES / f"{system}.py")]
    with tempfile.TemporaryDirectory() as folder:
        async with scripted_model(seed=1) as url, receiver() as (endpoint, bodies):
            for task in range(30_000, 30_000 + number):
                bodies.clear()
                recording = {"OPENAI_BASE_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
                await run_program([*program, str(task)], recording, PLAY_S)
                await asyncio.to_thread(Path(folder, f"{task}.otlp").write_bytes, b"".join(bodies))
            check = shlex.join([python, str(EXAMPLES / "check.py")])
            options = ["--check", check, "--upstream", url.removesuffix("/v1"), "--parallel", "2"]
            blamespan = [sys.executable, "-m", "analyzer", "experiment", folder, "--retry", *options]
            command = [*blamespan, "--allow-tool", "look_up_price", "--", *program]
            said, code = await run_program(command, {}, None)
    print(f"{said}exit code {code}", flush=True)


@asynccontextmanager
async def receiver() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Keep what is sent over OTLP/HTTP: the bodies of requests make one message when joined."""
    bodies: list[bytes] = []

    async def keep(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    application = web.Application(client_max_size=64 << 20)
    application.router.add_post("/v1/traces", keep)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", bodies
    finally:
        await runner.cleanup()


async def _measured(
    system: str, asked: Order, recorded: bytes, command: list[str], url: str
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.otlp"
        file.write_bytes(recorded)
        (run,) = rebuild([recorded], [])
        tape = read_tape(run)
        row: dict[str, Any] = {"system": system, "order": asked.number}
        if not isinstance(tape, Tape):
            return {**row, "decisive": None, "decision": "not_replayable", "reason": str(tape)}
        truth = decisive(system, asked, [call.answer.text for call in tape.calls])
        expected = ["--expect", f"answer = {asked.right['answer']}.", "--upstream", url.removesuffix("/v1")]
        options = ["--parallel", "2", "--allow-tool", "look_up_price", "--format", "json"]
        blamespan = [sys.executable, "-m", "analyzer", "experiment", str(file), *expected, *options, "--"]
        began = time.monotonic()
        said, code = await run_program([*blamespan, *command, str(asked.number)], {}, None)
    found = [json.loads(line) for line in said.splitlines()]
    last = found[-1] if found else {"decision": f"exit code {code}"}
    ranking = judge_by_signals(run.trajectory).ranking
    agents = {call.step: call.agent for call in tape.calls}
    step, suspected = None if truth is None else tape.calls[truth].step, ranking[0].step if ranking else None
    is_proved = last["decision"] == "proved"
    return {
        **row,
        "decisive": step,
        "decisive_agent": agents.get(step),
        "signals": suspected,
        "signals_agent": agents.get(suspected),
        "decision": last["decision"],
        "step": last["step"] if is_proved else None,
        "agent": last["agent"] if is_proved else None,
        "calls": last.get("calls", 0),
        "usd": last.get("cost_usd"),
        "trials": sum(_trials(each) for each in found if not each.get("final")),
        "seconds": round(time.monotonic() - began, 1),
        "exit": code,
        "reason": str(last.get("reason", ""))[:300],
    }


def _trials(line: dict[str, Any]) -> int:
    """Return the trials of a step's two arms; arms that steps share count for each."""
    arms = (line.get("control") or {}, line.get("treatment") or {})
    return sum(arm.get("n", 0) + arm.get("invalid", 0) for arm in arms)


async def run_program(
    command: list[str], environment: dict[str, str], limit_s: float | None
) -> tuple[str, int | None]:
    child = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "OPENAI_API_KEY": "none", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(limit_s):
        said, _ = await child.communicate()
    return said.decode(), child.returncode
