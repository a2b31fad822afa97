"""A trial's processes end with it, whatever they did; the budget is reserved before each call."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.replay.gateway_options import LiveCall, LiveUsage
from analyzer.experiment.workflow import (
    CheckFailed,
    Command,
    CommandCheck,
    Contains,
    Ended,
    Function,
    every,
    run_command,
)
from semconv.emit.tool_playback import TRIAL_VARIABLE

FAMILY = """
import os, subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
pids = [subprocess.Popen(sleeper).pid, subprocess.Popen(sleeper, start_new_session=True).pid]
open(sys.argv[1], "w").write(" ".join(map(str, [os.getpid(), *pids])))
print("hello", flush=True)
time.sleep(float(sys.argv[2]))
"""
ENVIRONMENT = {TRIAL_VARIABLE: f"http://127.0.0.1:1/t/{os.getpid():010}"}
"""Of this test process alone: the end of a trial kills all processes that have its variable."""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def all_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and any(map(is_running, pids)):  # noqa: ASYNC110 - others' processes
        await asyncio.sleep(0.05)
    return not any(map(is_running, pids))


def family(place: Path, seconds: float) -> Command:
    return Command(arguments=[sys.executable, "-c", FAMILY, str(place), str(seconds)])


def written(place: Path) -> list[int]:
    return [int(pid) for pid in place.read_text().split()] if place.exists() else []


async def pids_in(place: Path) -> list[int]:
    while len(pids := written(place)) < 3:  # noqa: ASYNC110 - another process writes the file
        await asyncio.sleep(0.02)
    return pids


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="children that left are found in /proc")
async def test_no_process_is_left_after_the_time_limit(tmp_path: Path) -> None:
    ended = await family(tmp_path / "pids", 600)(ENVIRONMENT, 8.0)
    assert ended.timed_out
    assert await all_gone(await pids_in(tmp_path / "pids"))


async def test_no_process_is_left_when_the_trial_is_cancelled(tmp_path: Path) -> None:
    running = asyncio.create_task(family(tmp_path / "pids", 600)(ENVIRONMENT, 600.0))
    pids = await pids_in(tmp_path / "pids")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await all_gone(pids)


async def test_a_child_that_holds_the_output_open_does_not_delay_the_end_of_a_trial(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    ended = await family(place, 0)(ENVIRONMENT, 60)
    assert (ended.output, ended.code) == ("hello\n", 0)
    assert await all_gone(written(place))


async def test_a_command_gets_the_trials_environment_and_its_output_is_kept() -> None:
    program = "import os, sys; print(os.environ['OPENAI_BASE_URL']); sys.exit(3)"
    ended = await Command(arguments=[sys.executable, "-c", program])({"OPENAI_BASE_URL": "u"}, 60)
    assert (ended.output.strip(), ended.code) == ("u", 3)


async def test_a_function_that_raises_has_failed() -> None:
    async def workflow(environment: Mapping[str, str]) -> str:
        raise ValueError(environment["x"])

    ended = await Function(call=workflow)({"x": "wrong"}, 60)
    assert (ended.code, ended.tail) == (1, "ValueError: wrong")


async def test_all_checks_must_pass() -> None:
    is_480 = CommandCheck(arguments=["grep", "-q", "480"])
    both = every([is_480, Contains(text="eur")])
    assert await both(Ended(output="480 eur"))
    assert not await both(Ended(output="450 eur"))
    assert not await both(Ended(output="480"))


async def test_a_check_that_cannot_run_does_not_count_as_a_failed_workflow() -> None:
    with pytest.raises(CheckFailed, match="--check /no/such"):
        await CommandCheck(arguments=["/no/such"])(Ended())


def call(model: str = "m", **body: object) -> LiveCall:
    return LiveCall(trial="t", model=model, body=json.dumps(body).encode())


def cents(model: str, sent: int, received: int) -> float | None:
    return None if model == "unknown" else (sent + received) * 0.001


async def test_calls_under_way_count_with_their_highest_cost() -> None:
    ledger = Ledger(cents, budget_usd=1.0)
    first, second = call(max_tokens=600), call(max_tokens=600)
    assert await ledger.reserve(first) == ""
    assert "budget of $1 is used up" in await ledger.reserve(second)
    await ledger.settle(first, LiveUsage(input_tokens=100, output_tokens=100))
    assert ledger.total.calls == 1
    assert ledger.total.cost_usd == pytest.approx(0.2)
    assert await ledger.reserve(second) == ""


async def test_a_model_of_unknown_price_needs_a_limit_of_calls() -> None:
    assert "expected --max-calls" in await Ledger(cents).reserve(call("unknown"))
    limited = Ledger(cents, max_calls=1)
    assert await limited.reserve(call("unknown")) == ""
    assert "--max-calls are used up" in await limited.reserve(call("unknown"))
    await limited.settle(call("unknown"), LiveUsage(input_tokens=1, output_tokens=1))
    assert limited.total.cost_usd is None


async def test_a_budget_of_zero_allows_free_models_and_no_unknown_prices() -> None:
    def price(model: str, _: int, __: int) -> float | None:
        return {"free": 0.0}.get(model)

    ledger = Ledger(price, budget_usd=0, max_calls=5)
    assert "unknown, and the budget is $0" in await ledger.reserve(call("unknown"))
    assert await ledger.reserve(call("free")) == ""


async def test_a_stream_without_usage_is_charged_by_its_length() -> None:
    ledger = Ledger(cents)
    asked = call(max_tokens=600)
    await ledger.reserve(asked)
    await ledger.settle(asked, LiveUsage(said_bytes=40))
    assert ledger.total.cost_usd == pytest.approx((len(asked.body) // 2 + 20) * 0.001)


async def test_ids_in_requests_do_not_make_draws_differ() -> None:
    ledger = Ledger(cents)
    for name in ("call_1", "call_2"):
        asked = call(messages=[{"role": "tool", "tool_call_id": name, "content": "5"}], temperature=0)
        await ledger.reserve(asked)
        await ledger.settle(asked, LiveUsage(answer="d"))
    one, other = ledger.draws("t")
    assert one == other
    assert one.is_greedy


def test_a_child_that_escapes_with_the_output_leaves_no_pipe_open() -> None:
    ended = asyncio.run(run_command(["sh", "-c", "echo hello; setsid sleep 20 &"], os.environ, b"", 60))
    assert (ended.output, ended.code) == ("hello\n", 0)
    gc.collect()  # finds a pipe that is still open, which fails the test
