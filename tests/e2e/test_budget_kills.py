"""The hour's budget of an analyzer that is killed at many points of its analyses.

The model's server is the witness: it counts the calls that it received. Whatever the moment of a kill, the
analyzer's account is never below what the server charged, above it by no more than the calls that were cut
short, and never above the budget.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import pytest

from semconv.model import SpanStatus, Trajectory
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.e2e.test_faults_model import PRICED
from tests.e2e.test_halves import StartAnalyzer, asking, start_analyzer
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


def runs(first: int) -> list[Trajectory]:
    return [failed(first + place) for place in range(AT_ONCE)]


def settings(model: ModelServer, url: str, budget_usd: float) -> dict[str, str]:
    return settings_for(model) | {
        "model": PRICED,
        "method": "verify",
        "store_url": url,
        "budget_usd_per_hour": f"{budget_usd:.8f}",
    }


def reserved_for(start: StartAnalyzer, model: ModelServer, url: str, answered: int = 0) -> float:
    """Return the amount reserved for the call after so many answers: what is spent after a kill in it."""
    known = len(model.received)
    model.held_from = known + answered
    model.may_answer.clear()
    analyzer = start(**settings(model, url, 1.0))
    with asking(url, *runs(1000)):  # no later run has a longer number
        wait_until(lambda: len(model.received) == known + answered + AT_ONCE, what="the questions")
        analyzer.server.kill()
    model.may_answer.set()
    again = start(**settings(model, url, 1.0))
    wait_until(lambda: again.count(SPENT) > 0, what="the account")
    spent = again.count(SPENT)
    again.server.kill()
    return (spent - answered * TOKENS_USD) / AT_ONCE


@pytest.mark.timeout(1_800)
def test_the_account_is_right_to_the_calls_that_were_cut_short(
    server: PostgresServer, start_analyzer: StartAnalyzer
) -> None:
    with in_background(serve(Scripted(text=VERDICT, delay_s=0.01))) as model:
        first = reserved_for(start_analyzer, model, server.create("first"))
        second = reserved_for(start_analyzer, model, server.create("second"), answered=AT_ONCE)
        most = max(first, second)
        before, budget, kept = len(model.received), 30 * most, server.create("kept")
        assert most > TOKENS_USD
        for kills, (calls, pause_s) in enumerate((*POINTS, (0, 0.0))):
            analyzer = start_analyzer(**settings(model, kept, budget))
            spent, known = analyzer.count(SPENT), len(model.received)
            charged = (known - before) * TOKENS_USD
            print(f"{kills} kills: {known - before} calls, ${charged:.6f} of ${spent:.6f}")
            assert charged <= spent + 1e-9, "never below what was charged"
            assert spent <= min(budget, charged + kills * AT_ONCE * most) + 1e-9
            with asking(kept, *runs(100 * kills + 100)):
                wait_until(lambda: len(model.received) >= known + calls, what="calls")  # noqa: B023 - at once
                threading.Event().wait(pause_s)
                analyzer.server.kill()


@pytest.mark.timeout(1_800)
def test_no_call_is_made_beyond_the_budget_however_often_it_is_killed(
    server: PostgresServer, start_analyzer: StartAnalyzer
) -> None:
    """Each process is killed while it asks: each call stays reserved, until none fits any more."""
    with in_background(serve(Scripted(text=VERDICT))) as model:
        most = reserved_for(start_analyzer, model, server.create("probe"))
        before, budget, kept = len(model.received), 7.5 * most, server.create("kept")
        model.may_answer.clear()
        for kills in range(1, 5):
            analyzer = start_analyzer(**settings(model, kept, budget))
            known = len(model.received)
            room = min(AT_ONCE, int((budget - analyzer.count(SPENT)) / most))
            with asking(kept, *runs(100 * kills)) as is_answered:
                wait_until(lambda: len(model.received) >= known + room, what="calls")  # noqa: B023 - at once
                if not room:
                    wait_until(is_answered, what="answers without a call")
                analyzer.server.kill()
            assert len(model.received) - before <= budget / most
        assert len(model.received) - before == 7
        last = start_analyzer(**settings(model, kept, budget))
        assert last.count(SPENT) == pytest.approx(7 * most, rel=0.05)
        model.may_answer.set()
