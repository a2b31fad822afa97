"""The value of an answer: zero if it can change nothing, and never more than it can gain."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.posterior import (
    RIGHT_STEP_USD,
    SIGNALS_ACCURACY,
    Worth,
    belief_in_signals,
    log_softmax,
    worth_of,
)
from analyzer.methods.attribution import Attributor
from semconv.model import Status
from tests.runs import run, step

JUDGE = 0.45
BELIEFS = st.lists(st.floats(-8, 8), min_size=1, max_size=40).map(log_softmax)
RUN = run(*(step(f"agent{n}", f"said {n}") for n in range(5)), task="t")
EVIDENCE = [{"step": 1, "quote": "said 1"}]
JUDGED = json.dumps({"reason": "r", "step": 1, "agent": "agent1", "ranking": [], "evidence": EVIDENCE})


@given(BELIEFS, st.floats(0.01, 1))
def test_an_answer_is_worth_no_more_than_being_right_instead_of_wrong(
    shares: tuple[float, ...], accuracy: float
) -> None:
    worth = worth_of(shares, accuracy)
    assert 0 <= worth.gain <= 1 - math.exp(max(shares)) + 1e-9
    assert worth.usd == worth.gain * RIGHT_STEP_USD


@given(BELIEFS)
def test_a_better_expert_is_worth_no_less(shares: tuple[float, ...]) -> None:
    even = 1 / len(shares)
    gains = [worth_of(shares, even + (1 - even) * share / 10).gain for share in range(11)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(gains))


def test_who_is_sure_needs_no_answer_and_who_knows_nothing_gains_what_the_expert_knows() -> None:
    assert not worth_of(log_softmax([9.0, 0.0, 0.0]), JUDGE).is_any
    assert worth_of(log_softmax([0.0] * 10), JUDGE).gain == pytest.approx(JUDGE - 0.1)
    assert not worth_of((0.0,), JUDGE).is_any
    assert not worth_of((), JUDGE).is_any


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 100])
def test_signals_are_believed_as_often_as_they_are_right(steps: int) -> None:
    shares = belief_in_signals(steps)
    assert len(shares) == steps
    if steps:
        assert sum(map(math.exp, shares)) == pytest.approx(1)
        assert math.exp(max(shares)) == pytest.approx(max(SIGNALS_ACCURACY, 1 / steps))


def test_the_smaller_of_worth_and_budget_is_spent() -> None:
    worth = Worth(gain=0.1, usd=0.5)
    assert worth.limit(0.2) == (0.2, "a run")
    assert worth.limit(2.0)[0] == worth.limit(None)[0] == 0.5
    assert "by 10%" in worth.limit(None)[1]


@pytest.mark.parametrize(
    ("shares", "gain", "most"),
    [
        (belief_in_signals(10), 0.25, 0.5),
        (log_softmax([math.log(0.4), *[math.log(0.6 / 9)] * 9]), 0.05, 0.25),
        (log_softmax([math.log(0.8), *[math.log(0.2 / 9)] * 9]), 0.0, 0.0),
    ],
)
def test_the_figures_of_the_page_on_methods(shares: tuple[float, ...], gain: float, most: float) -> None:
    worth = worth_of(shares, JUDGE)
    assert worth.gain == pytest.approx(gain)
    assert worth.limit(0.5)[0] == pytest.approx(most)


@pytest.mark.parametrize(
    ("price", "method", "calls"),
    [
        pytest.param(None, "judge+signals", 1, id="nobody knows the price"),
        pytest.param(0.0, "judge+signals", 1, id="free"),
        pytest.param(1.0, "judge+signals", 1, id="worth it"),
        pytest.param(2.0, "signals", 0, id="too dear for what it brings"),
    ],
)
async def test_auto_spends_what_the_answer_is_worth_and_says_where_it_did_not(
    price: float | None, method: str, calls: int
) -> None:
    """Among five steps a judge is expected to add 25 points to the 20 of signals: 1.25 USD."""
    model = ScriptedModel(replies=[JUDGED], cost_usd=price)
    found = await Attributor(model=model, budget_usd=None)(RUN)
    assert (found.method, len(model.prompts), found.status) == (method, calls, Status.ATTRIBUTED)
    assert bool(found.fallback) is not bool(calls)
    if found.fallback:
        assert "the budget of $1.25 for an answer that raises the chance of the right step by 25%" in (
            found.fallback
        )


async def test_a_method_that_was_asked_for_by_name_is_not_haggled_over() -> None:
    model = ScriptedModel(replies=[JUDGED], cost_usd=2.0)
    found = await Attributor(method="judge", model=model, budget_usd=None)(RUN)
    assert (found.status, len(model.prompts)) == (Status.ATTRIBUTED, 1)


async def test_where_there_is_one_step_there_is_nothing_to_ask() -> None:
    model = ScriptedModel(replies=[JUDGED])
    found = await Attributor(model=model)(run(step("a", "failed")))
    assert (found.method, len(model.prompts), found.fallback) == ("signals", 0, None)
