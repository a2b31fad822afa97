"""The hour's budget of an analyzer that is killed at many points of its analyses.

The model's server is the witness: it counts the calls that it received. Whatever the moment of a kill, the
analyzer's account is never below what the server charged, above it by no more than the calls that were cut
short, and never above the budget.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from analyzer.executor.codec import PATH, write_run
from semconv.model import SpanStatus, Trajectory
from tests.backends.supervise import wait_until
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.e2e.test_faults_model import PRICED
from tests.e2e.test_halves import Asked, StartAnalyzer, start_analyzer
from tests.e2e.test_line_model import VERDICT, in_background, settings_for
from tests.runs import run, step

__all__ = ["start_analyzer"]

TOKENS_USD: Final = 100 * 0.15e-6 + 20 * 0.6e-6
"""What the server charges for a call: its usage at the model's list price."""
AT_ONCE: Final = 3
SPENT: Final = "blamespan_budget_spent_usd"
POINTS: Final = (*((calls, pause_s) for calls in (1, 2, 3, 5) for pause_s in (0.0, 0.05)), (0, 0.1))
"""When each process is killed: so many calls after its start, and so many seconds later."""


def failed(number: int) -> Trajectory:
    steps = [step(f"agent{place}", f"did thing {place} of {number}") for place in range(8)]
    return replace(run(*steps, task=f"task {number}"), root_status=SpanStatus.ERROR)


@contextmanager
def asking(analyzer: Asked, first: int) -> Iterator[None]:
    """Have runs analysed meanwhile; an analyzer that dies answers nothing."""

    def ask(number: int) -> None:
        request = Request(
            f"http://{analyzer.address}{PATH}",
            write_run(failed(number)),
            {"Content-Type": "application/json"},
        )
        with suppress(URLError, HTTPException, ConnectionError), urlopen(request, timeout=300) as answer:
            answer.read()

    threads = [threading.Thread(target=ask, args=(first + place,)) for place in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def settings(model: ModelServer, folder: Path, budget_usd: float) -> dict[str, str]:
    return settings_for(model) | {
        "model": PRICED,
        "method": "verify",
        "data_dir": str(folder),
        "budget_usd_per_hour": f"{budget_usd:.8f}",
    }


def reserved_for(start: StartAnalyzer, model: ModelServer, folder: Path, answered: int = 0) -> float:
    """Return the amount reserved for the call after so many answers: what is spent after a kill in it."""
    known = len(model.received)
    model.held_from = known + answered
    model.may_answer.clear()
    analyzer = start(**settings(model, folder, 1.0))
    with asking(analyzer, 1000):  # no later run has a longer number
        wait_until(lambda: len(model.received) == known + answered + AT_ONCE, what="the questions")
        analyzer.server.kill()
    model.may_answer.set()
    again = start(**settings(model, folder, 1.0))
    wait_until(lambda: again.count(SPENT) > 0, what="the account")
    spent = again.count(SPENT)
    again.server.kill()
    return (spent - answered * TOKENS_USD) / AT_ONCE


@pytest.mark.timeout(1_800)
def test_the_account_is_right_to_the_calls_that_were_cut_short(
    start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    with in_background(serve(Scripted(text=VERDICT, delay_s=0.01))) as model:
        first = reserved_for(start_analyzer, model, tmp_path / "first")
        second = reserved_for(start_analyzer, model, tmp_path / "second", answered=AT_ONCE)
        most = max(first, second)
        before, budget = len(model.received), 30 * most
        assert most > TOKENS_USD
        for kills, (calls, pause_s) in enumerate((*POINTS, (0, 0.0))):
            analyzer = start_analyzer(**settings(model, tmp_path / "kept", budget))
            spent, known = analyzer.count(SPENT), len(model.received)
            charged = (known - before) * TOKENS_USD
            print(f"{kills} kills: {known - before} calls, ${charged:.6f} of ${spent:.6f}")
            assert charged <= spent + 1e-9, "never below what was charged"
            assert spent <= min(budget, charged + kills * AT_ONCE * most) + 1e-9
            with asking(analyzer, 100 * kills + 100):
                wait_until(lambda: len(model.received) >= known + calls, what="calls")  # noqa: B023 - at once
                threading.Event().wait(pause_s)
                analyzer.server.kill()


@pytest.mark.timeout(1_800)
def test_no_call_is_made_beyond_the_budget_however_often_it_is_killed(
    start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    """Each process is killed while it asks: each call stays reserved, until none fits any more."""
    with in_background(serve(Scripted(text=VERDICT))) as model:
        most = reserved_for(start_analyzer, model, tmp_path / "probe")
        before, budget = len(model.received), 7.5 * most
        model.may_answer.clear()
        for kills in range(1, 5):
            analyzer = start_analyzer(**settings(model, tmp_path / "kept", budget))
            known = len(model.received)
            room = min(AT_ONCE, int((budget - analyzer.count(SPENT)) / most))
            with asking(analyzer, 100 * kills):
                wait_until(lambda: len(model.received) >= known + room, what="calls")  # noqa: B023 - at once
                if room:
                    analyzer.server.kill()
            assert len(model.received) - before <= budget / most
            analyzer.server.kill()
        assert len(model.received) - before == 7
        last = start_analyzer(**settings(model, tmp_path / "kept", budget))
        assert last.count(SPENT) == pytest.approx(7 * most, rel=0.05)
        model.may_answer.set()
